/**
 * The open sample: what it is, its label, what the model and its neighbours say, why it is flagged, what
 * was seen before and what came true after, and below that the decisions. All else is folded.
 */

import {
  answers,
  body,
  letterOf,
  likeliest,
  nameText,
  options,
  picture,
  plain,
  proseText,
  valuesText,
} from "./cards.js";
import { bytesOf, focused, html, setAttributes, svg, write } from "./dom.js";
import { liraPicture } from "./lira.js";
import { errorText, fixed, percent, whole } from "./numbers.js";
import { pictures } from "./pixels.js";
import { ONION } from "./words.js";

/** @typedef {import("./messages.js").Item} Item */
/** @typedef {import("./messages.js").Page} Page */
/** @typedef {import("./messages.js").PlaceShown} Place */
/** @typedef {import("./messages.js").Glimpse} Glimpse */
/** @typedef {import("./messages.js").KnownShown} Known */

/**
 * @typedef {object} OpenedActions
 * @property {(position: number) => void} go
 * @property {(note: string) => void} note
 * @property {() => number | null} tau  null where it is no score: of the score against its class
 * @property {() => Map<string, number>} times  where each checkpoint stands on the timeline, from 0 to 1
 */

const [ROOM, NEAR] = [96, 64]; // screen pixels for the longer side of an image, of its neighbours
const FEWEST = 8; // models a side, from which on they say what is memorised
const SHORT = 32; // characters of an option that names its class
const TAIL = 12; // characters at the end of a long name that stay in view
/** Facts whose text goes on in further lines. */
const WHOLE = /** @type {Record<string, string>} */ ({
  "": "mw-answers-of",
  why: "mw-why",
});
const MOST_SQUARES = 66; // that are drawn, one for each model

/** The view of one sample, beside the list or below it. */
export class Opened {
  /**
   * @param {OpenedActions} actions
   * @param {HTMLElement} decisions  what is pinned below the sample
   */
  constructor(actions, decisions) {
    this.actions = actions;
    /** @type {number | null} */
    this.position = null;
    /** @type {Item | null} */
    this.item = null;
    /** @type {Page | null} */
    this.page = null;
    /** @type {Known | null} */
    this.knows = null;
    /** Moves the dot of its line to a time. @type {(place: number) => void} */
    this.moveTo = () => {};
    this.full = false; // whether the sample is shown to its end
    this.content = ""; // what is shown of it
    this.bytes = new Uint8Array(0); // of the neighbours
    this.where = html("span", { class: "mw-where" });
    this.id = html("bdi", { class: "mw-whole-id" });
    this.tag = html("span", { class: "mw-tag", hidden: true });
    const keys = ["↑", "↓"].map((sign) =>
      html("kbd", { class: "mw-key", "aria-hidden": "true" }, sign),
    );
    const head = html(
      "div",
      { class: "mw-opened-head" },
      this.where,
      this.id,
      ...keys,
      this.tag,
    );
    this.sample = html("div", {
      class: "mw-sample",
      tabindex: 0,
      role: "group",
      "aria-label": "the sample",
    });
    this.facts = html("dl", { class: "mw-facts-of" });
    this.before = html("div", { class: "mw-before" });
    this.later = html("div", { class: "mw-after" });
    this.known = html("div", { class: "mw-known" });
    this.note = html("textarea", { class: "mw-words mw-note", rows: 2, dir: "auto" });
    this.note.addEventListener("change", () => actions.note(this.note.value));
    const note = html("label", { class: "mw-writing" }, "note", this.note);
    this.more = html(
      "details",
      { class: "mw-fold" },
      html("summary", {}, "Numbers, neighbours, note"),
      this.known,
      note,
    );
    this.more.addEventListener("toggle", () => this.showMore());
    this.scroll = html(
      "div",
      { class: "mw-opened-body" },
      html("div", { class: "mw-seen" }, this.sample, this.facts),
      this.before,
      this.later,
      this.more,
    );
    this.scroll.hidden = true;
    this.element = html(
      "div",
      { class: "mw-opened", role: "region", tabindex: -1 },
      head,
      this.scroll,
      decisions,
    );
  }

