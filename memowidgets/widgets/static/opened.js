/**
 * The open sample: what it is, why it is flagged, what was seen before and what came true after, and
 * below that the decisions. All else that is known of it is folded.
 */

import {
  body,
  letterOf,
  likeliest,
  nameText,
  picture,
  plain,
  proseText,
  strong,
  valuesText,
} from "./cards.js";
import { bytesOf, focused, html, svg, write } from "./dom.js";
import { liraPicture, liraRange, spoken } from "./lira.js";
import { errorText, fixed, percent, whole } from "./numbers.js";
import { pictures } from "./pixels.js";
import { MEMORIZED, NOT_MEMORIZED, ONION, PREDICTED } from "./words.js";

/** @typedef {import("./messages.js").Item} Item */
/** @typedef {import("./messages.js").Page} Page */
/** @typedef {import("./messages.js").Place} Place */
/** @typedef {import("./messages.js").Glimpse} Glimpse */
/** @typedef {import("./messages.js").Known} Known */

/**
 * @typedef {object} OpenedActions
 * @property {(position: number) => void} go
 * @property {(note: string) => void} note
 * @property {() => number | null} tau  null where it is no score: of the score against its class
 */

const [ROOM, NEAR] = [112, 64]; // screen pixels for the longer side of an image, of its neighbours
const FEWEST = 8; // models a side, from which on they say what is memorised
const SHORT = 32; // characters of an option that names its class

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
    this.why = html("div", { class: "mw-reason" });
    this.later = html("div", { class: "mw-after" });
    this.before = html("div", { class: "mw-before" });
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
      this.sample,
      this.why,
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
    for (const part of [this.why, this.later, this.before, this.known])
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
      const { text, hidden, values, hiddenValues, options, image } = item;
      const content = JSON.stringify([
        text,
        hidden,
        values,
        hiddenValues,
        options,
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
    if (problem) this.before.append(html("p", { class: "mw-refused" }, problem));
  }

  /** Says why the sample is flagged, what came before and what after. */
  explain() {
    const { item, page, knows } = this;
    if (item === null || page === null) return;
    const memorized = isMemorized(item, page.eta);
    this.tag.hidden = !item.canary;
    write(
      this.tag,
      memorized === null
        ? "planted"
        : memorized
          ? "planted, and memorised"
          : "planted, not memorised",
    );
    this.why.replaceChildren(...reasons(item, knows));
    this.why.classList.toggle("mw-reason-flagged", isFlagged(item));
    this.later.replaceChildren(...outcome(item, page.eta, knows));
    if (item.decision === "remove")
      this.later.append(html("p", { class: "mw-remark" }, ONION));
    this.before.replaceChildren(
      ...(knows === null ? [] : history(knows, this.actions.tau())),
    );
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
    if (item.likeliest)
      parts.push(heading("What the model says"), likeliest(item.likeliest));
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
    if (!knows?.shadows) parts.push(...remarks(knows));
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
  const near = (known?.neighbours ?? []).map((one) => one.answer);
  const many = (/** @type {number} */ to) => near.filter((one) => one === to).length;
  const most = [...new Set(near)].sort((a, b) => many(b) - many(a) || a - b)[0] ?? -1;
  const end = known?.guess ?? -1;
  const both = suggested === end;
  const told = /** @type {[number, string][]} */ ([
    [suggested ?? -1, both ? "the model now and at the end" : "the model now"],
    [both ? -1 : end, "the model at the end"],
    [most, `${many(most)} of ${near.length} neighbours`],
  ]);
  /** @type {Map<number, string[]>} */
  const found = new Map();
  for (const [to, why] of told)
    if (to >= 0 && to !== answer) found.set(to, [...(found.get(to) ?? []), why]);
  return [...found].map(([to, why]) => ({ to, why: why.join(", and ") }));
}

/** @param {Item} item */
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
 * Says in a sentence why a sample is flagged, or why it is not: from label, model and neighbours.
 * @param {Item} item
 * @param {Known | null} known
 */
function reasons(item, known) {
  const flagged = isFlagged(item);
  const title =
    item.status === ""
      ? "Label and model"
      : flagged
        ? "Why it is flagged"
        : "Why it is not flagged";
  const near = known?.neighbours ?? [];
  const nearest = `${near.length} nearest samples`;
  const same = near.filter(({ label }) => label === (item.guess || item.label)).length;
  const few = `, but ${same > 0 ? `only ${same}` : "none"} of its ${nearest} ${same > 1 ? "do" : "does"}`;
  const so =
    near.length === 0
      ? ""
      : 2 * same < near.length
        ? few
        : `, and so do ${same} of its ${nearest}`;
  const text = html("p", {});
  const where =
    item.status === ""
      ? ""
      : flagged
        ? " Its score is at most τ."
        : " Its score is above τ.";
  if (item.label === "") text.append(where.trim());
  else if (item.guess === "")
    text.append("Label says ", strong(item.label), so, ".", where);
  else if (item.suggested !== null) {
    const given =
      item.labelProbability === null
        ? ""
        : `, to which the model gives ${percent(item.labelProbability)}`;
    text.append(
      "Label says ",
      strong(item.label),
      `${given}. It says `,
      strong(item.guess),
      so,
      ".",
    );
    if (!flagged && item.status !== "") text.append(" Yet its score is above τ.");
  } else {
    const given =
      item.guessProbability === null ? "" : ` (${percent(item.guessProbability)})`;
    text.append("Label and model both say ", strong(item.label), given, so, ".");
    if (flagged) text.append(where);
  }
  return text.hasChildNodes()
    ? [html("strong", { class: "mw-heading" }, title), text]
    : [];
}

/**
 * Says what came true: whether the sample is memorised, and what models of other samples say.
 * @param {Item} item
 * @param {number | null} eta
 * @param {Known | null} known
 */
function outcome(item, eta, known) {
  const memorized = isMemorized(item, eta);
  const shadows = known?.shadows ?? null;
  const text = html("p", {});
  const [inside, outside] = shadows?.models ?? [0, 0];
  if (shadows !== null && Math.min(inside, outside) < FEWEST)
    text.append(
      `Too few models to say whether it is memorised: ${inside} trained on it, ${outside} did not. `,
    );
  else if (memorized !== null) {
    text.append(
      html("strong", {}, memorized ? "Memorised." : "Not memorised."),
      ` ${memorized ? MEMORIZED : NOT_MEMORIZED} `,
    );
    if (shadows?.support)
      text.append(
        html("span", { class: "mw-support" }, supportText(shadows.support)),
        " ",
      );
  } else if (item.status !== "") text.append(`${PREDICTED} `);
  text.append(agreement(item));
  if (text.textContent?.trim() === "") return [];
  const parts = /** @type {HTMLElement[]} */ ([
    html(
      "strong",
      { class: "mw-heading" },
      memorized === null ? "After" : "After: what came true",
    ),
  ]);
  if (shadows !== null) parts.push(rowsOfModels(shadows));
  parts.push(text);
  return shadows === null ? parts : [...parts, ...remarks(known)];
}

/**
 * Says whether the model gives the label, at the checkpoint on show and when it is finished.
 * @param {Item} item
 */
function agreement({ right, guess, label, suggested }) {
  if (right === null || label === "") return "";
  const end = right ? "agrees" : "disagrees";
  if (guess === "") return `At the end the model ${end} with the label.`;
  const now = suggested === null ? "agrees" : "disagrees";
  return now === end
    ? `The model ${now} with the label, now and at the end.`
    : `The model ${now} with the label now, and ${end} at the end.`;
}

/** @param {Known | null} known */
function remarks(known) {
  return (known?.notes ?? []).map((note) => html("p", { class: "mw-remark" }, note));
}

/**
 * How sure models are of the label: a row of those that trained on the sample, one of those that did
 * not, and a line for this model.
 * @param {import("./messages.js").Shadows} shadows
 */
function rowsOfModels(shadows) {
  const [low, high] = liraRange(shadows);
  const place = (/** @type {number} */ gap) =>
    `${((100 * (gap - low)) / (high - low)).toFixed(1)}%`;
  const box = html("div", {
    class: "mw-models",
    role: "img",
    "aria-label": spoken(shadows),
  });
  for (const [side, gaps, what] of /** @type {[string, number[], string][]} */ ([
    ["in", shadows.inside, "that trained on it"],
    ["out", shadows.outside, "that did not"],
  ])) {
    const row = html("div", { class: `mw-gap-row mw-gap-${side}` });
    for (const gap of gaps) {
      const dot = html("i", {});
      dot.style.left = place(gap);
      row.append(dot);
    }
    const name = html(
      "span",
      { class: `mw-gap-name mw-sign-${side}` },
      `${shadows.models[side === "in" ? 0 : 1]} models ${what}`,
    );
    if (side === "in") name.append(html("span", {}, "┃ this model"));
    box.append(name, row);
  }
  const line = html("b", {});
  line.style.left = place(shadows.target);
  box.append(
    line,
    html(
      "span",
      { class: "mw-gap-ends" },
      html("span", {}, "sure of another class"),
      html("span", {}, "sure of the label →"),
    ),
  );
  return box;
}

/**
 * The score at every checkpoint as a line, with τ and where the decision is made.
 * @param {Known} known
 * @param {number | null} tau
 */
function history(known, tau) {
  const layer = Math.max(
    0,
    known.layers.findIndex(({ marked }) => marked),
  );
  const all = known.checkpoints.map(({ value, marked }, i) => ({
    label: value.replace("-", " "),
    marked,
    value: known.scores[i][layer],
  }));
  const points = all.flatMap(({ label, marked, value }) =>
    value === null ? [] : [{ label, marked, value }],
  );
  if (points.length < 2) return [];
  const values = points.map(({ value }) => value);
  const [min, max] = [
    Math.min(...values, tau ?? Infinity),
    Math.max(...values, tau ?? -Infinity),
  ];
  const pad = (max - min) / 8 || 1;
  const x = (/** @type {number} */ i) => (100 * i) / (points.length - 1);
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
      points: points.map(({ value }, i) => `${x(i)},${y(value)}`).join(" "),
    }),
  );
  const box = html("div", { class: "mw-line-box" });
  box.append(/** @type {any} */ (picture));
  const at = points.findIndex(({ marked }) => marked);
  if (at >= 0) {
    const dot = html("i", { class: "mw-line-dot" });
    [dot.style.left, dot.style.top] = [`${x(at)}%`, `${y(points[at].value)}%`];
    box.append(dot);
  }
  const ends = html(
    "div",
    { class: "mw-line-ends" },
    html("span", {}, points[0].label),
  );
  if (at > 0 && at < points.length - 1)
    ends.append(
      html("span", { class: "mw-line-here" }, `you decide at ${points[at].label}`),
    );
  ends.append(html("span", {}, points[points.length - 1].label));
  const risk = tau === null ? "" : ", flagged below the line";
  return [
    html("strong", { class: "mw-heading" }, `Before: ${known.title}${risk}`),
    box,
    ends,
  ];
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
 * Says how many models memorised a sample: no row of the picture, for each model is judged here.
 * @param {[number, number]} support
 */
export function supportText([memorized, learned]) {
  return (
    `${memorized} of the ${learned} models that learned from it memorised it: each of them, this one included, ` +
    "was compared with all the others."
  );
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
  return html("h4", { class: "mw-heading" }, text);
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
