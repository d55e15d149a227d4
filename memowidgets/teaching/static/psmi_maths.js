/** PSMI in the plane: pure functions of arrays, no DOM. Points are x and y in turn. */

const FLOOR = 1e-6; // of the deviation of all points along a direction
const LEAST_TAIL = 1e-3; // of a class's mean variance
const LEAST_SIZE = 1e-9; // of a class's trace, in the largest one
const RIDGE = 1e-6;
const FOLDS = 4;
export const FEWEST = 64; // directions from which on control variates are regressed

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
  return { n, count, prior, means, covariances, whole: pooled(prior, means, covariances) };
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
  const deviations = variances.map((value) => Math.max(Math.sqrt(value), FLOOR * spread));
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
  const means = prior.map((_, c) => x * classes.means[2 * c] + y * classes.means[2 * c + 1]);
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
export function pointwise(line, prior, z, label, logs = new Float64Array(prior.length)) {
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
    for (let i = 0; i < z.length; i++) z[i] = line.x * points[2 * i] + line.y * points[2 * i + 1];
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
  for (let i = 0; i < labels.length; i++) sums[i] += weight * pointwise(line, prior, z[i], labels[i], logs);
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
  z.forEach((value, i) => (variances[labels[i]] += (value - means[labels[i]]) ** 2 / n / prior[labels[i]]));
  const spread = Math.sqrt(z.reduce((sum, value) => sum + (value - middle) ** 2 / n, 0));
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
      z[i] = 0;
      for (let k = 0; k < width; k++) z[i] += directions[j * width + k] * rows[i * width + k];
    }
    addValues(lineThrough(z, labels, prior), prior, z, labels, 1 / count, sums);
  }
  return sums;
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
  return lines.map((line) => pointwise(line, classes.prior, line.x * x + line.y * y, label));
}

/* ---------------------------------------------------------------- control variates */

/**
 * A class's covariance as its two eigenvalues and the first eigenvector.
 * @param {Classes} classes
 */
function shapesOf(classes) {
  const traces = Array.from({ length: classes.count }, (_, c) => {
    return classes.covariances[3 * c] + classes.covariances[3 * c + 2];
  });
  const least = LEAST_SIZE * Math.max(...traces) || 1;
  return traces.map((trace, c) => {
    const [xx, xy, yy] = classes.covariances.subarray(3 * c, 3 * c + 3);
    const angle = 0.5 * Math.atan2(2 * xy, xx - yy);
    const large = 0.5 * (xx + yy + Math.hypot(xx - yy, 2 * xy));
    const size = Math.max(trace, least);
    const floor = (LEAST_TAIL * size) / 2;
    const first = Math.max(large, floor);
    const second = Math.max(size - large, floor);
    return { x: Math.cos(angle), y: Math.sin(angle), first, second };
  });
}

/**
 * One point's variables along each direction, the constant among them, as running sums of all
 * products, and the exact means of its controls.
 * @param {Classes} classes
 * @param {Float32Array} directions  x and y in turn
 * @param {number} x
 * @param {number} y
 * @param {number} label
 */
function variablesOf(classes, directions, x, y, label) {
  const { count } = classes;
  const m = directions.length / 2;
  const width = 2 * count + 2;
  const rows = new Float64Array(m * width);
  const shapes = shapesOf(classes);
  const roots = shapes.map(({ first, second }) => Math.sqrt(first * second));
  const logs = shapes.map((s) => 2 * Math.log((Math.sqrt(s.first) + Math.sqrt(s.second)) / 2));
  for (let j = 0; j < m; j++) {
    const line = along(classes, directions[2 * j], directions[2 * j + 1]);
    const z = line.x * x + line.y * y;
    const at = j * width;
    rows[at] = pointwise(line, classes.prior, z, label);
    rows[at + count + 1] = 1;
    shapes.forEach((shape, c) => {
      const u = line.x * shape.x + line.y * shape.y;
      const form = shape.second + (shape.first - shape.second) * u * u;
      rows[at + 1 + c] = (z - line.means[c]) ** 2 / form;
      rows[at + count + 2 + c] = Math.log(form) - logs[c];
    });
  }
  const expected = new Float64Array(width);
  shapes.forEach((shape, c) => {
    const dx = x - classes.means[2 * c];
    const dy = y - classes.means[2 * c + 1];
    const a = dx * shape.x + dy * shape.y;
    const b = dy * shape.x - dx * shape.y;
    expected[1 + c] = (a * a) / (shape.first + roots[c]) + (b * b) / (shape.second + roots[c]);
  });
  return { sums: runningProducts(rows, m, width), expected, width, m };
}

/**
 * @param {Float64Array} rows
 * @param {number} m
 * @param {number} width
 */
function runningProducts(rows, m, width) {
  const size = width * width;
  const sums = new Float64Array((m + 1) * size);
  for (let j = 0; j < m; j++) {
    for (let a = 0; a < width; a++) {
      for (let b = 0; b < width; b++) {
        const at = a * width + b;
        const product = rows[j * width + a] * rows[j * width + b];
        sums[(j + 1) * size + at] = sums[j * size + at] + product;
      }
    }
  }
  return sums;
}

