/** The mixture of Theorem 1 and its PSMI, by quadrature over directions. No DOM. */

import { normals, uniforms } from "./chance.js";

const RARE = 0.1;
const WIDE = 3;
const WIDEST = 64; // dimensions
export const DIMENSIONS = [1, 2, 4, 8, 16, 32, WIDEST];
export const SEPARATIONS = 6;

/**
 * @typedef {object} Mixture
 * @property {number} epsilon
 * @property {number} separation
 * @property {number} dimension
 * @property {boolean} imbalance
 * @property {boolean} overlap
 * @property {boolean} heavy_tails
 */

/**
 * All random numbers. Every setting uses the same ones.
 * @param {number} n
 * @param {number} seed
 */
export function worldOf(n, seed) {
  const noise = normals(1 + 4 * seed, 0, n * WIDEST);
  const lengths = new Float64Array(n * WIDEST); // of all but the first coordinate, squared
  for (let i = 0; i < n; i++) {
    for (let j = 1; j < WIDEST; j++) {
      lengths[i * WIDEST + j] =
        lengths[i * WIDEST + j - 1] + noise[i * WIDEST + j] ** 2;
    }
  }
  return { n, noise, lengths, coins: uniforms(2 + 4 * seed, 0, 4 * n) };
}

/** @typedef {ReturnType<typeof worldOf>} World */

/**
 * Samples by their place along the axis of the class means, and their distance from that axis.
 * @typedef {object} Samples
 * @property {Float64Array} t  along the axis of the means
 * @property {Float64Array} r  distance from it
 * @property {Float64Array} side  one coordinate across, for drawing
 * @property {Uint8Array} labels
 * @property {Uint8Array} kinds  0 no outlier, 1 outlier with its right label, 2 with a wrong one
 */

/** @param {number} n @returns {Samples} */
export function roomFor(n) {
  const floats = () => new Float64Array(n);
  return {
    t: floats(),
    r: floats(),
    side: floats(),
    labels: new Uint8Array(n),
    kinds: new Uint8Array(n),
  };
}

/**
 * @param {World} world
 * @param {Mixture} mixture
 * @param {Samples} samples  filled
 */
export function sample(world, mixture, samples) {
  const { coins, noise, lengths } = world;
  const first = mixture.imbalance ? RARE : 0.5;
  for (let i = 0; i < world.n; i++) {
    const own = coins[4 * i] < first ? 1 : 0;
    const tossed = coins[4 * i + 1] < mixture.epsilon;
    const label = tossed ? (coins[4 * i + 2] < 0.5 ? 1 : 0) : own;
    let scale = mixture.overlap ? WIDE : 1;
    if (mixture.heavy_tails) scale /= Math.sqrt(-Math.log(coins[4 * i + 3]));
    samples.labels[i] = label;
    samples.kinds[i] = tossed ? (label === own ? 1 : 2) : 0;
    samples.t[i] = (own - 0.5) * mixture.separation + scale * noise[i * WIDEST];
    samples.r[i] = scale * Math.sqrt(lengths[i * WIDEST + mixture.dimension - 1]);
    samples.side[i] = scale * noise[i * WIDEST + 1];
  }
}

/* ---------------------------------------------------------------- quadrature */

/**
 * Gauss's nodes and weights, which sum to 1, for the weight (1 − x²)^(α − 1/2) on −1…1: roots of
 * the orthonormal polynomial, found between changes of its sign.
 * @param {number} n
 * @param {number} alpha  at least 0
 */
export function gegenbauer(n, alpha) {
  const b = Array.from({ length: n + 1 }, (_, k) => {
    if (k === 0) return 1;
    if (k === 1) return Math.sqrt(1 / (2 * (1 + alpha)));
    return Math.sqrt((k * (k + 2 * alpha - 1)) / (4 * (k + alpha) * (k + alpha - 1)));
  });
  /** @param {number} x */
  const evaluate = (x) => {
    let [before, here, squares] = [0, 1, 1];
    for (let k = 1; k <= n; k++) {
      [before, here] = [here, (x * here - (k > 1 ? b[k - 1] * before : 0)) / b[k]];
      if (k < n) squares += here * here;
    }
    return { value: here, squares };
  };
  const grid = 60 * n;
  /** @param {number} i */
  const place = (i) => -Math.cos((Math.PI * i) / grid);
  const nodes = [];
  let low = evaluate(-1).value;
  for (let i = 0; i < grid; i++) {
    const high = evaluate(place(i + 1)).value;
    if (low * high < 0) nodes.push(rootBetween(evaluate, place(i), place(i + 1)));
    else if (high === 0 && i + 1 < grid) nodes.push(place(i + 1));
    low = high;
  }
  return nodes.map((x) => ({ x, weight: 1 / evaluate(x).squares }));
}

/**
 * @param {(x: number) => {value: number}} evaluate
 * @param {number} from
 * @param {number} to
 */
function rootBetween(evaluate, from, to) {
  let [low, high] = [from, to];
  const sign = Math.sign(evaluate(low).value);
  for (let i = 0; i < 60; i++) {
    const middle = (low + high) / 2;
    if (Math.sign(evaluate(middle).value) === sign) low = middle;
    else high = middle;
  }
  return (low + high) / 2;
}

