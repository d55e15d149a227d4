/** LiRA of one sample: simulated logit gaps and the Gaussians that are fitted to them. No DOM. */

import { normals, uniforms } from "./chance.js";

export const OUT_MEAN = 2;
const TYPICAL = 1.5;
const FREEDOM = 6;
export const REDRAWS = 200;
export const OTHERS = 100;
export const SIDE = 128; // models on a side, at most
export const VARIANCES = /** @type {const} */ (["per-sample", "global", "shrunk"]);
/** @typedef {typeof VARIANCES[number]} Variance */

/**
 * Standard normal draws of one seed: the sample's own on both sides, and its re-draws.
 * @param {number} seed
 */
export function drawsOf(seed) {
  /** @param {number} side  0 in, 1 out */
  const own = (side) =>
    normals(seed, side * (REDRAWS + 1) * SIDE, (REDRAWS + 1) * SIDE);
  return { inside: own(0), outside: own(1), others: othersOf(seed) };
}

/** @typedef {ReturnType<typeof drawsOf>} Draws */

/**
 * Gaps of the other samples, side by side: 128 models in, then out.
 * @param {number} seed
 */
function othersOf(seed) {
  const gaps = normals(seed, 2 * (REDRAWS + 1) * SIDE, 2 * OTHERS * SIDE);
  deviationsOfOthers().forEach((deviation, sample) => {
    for (const side of [0, 1]) {
      const start = (side * OTHERS + sample) * SIDE;
      for (let model = 0; model < SIDE; model++) gaps[start + model] *= deviation;
    }
  });
  return gaps;
}

/** True deviations of the other samples' gaps. */
function deviationsOfOthers() {
  const u = uniforms(-1, 0, (OTHERS * FREEDOM) / 2);
  return Array.from({ length: OTHERS }, (_, sample) => {
    let sum = 0;
    for (let k = 0; k < FREEDOM / 2; k++)
      sum -= Math.log(u[(sample * FREEDOM) / 2 + k]);
    return TYPICAL * Math.sqrt(FREEDOM / (2 * sum));
  });
}

/**
 * Moments of one side's gaps.
 * @typedef {object} Side
 * @property {number} count
 * @property {number} mean
 * @property {number} squares  sum of squared deviations
 */

/**
 * @param {ArrayLike<number>} gaps
 * @param {number} [start]
 * @param {number} [count]
 * @returns {Side}
 */
export function sideOf(gaps, start = 0, count = gaps.length) {
  let mean = 0;
  for (let i = 0; i < count; i++) mean += gaps[start + i] / count;
  let squares = 0;
  for (let i = 0; i < count; i++) squares += (gaps[start + i] - mean) ** 2;
  return { count, mean, squares };
}

/**
 * A side of standard normal draws, moved and stretched.
 * @param {Side} side
 * @param {number} mean
 * @param {number} spread
 * @returns {Side}
 */
export function stretched(side, mean, spread) {
  const { count } = side;
  return {
    count,
    mean: mean + spread * side.mean,
    squares: spread * spread * side.squares,
  };
}

/**
 * Sum of squares of each of the other samples, with this many models in and out.
 * @param {Draws} draws
 * @param {[number, number]} counts
 */
export function othersSquares(draws, counts) {
  return counts.map((count, side) =>
    Array.from(
      { length: OTHERS },
      (_, sample) =>
        sideOf(draws.others, (side * OTHERS + sample) * SIDE, count).squares,
    ),
  );
}

/**
 * How variances are estimated; as in Python.
 * @typedef {{squares: number, count: number, shared: number | null, freedom?: number}} Estimate
 */

/**
 * @param {Estimate} estimate
 * @param {Side} side
 * @param {number} least
 */
export function varianceOf(estimate, side, least) {
  if (estimate.shared !== null) return Math.max(estimate.shared, least);
  const models = Math.max(estimate.count + side.count, Number.MIN_VALUE);
  return Math.max((estimate.squares + side.squares) / models, least);
}

/** @typedef {Record<Variance, {in: Estimate, out: Estimate}>} Estimates */
/** @typedef {{mean: number, variance: number}} Gaussian */

/**
 * @param {number} gap
 * @param {Gaussian} inside
 * @param {Gaussian} outside
 */
export function logRatio(gap, inside, outside) {
  return logDensity(gap, inside) - logDensity(gap, outside);
}

/**
 * @param {number} gap
 * @param {Gaussian} gaussian
 */
function logDensity(gap, { mean, variance }) {
  return -0.5 * (Math.log(variance) + (gap - mean) ** 2 / variance);
}

/**
 * @param {number} x
 * @param {Gaussian} gaussian
 */
export function density(x, { mean, variance }) {
  return (
    Math.exp(-0.5 * ((x - mean) ** 2 / variance)) / Math.sqrt(2 * Math.PI * variance)
  );
}
