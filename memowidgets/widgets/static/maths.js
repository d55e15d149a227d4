/**
 * The arithmetic of the front ends: pure functions of plain and typed arrays, no DOM. Everywhere: a
 * sample is flagged if its score is at most tau, and low scores mean risk.
 */

import { logGamma } from "./gamma.js";
import { ticks, tidy } from "./numbers.js";

/**
 * Scores as the kernel sends them: ascending distinct values and how many samples have each.
 * @typedef {object} Scores
 * @property {Float32Array | Float64Array} values  ascending, distinct, exact
 * @property {Float64Array} flaggedUpTo  samples with a score of at most values[i]
 * @property {Float64Array | null} memorizedUpTo  memorised ones among them; null without ground truth
 * @property {number} n
 * @property {number} memorized  0 without ground truth
 */

/**
 * @typedef {object} Counts
 * @property {number} flagged
 * @property {number} found
 * @property {number} flaggedOnly
 * @property {number} missed
 * @property {number} leftAlone
 */

/**
 * Samples by their error, so that nothing needs sorting: level k has the values from starts[k] to
 * starts[k + 1], ascending, and each reaches two standard errors, reaches[k], to both sides.
 * @typedef {{reaches: Float64Array, starts: Uint32Array, values: Float64Array}} Bounds
 */

/** @typedef {[number, number]} Interval */
/** @typedef {{area: number, interval: Interval}} Auc */
/** @typedef {{fpr: number, tpr: number, tau: number}} RocPoint */

/**
 * @param {Float32Array | Float64Array} values
 * @param {ArrayLike<number> | null} counts  samples at each value; null: one each
 * @param {ArrayLike<number> | null} memorized  memorised samples at each value
 * @returns {Scores}
 */
export function makeScores(values, counts, memorized) {
  const flaggedUpTo = cumulative(values.length, counts);
  const scores = {
    values,
    flaggedUpTo,
    memorizedUpTo: null,
    n: flaggedUpTo.at(-1) ?? 0,
    memorized: 0,
  };
  return memorized === null
    ? scores
    : withMemorized(scores, cumulative(values.length, memorized));
}

/**
 * Returns the cumulative sums of counts. null stands for one at each place.
 * @param {number} length
 * @param {ArrayLike<number> | null} counts
 */
export function cumulative(length, counts) {
  const sums = new Float64Array(length);
  let sum = 0;
  for (let i = 0; i < length; i++) sums[i] = sum += counts === null ? 1 : counts[i];
  return sums;
}

/**
 * Returns the first of `length` places where a condition holds that also holds at all later ones.
 * Returns `length` if there is none.
 * @param {number} length
 * @param {(place: number) => boolean} isTrue
 * @param {number} [from]
 */
function firstWhere(length, isTrue, from = 0) {
  let low = from;
  let high = length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (isTrue(middle)) high = middle;
    else low = middle + 1;
  }
  return low;
}

/**
 * Returns how many entries of an ascending array are at most x.
 * @param {ArrayLike<number>} ascending
 * @param {number} x
 */
export function countUpTo(ascending, x) {
  return firstWhere(ascending.length, (i) => ascending[i] > x);
}

/**
 * @param {Scores} scores
 * @param {number} tau
 * @returns {Counts}
 */
export function countsAt(scores, tau) {
  return countsAtRank(scores, countUpTo(scores.values, tau));
}

/**
 * Counts when the `rank` lowest distinct scores are flagged.
 * @param {Scores} scores
 * @param {number} rank
 * @returns {Counts}
 */
export function countsAtRank(scores, rank) {
  const flagged = rank === 0 ? 0 : scores.flaggedUpTo[rank - 1];
  const found =
    rank === 0 || scores.memorizedUpTo === null ? 0 : scores.memorizedUpTo[rank - 1];
  const missed = scores.memorized - found;
  return {
    flagged,
    found,
    flaggedOnly: flagged - found,
    missed,
    leftAlone: scores.n - flagged - missed,
  };
}

/**
 * @param {Scores} scores
 * @param {ArrayLike<number>} levels  of standard errors
 * @param {ArrayLike<number>} codes  which level each sample has, in the order of the scores
 * @returns {Bounds}
 */