  /**
   * Clears everything of the last sample before another one is shown.
   * @param {number | null} position
   */
  start(position) {
    this.position = position;
    this.item = this.knows = null;
    this.full = false;
    this.content = "";
    this.sample.replaceChildren();
    for (const part of [this.facts, this.later, this.before, this.known])
      part.replaceChildren();
    this.note.value = this.where.textContent = this.id.textContent = "";
    this.tag.hidden = true;
    this.scroll.hidden = position === null;
  }

  /**
   * @param {Item} item
   * @param {Page} page  that it belongs to
   * @param {Place | null} place
   * @param {Uint8Array} bytes
   * @param {boolean} full  whether a long text is there to its end
   */
  show(item, page, place, bytes, full) {
    Object.assign(this, { item, page });
    this.element.setAttribute("aria-label", `sample ${nameText(item.id)}`);
    write(
      this.where,
      place === null
        ? "not in this filter"
        : `${whole(place.number)} of ${whole(place.total)}`,
    );
    write(this.id, nameText(item.id));
    if (full || !this.full) {
      const { text, hidden, values, hiddenValues, image } = item;
      const content = JSON.stringify([
        text,
        hidden,
        values,
        hiddenValues,
        image?.height,
      ]);
      if (content !== this.content)
        this.sample.replaceChildren(
          ...(image
            ? [picture(item, pictures([image], bytes, ROOM).elements[0])]
            : body(item)),
        );
      this.content = content;
      this.sample.hidden = this.sample.childElementCount === 0;
      if (focused(this.element) !== this.note) this.note.value = item.note;
    }
    this.full = this.full || full;
    this.explain();
  }

  /**
   * @param {Known | undefined} known
   * @param {string} [problem]
   * @param {DataView[]} [buffers]
   */
  showKnown(known, problem, buffers = []) {
    this.bytes =
      buffers.length > 0 ? new Uint8Array(bytesOf(buffers[0])) : new Uint8Array(0);
    this.knows = known ?? null;
    this.explain();
    if (problem) this.later.append(html("p", { class: "mw-refused" }, problem));
  }

  /** Says what label, model and neighbours are, what came before and what after. */
  explain() {
    const { item, page, knows } = this;
    if (item === null || page === null) return;
    this.tag.hidden = !item.canary;
    write(this.tag, "planted");
    this.facts.replaceChildren(...facts(item, knows));
    const [parts, moveTo] = history(item, page, knows, this.actions);
    this.before.replaceChildren(...parts);
    this.moveTo = moveTo;
    const memorized = isMemorized(item, page.eta);
    this.later.replaceChildren(...outcome(item, memorized, knows));
    this.later.classList.toggle("mw-after-memorized", memorized === true);
    this.showMore();
  }

  /** Returns the classes that the sample may better have. */
  suggested() {
    return this.item === null ? [] : suggestions(this.item, this.knows);
  }

  /**
   * Returns the names of the classes that the sample can get.
   * @param {string[]} classes
   */
  names(classes) {
    const { options } = this.item ?? {};
    if (!options) return classes;
    return options
      .slice(0, classes.length)
      .map(({ text }, i) => (text.length <= SHORT ? text : `${letterOf(i)}, ${text}`));
  }

  /** Fills what is folded, once it is opened. */
  showMore() {
    const { item, page, knows } = this;
    if (!this.more.open || item === null || page === null) return;
    const parts = [];
    if (item.score !== null)
      parts.push(html("p", { class: "mw-facts" }, scoreText(item, page)));
    if (item.likeliest || item.options)
      parts.push(
        heading("What the model says"),
        item.options ? options(item) : likeliest(item.likeliest ?? []),
      );
    if (knows?.shadows)
      parts.push(
        heading(`Logit gap under shadow models, ${knows.shadows.checkpoint}`),
        liraPicture(knows.shadows, page.eta),
      );
    if (knows !== null && knows.checkpoints.length > 0) {
      parts.push(
        heading(`${knows.title} at every checkpoint and layer`),
        scores(knows),
      );
    }
    if (knows !== null && knows.neighbours.length > 0) {
      parts.push(
        heading("Nearest samples at this layer"),
        neighbours(knows.neighbours, this.bytes, this.actions.go),
      );
    }
    if (item.decision === "remove")
      parts.push(html("p", { class: "mw-remark" }, ONION));
    this.known.replaceChildren(...parts);
  }
}

