/** What moves on the site, without a page: views in the explorer's form. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { load } from "./load.mjs";

const { areaOf, comparedOf, judgedOf, wireOf } = await load(
  "memowidgets/audit/static/views.js",
);
const { isNumber, usable } = await load("memowidgets/audit/static/address.js");
const { countsAt } = await load("memowidgets/widgets/static/maths.js");

test("a view counts equal scores once each, whoever is memorised", () => {
  const scores = Float32Array.of(0.5, -1, 0.5, 2, -1, 0.5);
  const view = {
    title: "t",
    scores: new Uint8Array(scores.buffer),
    wide: false,
    errors: null,
  };
  const wire = wireOf(view, [5, 5, 0, 0, 0, 5], [0, 12], 1);
  assert.deepEqual([...wire.data.values], [-1, 0.5, 2]);
  assert.deepEqual([...wire.data.ties], [2, 3]);
  const { flagged, found, missed } = countsAt(judgedOf(wire, 4), 0.5);
  assert.deepEqual([flagged, found, missed], [5, 3, 0]);
  assert.equal(areaOf(view, [0, 0, 0, 0, 0, 0], 4), null);
  const { ranks, bits } = comparedOf([view], [5, 5, 0, 0, 0, 5], 4);
  assert.deepEqual([[...ranks[0]], [...bits]], [[5, 2, 5, 6, 2, 5], [0b11000100]]);
});

test("of what an address says the good is used, and the rest named", () => {
  const valid = {
    tau: isNumber,
    filter: (value) => value === "found",
    selected: () => false,
  };
  const said = { tau: 0.5, filter: "found", selected: 9, eta: [1], ["__proto__x"]: 1 };
  const { state, problems } = usable(JSON.stringify(said), valid);
  assert.deepEqual(state, { tau: 0.5, filter: "found" });
  assert.equal(problems.length, 3);
  assert.match(problems[0], /no sample at position 9/);
  const none = { state: {}, problems: ["it is no state of a dashboard"] };
  for (const text of [
    "{",
    "[]",
    "1",
    "null",
    "[".repeat(3000),
    `{"a":${"9".repeat(5000)}}`,
    "NaN",
  ]) {
    assert.deepEqual(usable(text, valid), none, text.slice(0, 20));
  }
});