export function boundsOf(scores, levels, codes) {
  const reaches = Float64Array.from(levels, (level) => 2 * level);
  const starts = new Uint32Array(reaches.length + 1);
  for (let row = 0; row < codes.length; row++) starts[codes[row] + 1] += 1;
  for (let k = 0; k < reaches.length; k++) starts[k + 1] += starts[k];
  const values = new Float64Array(scores.n);
  const next = starts.slice();
  for (let rank = 0, row = 0; rank < scores.values.length; rank++) {
    for (const end = scores.flaggedUpTo[rank]; row < end; row++) {
      values[next[codes[row]]++] = scores.values[rank];
    }
  }
  return { reaches, starts, values };
}

/**
 * Samples whose score and tau are less than two standard errors apart.
 * @param {Bounds} bounds
 * @param {number} tau
 */
export function undecidedAt({ reaches, starts, values }, tau) {
  let undecided = 0;
  for (let k = 0; k < reaches.length; k++) {
    const reach = reaches[k];
    const to = starts[k + 1];
    const above = firstWhere(to, (row) => values[row] + reach > tau, starts[k]);
    undecided += Math.max(
      0,
      firstWhere(to, (row) => values[row] - reach >= tau, above) - above,
    );
  }
  return undecided;
}

/* ---------------------------------------------------------------- the truth */

/**
 * The same scores with a truth.
 * @param {Scores} scores
 * @param {Float64Array | null} memorizedUpTo
 * @returns {Scores}
 */
export function withMemorized(scores, memorizedUpTo) {
  return { ...scores, memorizedUpTo, memorized: memorizedUpTo?.at(-1) ?? 0 };
}

/**
 * The same scores where a sample is memorised if its log-LiRA is at least eta.
 * @param {Scores} scores
 * @param {ArrayLike<number>} logLira  of each sample, in the order of the scores
 * @param {number} eta
 * @returns {Scores}
 */
export function judgedAt(scores, logLira, eta) {
  const { values, flaggedUpTo } = scores;
  const memorizedUpTo = new Float64Array(values.length);
  let found = 0;
  let row = 0;
  for (let rank = 0; rank < values.length; rank++) {
    for (const end = flaggedUpTo[rank]; row < end; row++)
      if (logLira[row] >= eta) found += 1;
    memorizedUpTo[rank] = found;
  }
  return withMemorized(scores, memorizedUpTo);
}

const Z95 = 1.959963984540054;

/**
 * Area under the ROC, ties counting a half, and its 95 % interval: the wider of Newcombe's and of
 * DeLong's variance on the logit scale, as in Python.
 * @param {Scores} scores
 * @returns {Auc | null}  null if all or no samples are memorised
 */
export function aucOf(scores) {
  const { flaggedUpTo, memorizedUpTo, n, memorized } = scores;
  const others = n - memorized;
  if (memorizedUpTo === null || memorized === 0 || others === 0) return null;
  const length = memorizedUpTo.length;
  let wrong = 0; // twice the pairs in the wrong order: a whole number, so that nothing is rounded
  for (let rank = 0, found = 0, flagged = 0; rank < length; rank++) {
    const positives = memorizedUpTo[rank] - found;
    if (positives > 0) {
      wrong += positives * (flagged - found + flaggedUpTo[rank] - memorizedUpTo[rank]);
      found += positives;
    }
    flagged = flaggedUpTo[rank];
  }
  const area = 1 - wrong / (2 * memorized * others);
  const score = newcombe(area, memorized, others);
  const error = delong(scores, area);
  if (!(area > 0 && area < 1 && error > 0)) return { area, interval: score };
  const [centre, reach] = [
    Math.log(area / (1 - area)),
    (Z95 * error) / (area * (1 - area)),
  ];
  const [low, high] = [centre - reach, centre + reach].map(
    (x) => 1 / (1 + Math.exp(-x)),
  );
  return { area, interval: [Math.min(score[0], low), Math.max(score[1], high)] };
}

/**
 * DeLong's standard error of an AUC; NaN where a kind has a single sample.
 * @param {Scores} scores
 * @param {number} area
 */