/**
 * Returns the classes that a sample may better have, each once: what the model says at this checkpoint
 * and at the end, and what most of the neighbours have.
 * @param {Pick<Item, "answer" | "suggested">} item
 * @param {Pick<Known, "guess" | "neighbours"> | null} known
 */
export function suggestions({ answer, suggested }, known) {
  const near = majorityOf(known?.neighbours ?? []);
  const end = known?.guess ?? -1;
  const both = suggested === end;
  const told = /** @type {[number, string][]} */ ([
    [suggested ?? -1, both ? "the model now and at the end" : "the model now"],
    [both ? -1 : end, "the model at the end"],
    [near?.answer ?? -1, `${near?.many} of ${near?.of} neighbours`],
  ]);
  /** @type {Map<number, string[]>} */
  const found = new Map();
  for (const [to, why] of told)
    if (to >= 0 && to !== answer) found.set(to, [...(found.get(to) ?? []), why]);
  return [...found].map(([to, why]) => ({ to, why: why.join(", and ") }));
}

/** @param {Pick<Item, "status">} item */
function isFlagged({ status }) {
  return ["flagged", "found", "flagged only"].includes(status);
}

/**
 * Whether a sample is memorised; null where nobody knows.
 * @param {Item} item
 * @param {number | null} eta
 */
function isMemorized({ logLira }, eta) {
  return logLira === null || eta === null ? null : logLira >= eta;
}

/**
 * Label, model, neighbours, and why the sample is flagged or not, each in a line.
 * @param {Item} item
 * @param {Known | null} known  null until it is there
 */
function facts(item, known) {
  const neighbours = known?.neighbours ?? [];
  const near = majorityOf(neighbours);
  const rows = /** @type {[string, (string | Node)[]][]} */ ([]);
  if (item.options && item.asks) rows.push(["", [answers(item)]]);
  else {
    if (item.label !== "")
      rows.push(["label", named(item.label, item.labelProbability)]);
    if (item.guess !== "")
      rows.push([
        "model",
        named(
          item.guess,
          item.guessProbability,
          item.suggested === null ? "" : "mw-model",
        ),
      ]);
  }
  if (neighbours.some(({ label }) => label !== ""))
    rows.push(["near", near === null ? [divided(neighbours)] : said(near)]);
  const why = reason(item, near?.answer ?? null);
  if (why !== "") rows.push(["why", [why]]);
  return rows.flatMap(([name, parts]) => [
    html("dt", { hidden: name === "" }, name),
    html("dd", { class: WHOLE[name] ?? "mw-named" }, ...parts),
  ]);
}

/**
 * A class with its probability.
 * @param {string} name
 * @param {number | null} probability
 * @param {string} [kind]
 */
function named(name, probability, kind = "") {
  const shown = html("bdi", { class: `mw-strong ${kind}`.trim(), dir: "auto" });
  const whole = nameText(name);
  const end = whole.length > SHORT ? whole.slice(-TAIL) : ""; // by which it differs from others that begin alike
  shown.append(html("span", {}, whole.slice(0, whole.length - end.length)));
  if (end !== "") shown.append(html("span", {}, end));
  shown.title = whole;
  return probability === null
    ? [shown]
    : [shown, html("span", {}, percent(probability))];
}

/**
 * How many of the neighbours have the class that most of them have.
 * @param {{label: string, many: number, of: number}} near
 */
function said({ label, many, of }) {
  return [html("span", {}, `${many} of ${of} say`), ...named(label, null)];
}