/**
 * Directions that stand for all: their cosine with the axis of the means, and the cosine, within
 * the other dimensions, with a sample. Opposite directions count once, and each stands for a pair
 * with the second cosine of either sign.
 * @param {number} dimension
 * @returns {{along: number, across: number, weight: number}[]}
 */
export function directionsFor(dimension) {
  if (dimension === 1) return [{ along: 1, across: 0, weight: 0.5 }];
  const nAlong = dimension === 2 ? 48 : dimension <= 4 ? 20 : 12;
  const across =
    dimension === 2 ? [{ x: 1, weight: 0.5 }] : gegenbauer(10, (dimension - 3) / 2);
  const half = gegenbauer(nAlong, (dimension - 2) / 2).filter(({ x }) => x > 0);
  return half.flatMap(({ x, weight }) =>
    across
      .filter((other) => other.x > 0)
      .map((other) => ({
        along: x,
        across: other.x,
        weight: 2 * weight * other.weight,
      })),
  );
}

const LARGE = 300; // beyond, log(1 + exp(x)) is x, and exp(x) twice would overflow

/**
 * PSMI of every sample. For two classes and pairs of directions this takes a third of the time
 * of `addValues` of PSMI's own arithmetic, which a drag at 60 frames a second needs.
 * @param {Samples} samples
 * @param {number} dimension
 * @param {{along: number, across: number, weight: number}[]} directions
 * @param {Float64Array} psmi  filled
 */
export function psmiOf(samples, dimension, directions, psmi) {
  const { t, r, labels } = samples;
  const [zero, one] = classMoments(samples, dimension);
  const surprise = [-2 * Math.log(zero.prior), -2 * Math.log(one.prior)];
  psmi.fill(0);
  for (const { along, across, weight } of directions) {
    const rest = 1 - along * along;
    const reach = Math.sqrt(rest) * across;
    const m0 = along * zero.mean;
    const m1 = along * one.mean;
    const v0 = along * along * zero.variance + rest * zero.across;
    const v1 = along * along * one.variance + rest * one.across;
    // log p(z, 1) − log p(z, 0) is a + bz + cz²
    const c = 0.5 / v0 - 0.5 / v1;
    const b = m1 / v1 - m0 / v0;
    const a =
      Math.log(one.prior / zero.prior) -
      0.5 * Math.log(v1 / v0) +
      (m0 * m0) / (2 * v0) -
      (m1 * m1) / (2 * v1);
    for (let i = 0; i < psmi.length; i++) {
      const near = along * t[i];
      const aside = reach * r[i];
      const against = labels[i] === 1 ? -1 : 1;
      const z = near + aside;
      const w = near - aside;
      let first = against * (a + (b + c * z) * z);
      let second = against * (a + (b + c * w) * w);
      let loss = 0;
      if (first > LARGE) [loss, first] = [first, -Infinity];
      if (second > LARGE) [loss, second] = [loss + second, -Infinity];
      loss += Math.log((1 + Math.exp(first)) * (1 + Math.exp(second)));
      psmi[i] += weight * (surprise[labels[i]] - loss);
    }
  }
}

/**
 * Each class's Gaussian: along the axis of the means, and alike in all directions across it.
 * @param {Samples} samples
 * @param {number} dimension
 */
function classMoments({ t, r, labels }, dimension) {
  return [0, 1].map((label) => {
    let [count, sum, squares, across] = [0, 0, 0, 0];
    for (let i = 0; i < t.length; i++) {
      if (labels[i] !== label) continue;
      count += 1;
      sum += t[i];
      squares += t[i] * t[i];
      across += r[i] * r[i];
    }
    const mean = sum / count;
    return {
      prior: count / t.length,
      mean,
      variance: squares / count - mean * mean,
      across: across / count / Math.max(1, dimension - 1),
    };
  });
}

/**
 * Means of PSMI and rates at tau.
 * @param {Float64Array} psmi
 * @param {Uint8Array} kinds
 * @param {number} tau
 */
export function ratesAt(psmi, kinds, tau) {
  const count = [0, 0, 0];
  const sum = [0, 0, 0];
  const flagged = [0, 0, 0];
  for (let i = 0; i < psmi.length; i++) {
    count[kinds[i]] += 1;
    sum[kinds[i]] += psmi[i];
    if (psmi[i] <= tau) flagged[kinds[i]] += 1;
  }
  const outliers = count[1] + count[2];
  return {
    outliers,
    wrong: count[2],
    n: psmi.length,
    flagged: flagged[0] + flagged[1] + flagged[2],
    tpr: (flagged[1] + flagged[2]) / outliers,
    tprWrong: flagged[2] / count[2],
    fpr: flagged[0] / count[0],
    meanOthers: sum[0] / count[0],
    meanOutliers: (sum[1] + sum[2]) / outliers,
    meanWrong: sum[2] / count[2],
    meanRight: sum[1] / count[1],
  };
}
