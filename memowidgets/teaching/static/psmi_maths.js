/** PSMI of projections: pure functions of arrays, no DOM. */

import { normals } from "./chance.js";

const FLOOR = 1e-6; // of the deviation of all points along a direction

/**
 * The classes' Gaussians along one direction.
 * @typedef {object} Line
 * @property {Float64Array} means
 * @property {Float64Array} deviations
 * @property {Float64Array} offsets  log p(y) − log deviation
 * @property {boolean} flat  whether all points project onto one place
 */

/**
 * @param {Float64Array} prior
 * @param {Float64Array} means
 * @param {Float64Array} variances
 * @param {number} spread  deviation of all projections
 * @returns {Line}
 */
export function lineOf(prior, means, variances, spread) {
  const deviations = variances.map((value) =>
    Math.max(Math.sqrt(value), FLOOR * spread),
  );
  const offsets = prior.map((p, c) => Math.log(p) - Math.log(deviations[c]));
  return { means, deviations, offsets, flat: spread === 0 };
}

/**
 * log p(z | y) − log p(z) of a projection z: the one place of PSMI's formula for any number of classes.
 * @param {Line} line
 * @param {Float64Array} prior
 * @param {number} z
 * @param {number} label
 * @param {Float64Array} [logs]  room for a number for each class
 */
export function pointwise(
  line,
  prior,
  z,
  label,
  logs = new Float64Array(prior.length),
) {
  if (line.flat) return 0;
  const { means, deviations, offsets } = line;
  for (let c = 0; c < means.length; c++) {
    const d = (z - means[c]) / deviations[c];
    logs[c] = offsets[c] - 0.5 * d * d;
  }
  let sum = 1;
  let top = 0;
  for (let c = 0; c < means.length; c++) {
    if (c === label) continue;
    const above = logs[c] - logs[label];
    if (above > top) top = above;
    if (above > -40) sum += Math.exp(above);
  }
  return -Math.log(prior[label]) - (top < 600 ? Math.log(sum) : top); // exp would overflow
}

/**
 * Adds to each sum the weighted value log p(z | y) − log p(z) of a projection.
 * @param {Line} line
 * @param {Float64Array} prior
 * @param {Float64Array} z
 * @param {Uint8Array} labels
 * @param {number} weight
 * @param {Float64Array} sums
 */
export function addValues(line, prior, z, labels, weight, sums) {
  const logs = new Float64Array(prior.length);
  for (let i = 0; i < labels.length; i++)
    sums[i] += weight * pointwise(line, prior, z[i], labels[i], logs);
}

/**
 * The classes' Gaussians among projections.
 * @param {Float64Array} z
 * @param {Uint8Array} labels
 * @param {Float64Array} prior
 */
export function lineThrough(z, labels, prior) {
  const means = new Float64Array(prior.length);
  const variances = new Float64Array(prior.length);
  const n = z.length;
  const middle = z.reduce((sum, value) => sum + value / n, 0);
  z.forEach((value, i) => (means[labels[i]] += value / n / prior[labels[i]]));
  z.forEach(
    (value, i) =>
      (variances[labels[i]] += (value - means[labels[i]]) ** 2 / n / prior[labels[i]]),
  );
  const spread = Math.sqrt(
    z.reduce((sum, value) => sum + (value - middle) ** 2 / n, 0),
  );
  return lineOf(prior, means, variances, spread);
}

/**
 * PSMI of rows of any width, as the plain mean over given directions.
 * @param {Float64Array} rows  one after the other
 * @param {Uint8Array} labels
 * @param {number} classes
 * @param {Float64Array} directions  one after the other
 */
export function psmiOfRows(rows, labels, classes, directions) {
  const n = labels.length;
  const width = rows.length / n;
  const count = directions.length / width;
  const prior = new Float64Array(classes);
  labels.forEach((label) => (prior[label] += 1 / n));
  const z = new Float64Array(n);
  const sums = new Float64Array(n);
  for (let j = 0; j < count; j++) {
    for (let i = 0; i < n; i++) {
      let sum = 0;
      for (let k = 0; k < width; k++)
        sum += directions[j * width + k] * rows[i * width + k];
      z[i] = sum;
    }
    addValues(lineThrough(z, labels, prior), prior, z, labels, 1 / count, sums);
  }
  return sums;
}

/**
 * Random directions for rows of some width, each of length 1.
 * @param {number} width
 * @param {number} count
 */
export function directionsFor(width, count) {
  const found = normals(5, 0, count * width);
  for (let j = 0; j < count; j++) {
    const length = Math.hypot(...found.subarray(j * width, (j + 1) * width));
    for (let k = 0; k < width; k++) found[j * width + k] /= length;
  }
  return found;
}
