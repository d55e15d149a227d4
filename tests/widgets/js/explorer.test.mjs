// What the τ explorer works out before it draws; run by `node --test`.
import assert from "node:assert/strict";
import test from "node:test";

import { load } from "./load.mjs";

const controls = await load("controls");
const wires = await load("wire");
const maths = { ...(await load("maths")), ...(await load("numbers")) };

const bytes = (array) => new DataView(array.buffer, array.byteOffset, array.byteLength);

/** What Python sends of three scores, the last one shared by four samples. */
function wire(parts = {}) {
  return {
    version: 1,
    values: bytes(new Float64Array([-1, 0.5, 2])),
    wide: true,
    n_shared: 1,
    shared: bytes(new Uint8Array([2])),
    ties: bytes(new Uint8Array([4])),
    levels: null,
    codes: null,
    ...parts,
  };
}

test("scores are unpacked with their ties and their truth", () => {
  const data = wires.unpack(wire());
  assert.deepEqual([...data.scores.flaggedUpTo], [1, 2, 6]);
  assert.equal(data.scores.memorizedUpTo, null);
  const truth = {
    bits: bytes(new Uint8Array([0b10100000])),
    of_shared: bytes(new Uint8Array([3])),
  };
  const scores = wires.unpackTruth(data, truth);
  assert.deepEqual([...scores.memorizedUpTo], [1, 1, 4]);
  assert.equal(scores.memorized, 4);
});

test("without ground truth nothing is known of memorised samples", () => {
  const data = wires.unpack(wire());
  const scores = wires.unpackTruth(data, { bits: null, of_shared: null });
  assert.equal(scores.memorizedUpTo, null);
  assert.equal(maths.aucOf(scores), null);
});

test("whole numbers come in the size that they need", () => {
  for (const type of [Uint8Array, Uint16Array, Uint32Array]) {
    assert.deepEqual([...wires.unsigned(bytes(new type([3, 0, 200])), 3)], [3, 0, 200]);
  }
  assert.equal(wires.unsigned(bytes(new Uint8Array(0)), 0).length, 0);
});

test("Shift and an arrow change who is flagged, one score at a time", () => {
  const { scores } = wires.unpack(wire());
  assert.equal(controls.neighbourTau(scores, 0, 1), 0.5);
  assert.equal(controls.neighbourTau(scores, 0.5, 1), 2);
  assert.equal(controls.neighbourTau(scores, 2, 1), 2);
  assert.equal(controls.neighbourTau(scores, 0.5, -1), -1);
  assert.ok(controls.neighbourTau(scores, -1, -1) < -1);
});