function delong({ flaggedUpTo, memorizedUpTo, n, memorized }, area) {
  const others = n - memorized;
  if (memorizedUpTo === null || memorized < 2 || others < 2) return NaN;
  let [ofPositives, ofOthers] = [0, 0];
  for (let rank = 0, found = 0, flagged = 0; rank < memorizedUpTo.length; rank++) {
    const positives = memorizedUpTo[rank] - found;
    const negatives = flaggedUpTo[rank] - flagged - positives;
    const above = 1 - (flagged - found + negatives / 2) / others;
    const below = (found + positives / 2) / memorized;
    ofPositives += positives * (above - area) ** 2;
    ofOthers += negatives * (below - area) ** 2;
    [found, flagged] = [memorizedUpTo[rank], flaggedUpTo[rank]];
  }
  return Math.sqrt(
    ofPositives / (memorized - 1) / memorized + ofOthers / (others - 1) / others,
  );
}

/**
 * Newcombe's 95 % score interval of an AUC (method 5), by bisection as in Python.
 * @param {number} auc
 * @param {number} positives
 * @param {number} negatives
 * @returns {[number, number]}
 */
function newcombe(auc, positives, negatives) {
  const mean = (positives + negatives) / 2;
  /** @param {number} area */
  const excluded = (area) => {
    const spread = (1 - area) / (2 - area) + area / (1 + area);
    const variance =
      (area * (1 - area) * (1 + (mean - 1) * spread)) / (positives * negatives);
    return (auc - area) ** 2 > Z95 ** 2 * variance;
  };
  /** @param {number} outside */
  const edge = (outside) => {
    if (auc === outside) return auc;
    let inside = auc;
    for (let halving = 0; halving < 60; halving++) {
      const middle = (outside + inside) / 2;
      if (excluded(middle)) outside = middle;
      else inside = middle;
    }
    return (outside + inside) / 2;
  };
  return [edge(0), edge(1)];
}

/* ---------------------------------------------------------------- ways to choose tau */

/**
 * A threshold that flags the `rank` lowest distinct scores: the highest of them, or for none
 * the next number below all scores.
 * @param {Scores} scores
 * @param {number} rank
 */
export function tauAtRank(scores, rank) {
  if (rank > 0) return scores.values[rank - 1];
  const lowest = scores.values[0];
  return lowest - Math.max(Math.abs(lowest) * 1e-6, 1e-9);
}

/* ---------------------------------------------------------------- histogram and ROC */

/**
 * Where scores are on an axis. 0 is at 0, and the order is kept.
 * @typedef {object} Axis
 * @property {(score: number) => number} to
 * @property {(place: number) => number} from
 * @property {number} knee  scores nearer to 0 than this stand on a linear part; Infinity: all do
 */

/** @type {Axis} */
export const LINEAR = { to: (score) => score, from: (place) => place, knee: Infinity };

/**
 * Linear near 0, logarithmic beyond the knee, on both sides.
 * @param {number} knee
 * @returns {Axis}
 */
export function symmetricLog(knee) {
  return {
    to: (score) => Math.asinh(score / knee),
    from: (place) => Math.sinh(place) * knee,
    knee,
  };
}

/**
 * The score below which a share of all samples lies.
 * @param {Scores} scores
 * @param {number} share
 */
export function quantile(scores, share) {
  const rank = firstWhere(
    scores.values.length,
    (i) => scores.flaggedUpTo[i] >= share * scores.n,
  );
  return scores.values[Math.min(rank, scores.values.length - 1)];
}

/**
 * A knee that spreads out where most scores are.
 * @param {Scores} scores
 */
export function kneeFor(scores) {
  const places = [0.1, 0.25, 0.5, 0.75, 0.9].map((share) =>
    Math.abs(quantile(scores, share)),
  );
  places.sort((a, b) => a - b);
  const middle = places[2] || places.find((place) => place > 0) || 1;
  return 10 ** Math.floor(Math.log10(middle));
}

/**
 * Whether a linear axis would crowd most scores into a corner, as it does with losses.
 * @param {Scores} scores
 */
export function isSkewed(scores) {
  const { values } = scores;
  const span = values[values.length - 1] - values[0];
  return quantile(scores, 0.9) - quantile(scores, 0.1) < span / 12;
}

/**
 * @typedef {object} Histogram
 * @property {number} start  place of the left edge; every edge is a multiple of width
 * @property {number} width
 * @property {number} low  place where the axis begins
 * @property {number} high
 * @property {Float64Array} others
 * @property {Float64Array} memorized
 * @property {Uint32Array} ranks  how many distinct scores lie before each bin, and before the end
 */

