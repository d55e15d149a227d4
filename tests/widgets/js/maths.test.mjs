// The arithmetic of the front ends, against plain counting; run by `node --test`.
import assert from "node:assert/strict";
import test from "node:test";

import { load } from "./load.mjs";

const maths = { ...(await load("maths")), ...(await load("numbers")) };

function random(seed) {
  let state = seed;
  return () => {
    state = (state * 1664525 + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
}

/** Scores with ties, and the rows they come from. */
function sample(seed, n = 300, levels = 120) {
  const next = random(seed);
  const rows = Array.from({ length: n }, () => ({
    score: Math.floor(next() * levels) / 37 - 1,
    memorized: next() < 0.2,
  }));
  const values = [...new Set(rows.map((row) => row.score))].sort((a, b) => a - b);
  const counts = values.map(
    (value) => rows.filter((row) => row.score === value).length,
  );
  const hits = values.map(
    (value) => rows.filter((row) => row.score === value && row.memorized).length,
  );
  return { rows, scores: maths.makeScores(new Float64Array(values), counts, hits) };
}

function count(rows, tau) {
  const flagged = rows.filter((row) => row.score <= tau);
  const hits = flagged.filter((row) => row.memorized).length;
  const memorized = rows.filter((row) => row.memorized).length;
  return {
    flagged: flagged.length,
    found: hits,
    flaggedOnly: flagged.length - hits,
    missed: memorized - hits,
    leftAlone: rows.length - flagged.length - (memorized - hits),
  };
}

test("counts are those of plain counting at and around every score", () => {
  const { rows, scores } = sample(1);
  for (const value of scores.values) {
    for (const tau of [value - 1e-9, value, value + 1e-9]) {
      assert.deepEqual(maths.countsAt(scores, tau), count(rows, tau));
    }
  }
});

test("flagging none is a τ below every score", () => {
  for (const lowest of [-1e12, -1, 0, 1e-12, 5]) {
    const scores = maths.makeScores(
      new Float64Array([lowest, lowest + 1e13]),
      null,
      null,
    );
    assert.equal(maths.countsAt(scores, maths.tauAtRank(scores, 0)).flagged, 0);
  }
});

test("a histogram holds every sample once, in the bin that τ would flag it with", () => {
  for (const axis of [maths.LINEAR, maths.symmetricLog(0.01)]) {
    const { rows, scores } = sample(20);
    const bins = maths.histogram(scores, 40, axis);
    const total = (array) => array.reduce((sum, x) => sum + x, 0);
    assert.equal(total(bins.others) + total(bins.memorized), rows.length);
    const zero = Math.round(-bins.start / bins.width);
    assert.ok(Math.abs(bins.start + zero * bins.width) < 1e-9);
    const below =
      total(bins.others.slice(0, zero)) + total(bins.memorized.slice(0, zero));
    assert.equal(below, rows.filter((row) => row.score <= 0).length);
  }
});

test("what is flagged of each column adds up to the counts at τ", () => {
  const { scores } = sample(21);
  const { ranks } = maths.histogram(scores, 30);
  const total = (array) => array.reduce((sum, x) => sum + x, 0);
  for (let rank = 0; rank <= scores.values.length; rank += 3) {
    const { others, memorized } = maths.countsPerBin(scores, ranks, rank);
    const { found, flaggedOnly } = maths.countsAtRank(scores, rank);
    assert.deepEqual([total(memorized), total(others)], [found, flaggedOnly]);
  }
});

test("one score, and equal scores, still have an axis", () => {
  for (const value of [0, 3, -1e9, 1e-7]) {
    const bins = maths.histogram(
      maths.makeScores(new Float64Array([value]), [7], [2]),
      40,
    );
    assert.ok(bins.low < value && value < bins.high);
    assert.equal(
      bins.others.reduce((a, b) => a + b),
      5,
    );
  }
});

test("an axis with a knee is monotone and goes back", () => {
  const axis = maths.symmetricLog(0.01);
  for (const x of [-100, -0.2, -0.001, 0, 0.5, 7]) {
    assert.ok(Math.abs(axis.from(axis.to(x)) - x) < 1e-9 * Math.max(1, Math.abs(x)));
    assert.ok(axis.to(x) < axis.to(x + 1e-3));
  }
});

test("ticks are round and inside", () => {
  assert.deepEqual(maths.ticks(-0.72, 1.23, 6), [-0.5, 0, 0.5, 1]);
  assert.deepEqual(
    maths.axisTicks(maths.symmetricLog(0.1), -8, 0.2, 1),
    [-100, -10, -1, 0],
  );
});

test("the drawn ROC starts at none, ends at all, and only rises", () => {
  const { scores } = sample(30);
  const points = maths.rocPoints(
    scores,
    (x) => 200 * x,
    (y) => 200 * (1 - y),
  );
  assert.deepEqual([points[0].fpr, points[0].tpr], [0, 0]);
  assert.deepEqual([points.at(-1).fpr, points.at(-1).tpr], [1, 1]);
  for (let i = 1; i < points.length; i++) {
    assert.ok(points[i].fpr >= points[i - 1].fpr && points[i].tpr >= points[i - 1].tpr);
  }
});

test("a million scores are drawn with few points", () => {
  const n = 1_000_000;
  const values = Float64Array.from({ length: n }, (_, i) => i / n);
  const hits = Uint8Array.from({ length: n }, (_, i) => (i % 97 === 0 ? 1 : 0));
  const scores = maths.makeScores(values, null, hits);
  const points = maths.rocPoints(
    scores,
    (x) => 300 * x,
    (y) => 300 * y,
  );
  assert.ok(points.length < 1000);
});

test("samples near τ could go either way", () => {
  const scores = maths.makeScores(new Float64Array([0.2, 0.3, 0.7]), [1, 2, 1], null);
  const bounds = maths.boundsOf(scores, [0, 0.05, 0.1], [1, 1, 0, 2]);
  assert.equal(maths.undecidedAt(bounds, 0.25), 2); // the second 0.3 has no error
  assert.equal(maths.undecidedAt(bounds, 0.45), 0);
  assert.equal(maths.undecidedAt(bounds, 0.6), 1);
  assert.equal(maths.undecidedAt(bounds, 0.31), 1);
  assert.equal(maths.undecidedAt(maths.boundsOf(scores, [0], [0, 0, 0, 0]), 0.3), 0);
});

test("η decides who is memorised, ties of the scores included", () => {
  const scores = maths.makeScores(new Float64Array([0.2, 0.3, 0.7]), [1, 2, 1], null);
  const logLira = [5, 4, 3.5, -1];
  assert.deepEqual([...maths.judgedAt(scores, logLira, 4).memorizedUpTo], [1, 2, 2]);
  assert.deepEqual([...maths.judgedAt(scores, logLira, 3.5).memorizedUpTo], [1, 3, 3]);
  assert.equal(maths.judgedAt(scores, logLira, 5.1).memorized, 0);
  assert.equal(scores.memorizedUpTo, null);
});

test("the AUC counts pairs, ties a half", () => {
  const { rows, scores } = sample(40, 120, 30);
  const [hits, others] = [
    rows.filter((r) => r.memorized),
    rows.filter((r) => !r.memorized),
  ];
  let right = 0;
  for (const a of hits)
    for (const b of others)
      right += a.score < b.score ? 1 : a.score === b.score ? 0.5 : 0;
  const { area, interval } = maths.aucOf(scores);
  assert.ok(Math.abs(area - right / hits.length / others.length) < 1e-12);
  assert.ok(interval[0] < area && area < interval[1]);
});

test("numbers read well", () => {
  assert.equal(maths.fixed(-0.0004, 2), "0.00");
  assert.equal(maths.fixed(-1.5, 1), "−1.5");
  assert.equal(maths.whole(1234567), "1\u202f234\u202f567");
  assert.equal(maths.rateText(0.004), "0.004");
  assert.equal(maths.rateText(0.9971), "0.997");
  assert.equal(maths.rateText(0.99999), "> 0.9999");
  assert.equal(maths.rateText(1), "1.00");
  assert.equal(maths.durationText(61), "1:01 left");
  assert.equal(maths.durationText(7300), "2 h 1 min left");
  assert.equal(maths.tickText(-5e-10), "−5e−10");
  assert.equal(maths.scoreText(-2e11, 1e10), "−2e11");
  assert.equal(maths.scoreText(-0.12345, 0.01), "−0.123");
});

test("both ends of an interval have as many digits, and neither is 0 or 1 by rounding", () => {
  assert.equal(maths.intervalText([0.83, 0.9992]), "0.83 to 0.9992");
  assert.equal(maths.intervalText([0.000001, 1]), "< 0.0001 to 1.00");
  assert.equal(maths.intervalText(null), "");
});
