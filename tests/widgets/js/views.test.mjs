// What the views work out before they draw; run by `node --test`.
import assert from "node:assert/strict";
import test from "node:test";

import { load } from "./load.mjs";

const explorer = await load("explorer");
const inspector = await load("inspector");
const dom = await load("dom");

const bytes = (array) => new DataView(array.buffer, array.byteOffset, array.byteLength);

test("scores are unpacked with their ties", () => {
  const { scores } = explorer.unpack({
    values: bytes(new Float64Array([-1, 0.5, 2])),
    wide: true,
    bits: bytes(new Uint8Array([0b10100000])),
    ties: bytes(new Uint32Array([2, 4, 3])),
    remarks: [],
  });
  assert.deepEqual([...scores.flaggedUpTo], [1, 2, 6]);
  assert.deepEqual([...scores.hitsUpTo], [1, 1, 4]);
});

test("without ground truth there are no hits", () => {
  const { scores } = explorer.unpack({
    values: bytes(new Float32Array([1, 2])),
    wide: false,
    bits: null,
    ties: bytes(new Uint32Array()),
    remarks: [],
  });
  assert.equal(scores.hitsUpTo, null);
  assert.equal(scores.n, 2);
});

test("Shift and an arrow change who is flagged, one score at a time", () => {
  const { scores } = explorer.unpack({
    values: bytes(new Float64Array([-1, 0.5, 2])),
    wide: true,
    bits: null,
    ties: bytes(new Uint32Array()),
  });
  assert.equal(explorer.neighbourTau(scores, 0, 1), 0.5);
  assert.equal(explorer.neighbourTau(scores, 0.5, 1), 2);
  assert.equal(explorer.neighbourTau(scores, 2, 1), 2);
  assert.equal(explorer.neighbourTau(scores, 0.5, -1), -1);
  assert.ok(explorer.neighbourTau(scores, -1, -1) < -1);
});

test("grey and colour become four channels", () => {
  assert.deepEqual([...inspector.toRgba(new Uint8Array([7, 9]), 1)], [7, 7, 7, 255, 9, 9, 9, 255]);
  assert.deepEqual([...inspector.toRgba(new Uint8Array([1, 2, 3]), 3)], [1, 2, 3, 255]);
  assert.deepEqual([...inspector.toRgba(new Uint8Array([1, 2, 3, 4]), 4)], [1, 2, 3, 4]);
});

test("small images grow by whole pixels, large ones shrink to fit", () => {
  assert.equal(inspector.zoomFor(8, 112), 14);
  assert.equal(inspector.zoomFor(32, 112), 3);
  assert.equal(inspector.zoomFor(224, 112), 0.5);
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