/**
 * @typedef {object} Running  means of the first m directions, with standard errors
 * @property {number[]} m
 * @property {number[]} mean
 * @property {number[]} error
 */

/**
 * One point's PSMI from a growing number of directions, as `metrics.PSMI` estimates it.
 * @param {Classes} classes
 * @param {Float32Array} directions
 * @param {number} x
 * @param {number} y
 * @param {number} label
 * @param {number} step
 * @returns {{plain: Running, corrected: Running}}
 */
export function runningMeans(classes, directions, x, y, label, step) {
  const sums = variablesOf(classes, directions, x, y, label);
  const constant = classes.count + 1;
  const controls = Array.from({ length: sums.width }, (_, i) => i);
  const enough = Math.max(FEWEST, 16 * classes.count);
  /** @type {Running} */
  const plain = { m: [], mean: [], error: [] };
  /** @type {Running} */
  const corrected = { m: [], mean: [], error: [] };
  const others = controls.filter((i) => i !== 0 && i !== constant);
  for (let m = step; m <= sums.m; m += step) {
    note(plain, m, estimate(sums, m, constant, []));
    if (m >= enough) note(corrected, m, estimate(sums, m, constant, others));
  }
  return { plain, corrected };
}

/**
 * @param {Running} running
 * @param {number} m
 * @param {[number, number]} found
 */
function note(running, m, [mean, error]) {
  running.m.push(m);
  running.mean.push(mean);
  running.error.push(error);
}

/**
 * Mean of the first m values after the controls are regressed out, each quarter of the directions
 * with slopes from the others, and its standard error.
 * @param {{sums: Float64Array, expected: Float64Array, width: number}} variables
 * @param {number} m
 * @param {number} constant
 * @param {number[]} controls
 * @returns {[number, number]}
 */
function estimate({ sums, expected, width }, m, constant, controls) {
  const size = width * width;
  let total = 0;
  let squares = 0;
  for (let fold = 0; fold < FOLDS; fold++) {
    const start = Math.floor((m * fold) / FOLDS) * size;
    const end = Math.floor((m * (fold + 1)) / FOLDS) * size;
    /** @type {(a: number, b: number) => number} */
    const here = (a, b) => sums[end + a * width + b] - sums[start + a * width + b];
    /** @type {(a: number, b: number) => number} */
    const elsewhere = (a, b) => sums[m * size + a * width + b] - here(a, b);
    const slopes = controls.length > 0 ? slopesFrom(elsewhere, constant, controls) : [];
    const weights = new Float64Array(width);
    weights[0] = 1;
    controls.forEach((control, i) => {
      weights[control] = -slopes[i];
      weights[constant] += slopes[i] * expected[control];
    });
    for (let a = 0; a < width; a++) {
      if (weights[a] === 0) continue;
      total += weights[a] * here(a, constant);
      for (let b = 0; b < width; b++) squares += weights[a] * weights[b] * here(a, b);
    }
  }
  const mean = total / m;
  const freedom = Math.max(m - 1 - controls.length, 1);
  return [mean, Math.sqrt(Math.max(0, squares / m - mean * mean) / freedom)];
}

/**
 * Slopes of the value on each control, by Cholesky on correlations with a small ridge.
 * @param {(a: number, b: number) => number} sum
 * @param {number} constant
 * @param {number[]} controls
 */
function slopesFrom(sum, constant, controls) {
  const n = sum(constant, constant);
  /** @type {(a: number, b: number) => number} */
  const covariance = (a, b) => sum(a, b) / n - (sum(a, constant) * sum(b, constant)) / (n * n);
  const units = controls.map((c) => {
    const own = covariance(c, c);
    return own > (RIDGE * sum(c, c)) / n + RIDGE ** 2 ? 1 / Math.sqrt(own) : 0;
  });
  /** @type {number[][]} */
  const factor = [];
  /** @type {number[]} */
  const solution = [];
  controls.forEach((control, i) => {
    /** @type {number[]} */
    const row = [];
    for (let j = 0; j < i; j++) {
      let rest = covariance(control, controls[j]) * units[i] * units[j];
      for (let k = 0; k < j; k++) rest -= row[k] * factor[j][k];
      row.push(rest / factor[j][j]);
    }
    const left = row.reduce((sumSoFar, entry) => sumSoFar - entry * entry, 1 + RIDGE);
    row.push(Math.sqrt(Math.max(left, RIDGE)));
    factor.push(row);
    let right = covariance(0, control) * units[i];
    for (let k = 0; k < i; k++) right -= row[k] * solution[k];
    solution.push(right / row[i]);
  });
  for (let i = controls.length - 1; i >= 0; i--) {
    for (let k = i + 1; k < controls.length; k++) solution[i] -= factor[k][i] * solution[k];
    solution[i] /= factor[i][i];
  }
  return solution.map((entry, i) => entry * units[i]);
}
