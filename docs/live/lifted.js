/** PSMI of points in the plane after dimensions of noise are added. No DOM. */

import { addValues, lineThrough } from "../../memowidgets/teaching/static/psmi_maths.js";

const DIRECTIONS = 256;

/**
 * @param {Float64Array} points  x and y in turn
 * @param {Uint8Array} labels
 */
function deviationWithin(points, labels) {
  const sizes = new Float64Array(Math.max(...labels) + 1);
  const means = new Float64Array(2 * sizes.length);
  labels.forEach((label) => (sizes[label] += 1));
  points.forEach((value, i) => (means[2 * labels[i >> 1] + (i & 1)] += value / sizes[labels[i >> 1]]));
  const squares = points.reduce((sum, value, i) => sum + (value - means[2 * labels[i >> 1] + (i & 1)]) ** 2, 0);
  return { sizes, deviation: Math.sqrt(squares / points.length) || 1 };
}

/** @param {Float64Array} sorted @param {number} share */
function quantile(sorted, share) {
  const at = share * (sorted.length - 1);
  const low = Math.floor(at);
  return sorted[low] + (at - low) * (sorted[Math.min(low + 1, sorted.length - 1)] - sorted[low]);
}

/**
 * A plain mean over random directions, in each number of dimensions.
 * @param {Float64Array} points  x and y in turn
 * @param {Uint8Array} labels
 * @param {number} selected
 * @param {number[]} dimensions
 * @param {(seed: number, start: number, count: number) => Float64Array} normals
 */
export function inDimensions(points, labels, selected, dimensions, normals) {
  const n = labels.length;
  const { sizes, deviation } = deviationWithin(points, labels);
  const prior = sizes.map((size) => size / n);
  const most = Math.max(...dimensions);
  const noise = normals(1, 0, n * most);
  return dimensions.map((dimension) => {
    const directions = normals(2 + dimension, 0, DIRECTIONS * dimension);
    const sums = new Float64Array(n);
    let [before, squares] = [0, 0];
    const z = new Float64Array(n);
    for (let j = 0; j < DIRECTIONS; j++) {
      const direction = directions.subarray(j * dimension, (j + 1) * dimension);
      const length = Math.hypot(...direction);
      for (let i = 0; i < n; i++) {
        let sum = direction[0] * points[2 * i] + direction[1] * points[2 * i + 1];
        for (let k = 2; k < dimension; k++) sum += direction[k] * deviation * noise[i * most + k];
        z[i] = sum / length;
      }
      addValues(lineThrough(z, labels, prior), prior, z, labels, 1, sums);
      squares += (sums[selected] - before) ** 2;
      before = sums[selected];
    }
    const psmi = sums.map((sum) => sum / DIRECTIONS);
    const others = psmi.filter((_, i) => i !== selected).sort();
    return {
      dimension,
      psmi: psmi[selected],
      std: Math.sqrt(Math.max(0, squares / DIRECTIONS - psmi[selected] ** 2) / (DIRECTIONS - 1)),
      others: [0.05, 0.5, 0.95].map((share) => quantile(others, share)),
      below: psmi.filter((value) => value <= 0).length / n,
    };
  });
}
