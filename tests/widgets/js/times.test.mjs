import assert from "node:assert/strict";
import test from "node:test";

import { load } from "./load.mjs";

const times = await load("times");

const moments = [0.25, 0.5, 4].map((epoch) => ({
  epoch,
  star: epoch === 0.5,
  why: "why",
  computed: epoch < 4,
}));

test("checkpoints stand by their epochs, or one after the other where these do not rise", () => {
  const places = times.placesOf(moments);
  assert.deepEqual([places[0], places[2]], [0, 1]);
  assert.ok(Math.abs(places[1] - 0.25 / 3.75) < 1e-12);
  const same = [1, 1, 3].map((epoch) => ({ epoch }));
  assert.deepEqual(times.placesOf(same), [0, 0.5, 1]);
  assert.deepEqual(times.placesOf([{ epoch: NaN }, { epoch: 1 }]), [0, 1]);
  assert.deepEqual(times.placesOf([]), []);
});

test("a place between two checkpoints is on the line between them", () => {
  assert.equal(times.along([0, 0.25, 1], 1.5), 0.625);
  assert.equal(times.along([0, 0.25, 1], 2), 1);
  assert.equal(times.nearestTo([0, 0.25, 1], 0.7), 2);
  assert.equal(times.nearestTo([0, 0.25, 1], -3), 0);
});

test("keys lead to checkpoints and never beyond", () => {
  assert.equal(times.keyLeadsTo("ArrowRight", 3, 4), 3);
  assert.equal(times.keyLeadsTo("ArrowDown", 0, 4), 0);
  assert.equal(times.keyLeadsTo("PageUp", 0, 400), 40);
  assert.equal(times.keyLeadsTo("End", 0, 400), 399);
  assert.equal(times.keyLeadsTo("a", 0, 4), null);
});

test("a screen reader hears epoch, star, reason and what is not scored", () => {
  assert.equal(
    times.spokenMoment(moments, 1),
    "epoch 0.5 of 4, best time to predict, why",
  );
  assert.match(times.spokenMoment(moments, 2), /not scored/);
});

test("two checkpoints and four hundred play in seconds", () => {
  assert.equal(times.speedOf(2), 2);
  assert.ok(400 / times.speedOf(400) < 8);
  assert.equal(times.nextPlayable([true, false, true], 0), 2);
  assert.equal(times.nextPlayable([true, false, true], 2), -1);
});

test("a count has its own τ at each checkpoint, and a sample without a score is not counted", () => {
  const scores = Float32Array.from([0.5, NaN, -1, 0.25]);
  assert.equal(times.tauThere(scores, { count: 2 }, 9), 0.25);
  assert.equal(times.tauThere(scores, { share: 1 }, 9), 0.5);
  assert.equal(times.tauThere(scores, {}, 9), 9);
  assert.equal(times.tauThere(Float32Array.of(NaN), { count: 2 }, 9), 9);
  assert.deepEqual(times.reachOf([scores, Float32Array.of(3)]), [-1, 3]);
});

test("columns count what is above their left edge up to and including their right one", () => {
  const columns = { start: 0, width: 1, bins: 3 };
  const places = Float32Array.of(0.5, 1, 1.5, NaN, 9, -9);
  const kinds = [0, 0, 1, 0, 0, 0];
  assert.deepEqual([...times.countsOf(places, kinds, 0, columns)], [3, 0, 1]);
});

test("a hundred thousand samples have ranks, ends, columns and a τ", () => {
  const n = 100_000;
  const scores = Float32Array.from({ length: n }, (_, i) => ((i * 7919) % n) >> 1);
  scores[0] = NaN; // the other 0 is alone, all else are pairs
  const ranks = times.ranksOf(scores);
  assert.ok(Number.isNaN(ranks[0]));
  for (let i = 1; i < n; i += 997) assert.equal(ranks[i], 2 * scores[i] + 1);
  assert.deepEqual(times.reachOf([scores]), [0, n / 2 - 1]);
  assert.equal(times.tauThere(scores, { share: 0.1 }, 9), n / 20);
  const columns = { start: -1, width: n, bins: 1 };
  assert.equal(times.countsOf(scores, new Uint8Array(n), 0, columns)[0], n - 1);
});
