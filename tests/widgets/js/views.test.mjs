// What the views work out before they draw; run by `node --test`.
import assert from "node:assert/strict";
import test from "node:test";

import { load } from "./load.mjs";

const bitmap = await load("bitmap");
const cards = await load("cards");
const dom = await load("dom");

/** The pixels of images of one row each. */
function rgbaOf(bytes, ...images) {
  return [...bitmap.stacked(images.map((image) => ({ height: 1, ...image })), new Uint8Array(bytes)).rgba];
}

test("grey and colour become four channels", () => {
  const one = { offset: 0, width: 1 };
  assert.deepEqual(rgbaOf([7, 9], { ...one, width: 2, channels: 1 }), [7, 7, 7, 255, 9, 9, 9, 255]);
  assert.deepEqual(rgbaOf([7, 9], { ...one, channels: 2 }), [7, 7, 7, 255]);
  assert.deepEqual(rgbaOf([1, 2, 3], { ...one, channels: 3 }), [1, 2, 3, 255]);
  assert.deepEqual(rgbaOf([1, 2, 3, 4], { ...one, channels: 4 }), [1, 2, 3, 4]);
});

test("images of one file stand under each other, what is beside a narrow one transparent", () => {
  const narrow = { offset: 2, height: 2, width: 1, channels: 1 };
  const wide = { offset: 0, height: 1, width: 2, channels: 1 };
  const sheet = bitmap.stacked([narrow, wide], new Uint8Array([1, 2, 3, 4]));
  assert.deepEqual(sheet.tops, [0, 2]);
  assert.deepEqual([sheet.width, sheet.height], [2, 3]);
  const rows = [[3, 3, 3, 255, 0, 0, 0, 0], [4, 4, 4, 255, 0, 0, 0, 0], [1, 1, 1, 255, 2, 2, 2, 255]];
  assert.deepEqual([...sheet.rgba], rows.flat());
});

test("a bitmap file says its size and holds its pixels as they are", () => {
  const rgba = new Uint8Array([1, 2, 3, 4, 5, 6, 7, 8]);
  const file = bitmap.bitmap(rgba, 1, 2);
  const view = new DataView(file.buffer);
  assert.equal(String.fromCharCode(file[0], file[1]), "BM");
  assert.equal(view.getUint32(2, true), file.length);
  assert.deepEqual([view.getInt32(18, true), view.getInt32(22, true)], [2, -1]);
  assert.deepEqual([...file.subarray(view.getUint32(10, true))], [...rgba]);
  const [head, body] = bitmap.bitmapUrl(file).split(",");
  assert.equal(head, "data:image/bmp;base64");
  assert.deepEqual(new Uint8Array(Buffer.from(body, "base64")), file);
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
