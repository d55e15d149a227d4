/** PSMI in the plane: pure functions of arrays, no DOM. Points are x and y in turn. */

import { normals } from "./chance.js";

export const DIMENSIONS = [2, 4, 8, 16, 32, 64, 128, 256];
const DIRECTIONS = 256;
const FLOOR = 1e-6; // of the deviation of all points along a direction

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
 * The classes' Gaussians along one direction.
 * @typedef {object} Line
 * @property {Float64Array} means
 * @property {Float64Array} deviations
 * @property {Float64Array} offsets  log p(y) − log deviation
 * @property {boolean} flat  whether all points project onto one place
 */

/** @typedef {Line & {x: number, y: number}} Along  and the direction */

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