/** @param {Pick<Glimpse, "answer">[]} near  of which no class has more than half */
function divided(near) {
  const classes = new Set(near.map(({ answer }) => answer)).size;
  return html("span", {}, `${near.length} samples of ${classes} classes`);
}

/**
 * The class that more than half of the neighbours have; null where there is none.
 * @param {Pick<Glimpse, "answer" | "label">[]} near
 */
export function majorityOf(near) {
  const many = (/** @type {number} */ of) =>
    near.filter(({ answer }) => answer === of).length;
  const [first] = [...near].sort(
    (a, b) => many(b.answer) - many(a.answer) || a.answer - b.answer,
  );
  if (first === undefined || 2 * many(first.answer) <= near.length) return null;
  return { ...first, many: many(first.answer), of: near.length };
}

/**
 * Says why a sample is flagged, or why it is not, from what its label, its model and its neighbours are.
 * @param {Pick<Item, "status" | "label" | "answer" | "guess" | "suggested" | "labelProbability">} item
 * @param {number | null} near  class that most neighbours have; null where that is not known
 */
export function reason(item, near) {
  const { status, label, answer, guess, suggested, labelProbability } = item;
  if (label === "" || (guess === "" && near === null)) return "";
  const modelAgrees = guess === "" ? null : suggested === null;
  const nearAgree = near === null ? null : near === answer;
  const sides = /** @type {[boolean | null, string][]} */ ([
    [modelAgrees, "model"],
    [nearAgree, "neighbours"],
  ]);
  const [against, withIt] = [false, true].map((agrees) =>
    sides.flatMap(([side, name]) => (side === agrees ? [name] : [])),
  );
  const contrary = against.length > 0;
  let said = withIt.length > 1 ? "all three agree" : `label and ${withIt[0]} agree`;
  if (contrary) said = `${against.join(" and ")} against the label`;
  if (contrary && withIt.length > 0) said += `, ${withIt[0]} for it`;
  const flagged = isFlagged({ status });
  if (status === "" || flagged === contrary) return said;
  return labelProbability === null
    ? said
    : `${said}, and the model gives the label ${percent(labelProbability)}`;
}

/**
 * Says what came true: whether this model memorised the sample, and how many of the others did.
 * @param {Item} item
 * @param {boolean | null} memorized
 * @param {Known | null} known
 */
function outcome(item, memorized, known) {
  const shadows = known?.shadows ?? null;
  const support = shadows?.support ?? item.support ?? null;
  const [inside, outside] = shadows?.models ?? [0, 0];
  const parts = [];
  if (shadows !== null && Math.min(inside, outside) < FEWEST)
    parts.push(
      `Too few models to say whether it is memorised: ${inside} trained on it, ${outside} did not.`,
    );
  else if (memorized !== null || support !== null)
    parts.push(verdict(memorized, support));
  const later = changeOfMind(item);
  if (later !== "") parts.push(later);
  if (parts.length === 0) return [];
  const found = [html("p", {}, parts.join(" "))];
  if (support !== null && support[1] <= MOST_SQUARES)
    found.push(squares(memorized, support));
  return [...found, ...remarks(known)];
}

/**
 * Says in one sentence whether this model memorised a sample, and how many of the others that trained on it did.
 * @param {boolean | null} memorized  null where that is not known of this model
 * @param {[number, number] | null} support  models that memorised it, of those that trained on it, this one included
 */
export function verdict(memorized, support) {
  if (support === null)
    return memorized ? "Memorised by this model." : "Not memorised by this model.";
  const [many, of] = support;
  if (memorized === null)
    return `Memorised by ${many} of the ${of} models trained on it.`;
  if (!memorized)
    return many === 0
      ? `Not memorised by any of the ${of} models trained on it.`
      : `Not by this model, but by ${many} of the ${of} trained on it. Train again, and it may be.`;
  if (many === of) return `Memorised by all ${of} models trained on it.`;
  return many === 1
    ? `Memorised by this model alone, of the ${of} trained on it.`
    : `Memorised by this model, and by ${many - 1} of the ${of - 1} others trained on it.`;
}

