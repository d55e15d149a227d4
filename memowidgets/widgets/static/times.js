/** The arithmetic of the timeline: pure functions, no DOM. */

import { countAsked } from "./asked.js";
import { countUpTo } from "./maths.js";

/** @typedef {import("./messages.js").MomentShown} Moment */
/** @typedef {import("./messages.js").Asked} Asked */

const WHOLE = 7; // seconds in which all checkpoints are played
const SLOWEST = 2; // checkpoints a second
const FASTEST = 60;

/**
 * Where each checkpoint stands, from 0 to 1: by its epoch, or one after the other where the epochs do not rise.
 * @param {{epoch: number}[]} moments
 */
export function placesOf(moments) {
  const last = moments.length - 1;
  const first = moments[0]?.epoch;
  const span = moments[last]?.epoch - first;
  const rises = moments.every(
    ({ epoch }, i) => i === 0 || epoch > moments[i - 1].epoch,
  );
  if (!rises || !(span > 0)) return moments.map((_, i) => i / Math.max(1, last));
  return moments.map(({ epoch }) => (epoch - first) / span);
}

/**
 * The same by the name of each checkpoint.
 * @param {Moment[]} moments
 */
export function timesOf(moments) {
  const places = placesOf(moments);
  return new Map(moments.map(({ value }, i) => [value, places[i]]));
}

/**
 * The place in an ascending list that is nearest to a number.
 * @param {number[]} sorted
 * @param {number} wanted
 */
export function nearestTo(sorted, wanted) {
  let best = 0;
  sorted.forEach((place, i) => {
    if (Math.abs(place - wanted) < Math.abs(sorted[best] - wanted)) best = i;
  });
  return best;
}

/**
 * Where a place between two checkpoints, such as 2.5, stands on the line.
 * @param {number[]} places
 * @param {number} head
 */
export function along(places, head) {
  const before = Math.min(places.length - 1, Math.max(0, Math.floor(head)));
  const after = Math.min(places.length - 1, before + 1);
  return places[before] + (places[after] - places[before]) * (head - before);
}

/**
 * The checkpoint that a key leads to; null for another key.
 * @param {string} key
 * @param {number} now
 * @param {number} count  checkpoints that there are
 */
export function keyLeadsTo(key, now, count) {
  const far = Math.max(1, Math.round(count / 10));
  /** @type {Record<string, number>} */
  const steps = {
    ArrowLeft: now - 1,
    ArrowDown: now - 1,
    ArrowRight: now + 1,
    ArrowUp: now + 1,
    PageDown: now - far,
    PageUp: now + far,
    Home: 0,
    End: count - 1,
  };
  const found = steps[key];
  return found === undefined ? null : Math.min(count - 1, Math.max(0, found));
}

/** @param {number} epoch */
export function epochText(epoch) {
  return String(Number(epoch.toFixed(2)));
}

/**
 * What a screen reader says of a checkpoint.
 * @param {Moment[]} moments
 * @param {number} i
 */
export function spokenMoment(moments, i) {
  const { epoch, star, why, computed } = moments[i];
  const last = moments[moments.length - 1].epoch;
  const reason = star ? `best time to predict, ${why}` : why;
  const lacks = computed ? "" : ", not scored yet";
  return `epoch ${epochText(epoch)} of ${epochText(last)}, ${reason}${lacks}`;
}

/** How many checkpoints are played in a second. @param {number} count */
export function speedOf(count) {
  return Math.min(FASTEST, Math.max(SLOWEST, count / WHOLE));
}

/**
 * The next checkpoint that can be played; -1 after the last.
 * @param {boolean[]} playable
 * @param {number} after
 */
export function nextPlayable(playable, after) {
  return playable.findIndex((can, i) => can && i > after);
}

/**
 * The τ at one checkpoint: what flags a count or a share of the samples there, or τ itself.
 * @param {Float32Array} scores  NaN for a sample without one
 * @param {Asked} asked
 * @param {number} tau
 */
export function tauThere(scores, asked, tau) {
  const sorted = scores.filter((score) => !Number.isNaN(score)).sort();
  const count = countAsked(asked, sorted.length);
  if (count === null || sorted.length === 0) return tau;
  return sorted[count - 1];
}

/**
 * How many samples score at most as high as each; NaN for one without a score.
 * @param {Float32Array} scores
 */
export function ranksOf(scores) {
  const sorted = scores.filter((score) => !Number.isNaN(score)).sort();
  return scores.map((score) => (Number.isNaN(score) ? NaN : countUpTo(sorted, score)));
}

/**
 * Lowest and highest of all scores.
 * @param {Iterable<Float32Array>} all
 * @returns {[number, number]}
 */
export function reachOf(all) {
  let [low, high] = [Infinity, -Infinity];
  for (const scores of all)
    for (const score of scores) {
      if (score < low) low = score;
      if (score > high) high = score;
    }
  return [low, high];
}

/**
 * A height for each sample, from 0 to 1, that is the same at any time and looks like chance.
 * @param {number} n
 */
export function heightsOf(n) {
  const golden = 0.618033988749895;
  return Float32Array.from({ length: n }, (_, i) => (i * golden) % 1);
}

/**
 * Counts numbers by column. Those that are NaN are in none.
 * @param {Float32Array} places
 * @param {ArrayLike<number>} kinds  of each sample
 * @param {number} kind  that counts
 * @param {{start: number, width: number, bins: number}} columns
 */
export function countsOf(places, kinds, kind, { start, width, bins }) {
  const counts = new Float64Array(bins);
  for (let i = 0; i < places.length; i++) {
    if (kinds[i] !== kind || Number.isNaN(places[i])) continue;
    counts[columnOf(places[i], start, width, bins)] += 1;
  }
  return counts;
}

/**
 * A column holds what is above its left edge up to and including its right one.
 * @param {number} place
 * @param {number} start
 * @param {number} width
 * @param {number} bins
 */
export function columnOf(place, start, width, bins) {
  const column = Math.ceil((place - start) / width) - 1;
  return Math.min(bins - 1, Math.max(0, column));
}
