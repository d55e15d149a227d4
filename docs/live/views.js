/** Views of a recorded audit in the form that the explorer takes from a kernel. No DOM. */

import { fromLogLira } from "../../memowidgets/report/static/unpack.js";
import { aucOf, judgedAt } from "../../memowidgets/widgets/static/maths.js";
import { unpack } from "../../memowidgets/widgets/static/wire.js";

/**
 * @typedef {object} View  one score, layer and checkpoint
 * @property {string} metric
 * @property {string} layer  "" for a score that has none
 * @property {string} checkpoint
 * @property {string} title
 * @property {Uint8Array} scores  of the members in their order
 * @property {boolean} wide  whether they are float64, not float32
 * @property {{levels: Uint8Array, codes: Uint8Array} | null} errors
 * @property {number | null} natural
 * @property {string[]} warnings
 * @property {string[]} notes
 * @property {number} digits
 * @property {string[]} remarks
 * @property {string} truly
 */

/**
 * @typedef {object} Content  what `scripts/live.py` packs
 * @property {number} tau
 * @property {import("../../memowidgets/widgets/static/messages.js").Asked} asked
 * @property {number} eta
 * @property {[number, number]} eta_range
 * @property {Uint8Array} log_lira
 * @property {[string, string, string]} first  score, layer and checkpoint
 * @property {View[]} views
 */

/** @param {View} view */
export function scoresOf({ scores, wide }) {
  const { buffer } = scores;
  return wide ? new Float64Array(buffer) : new Float32Array(buffer);
}

/** @param {View} view */
export function errorsOf({ errors }) {
  if (errors === null) return undefined;
  const levels = new Float64Array(errors.levels.buffer);
  return Array.from(errors.codes, (code) => levels[code]);
}

/** @param {Content} content */
export function logLiraOf(content) {
  return fromLogLira(content.log_lira);
}

/** The members by their score, ascending. @param {ArrayLike<number>} scores */
function risingOrder(scores) {
  const order = Uint32Array.from(scores, (_, i) => i);
  return order.sort((a, b) => scores[a] - scores[b]);
}

/**
 * One view as the traits of the explorer: each value once, in rising order.
 * @param {View} view
 * @param {ArrayLike<number>} logLira  of the members in their order
 * @param {[number, number]} etaRange
 * @param {number} version
 */
export function wireOf(view, logLira, etaRange, version) {
  const scores = scoresOf(view);
  const order = risingOrder(scores);
  /** @type {number[]} */
  const values = [];
  /** @type {number[]} */
  const counts = [];
  for (const i of order) {
    if (values.length === 0 || scores[i] !== values[values.length - 1]) {
      values.push(scores[i]);
      counts.push(0);
    }
    counts[counts.length - 1] += 1;
  }
  const shared = counts.flatMap((count, i) => (count > 1 ? [i] : []));
  const codes =
    view.errors === null
      ? null
      : Uint8Array.from(order, (i) => view.errors?.codes[i] ?? 0);
  const data = {
    version,
    title: view.title,
    truth: "",
    has_log_lira: true,
    eta_range: etaRange,
    note: "",
    natural: view.natural,
    levels: view.errors?.levels ?? null,
    codes,
    values: view.wide ? Float64Array.from(values) : Float32Array.from(values),
    wide: view.wide,
    n_shared: shared.length,
    shared: Uint32Array.from(shared),
    ties: Uint32Array.from(shared, (i) => counts[i]),
  };
  return { data, counts, shared, rising: Float64Array.from(order, (i) => logLira[i]) };
}

/** @typedef {ReturnType<typeof wireOf>} Wire */

/**
 * Which values have a memorised member at η.
 * @param {Wire} wire
 * @param {number} eta
 */
export function truthOf({ data, counts, shared, rising }, eta) {
  const hits = new Uint32Array(counts.length);
  let at = 0;
  counts.forEach((count, value) => {
    for (const end = at + count; at < end; at++)
      hits[value] += rising[at] >= eta ? 1 : 0;
  });
  const bits = new Uint8Array(Math.ceil(counts.length / 8));
  hits.forEach((count, i) => {
    if (count > 0) bits[i >> 3] |= 128 >> (i & 7);
  });
  return {
    version: data.version,
    eta,
    bits,
    of_shared: Uint32Array.from(shared, (i) => hits[i]),
  };
}

/**
 * The scores of a view with who is memorised at η.
 * @param {Wire} wire
 * @param {number} eta
 */
export function judgedOf(wire, eta) {
  return judgedAt(unpack(wire.data).scores, wire.rising, eta);
}

/**
 * How many members score at most as high as each.
 * @param {ArrayLike<number>} scores
 */
export function ranksOf(scores) {
  const order = risingOrder(scores);
  const ranks = new Uint32Array(order.length);
  for (let end = order.length, at = end - 1; at >= 0; at--) {
    if (scores[order[at]] !== scores[order[end - 1]]) end = at + 1;
    ranks[order[at]] = end;
  }
  return ranks;
}

/**
 * Scores of the same members in the form that a comparison takes from a kernel.
 * @param {View[]} views  the one on show first
 * @param {ArrayLike<number>} logLira
 * @param {number} eta
 */
export function comparedOf(views, logLira, eta) {
  const n = logLira.length;
  const bits = new Uint8Array(Math.ceil(n / 8));
  for (let i = 0; i < n; i++) if (logLira[i] >= eta) bits[i >> 3] |= 128 >> (i & 7);
  return { n, ranks: views.map((view) => ranksOf(scoresOf(view))), bits };
}

/**
 * @param {View} view
 * @param {ArrayLike<number>} logLira
 * @param {number} eta
 * @returns {[number, number, number] | null}  AUC and its interval
 */
export function areaOf(view, logLira, eta) {
  const auc = aucOf(judgedOf(wireOf(view, logLira, [0, 0], 1), eta));
  return auc && [auc.area, ...auc.interval];
}
