// What the views work out before they draw; run by `node --test`.
import assert from "node:assert/strict";
import test from "node:test";

import { load } from "./load.mjs";

const pixels = await load("pixels");
const dom = await load("dom");
const pace = await load("pace");

/** The pixels of an image of one row. */
function rgbaOf(bytes, image) {
  const found = new Uint8Array(4 * image.width * (image.height ?? 1));
  pixels.copyPixels({ height: 1, ...image }, new Uint8Array(bytes), found, image.width);
  return [...found];
}

test("grey and colour become four channels", () => {
  const one = { offset: 0, width: 1 };
  assert.deepEqual(
    rgbaOf([7, 9], { ...one, width: 2, channels: 1 }),
    [7, 7, 7, 255, 9, 9, 9, 255],
  );
  assert.deepEqual(rgbaOf([7, 9], { ...one, channels: 2 }), [7, 7, 7, 255]);
  assert.deepEqual(rgbaOf([1, 2, 3], { ...one, channels: 3 }), [1, 2, 3, 255]);
  assert.deepEqual(
    rgbaOf([9, 1, 2, 3, 4], { ...one, offset: 1, channels: 4 }),
    [1, 2, 3, 4],
  );
});

test("what is asked meanwhile is asked once, when the answer is there", async () => {
  const sent = [];
  const question = new pace.Question("view", (request) => sent.push(request) > 0);
  const moment = () => new Promise((done) => setTimeout(done));
  question.ask();
  question.ask();
  await moment();
  assert.deepEqual(sent, ["view-1"]);
  for (let i = 0; i < 3; i++) question.ask();
  await moment();
  assert.equal(sent.length, 1);
  question.answered();
  question.answered();
  assert.deepEqual(sent, ["view-1", "view-2"]);
});

test("a throttled action runs at once, then once more for all calls in between", async () => {
  let runs = 0;
  const action = pace.throttle(() => (runs += 1), 20);
  for (let i = 0; i < 10; i++) action();
  assert.equal(runs, 1);
  await new Promise((done) => setTimeout(done, 60));
  assert.equal(runs, 2);
});

test("bytes are copied from wherever the host put them", () => {
  const whole = new Uint8Array([0, 0, 1, 2]);
  assert.deepEqual(
    [...new Uint8Array(dom.bytesOf(new DataView(whole.buffer, 2)))],
    [1, 2],
  );
  assert.deepEqual([...new Uint8Array(dom.bytesOf(whole.buffer))], [0, 0, 1, 2]);
});