/**
 * The models that trained on a sample, a square for each: this one first, filled where they memorised it.
 * @param {boolean | null} memorized  null where that is not known of this model
 * @param {[number, number]} support
 */
function squares(memorized, [many, of]) {
  const row = html("div", {
    class: "mw-models",
    role: "img",
    "aria-label": `${many} of ${of} models memorised it`,
  });
  const filled = Array.from({ length: of }, (_, i) => i < many);
  if (memorized === false) filled.unshift(filled.pop() ?? false); // this model is an empty one
  for (const [i, on] of filled.entries()) {
    const me = i === 0 && memorized !== null;
    const kinds = [me ? "mw-me" : "", on ? "mw-on" : ""].filter(Boolean);
    row.append(
      html("i", { class: kinds.join(" ") || null, title: me ? "this model" : null }),
    );
  }
  return row;
}

/**
 * Says what the finished model gives where that is another answer than at the checkpoint on show.
 * @param {Item} item
 */
function changeOfMind({ right, guess, label, suggested }) {
  if (right === null || label === "" || guess === "" || right === (suggested === null))
    return "";
  return right
    ? "The finished model gives its label."
    : "The finished model gives another class.";
}

/** @param {Known | null} known */
function remarks(known) {
  return (known?.notes ?? []).map((note) => html("p", { class: "mw-remark" }, note));
}

/**
 * The score at every checkpoint as a line, with τ and the checkpoint on show, and the score there.
 * @param {Item} item
 * @param {Page} page
 * @param {Known | null} known
 * @param {Pick<OpenedActions, "tau" | "times">} actions
 * @returns {[HTMLElement[], (place: number) => void]}  and what moves the dot to a time
 */
function history(item, page, known, { tau, times }) {
  if (item.score === null) return [[], () => {}];
  const now = html("span", { class: "mw-score-now" }, fixed(item.score, page.digits));
  const box = html("div", { class: "mw-line-box" });
  const moveTo = known === null ? null : drawHistory(box, known, tau(), times());
  const name = moveTo !== null || known === null ? "before" : "score";
  const parts = [html("span", { class: "mw-name-of" }, name), box, now];
  return [parts, moveTo ?? (() => {})];
}

/**
 * @param {HTMLElement} box
 * @param {Known} known
 * @param {number | null} tau
 * @param {Map<string, number>} times  where each checkpoint stands on the timeline, from 0 to 1
 * @returns {((place: number) => void) | null}  moves the dot to a time; null without a line
 */
function drawHistory(box, known, tau, times) {
  const layer = Math.max(
    0,
    known.layers.findIndex(({ marked }) => marked),
  );
  const there = known.checkpoints.flatMap(({ value, marked }, i) => {
    const score = known.scores[i][layer];
    return score === null
      ? []
      : [{ name: value, label: value.replace("-", " "), marked, value: score }];
  });
  if (there.length < 2) return null;
  const apart = 1 / (there.length - 1);
  const points = there
    .map((point, i) => ({ ...point, place: times.get(point.name) ?? i * apart }))
    .sort((a, b) => a.place - b.place);
  const values = points.map(({ value }) => value);
  const [min, max] = [
    Math.min(...values, tau ?? Infinity),
    Math.max(...values, tau ?? -Infinity),
  ];
  const pad = (max - min) / 8 || 1;
  const y = (/** @type {number} */ value) =>
    (100 * (max + pad - value)) / (max - min + 2 * pad);
  const picture = svg("svg", {
    class: "mw-line",
    viewBox: "0 0 100 100",
    preserveAspectRatio: "none",
    "aria-hidden": "true",
  });
  if (tau !== null) {
    picture.append(
      svg("rect", {
        class: "mw-line-risk",
        x: 0,
        width: 100,
        y: y(tau),
        height: 100 - y(tau),
      }),
    );
    picture.append(
      svg("line", { class: "mw-line-tau", x1: 0, x2: 100, y1: y(tau), y2: y(tau) }),
    );
  }
  picture.append(
    svg("polyline", {
      class: "mw-line-score",
      points: points.map(({ place, value }) => `${100 * place},${y(value)}`).join(" "),
    }),
  );
  box.append(/** @type {any} */ (picture));
  const risk = tau === null ? "" : ", flagged below the line";
  const ends = `${points[0].label} to ${points[points.length - 1].label}`;
  setAttributes(box, { role: "img", "aria-label": `${known.title}, ${ends}${risk}` });
  box.title = `${known.title}, ${ends}${risk}`;
  const at = points.find(({ marked }) => marked);
  const dot = html("i", { class: "mw-line-dot" });
  const moveTo = (/** @type {number} */ place) => {
    const after = points.findIndex((point) => point.place >= place);
    const b = points[after < 0 ? points.length - 1 : after];
    const a = points[Math.max(0, after - 1)];
    const share = b.place > a.place ? (place - a.place) / (b.place - a.place) : 1;
    const value = after < 0 ? b.value : a.value + (b.value - a.value) * share;
    [dot.style.left, dot.style.top] = [`${100 * place}%`, `${y(value)}%`];
  };
  if (at !== undefined) {
    moveTo(at.place);
    box.append(dot);
  }
  return moveTo;
}

