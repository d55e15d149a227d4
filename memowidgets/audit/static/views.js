/** Views of a recorded audit in the form that the explorer takes from a kernel. No DOM. */

import { bitsOf, packedScores, risingOrder } from "../../report/static/rising.js";
import { fromLogLira } from "../../report/static/unpack.js";
import { aucOf, judgedAt } from "../../widgets/static/maths.js";
import { unpack } from "../../widgets/static/wire.js";

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
 */

/**
 * @typedef {object} Content  what `recorded.py` packs
 * @property {number} tau
 * @property {import("../../widgets/static/messages.js").Asked} asked
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

/**
 * One view as the traits of the explorer: each value once, in rising order.
 * @param {View} view
 * @param {ArrayLike<number>} logLira  of the members in their order
 * @param {[number, number]} etaRange
 * @param {number} version
 */
export function wireOf(view, logLira, etaRange, version) {
  const { order, counts, shared, packed } = packedScores(scoresOf(view), view.wide);
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
    ...packed,
  };
  return { data, counts, shared, rising: Float64Array.from(order, (i) => logLira[i]) };
}

/** @typedef {ReturnType<typeof wireOf>} Wire */

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
  const ranks = views.map((view) => ranksOf(scoresOf(view)));
  return { n, ranks, bits: bitsOf(logLira, eta) };
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
