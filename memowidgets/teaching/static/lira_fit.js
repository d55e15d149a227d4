/** How LiRA estimates variances, and the standard error of its result. No DOM. */

import { logGamma } from "../../widgets/static/gamma.js";
import { OTHERS } from "./lira_maths.js";

/** @typedef {import("./lira_maths.js").Estimate} Estimate */
/** @typedef {import("./lira_maths.js").Estimates} Estimates */
/** @typedef {import("./lira_maths.js").Side} Side */

/**
 * Estimates for each choice of variance.
 * @param {[Side, Side]} sides  in and out
 * @param {number[][]} others  sums of squares of the other samples, in and out
 * @returns {Estimates & {least: number}}
 */
export function estimatesFor(sides, others) {
  const all = sides.map((side, i) => [side.squares, ...others[i]]);
  const sums = all.map((squares) => squares.reduce((sum, one) => sum + one, 0));
  const shared = sides.map(({ count }, i) => ({
    squares: 0,
    count: 0,
    shared: sums[i] / (count * all[i].length),
  }));
  const shrunk = sides.map(({ count }, i) => shrunkOf(all[i], count));
  const own = { squares: 0, count: 0, shared: null };
  return {
    least:
      (1e-6 * (sums[0] + sums[1])) / ((sides[0].count + sides[1].count) * (OTHERS + 1)),
    "per-sample": { in: own, out: own },
    global: { in: shared[0], out: shared[1] },
    shrunk: { in: shrunk[0], out: shrunk[1] },
  };
}

/* ---------------------------------------------------------------- the prior of "shrunk" */

const ABOVE = [-4, 9]; // log of how far the degrees of freedom are above 2
const SCALE = [-20, 5]; // log of the scale, relative to the pooled variance

/**
 * The prior that is likeliest for all samples: their squares are scale × F-distributed.
 * @param {number[]} all  sums of squares on one side
 * @param {number} count  models on this side
 * @returns {Estimate}
 */
function shrunkOf(all, count) {
  const squares = all.filter((one) => one > 0);
  if (count < 2 || squares.length === 0) return { squares: 0, count: 0, shared: 0 };
  const seen = count - 1;
  const typical = squares.reduce((sum, one) => sum + one, 0) / (seen * squares.length);
  /** The best scale for some degrees of freedom: where the slope is 0. @param {number} freedom */
  const scaleFor = (freedom) => {
    let [low, high] = SCALE;
    for (let i = 0; i < 30; i++) {
      const middle = (low + high) / 2;
      const unit = freedom * typical * Math.exp(middle);
      const slope =
        squares.reduce((sum, one) => sum + one / (unit + one), 0) / squares.length;
      if ((seen + freedom) * slope > seen) low = middle;
      else high = middle;
    }
    return typical * Math.exp((low + high) / 2);
  };
  /** @param {number} above */
  const minusLikelihood = (above) => {
    const freedom = 2 + Math.exp(above);
    const unit = freedom * scaleFor(freedom);
    const beta =
      logGamma(seen / 2) + logGamma(freedom / 2) - logGamma((seen + freedom) / 2);
    const sum = squares.reduce(
      (all, one) =>
        all +
        (seen / 2) * Math.log(one / unit) -
        ((seen + freedom) / 2) * Math.log1p(one / unit),
      0,
    );
    return beta - sum / squares.length;
  };
  const freedom = 2 + Math.exp(lowest(minusLikelihood, ABOVE[0], ABOVE[1]));
  return {
    squares: freedom * scaleFor(freedom),
    count: freedom - 3,
    shared: null,
    freedom,
  };
}

/**
 * Where a function that first falls and then rises is least.
 * @param {(x: number) => number} f
 * @param {number} from
 * @param {number} to
 */
function lowest(f, from, to) {
  let [a, b] = [from, to];
  for (let i = 0; i < 30; i++) {
    const third = (b - a) / 3;
    if (f(a + third) < f(b - third)) b -= third;
    else a += third;
  }
  return (a + b) / 2;
}

/* ---------------------------------------------------------------- log-LiRA */

/**
 * Standard error of log-LiRA of a gap; NaN where it has none.
 * @param {number} gap
 * @param {[Side, Side]} sides
 * @param {{in: Estimate, out: Estimate}} estimates
 * @param {number} least
 * @param {number} ratio  log-LiRA
 */
export function errorOf(gap, sides, estimates, least, ratio) {
  const inside = knownOf(gap, sides[0], estimates.in, least);
  const outside = knownOf(gap, sides[1], estimates.out, least);
  return Math.sqrt(
    inside.variance + outside.variance + (inside.mean - outside.mean - ratio) ** 2,
  );
}

/**
 * Mean and variance of a gap's log density, where a side's mean and variance are as its gaps say.
 * @param {number} gap
 * @param {Side} side
 * @param {Estimate} of
 * @param {number} least
 */
function knownOf(gap, { count, mean, squares }, of, least) {
  const freedom = of.shared === null ? (of.freedom ?? 0) + count - 1 : Infinity;
  const variance = Math.max(of.shared ?? (of.squares + squares) / freedom, least);
  const square = (gap - mean) ** 2 / variance;
  const [shift, curve] = freedom === Infinity ? [0, 0] : gammas(freedom / 2);
  return {
    mean: (shift - Math.log(variance) - square - 1 / count) / 2,
    variance:
      curve / 4 +
      (square ** 2 / 2 - square) / freedom +
      square / count +
      0.5 / count ** 2,
  };
}

/** Logarithmic derivatives of the gamma function: ψ(x) − log x, and ψ′(x). @param {number} x  above 0 */
function gammas(x) {
  let [first, second, at] = [-Math.log(x), 0, x];
  for (; at < 10; at++) {
    first -= 1 / at;
    second += 1 / at ** 2;
  }
  const u = 1 / at ** 2;
  first += Math.log(at) - 1 / (2 * at) - u * (1 / 12 - u * (1 / 120 - u / 252));
  second += 1 / at + u / 2 + (u / at) * (1 / 6 - u * (1 / 30 - u / 42));
  return [first, second];
}
