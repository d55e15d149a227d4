import assert from "node:assert/strict";
import test from "node:test";

import { load } from "./load.mjs";

const { addressWith, textInAddress } = await load("bar");
const share = await load("share");

test("an address carries a state there and back", () => {
  const state = {
    tau: -0.125,
    filter: "flagged only",
    sort: "score:a&b=c#d",
    layer: "η",
  };
  const address = addressWith("", state);
  assert.match(address, /^#memowidgets=[^&#]+$/);
  assert.deepEqual(JSON.parse(textInAddress(address)), state);
});

test("what else an address says stays", () => {
  const first = addressWith("#chapter&x=1", { tau: 1 });
  const second = addressWith(first, { tau: 2 });
  assert.match(second, /^#chapter&x=1&memowidgets=/);
  assert.deepEqual(JSON.parse(textInAddress(second)), { tau: 2 });
});

test("an address without a state, or a broken one, is no error", () => {
  assert.equal(textInAddress(""), "");
  assert.equal(textInAddress("#top"), "");
  assert.equal(textInAddress("#memowidgets=%E0%A4%A"), "memowidgets=%E0%A4%A");
});

test("a link holds no token", () => {
  const { withoutToken } = share;
  assert.equal(
    withoutToken(
      "http://" + "u:p@" + "127.0.0.1:8866/a?token=abc&theme=dark#memowidgets=x",
    ),
    "http://127.0.0.1:8866/a?theme=dark#memowidgets=x",
  );
});
