/** What a page without a kernel knows of its samples, by checkpoint and layer. No DOM. */

import { majorityOf } from "../../widgets/static/opened.js";

/** @typedef {import("../../widgets/static/messages.js").Item} Item */

/**
 * @typedef {object} Near  the nearest samples of each, as many for every one
 * @property {Uint8Array} places  two bytes each
 * @property {Uint8Array} distances  float32
 */

/**
 * @typedef {object} Samples  one after the other
 * @property {string} kind  "mcq" or "image", as the list shows them
 * @property {string[]} choices  decisions that make sense here
 * @property {string[]} classes
 * @property {Partial<Item>[]} items  what each shows whatever is scored
 * @property {Uint8Array} pixels  of all items
 * @property {Uint8Array | null} right  1 where the finished model gives the label
 * @property {Record<string, Uint8Array>} probabilities  of each class, by checkpoint; two bytes each
 * @property {Record<string, Near>} near  by layer and checkpoint
 * @property {import("./details.js").Shadows} shadows
 */

const WHOLE = 65535; // of a probability in two bytes

/**
 * The probability that the model gives each class at a checkpoint; null where the page does not hold it.
 * @param {Samples} samples
 * @param {string} checkpoint
 * @param {number} position
 */
export function probabilitiesOf({ probabilities, classes }, checkpoint, position) {
  const found = probabilities[checkpoint];
  if (found === undefined) return null;
  const k = classes.length;
  const codes = new Uint16Array(found.buffer, 2 * k * position, k);
  return Array.from(codes, (code) => code / WHOLE);
}

/**
 * The nearest samples at a layer and checkpoint; none where the page does not hold them.
 * @param {Samples} samples
 * @param {string} place  layer and checkpoint
 * @param {number} position
 */
export function nearestOf({ near, items }, place, position) {
  const found = near[place];
  if (found === undefined) return [];
  const k = found.places.length / 2 / items.length;
  const places = new Uint16Array(found.places.buffer, 2 * k * position, k);
  const distances = new Float32Array(found.distances.buffer, 4 * k * position, k);
  return Array.from(places, (at, i) => ({ position: at, distance: distances[i] }));
}

/**
 * The class that the model finds most probable.
 * @param {number[]} probabilities
 */
export function guessOf(probabilities) {
  return probabilities.indexOf(Math.max(...probabilities));
}

/**
 * The samples with what the model and their neighbours say of them.
 * @param {Samples} samples
 * @param {string} layer
 * @param {string} checkpoint
 * @returns {Partial<Item>[]}
 */
export function itemsAt(samples, layer, checkpoint) {
  return samples.items.map((item, position) => {
    const known = probabilitiesOf(samples, checkpoint, position);
    if (known === null) return item;
    const { classes, items, kind } = samples;
    const label = item.answer ?? -1;
    const guess = guessOf(known);
    const near = nearestOf(samples, `${layer} ${checkpoint}`, position);
    const most = majorityOf(
      near.map((one) => ({ answer: items[one.position].answer ?? -1, label: "" })),
    );
    const options = classes.map((text, i) => ({
      text,
      hidden: 0,
      label: i === label,
      probability: known[i],
    }));
    return {
      ...item,
      guess: classes[guess],
      suggested: guess === label ? null : guess,
      guessProbability: known[guess],
      labelProbability: known[label],
      looksWrong: guess !== label && most?.answer === guess,
      ...(kind === "mcq" ? { options, asks: false } : {}),
    };
  });
}
