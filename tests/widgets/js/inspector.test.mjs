// What the inspector works out before it draws; run by `node --test`.
import assert from "node:assert/strict";
import test from "node:test";

import { load } from "./load.mjs";

const cards = await load("cards");
const decide = await load("decide");
const lira = await load("lira");
const opened = await load("opened");

test("control characters are seen, and nothing turns a name round", () => {
  assert.equal(cards.nameText("a\0b\n\x7f"), "a⟨U+0000⟩b⟨U+000A⟩⟨U+007F⟩");
  assert.equal(cards.nameText("gpj.\u202eexe"), "gpj.⟨U+202E⟩exe");
  assert.equal(cards.nameText("<b>ü🏥</b>"), "<b>ü🏥</b>");
  assert.equal(cards.nameText("a\u200bb\ufeff\x9b"), "a⟨U+200B⟩b⟨U+FEFF⟩⟨U+009B⟩");
  assert.equal(cards.nameText("👩\u200d⚕️"), "👩\u200d⚕️"); // a joiner joins
  assert.equal(cards.proseText("one\ntwo\tthree\x07"), "one\ntwo\tthree⟨U+0007⟩");
  assert.equal(cards.proseText("\u2067شيء\u2069 \u202ex"), "\u2067شيء\u2069 ⟨U+202E⟩x");
});

test("a key stands for a decision, unless it belongs to something else", () => {
  const key = (name, held = {}) => ({
    key: name,
    ctrlKey: false,
    metaKey: false,
    altKey: false,
    ...held,
  });
  assert.equal(decide.decisionOf(key("r")), "remove");
  assert.equal(decide.decisionOf(key("K")), "keep");
  assert.equal(decide.decisionOf(key("z")), "undo");
  assert.equal(decide.decisionOf(key("z", { ctrlKey: true })), "undo");
  assert.equal(decide.decisionOf(key("z", { metaKey: true })), "undo");
  assert.equal(decide.decisionOf(key("Z", { shiftKey: true })), "undo");
  const redo = (held) => decide.decisionOf(key("Z", { shiftKey: true, ...held }));
  assert.deepEqual([redo({ ctrlKey: true }), redo({ metaKey: true })], ["", ""]);
  assert.equal(decide.decisionOf(key("r", { ctrlKey: true })), "");
  assert.equal(decide.decisionOf(key("x")), "");
  assert.equal(decide.decisionOf(key("j")), "next");
});

test("a Gaussian has its peak on its mean and an area of one", () => {
  const points = lira.gaussian(2, 0.01, -10, 10, 60);
  const peak = points.reduce((best, point) => (point[1] > best[1] ? point : best));
  assert.ok(Math.abs(peak[0] - 2) < 1e-9);
  assert.ok(Math.abs(peak[1] - 39.894) < 1e-3);
  const wide = lira.gaussian(0, 1, -8, 8, 400);
  let area = 0;
  for (let i = 1; i < wide.length; i++)
    area += ((wide[i][0] - wide[i - 1][0]) * (wide[i][1] + wide[i - 1][1])) / 2;
  assert.ok(Math.abs(area - 1) < 1e-3);
});

test("the picture of LiRA holds every gap and the target", () => {
  const shadows = {
    inside: [1, 2],
    outside: [-7],
    target: 30,
    fitIn: [1.5, 0.5],
    fitOut: [-7, 0.1],
  };
  assert.deepEqual(lira.liraRange(shadows), [-7.3 + 0, 30]);
  assert.deepEqual(
    lira.liraRange({
      inside: [2],
      outside: [2],
      target: 2,
      fitIn: [2, 0],
      fitOut: [2, 0],
    }),
    [1, 3],
  );
});

test("one sentence says who memorised a sample, and contradicts no count", () => {
  const { verdict } = opened;
  assert.match(verdict(true, null), /^Memorised by this model\.$/);
  assert.match(verdict(null, [17, 19]), /^Memorised by 17 of the 19 models/);
  assert.match(verdict(false, null), /^Not memorised by this model\.$/);
  assert.match(
    verdict(true, [17, 19]),
    /^Memorised by this model.* 16 of the 18 others/,
  );
  assert.match(verdict(true, [19, 19]), /^Memorised by all 19 /);
  assert.match(verdict(true, [1, 19]), /this model alone.* 19 /);
  assert.match(verdict(false, [0, 19]), /^Not memorised by any of the 19 /);
  assert.match(verdict(false, [13, 19]), /^Not by this model, but by 13 of the 19 /);
  assert.doesNotMatch(verdict(false, [13, 19]), /Not memorised/);
});

test("why is what model and neighbours say of the label, never where τ stands", () => {
  const item = (more) => ({
    status: "flagged",
    label: "a",
    answer: 0,
    guess: "b",
    suggested: 1,
    labelProbability: 0.003,
    ...more,
  });
  const agreed = { guess: "a", suggested: null };
  assert.match(opened.reason(item(), 1), /^model and neighbours against the label$/);
  assert.match(
    opened.reason(item(), 0),
    /^model against the label, neighbours for it$/,
  );
  assert.match(opened.reason(item(), null), /^model against the label$/);
  assert.match(opened.reason(item(agreed), 0), /agree, .* gives the label 0.3\u00a0%/);
  assert.match(
    opened.reason(item({ ...agreed, labelProbability: null }), 0),
    /^all three agree$/,
  );
  assert.match(
    opened.reason(item({ ...agreed, status: "left alone" }), 0),
    /^all three agree$/,
  );
  assert.match(
    opened.reason(item({ status: "missed" }), 1),
    /against the label, .* gives the label 0.3\u00a0%/,
  );
  assert.match(
    opened.reason(item({ guess: "", suggested: null }), 2),
    /^neighbours against/,
  );
  assert.match(
    opened.reason(item({ ...agreed, status: "" }), null),
    /^label and model agree$/,
  );
  assert.equal(opened.reason(item({ label: "" }), 1), "");
  assert.equal(opened.reason(item({ guess: "", suggested: null }), null), "");
});

test("neighbours say a class only where more than half of them have it", () => {
  const of = (/** @type {number[]} */ answers) =>
    answers.map((answer) => ({ answer, label: `class ${answer}` }));
  assert.deepEqual(opened.majorityOf(of([2, 1, 1, 1])), {
    answer: 1,
    label: "class 1",
    many: 3,
    of: 4,
  });
  assert.equal(opened.majorityOf(of([2, 1, 1, 2])), null);
  assert.equal(opened.majorityOf(of([3, 1, 2, 4, 5, 0])), null);
  assert.equal(opened.majorityOf([]), null);
});

test("classes are suggested once each, with who suggests them, and never the present one", () => {
  const near = [1, 1, 1, 0].map((answer) => ({ answer }));
  assert.deepEqual(
    opened.suggestions({ answer: 0, suggested: 1 }, { guess: 1, neighbours: near }),
    [{ to: 1, why: "the model now and at the end, and 3 of 4 neighbours" }],
  );
  assert.deepEqual(opened.suggestions({ answer: 1, suggested: 2 }, null), [
    { to: 2, why: "the model now" },
  ]);
  const later = opened.suggestions(
    { answer: 1, suggested: null },
    { guess: 3, neighbours: near },
  );
  assert.deepEqual(
    later.map(({ to }) => to),
    [3],
  ); // most neighbours have its own label
  assert.deepEqual(
    opened.suggestions({ answer: 1, suggested: null }, { guess: 1, neighbours: [] }),
    [],
  );
});