/**
 * About `wanted` columns of equal width on the axis whose edges are multiples of it, so that 0 is
 * one. A column holds the scores above its left edge up to and including its right one, as tau does.
 * @param {Scores} scores
 * @param {number} wanted
 * @param {Axis} [axis]
 * @param {[number, number] | null} [reach]  scores that have room, too
 * @returns {Histogram}
 */
export function histogram(scores, wanted, axis = LINEAR, reach = null) {
  const { values } = scores;
  const [low, high] = reach ?? [Infinity, -Infinity];
  const lowest = axis.to(Math.min(low, values[0]));
  const highest = axis.to(Math.max(high, values[values.length - 1]));
  const around = highest > lowest ? 0 : Math.max(Math.abs(lowest), 1) * 0.1;
  const width = (highest - lowest + 2 * around) / wanted;
  const first = Math.ceil(lowest / width) - 1;
  const bins = Math.max(1, Math.ceil(highest / width) - first);
  const ranks = new Uint32Array(bins + 1);
  for (let bin = 0; bin < bins; bin++) {
    const isBeyond = (/** @type {number} */ i) =>
      Math.ceil(axis.to(values[i]) / width) - 1 - first > bin;
    ranks[bin + 1] =
      bin === bins - 1
        ? values.length
        : firstWhere(values.length, isBeyond, ranks[bin]);
  }
  const start = first * width;
  const end = start + bins * width;
  const pad = 0.02 * (end - start) + around;
  return {
    start,
    width,
    low: start - pad,
    high: end + pad,
    ranks,
    ...countsPerBin(scores, ranks, values.length),
  };
}

/**
 * The samples of each column whose score is among the `flagged` lowest distinct ones.
 * @param {Scores} scores
 * @param {Uint32Array} ranks  as in a histogram
 * @param {number} flagged
 */
export function countsPerBin(scores, ranks, flagged) {
  const upTo = Array.from(ranks, (rank) =>
    countsAtRank(scores, Math.min(rank, flagged)),
  );
  /** @type {(name: "found" | "flaggedOnly") => Float64Array} */
  const each = (name) =>
    Float64Array.from(
      { length: ranks.length - 1 },
      (_, i) => upTo[i + 1][name] - upTo[i][name],
    );
  return { others: each("flaggedOnly"), memorized: each("found") };
}

/**
 * The corners of the ROC that a drawing of `pixels` pixels a side can tell apart.
 * @param {Scores} scores
 * @param {(fpr: number) => number} x  where an FPR is drawn
 * @param {(tpr: number) => number} y
 * @returns {RocPoint[]}
 */
export function rocPoints(scores, x, y) {
  const positives = scores.memorized;
  const negatives = scores.n - positives;
  const last = scores.values.length;
  /** @type {RocPoint[]} */
  const points = [{ fpr: 0, tpr: 0, tau: tauAtRank(scores, 0) }];
  const rates = (/** @type {number} */ rank) => {
    const { found, flaggedOnly } = countsAtRank(scores, rank);
    return { fpr: flaggedOnly / negatives, tpr: found / positives };
  };
  let drawn = 0;
  while (drawn < last) {
    const { fpr, tpr } = rates(drawn);
    const isApart = (/** @type {number} */ rank) => {
      const point = rates(rank);
      return Math.abs(x(point.fpr) - x(fpr)) + Math.abs(y(point.tpr) - y(tpr)) >= 0.7;
    };
    let reach = 1; // both rates only rise, so the next corner apart is found by halving
    while (drawn + reach < last && !isApart(drawn + reach)) reach *= 2;
    const end = Math.min(last, drawn + reach);
    drawn = firstWhere(end, isApart, drawn + Math.max(1, Math.floor(reach / 2)));
    points.push({ ...rates(drawn), tau: scores.values[drawn - 1] });
  }
  return points;
}

/* ---------------------------------------------------------------- scales */

/**
 * Round scores worth a tick, at least `apart` from each other on an axis that is not linear.
 * @param {Axis} axis
 * @param {number} low  place where the axis begins
 * @param {number} high
 * @param {number} apart
 */
