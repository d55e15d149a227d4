/** What an opened member of a recorded audit shows: its score everywhere, and its shadow gaps. No DOM. */

import { unpackBits } from "../../widgets/static/wire.js";
import { scoresOf } from "./views.js";

/** @typedef {import("./views.js").View} View */

const NOT_COUNTED = 255;

/**
 * @typedef {object} Shadows  one member after the other
 * @property {number} models
 * @property {string} checkpoint
 * @property {Uint8Array} gaps  two bytes each, in tenths
 * @property {Uint8Array} inside  a bit each
 * @property {Uint8Array} target  float32
 * @property {Uint8Array} fits  float32: mean and variance inside, then outside
 * @property {Uint8Array} support  models that memorised it at the recorded η, and those that trained on it
 */

/** @typedef {import("../../widgets/static/messages.js").Picked} Choice */

/**
 * @typedef {object} Audit
 * @property {{checkpoints: Choice[], layers: Choice[], metrics: Choice[]}} choices
 * @property {View[]} views
 * @property {import("./samples.js").Samples | null} samples
 */

/**
 * @param {Audit} audit
 * @param {View} shown
 * @param {string} layer  that is picked
 * @param {number} logLira
 * @param {number} position
 * @param {boolean} asRecorded  whether η is where it was recorded
 * @returns {import("../../widgets/static/messages.js").KnownShown}
 */
export function detailOf(audit, shown, layer, logLira, position, asRecorded) {
  const { choices, views, samples } = audit;
  const of = views.filter((view) => view.metric === shown.metric);
  const all = choices.layers.map((choice) => ({
    ...choice,
    marked: choice.value === layer,
  }));
  const layers = shown.layer === "" ? [{ value: "", label: "", marked: true }] : all;
  const checkpoints = choices.checkpoints.map((choice) => ({
    ...choice,
    label: choice.label.split(" · ")[0],
    marked: choice.value === shown.checkpoint,
  }));
  const scores = checkpoints.map((checkpoint) =>
    layers.map((at) => {
      const view = of.find(
        (one) => one.checkpoint === checkpoint.value && one.layer === at.value,
      );
      return view === undefined ? null : scoresOf(view)[position];
    }),
  );
  const title =
    choices.metrics.find((choice) => choice.value === shown.metric)?.label ??
    shown.metric;
  return {
    title,
    checkpoints,
    layers,
    scores,
    digits: shown.digits,
    shadows: samples && {
      ...shadowsOf(samples.shadows, logLira, position),
      support: asRecorded ? supportOf(samples.shadows, position) : null,
    },
    neighbours: [],
    notes: [],
  };
}

/**
 * @param {Shadows} shadows
 * @param {number} logLira
 * @param {number} position
 */
function shadowsOf(
  { models, checkpoint, gaps, inside, target, fits },
  logLira,
  position,
) {
  const start = position * models;
  const tenths = new Int16Array(gaps.buffer, 2 * start, models);
  const isIn = unpackBits(inside, start + models).subarray(start);
  const of = (/** @type {number} */ side) =>
    Array.from(tenths)
      .filter((_, i) => isIn[i] === side)
      .map((gap) => gap / 10)
      .sort((a, b) => a - b);
  const sides = [of(1), of(0)];
  const [meanIn, varianceIn, meanOut, varianceOut] = new Float32Array(
    fits.buffer,
    16 * position,
    4,
  );
  return {
    inside: sides[0],
    outside: sides[1],
    models: /** @type {[number, number]} */ ([sides[0].length, sides[1].length]),
    target: new Float32Array(target.buffer)[position],
    fitIn: /** @type {[number, number]} */ ([meanIn, Math.sqrt(varianceIn)]),
    fitOut: /** @type {[number, number]} */ ([meanOut, Math.sqrt(varianceOut)]),
    logLira,
    checkpoint,
  };
}

/**
 * How many models memorised a member, of how many that trained on it; null where too few did.
 * @param {Shadows} shadows
 * @param {number} position
 * @returns {[number, number] | null}
 */
function supportOf({ support }, position) {
  const [many, of] = support.subarray(2 * position, 2 * position + 2);
  return of === undefined || many === NOT_COUNTED ? null : [many, of];
}
