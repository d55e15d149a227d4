/**
 * A small network that learns points in the plane: data, training, what it says of each point.
 * No DOM. The functions of `workerText` run in a worker too, so they use nothing outside of them
 * but each other.
 */

import { mixed, normals, uniforms } from "./chance.js";

export const EPOCHS = 150;
export const MODELS = 32; // shadow models, half of them with a sample
export const DIRECTIONS = 1024; // with 256 PSMI's five were sometimes not those of metrics.PSMI

/**
 * @typedef {object} Network  two hidden layers of tanh, and Adam's moments
 * @property {number} width
 * @property {number} classes
 * @property {number} seed
 * @property {Float64Array} weights
 * @property {Float64Array} first
 * @property {Float64Array} second
 * @property {number} steps
 * @property {number} epoch
 */

/** @typedef {{points: Float64Array, labels: Uint8Array}} Data */

/** @typedef {{x: number, y: number, columns: number, rows: number}} Grid  half sides, and cells */

/**
 * Points of Gaussian classes around a circle, of which a share has a wrong label.
 * @param {number} n
 * @param {number} classes
 * @param {number} noise
 * @param {number} seed
 */
export function makeData(n, classes, noise, seed) {
  const z = normals(2 * seed + 1000, 0, 2 * n);
  const u = uniforms(2 * seed + 1001, 0, 2 * n);
  const points = new Float64Array(2 * n);
  const labels = new Uint8Array(n);
  const wrong = new Uint8Array(n);
  for (let i = 0; i < n; i++) {
    const own = i % classes;
    const around = (2 * Math.PI * own) / classes + Math.PI / 6;
    const [long, short, turn] = [z[2 * i], 0.6 * z[2 * i + 1], around + Math.PI / 3];
    points[2 * i] =
      2.5 * Math.cos(around) + long * Math.cos(turn) - short * Math.sin(turn);
    points[2 * i + 1] =
      2.5 * Math.sin(around) + long * Math.sin(turn) + short * Math.cos(turn);
    wrong[i] = u[2 * i] < noise ? 1 : 0;
    labels[i] = wrong[i]
      ? (own + 1 + Math.floor(u[2 * i + 1] * (classes - 1))) % classes
      : own;
  }
  return { points, labels, wrong };
}

/**
 * @param {number} width
 * @param {number} classes
 * @param {number} seed
 * @returns {Network}
 */
export function begin(width, classes, seed) {
  const sizes = [2, width, width, classes];
  const scales = [3 / Math.sqrt(2), 1.5 / Math.sqrt(width), 0.1 / Math.sqrt(width)];
  const count = 3 * width + width * (width + 1) + classes * (width + 1);
  const z = normals(seed, 0, count);
  const weights = new Float64Array(count);
  let at = 0;
  for (let layer = 0; layer < 3; layer++) {
    const [entries, biases] = [sizes[layer] * sizes[layer + 1], sizes[layer + 1]];
    for (let i = 0; i < entries; i++) weights[at + i] = scales[layer] * z[at + i];
    if (layer === 0)
      for (let i = entries; i < entries + biases; i++) weights[at + i] = 3 * z[at + i];
    at += entries + biases;
  }
  return {
    width,
    classes,
    seed,
    weights,
    steps: 0,
    epoch: 0,
    first: new Float64Array(count),
    second: new Float64Array(count),
  };
}

/**
 * @param {Network} network
 * @param {number} x
 * @param {number} y
 * @param {Float64Array} one  first hidden layer, filled
 * @param {Float64Array} two  second hidden layer, filled
 * @param {Float64Array} logits  filled
 */
export function forward({ width, weights: w }, x, y, one, two, logits) {
  const [b1, w2] = [2 * width, 3 * width];
  const b2 = w2 + width * width;
  const w3 = b2 + width;
  const b3 = w3 + logits.length * width;
  for (let i = 0; i < width; i++)
    one[i] = Math.tanh(w[2 * i] * x + w[2 * i + 1] * y + w[b1 + i]);
  for (let i = 0; i < width; i++) {
    let sum = w[b2 + i];
    const row = w2 + i * width;
    for (let j = 0; j < width; j++) sum += w[row + j] * one[j];
    two[i] = Math.tanh(sum);
  }
  for (let c = 0; c < logits.length; c++) {
    let sum = w[b3 + c];
    const row = w3 + c * width;
    for (let j = 0; j < width; j++) sum += w[row + j] * two[j];
    logits[c] = sum;
  }
}

