/** A pointwise 95 % band of a ROC, by resampling the members, as `Evaluation.band` does. No DOM. */

import { uniforms } from "../../memowidgets/teaching/static/chance.js";

/** @typedef {import("../../memowidgets/widgets/static/maths.js").Scores} Scores */

const RESAMPLES = 200; // enough for a drawing
const LINEAR = 160;
const NEAR_ZERO = 60;

/** Places of the FPR, denser near 0. @param {number} negatives */
function gridOf(negatives) {
  const least = Math.log(1 / negatives);
  const near = Array.from({ length: NEAR_ZERO }, (_, i) => Math.exp(least * (1 - i / NEAR_ZERO)));
  const even = Array.from({ length: LINEAR + 1 }, (_, i) => i / LINEAR);
  return Float64Array.from(new Set([...even, ...near])).sort();
}

/**
 * Shares of resampled members up to each rank.
 * @param {Uint32Array} ranks  of the members of one kind
 * @param {Float64Array} draws  from 0 to 1, one for each
 * @param {Float64Array} shares  filled
 */
function resample(ranks, draws, shares) {
  shares.fill(0);
  for (let i = 0; i < ranks.length; i++) shares[ranks[Math.floor(draws[i] * ranks.length)]] += 1 / ranks.length;
  for (let rank = 1; rank < shares.length; rank++) shares[rank] += shares[rank - 1];
}

/**
 * Reads a rising curve from (0, 0) at each place.
 * @param {Float64Array} x
 * @param {Float64Array} y
 * @param {Float64Array} grid
 */
function read(x, y, grid) {
  let at = 0;
  return grid.map((place) => {
    while (at < x.length && x[at] <= place) at += 1;
    const [x0, y0] = at === 0 ? [0, 0] : [x[at - 1], y[at - 1]];
    if (at === x.length) return y0;
    return y0 + ((y[at] - y0) * (place - x0)) / (x[at] - x0);
  });
}

/**
 * @param {Scores} scores  with a truth
 * @returns {Float32Array | null}  FPR, lower and upper TPR, one after the other
 */
export function bandOf({ flaggedUpTo, memorizedUpTo, n, memorized }) {
  if (memorizedUpTo === null || memorized === 0 || memorized === n) return null;
  const positives = new Uint32Array(memorized);
  const negatives = new Uint32Array(n - memorized);
  let [hits, others] = [0, 0];
  for (let rank = 0; rank < memorizedUpTo.length; rank++) {
    while (hits < memorizedUpTo[rank]) positives[hits++] = rank;
    while (others < flaggedUpTo[rank] - memorizedUpTo[rank]) negatives[others++] = rank;
  }
  const grid = gridOf(negatives.length);
  const tpr = new Float64Array(memorizedUpTo.length);
  const fpr = new Float64Array(memorizedUpTo.length);
  const curves = Array.from({ length: RESAMPLES }, (_, b) => {
    const draws = uniforms(b, 0, n);
    resample(positives, draws.subarray(0, memorized), tpr);
    resample(negatives, draws.subarray(memorized), fpr);
    return read(fpr, tpr, grid);
  });
  const band = new Float32Array(3 * grid.length);
  grid.forEach((place, i) => {
    const found = Float64Array.from(curves, (curve) => curve[i]).sort();
    band[i] = place;
    band[grid.length + i] = found[Math.round(0.025 * (RESAMPLES - 1))];
    band[2 * grid.length + i] = found[Math.round(0.975 * (RESAMPLES - 1))];
  });
  return band;
}
