/** What moves on the site, without a page: bands of a ROC, and views in the explorer's form. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { load } from "./load.mjs";

const { bandOf } = await load("docs/live/band.js");
const { areaOf, comparedOf, judgedOf, wireOf } = await load("docs/live/views.js");
const { normals } = await load("memowidgets/teaching/static/chance.js");
const { countsAt, makeScores } = await load("memowidgets/widgets/static/maths.js");

/** Scores of n samples, a quarter of them memorised and lower on average. */
function scoresOf(n) {
  const values = Float64Array.from(normals(0, 0, n), (z, i) => z - (i % 4 === 0 ? 1 : 0));
  const order = [...values.keys()].sort((a, b) => values[a] - values[b]);
  const memorized = order.map((i) => (i % 4 === 0 ? 1 : 0));
  return makeScores(Float64Array.from(order, (i) => values[i]), null, memorized);
}

/** Widest place of a band, and the share of its places that hold the curve itself. */
function shapeOf(scores) {
  const band = bandOf(scores);
  const places = band.length / 3;
  const negatives = scores.n - scores.memorized;
  let [widest, inside] = [0, 0];
  for (let i = 0; i < places; i++) {
    const [fpr, low, high] = [band[i], band[places + i], band[2 * places + i]];
    widest = Math.max(widest, high - low);
    let rank = scores.values.length - 1;
    while (rank >= 0 && (scores.flaggedUpTo[rank] - scores.memorizedUpTo[rank]) / negatives > fpr) rank -= 1;
    const tpr = rank < 0 ? 0 : scores.memorizedUpTo[rank] / scores.memorized;
    if (low - 1e-6 <= tpr && tpr <= high + 1e-6) inside += 1;
  }
  return { widest, inside: inside / places };
}

test("a band holds its curve, and is narrower with more samples", () => {
  const [few, many] = [shapeOf(scoresOf(200)), shapeOf(scoresOf(3200))];
  assert.ok(few.inside > 0.95 && many.inside > 0.95);
  assert.ok(many.widest < 0.5 * few.widest);
  assert.deepEqual(bandOf(scoresOf(200)), bandOf(scoresOf(200)));
});

test("there is no band without two kinds of samples", () => {
  assert.equal(bandOf(makeScores(Float64Array.of(1, 2), null, [0, 0])), null);
  assert.equal(bandOf(makeScores(Float64Array.of(1, 2), null, [1, 1])), null);
});

test("a view counts equal scores once each, whoever is memorised", () => {
  const scores = Float32Array.of(0.5, -1, 0.5, 2, -1, 0.5);
  const view = { title: "t", scores: new Uint8Array(scores.buffer), wide: false, errors: null };
  const wire = wireOf(view, [5, 5, 0, 0, 0, 5], [0, 12], 1);
  assert.deepEqual([...wire.data.values], [-1, 0.5, 2]);
  assert.deepEqual([...wire.data.ties], [2, 3]);
  const { flagged, found, missed } = countsAt(judgedOf(wire, 4), 0.5);
  assert.deepEqual([flagged, found, missed], [5, 3, 0]);
  assert.equal(areaOf(view, [0, 0, 0, 0, 0, 0], 4), null);
  const { ranks, bits } = comparedOf([view], [5, 5, 0, 0, 0, 5], 4);
  assert.deepEqual([[...ranks[0]], [...bits]], [[5, 2, 5, 6, 2, 5], [0b11000100]]);
});
