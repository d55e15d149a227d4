/** PSMI of one point in the plane from a growing number of directions, with control variates. */

import { along, pointwise } from "./psmi_maths.js";

/** @typedef {import("./psmi_maths.js").Classes} Classes */

const LEAST_TAIL = 1e-3; // of a class's mean variance
const LEAST_SIZE = 1e-9; // of a class's trace, in the largest one
const ROUNDING = 1e-6; // of a control's mean square
const RIDGE = 1e-4; // of a control's variance
const FOLDS = 4;
const FEWEST = 64; // directions from which on control variates are regressed

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
 * One point's PSMI from a growing number of directions, as `metrics.PSMI` estimates it in space.
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
    return own > (ROUNDING * sum(c, c)) / n + ROUNDING ** 2 ? 1 / Math.sqrt(own) : 0;
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