export function axisTicks(axis, low, high, apart) {
  if (axis.knee === Infinity) return ticks(low, high, (high - low) / apart);
  const ends = [axis.from(low), axis.from(high)];
  const most = Math.max(Math.abs(ends[0]), Math.abs(ends[1]));
  const candidates = [0];
  for (let size = axis.knee; size <= most; size *= 10) candidates.push(size, -size);
  /** @type {number[]} */
  const kept = [];
  for (const score of candidates) {
    const place = axis.to(score);
    if (place < low || place > high) continue;
    if (kept.every((other) => Math.abs(axis.to(other) - place) >= apart))
      kept.push(tidy(score));
  }
  return kept.sort((a, b) => a - b);
}

/**
 * A position between 0 and 1 for a rate, on a linear axis or on one of `decades` decades.
 * @param {number} rate
 * @param {number} decades  0: linear
 */
export function ratePosition(rate, decades) {
  if (decades === 0) return rate;
  return rate <= 0 ? 0 : Math.max(0, 1 + Math.log10(rate) / decades);
}

/**
 * Decades that a log axis of rates needs to show one sample among n.
 * @param {number} n
 */
export function decadesFor(n) {
  return Math.min(6, Math.max(1, Math.ceil(Math.log10(Math.max(2, n)))));
}

/* ---------------------------------------------------------------- intervals */

/**
 * The exact (Clopper–Pearson) interval of a share, 95 % by default.
 * @param {number} successes
 * @param {number} n
 * @param {number} [level]
 * @returns {Interval | null}  null for a share of nothing
 */
export function clopperPearson(successes, n, level = 0.95) {
  if (n <= 0) return null;
  const tail = (1 - level) / 2;
  const low = successes === 0 ? 0 : betaQuantile(tail, successes, n - successes + 1);
  const high =
    successes === n ? 1 : betaQuantile(1 - tail, successes + 1, n - successes);
  return [low, high];
}

/**
 * Newton's steps, kept inside a bracket that shrinks with each.
 * @param {number} p
 * @param {number} a
 * @param {number} b
 */
function betaQuantile(p, a, b) {
  let low = 0;
  let high = 1;
  let x = a / (a + b);
  const logBeta = logGamma(a) + logGamma(b) - logGamma(a + b);
  for (let i = 0; i < 100; i++) {
    const excess = betaCdf(x, a, b, logBeta) - p;
    if (excess > 0) high = x;
    else low = x;
    const density = Math.exp(
      (a - 1) * Math.log(x) + (b - 1) * Math.log1p(-x) - logBeta,
    );
    let next = x - excess / density;
    if (!(next > low && next < high)) next = (low + high) / 2;
    if (Math.abs(next - x) <= 1e-13 * x) return next;
    x = next;
  }
  return x;
}

/**
 * The regularised incomplete beta function.
 * @param {number} x
 * @param {number} a
 * @param {number} b
 * @param {number} logBeta
 */
function betaCdf(x, a, b, logBeta) {
  if (x <= 0) return 0;
  if (x >= 1) return 1;
  const front = Math.exp(a * Math.log(x) + b * Math.log1p(-x) - logBeta);
  if (x < (a + 1) / (a + b + 2)) return (front * betaFraction(x, a, b)) / a;
  return 1 - (front * betaFraction(1 - x, b, a)) / b;
}

/**
 * Its continued fraction, by Lentz's method.
 * @param {number} x
 * @param {number} a
 * @param {number} b
 */
function betaFraction(x, a, b) {
  const tiny = 1e-300;
  let c = 1;
  let d = 1 / nonZero(1 - ((a + b) * x) / (a + 1), tiny);
  let h = d;
  for (let m = 1; m <= 20000; m++) {
    const even = (m * (b - m) * x) / ((a + 2 * m - 1) * (a + 2 * m));
    d = 1 / nonZero(1 + even * d, tiny);
    c = nonZero(1 + even / c, tiny);
    h *= d * c;
    const odd = (-(a + m) * (a + b + m) * x) / ((a + 2 * m) * (a + 2 * m + 1));
    d = 1 / nonZero(1 + odd * d, tiny);
    c = nonZero(1 + odd / c, tiny);
    h *= d * c;
    if (Math.abs(d * c - 1) < 1e-15) break;
  }
  return h;
}

/**
 * @param {number} x
 * @param {number} tiny
 */
function nonZero(x, tiny) {
  return Math.abs(x) < tiny ? tiny : x;
}
