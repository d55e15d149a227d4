/** What the kernel sends of scores and their truth, unpacked. */

import { bytesOf } from "./dom.js";
import { boundsOf, cumulative, makeScores, withMemorized } from "./maths.js";

/** @typedef {import("./maths.js").Scores} Scores */
/** @typedef {import("./maths.js").Bounds} Bounds */

/**
 * What the kernel sends of the scores, unpacked.
 * @typedef {object} Data
 * @property {number} version  counts the updates
 * @property {Scores} scores  without a truth
 * @property {ArrayLike<number>} shared  places of the values that several samples share
 * @property {Bounds | null} bounds  of two standard errors
 * @property {string} title
 * @property {string} truth  what counts as memorised; "" where η says it, or without ground truth
 * @property {[number, number] | null} etaRange  where its slider ends; null where η says nothing
 * @property {string} note  on samples that are left out
 * @property {number | null} natural  threshold that means the same for every model
 * @property {string} axis  on which the scores are shown
 * @property {string[]} axes  "score", and "class" where it can be shown against its class
 */

/**
 * @param {import("./messages.js").ScoresShown} wire
 * @returns {Data}
 */
export function unpack(wire) {
  const values = floats(wire.values, wire.wide);
  const shared = unsigned(wire.shared, wire.n_shared);
  const ties = unsigned(wire.ties, wire.n_shared);
  const counts = shared.length > 0 ? new Uint32Array(values.length).fill(1) : null;
  for (let i = 0; i < shared.length; i++)
    if (counts !== null) counts[shared[i]] = ties[i];
  const scores = makeScores(values, counts, null);
  const bounds =
    wire.levels && wire.codes
      ? boundsOf(scores, floats(wire.levels, true), unsigned(wire.codes, scores.n))
      : null;
  return {
    version: wire.version,
    scores,
    shared,
    bounds,
    title: wire.title,
    truth: wire.truth,
    etaRange: wire.eta_range,
    note: wire.note,
    natural: wire.natural,
    axis: wire.axis ?? "score",
    axes: wire.axes ?? ["score"],
  };
}

/**
 * The same scores with the truth that came for them.
 * @param {Data} data
 * @param {{bits: import("./messages.js").Bytes | null, of_shared: import("./messages.js").Bytes | null}} wire
 * @returns {Scores}
 */
export function unpackTruth(data, wire) {
  if (!wire.bits || !wire.of_shared) return withMemorized(data.scores, null);
  const memorizedAt = unpackBits(
    new Uint8Array(bytesOf(wire.bits)),
    data.scores.values.length,
  );
  const ofShared = unsigned(wire.of_shared, data.shared.length);
  for (let i = 0; i < data.shared.length; i++)
    memorizedAt[data.shared[i]] = ofShared[i];
  return withMemorized(data.scores, cumulative(memorizedAt.length, memorizedAt));
}

/** @param {string} text */
export function asSentence(text) {
  const sentence = text.charAt(0).toUpperCase() + text.slice(1);
  return /[.!?]$/.test(sentence) ? sentence : `${sentence}.`;
}

/**
 * @param {import("./messages.js").Bytes} bytes
 * @param {boolean} wide
 */
export function floats(bytes, wide) {
  return wide ? new Float64Array(bytesOf(bytes)) : new Float32Array(bytesOf(bytes));
}

/**
 * Whole numbers of one, two or four bytes. The number of bytes follows from the length.
 * @param {import("./messages.js").Bytes} bytes
 * @param {number} length
 * @returns {Uint8Array | Uint16Array | Uint32Array}
 */
export function unsigned(bytes, length) {
  const buffer = bytesOf(bytes);
  const size = length === 0 ? 1 : buffer.byteLength / length;
  if (size === 1) return new Uint8Array(buffer);
  return size === 2 ? new Uint16Array(buffer) : new Uint32Array(buffer);
}

/**
 * @param {Uint8Array} bits  eight samples a byte, the first in the highest bit
 * @param {number} length
 */
export function unpackBits(bits, length) {
  const flags = new Uint32Array(length);
  for (let i = 0; i < length; i++) flags[i] = (bits[i >> 3] >> (7 - (i & 7))) & 1;
  return flags;
}

/** Placeholder data until the first update. */
export const NOTHING = {
  version: 0,
  values: new Float32Array(1),
  wide: false,
  n_shared: 0,
  shared: new Uint8Array(0),
  ties: new Uint8Array(0),
  title: "",
  truth: "",
  eta_range: null,
  note: "",
  natural: null,
  axis: "score",
  levels: null,
  codes: null,
};
