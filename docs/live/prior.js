/** The prior of LiRA's "shrunk" variances, fitted as `memowidgets.memorization.variance` does. No DOM. */

import { logGamma } from "../../memowidgets/widgets/static/gamma.js";

/** @typedef {import("../../memowidgets/teaching/static/lira_maths.js").Estimate} Estimate */

const ABOVE = [-4, 9]; // log of how far the degrees of freedom are above 2
const SCALE = [-20, 5]; // log of the scale, relative to the pooled variance

/**
 * Where a function that first falls and then rises is least, by golden section.
 * @param {(x: number) => number} f
 * @param {number} from
 * @param {number} to
 */
function lowest(f, from, to) {
  const golden = (Math.sqrt(5) - 1) / 2;
  let [a, b] = [from, to];
  let [c, d] = [b - golden * (b - a), a + golden * (b - a)];
  let [fc, fd] = [f(c), f(d)];
  for (let i = 0; i < 60; i++) {
    if (fc < fd) {
      [b, d, fd] = [d, c, fc];
      c = b - golden * (b - a);
      fc = f(c);
    } else {
      [a, c, fc] = [c, d, fd];
      d = a + golden * (b - a);
      fd = f(d);
    }
  }
  return (a + b) / 2;
}

/**
 * Likelihood of the samples' squares where they are scale × F-distributed.
 * @param {number[]} squares
 * @param {number} seen  one less than the models of each sample
 */
function likelihoodOf(squares, seen) {
  const typical = squares.reduce((sum, one) => sum + one, 0) / (seen * squares.length);
  /** The best scale for some degrees of freedom: where the slope is 0. @param {number} freedom */
  const scaleFor = (freedom) => {
    let [low, high] = SCALE;
    for (let i = 0; i < 50; i++) {
      const middle = (low + high) / 2;
      const unit = freedom * typical * Math.exp(middle);
      const slope = squares.reduce((sum, one) => sum + one / (unit + one), 0) / squares.length;
      if (((seen + freedom) / 2) * slope > seen / 2) low = middle;
      else high = middle;
    }
    return Math.exp((low + high) / 2);
  };
  /** @param {number} above */
  const minus = (above) => {
    const freedom = 2 + Math.exp(above);
    const scale = scaleFor(freedom);
    const beta = logGamma(seen / 2) + logGamma(freedom / 2) - logGamma((seen + freedom) / 2);
    const sum = squares.reduce((all, one) => {
      const odds = one / (freedom * typical * scale);
      return all + (seen / 2) * Math.log(odds) - ((seen + freedom) / 2) * Math.log1p(odds);
    }, 0);
    return beta - sum / squares.length;
  };
  return { typical, scaleFor, minus };
}

/**
 * @param {number[]} squares  of each sample's gaps on one side
 * @param {number} count  models of each sample on this side
 * @returns {Estimate}
 */
export function shrunkOf(squares, count) {
  const usable = squares.filter((one) => one > 0);
  if (count < 2 || usable.length === 0) return { squares: 0, count: 0, shared: 0 };
  const { typical, scaleFor, minus } = likelihoodOf(usable, count - 1);
  const freedom = 2 + Math.exp(lowest(minus, ABOVE[0], ABOVE[1]));
  return { squares: freedom * typical * scaleFor(freedom), count: freedom - 3, shared: null, freedom };
}