/**
 * @param {Item} item
 * @param {Page} page
 */
function scoreText(item, { scoreName, digits }) {
  const error = item.error === null ? "" : ` ± ${errorText(item.error, digits)}`;
  const close = item.uncertain ? ", less than two standard errors from τ" : "";
  return `${scoreName} ${fixed(/** @type {number} */ (item.score), digits)}${error}${close}`;
}

/**
 * The score at every checkpoint and layer, with the one on show marked.
 * @param {Known} known
 */
function scores({ checkpoints, layers, scores: found, digits }) {
  const named = layers.length > 1 || layers[0].value !== "";
  const top = html("tr", {}, html("th", { scope: "col" }, named ? "layer" : ""));
  for (const { label, marked } of checkpoints)
    top.append(html("th", { scope: "col", class: marked ? "mw-here" : "" }, label));
  const rows = layers.map((layer, j) => {
    const name = html(
      "th",
      { scope: "row", class: layer.marked && named ? "mw-here" : "" },
      layer.label,
    );
    const cells = checkpoints.map(({ marked }, i) => {
      const [value, here] = [found[i][j], layer.marked && marked];
      const why =
        value === null ? "not computed, or its class has too few members" : null;
      const said = value === null ? "–" : fixed(value, digits);
      return html(
        "td",
        {
          class: here ? "mw-here" : null,
          "aria-current": here ? "true" : null,
          title: why,
        },
        said,
      );
    });
    return html("tr", {}, name, ...cells);
  });
  const table = html(
    "table",
    { class: "mw-scores" },
    html("thead", {}, top),
    html("tbody", {}, ...rows),
  );
  return html(
    "div",
    { class: "mw-scroll", tabindex: 0, role: "group", "aria-label": "scores" },
    table,
  );
}

/** @param {string} text */
function heading(text) {
  return html("p", { class: "mw-heading" }, text); // of a part that unfolds, wherever it stands
}

/**
 * @param {Glimpse[]} found
 * @param {Uint8Array} bytes
 * @param {(position: number) => void} go
 */
function neighbours(found, bytes, go) {
  const list = html("ol", { class: "mw-neighbours" });
  for (const near of found) {
    const button = html("button", { type: "button", class: "mw-near" });
    button.addEventListener("click", () => go(near.position));
    if (near.image)
      button.append(picture(near, pictures([near.image], bytes, NEAR).elements[0]));
    else {
      const text = near.values ? valuesText(near.values) : proseText(near.text ?? "");
      button.append(html("bdi", { class: "mw-near-text", dir: "auto" }, text));
    }
    if (near.label !== "") button.append(plain("bdi", near.label, "mw-near-label"));
    button.append(
      html(
        "span",
        { class: "mw-distance" },
        `distance ${near.distance.toPrecision(3)}`,
      ),
    );
    list.append(html("li", {}, button));
  }
  return list;
}