/**
 * Trains for one epoch: Adam, five samples a step, a rate that rises for a quarter of the training
 * and then falls to 0.
 * @param {Network} network
 * @param {Data} data
 * @param {Uint16Array} rows  samples that it trains on
 */
export function trainEpoch(network, { points, labels }, rows) {
  const [batch, rate, warm, epochs] = [5, 0.015, 0.25, 150];
  const { width, classes, weights: w, first, second } = network;
  const n = rows.length;
  const u = uniforms(network.seed + 1, network.epoch * n, n);
  const order = new Uint16Array(n);
  for (let i = 0; i < n; i++) {
    const j = Math.floor(u[i] * (i + 1));
    order[i] = order[j];
    order[j] = i;
  }
  const [b1, w2] = [2 * width, 3 * width];
  const b2 = w2 + width * width;
  const w3 = b2 + width;
  const b3 = w3 + classes * width;
  const slopes = new Float64Array(w.length);
  const [one, two, backOne, backTwo] = [0, 1, 2, 3].map(() => new Float64Array(width));
  const logits = new Float64Array(classes);
  for (let start = 0; start < n; start += batch) {
    const end = Math.min(n, start + batch);
    slopes.fill(0);
    for (let q = start; q < end; q++) {
      const i = rows[order[q]];
      const [x, y] = [points[2 * i], points[2 * i + 1]];
      forward(network, x, y, one, two, logits);
      const top = Math.max(...logits);
      let sum = 0;
      for (let c = 0; c < classes; c++) sum += logits[c] = Math.exp(logits[c] - top);
      backOne.fill(0);
      backTwo.fill(0);
      for (let c = 0; c < classes; c++) {
        const d = logits[c] / sum - (c === labels[i] ? 1 : 0);
        const row = w3 + c * width;
        slopes[b3 + c] += d;
        for (let j = 0; j < width; j++) {
          slopes[row + j] += d * two[j];
          backTwo[j] += d * w[row + j];
        }
      }
      for (let a = 0; a < width; a++) {
        const d = backTwo[a] * (1 - two[a] * two[a]);
        const row = w2 + a * width;
        slopes[b2 + a] += d;
        for (let j = 0; j < width; j++) {
          slopes[row + j] += d * one[j];
          backOne[j] += d * w[row + j];
        }
      }
      for (let a = 0; a < width; a++) {
        const d = backOne[a] * (1 - one[a] * one[a]);
        slopes[b1 + a] += d;
        slopes[2 * a] += d * x;
        slopes[2 * a + 1] += d * y;
      }
    }
    network.steps += 1;
    const done = (network.epoch + start / n) / epochs;
    const step = rate * Math.max(0, Math.min(done / warm, (1 - done) / (1 - warm)));
    const [c1, c2] = [1 - 0.9 ** network.steps, 1 - 0.999 ** network.steps];
    for (let p = 0; p < w.length; p++) {
      const slope = slopes[p] / (end - start);
      first[p] = 0.9 * first[p] + 0.1 * slope;
      second[p] = 0.999 * second[p] + 0.001 * slope * slope;
      w[p] -= (step * (first[p] / c1)) / (Math.sqrt(second[p] / c2) + 1e-8);
    }
  }
  network.epoch += 1;
}

/**
 * What the network says of each point: logit gap, loss, and representation (last hidden layer).
 * @param {Network} network
 * @param {Data} data
 */
export function look(network, { points, labels }) {
  const [n, { width, classes }] = [labels.length, network];
  const [one, two, logits] = [
    new Float64Array(width),
    new Float64Array(width),
    new Float64Array(classes),
  ];
  const [gaps, losses, states] = [
    new Float64Array(n),
    new Float64Array(n),
    new Float64Array(n * width),
  ];
  for (let i = 0; i < n; i++) {
    forward(network, points[2 * i], points[2 * i + 1], one, two, logits);
    const own = logits[labels[i]];
    const top = Math.max(...logits);
    let other = -Infinity;
    let sum = 0;
    for (let c = 0; c < classes; c++) {
      if (c !== labels[i]) other = Math.max(other, logits[c]);
      sum += Math.exp(logits[c] - top);
    }
    gaps[i] = own - other;
    losses[i] = Math.log(sum) + top - own;
    states.set(two, i * width);
  }
  return { gaps, losses, states };
}

