/** PSMI in the plane, and of the plane with more dimensions: pure functions. Points are x and y in turn. */

import { normals } from "./chance.js";
import {
  addValues,
  directionsFor,
  lineOf,
  pointwise,
  psmiOfRows,
} from "./psmi_maths.js";

/** @typedef {import("./psmi_maths.js").Line & {x: number, y: number}} Along  and the direction */

export const DIMENSIONS = [2, 4, 8, 16, 32, 64, 128, 256];
export const FAN = 24; // directions of the mean that moves with the hand
const DIRECTIONS = 256;

/**
 * The Gaussian of each class in the plane.
 * @typedef {object} Classes
 * @property {number} n
 * @property {number} count  of classes
 * @property {Float64Array} prior
 * @property {Float64Array} means  x and y in turn
 * @property {Float64Array} covariances  xx, xy and yy in turn
 * @property {number[]} whole  covariance of all points
 */

/**
 * @param {Float64Array} points
 * @param {Uint8Array} labels
 * @param {number} count  of classes
 * @returns {Classes}
 */
export function classesOf(points, labels, count) {
  const n = labels.length;
  const sizes = new Float64Array(count);
  const means = new Float64Array(2 * count);
  for (let i = 0; i < n; i++) {
    sizes[labels[i]] += 1;
    means[2 * labels[i]] += points[2 * i];
    means[2 * labels[i] + 1] += points[2 * i + 1];
  }
  for (let c = 0; c < count; c++) {
    means[2 * c] /= sizes[c];
    means[2 * c + 1] /= sizes[c];
  }
  const covariances = new Float64Array(3 * count);
  for (let i = 0; i < n; i++) {
    const c = labels[i];
    const dx = points[2 * i] - means[2 * c];
    const dy = points[2 * i + 1] - means[2 * c + 1];
    covariances[3 * c] += (dx * dx) / sizes[c];
    covariances[3 * c + 1] += (dx * dy) / sizes[c];
    covariances[3 * c + 2] += (dy * dy) / sizes[c];
  }
  const prior = sizes.map((size) => size / n);
  return {
    n,
    count,
    prior,
    means,
    covariances,
    whole: pooled(prior, means, covariances),
  };
}

/**
 * @param {Float64Array} prior
 * @param {Float64Array} means
 * @param {Float64Array} covariances
 */
function pooled(prior, means, covariances) {
  let middleX = 0;
  let middleY = 0;
  prior.forEach((p, c) => {
    middleX += p * means[2 * c];
    middleY += p * means[2 * c + 1];
  });
  const whole = [0, 0, 0];
  prior.forEach((p, c) => {
    const dx = means[2 * c] - middleX;
    const dy = means[2 * c + 1] - middleY;
    whole[0] += p * (covariances[3 * c] + dx * dx);
    whole[1] += p * (covariances[3 * c + 1] + dx * dy);
    whole[2] += p * (covariances[3 * c + 2] + dy * dy);
  });
  return whole;
}

/**
 * @param {Classes} classes
 * @param {number} x
 * @param {number} y
 * @returns {Along}
 */
export function along(classes, x, y) {
  const { prior, covariances } = classes;
  const [xx, xy, yy] = classes.whole;
  const spread = Math.sqrt(Math.max(0, x * x * xx + 2 * x * y * xy + y * y * yy));
  const means = prior.map(
    (_, c) => x * classes.means[2 * c] + y * classes.means[2 * c + 1],
  );
  const variances = prior.map((_, c) => variance(covariances, c, x, y));
  return { x, y, ...lineOf(prior, means, variances, spread) };
}

/**
 * @param {Float64Array} covariances
 * @param {number} c
 * @param {number} x
 * @param {number} y
 */
function variance(covariances, c, x, y) {
  const form = x * x * covariances[3 * c] + 2 * x * y * covariances[3 * c + 1];
  return Math.max(0, form + y * y * covariances[3 * c + 2]);
}

/**
 * Gaussians along directions that are evenly spaced over the half circle. In the plane their mean
 * is almost exactly the mean over all directions.
 * @param {Classes} classes
 * @param {number} count
 */
export function fan(classes, count) {
  return Array.from({ length: count }, (_, i) => {
    const angle = (Math.PI * i) / count;
    return along(classes, Math.cos(angle), Math.sin(angle));
  });
}

/**
 * PSMI of every point, as the mean over a fan of directions.
 * @param {Float64Array} points
 * @param {Uint8Array} labels
 * @param {Classes} classes
 * @param {Along[]} lines
 * @param {Float64Array} found
 */
export function psmiOfAll(points, labels, classes, lines, found) {
  const z = new Float64Array(labels.length);
  found.fill(0);
  for (const line of lines) {
    for (let i = 0; i < z.length; i++)
      z[i] = line.x * points[2 * i] + line.y * points[2 * i + 1];
    addValues(line, classes.prior, z, labels, 1 / lines.length, found);
  }
}

/**
 * The points in more dimensions: noise that is independent of the labels fills all but two.
 * @param {Float64Array} points
 * @param {Classes} classes
 * @param {number} dimension
 */
export function lifted(points, { n, prior, covariances }, dimension) {
  const within = prior.reduce(
    (sum, p, c) => sum + (p * (covariances[3 * c] + covariances[3 * c + 2])) / 2,
    0,
  );
  const deviation = Math.sqrt(within) || 1;
  const noise = normals(1, 0, n * dimension); // fewer dimensions are the first ones of more
  return Float64Array.from(noise, (_, at) => {
    const [i, k] = [Math.floor(at / dimension), at % dimension];
    return k < 2 ? points[2 * i + k] : deviation * noise[k * n + i];
  });
}

/**
 * What a cloud's PSMI is in so many dimensions.
 * @typedef {object} Summary
 * @property {number} dimension
 * @property {number} psmi  of the selected point
 * @property {number} std
 * @property {number[]} others  5 %, median and 95 %
 */

/**
 * PSMI in a number of dimensions, by a plain mean. It yields after each direction, because many points take long.
 * @param {{points: Float64Array, labels: Uint8Array, selected: number}} cloud
 * @param {Classes} classes
 * @param {number} dimension
 * @returns {Generator<void, Summary>}
 */
export function* inDimensions({ points, labels, selected }, classes, dimension) {
  const rows = lifted(points, classes, dimension);
  const directions = directionsFor(dimension, DIRECTIONS);
  const psmi = new Float64Array(classes.n);
  let squares = 0;
  for (let j = 0; j < DIRECTIONS; j++) {
    const values = psmiOfRows(
      rows,
      labels,
      classes.count,
      directions.subarray(j * dimension, (j + 1) * dimension),
    );
    values.forEach((value, i) => (psmi[i] += value / DIRECTIONS));
    squares += values[selected] ** 2 / DIRECTIONS;
    yield;
  }
  const others = psmi.filter((_, i) => i !== selected).sort();
  return {
    dimension,
    psmi: psmi[selected],
    std: Math.sqrt(Math.max(0, squares - psmi[selected] ** 2) / (DIRECTIONS - 1)),
    others: [0.05, 0.5, 0.95].map(
      (share) => others[Math.round(share * (others.length - 1))],
    ),
  };
}

/**
 * One point's value along each direction of a fan.
 * @param {Along[]} lines
 * @param {Classes} classes
 * @param {number} x
 * @param {number} y
 * @param {number} label
 */
export function valuesOf(lines, classes, x, y, label) {
  return lines.map((line) =>
    pointwise(line, classes.prior, line.x * x + line.y * y, label),
  );
}
