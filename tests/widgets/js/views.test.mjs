// What the views work out before they draw; run by `node --test`.
import assert from "node:assert/strict";
import test from "node:test";

import { load } from "./load.mjs";

const cards = await load("cards");
const dom = await load("dom");

test("grey and colour become four channels", () => {
  assert.deepEqual([...cards.toRgba(new Uint8Array([7, 9]), 1)], [7, 7, 7, 255, 9, 9, 9, 255]);
  assert.deepEqual([...cards.toRgba(new Uint8Array([1, 2, 3]), 3)], [1, 2, 3, 255]);
  assert.deepEqual([...cards.toRgba(new Uint8Array([1, 2, 3, 4]), 4)], [1, 2, 3, 4]);
});

test("small images grow by whole pixels, large ones shrink to fit", () => {
  assert.equal(cards.zoomFor(8, 112), 14);
  assert.equal(cards.zoomFor(32, 112), 3);
  assert.equal(cards.zoomFor(224, 112), 0.5);
});

test("a throttled action runs at once, then once more for all calls in between", async () => {
  let runs = 0;
  const action = dom.throttle(() => (runs += 1), 20);
  for (let i = 0; i < 10; i++) action();
  assert.equal(runs, 1);
  await new Promise((done) => setTimeout(done, 60));
  assert.equal(runs, 2);
});

test("bytes are copied from wherever the host put them", () => {
  const whole = new Uint8Array([0, 0, 1, 2]);
  assert.deepEqual([...new Uint8Array(dom.bytesOf(new DataView(whole.buffer, 2)))], [1, 2]);
  assert.deepEqual([...new Uint8Array(dom.bytesOf(whole.buffer))], [0, 0, 1, 2]);
});