/**
 * The likeliest class in each cell of the plane, and its probability.
 * @param {Network} network
 * @param {Grid} grid
 */
export function plane(network, { x, y, columns, rows }) {
  const [one, two, logits] = [
    new Float64Array(network.width),
    new Float64Array(network.width),
    new Float64Array(network.classes),
  ];
  const cells = new Float32Array(columns * rows); // class, and above it the probability below 1
  for (let r = 0; r < rows; r++) {
    for (let c = 0; c < columns; c++) {
      forward(
        network,
        x * ((2 * c + 1) / columns - 1),
        y * (1 - (2 * r + 1) / rows),
        one,
        two,
        logits,
      );
      const top = Math.max(...logits);
      let sum = 0;
      for (let k = 0; k < logits.length; k++) sum += Math.exp(logits[k] - top);
      cells[r * columns + c] = logits.indexOf(top) + Math.min(0.999, 1 / sum);
    }
  }
  return cells;
}

/** What a worker runs: it gets a message, and answers with what `reply` gets. @returns {string} */
export function workerText() {
  const parts = [
    mixed,
    uniforms,
    normals,
    begin,
    forward,
    trainEpoch,
    look,
    plane,
    serve,
  ];
  return `${parts.map(String).join("\n")}\nself.onmessage = serve((found) => self.postMessage(found));`;
}

/**
 * @typedef {object} Task
 * @property {"begin" | "advance" | "shadow"} kind
 * @property {number} [width]
 * @property {number} [classes]
 * @property {number} [seed]
 * @property {Data} [data]
 * @property {Uint16Array} [rows]
 * @property {number} [epochs]
 * @property {number} [id]  returned with the answer
 * @property {Grid} [grid]
 */

/**
 * @typedef {object} Found
 * @property {number} epoch
 * @property {Float64Array} gaps
 * @property {Float64Array} losses
 * @property {Float64Array} states
 * @property {Float32Array} cells
 * @property {number} [id]
 */

/**
 * Answers tasks: the network that is watched moves by epochs, a shadow model is trained whole.
 * @param {(found: Found) => void} reply
 * @returns {(event: {data: Task}) => void}
 */
export function serve(reply) {
  /** @type {any} */
  let watched = null;
  return ({ data: task }) => {
    if (task.kind !== "advance") {
      watched = {
        network: begin(task.width ?? 8, task.classes ?? 2, task.seed ?? 0),
        data: task.data,
        rows: task.rows,
      };
    }
    for (let i = 0; i < (task.epochs ?? 0); i++)
      trainEpoch(watched.network, watched.data, watched.rows);
    const cells = task.grid ? plane(watched.network, task.grid) : new Float32Array(0);
    reply({
      id: task.id,
      epoch: watched.network.epoch,
      cells,
      ...look(watched.network, watched.data),
    });
  };
}

/** @param {ArrayLike<number>} values */
export function median(values) {
  const sorted = Float64Array.from(values).sort();
  const half = sorted.length >> 1;
  return sorted.length % 2 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}

/**
 * Positions of the lowest values, lowest first.
 * @param {ArrayLike<number>} values
 * @param {number} count
 */
export function lowest(values, count) {
  return Array.from(values, (_, i) => i)
    .sort((a, b) => values[a] - values[b])
    .slice(0, count);
}

/**
 * Which shadow models train on which samples: judged ones are in exactly half of the models, and
 * all others in each.
 * @param {number} n
 * @param {number[]} judged
 * @param {number} seed
 */
export function membersOf(n, judged, seed) {
  const members = Array.from({ length: MODELS }, () => new Uint8Array(n).fill(1));
  for (const sample of judged) {
    const u = uniforms(9000 + seed, sample * MODELS, MODELS);
    for (const model of lowest(u, MODELS / 2)) members[model][sample] = 0;
  }
  return members;
}
