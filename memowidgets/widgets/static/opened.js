/**
 * An opened sample: in full, with its decision, its score at every checkpoint and layer, its shadow
 * gaps and its neighbours.
 */

import { alone } from "./bitmap.js";
import {
  answer, body, chip, enlargement, facts, labels, nameText, picture, proseText, strong, tags, valuesText,
} from "./cards.js";
import { decisionButtons, Relabelling } from "./decide.js";
import { bytesOf, focused, html } from "./dom.js";
import { liraPicture } from "./lira.js";
import { fixed, whole } from "./numbers.js";

/** @typedef {import("./messages.js").Place} Place */
/** @typedef {import("./messages.js").Opened} OpenedReply */
/** @typedef {import("./messages.js").Glimpse} Glimpse */
/** @typedef {import("./messages.js").Known} Known */

/**
 * @typedef {object} OpenedActions
 * @property {() => void} close
 * @property {(position: number) => void} go
 * @property {(decision: string, to: number | null) => void} decide
 * @property {(reason: string) => void} refuse
 * @property {(note: string) => void} note
 * @property {(layer: string, checkpoint: string) => void} compute
 */

const ROOM = 208;
const ONION =
  "Once this sample is removed and the model trained again, others near it may be memorised that are safe now " +
  "(Carlini et al. 2022): audit again on audit.kept(), and compare how many samples a model memorises.";

/** The view of one sample, at the side of the list or, where that has no room, in its place. */
export class Opened {
  /** @param {OpenedActions} actions */
  constructor(actions) {
    this.actions = actions;
    this.position = -1;
    /** @type {number | null} */
    this.eta = null;
    /** @type {Place | null} */
    this.place = null;
    /** @type {OpenedReply | null} */
    this.reply = null;
    /** @type {Known | null} */
    this.knows = null;
    this.relabelling = new Relabelling((to) => {
      this.element.focus();
      actions.decide("relabel", to);
    });
    this.relabelling.element.addEventListener("keydown", (event) => {
      if (event.key !== "Escape") return;
      event.preventDefault();
      event.stopPropagation();
      this.relabelling.hide();
      this.element.focus();
    });
    this.before = step("‹", "previous sample", () => this.go("before"));
    this.after = step("›", "next sample", () => this.go("after"));
    this.where = html("span", { class: "mw-where" });
    this.close = html("button", { type: "button", class: "mw-button mw-close" }, "Close");
    this.close.append(html("kbd", { class: "mw-key", "aria-hidden": "true" }, "Esc"));
    this.close.addEventListener("click", () => actions.close());
    const head = html("div", { class: "mw-row mw-opened-head" }, this.before, this.after, this.where);
    head.append(html("span", { class: "mw-gap" }), this.close);
    this.sample = html("div", { class: "mw-sample" });
    this.buttons = decisionButtons((decision) => this.decide(decision));
    this.onion = html("p", { class: "mw-remark", hidden: true }, ONION);
    this.top = html("div", { class: "mw-opened-top" }, head, this.buttons.group, this.relabelling.element, this.onion);
    this.note = html("textarea", { class: "mw-words mw-note", rows: 2, dir: "auto" });
    this.note.addEventListener("change", () => actions.note(this.note.value));
    this.noteName = html("span");
    const note = html("label", { class: "mw-writing" }, this.noteName, this.note);
    const left = html("div", { class: "mw-opened-left" }, this.sample, note);
    this.known = html("div", { class: "mw-opened-right" });
    this.element = html("div", { class: "mw-opened", role: "region", tabindex: -1, hidden: true });
    this.element.append(this.top, html("div", { class: "mw-opened-body" }, left, this.known));
  }

  /** @param {"before" | "after"} side */
  go(side) {
    const to = this.place?.[side] ?? null;
    if (to !== null) this.actions.go(to);
  }

  /**
   * Clears everything of the last sample before another one is shown.
   * @param {number} position
   */
  start(position) {
    this.position = position;
    this.relabelling.hide();
    this.reply = this.knows = null;
    this.sample.replaceChildren(html("p", { class: "mw-empty" }, "Waiting for the kernel …"));
    this.known.replaceChildren();
    this.note.value = "";
  }

  /**
   * @param {OpenedReply} reply
   * @param {DataView[]} buffers
   */
  show(reply, buffers) {
    const { item } = reply;
    this.eta = reply.eta;
    const bytes = buffers.length > 0 ? new Uint8Array(bytesOf(buffers[0])) : new Uint8Array(0);
    this.element.setAttribute("aria-label", `sample ${nameText(item.id)}`);
    // a sample that its decision took out of the filter keeps its way on
    if (reply.place !== null || this.place === null) this.place = reply.place;
    this.before.disabled = (this.place?.before ?? null) === null;
    this.after.disabled = (this.place?.after ?? null) === null;
    this.where.textContent = reply.place === null ? "not in this filter" : placeText(reply.place);
    this.sample.replaceChildren(...sampleWhole(reply, bytes));
    this.reply = reply;
    this.buttons.show(reply.decisions, item.decision, true);
    this.onion.hidden = item.decision !== "remove";
    this.noteName.textContent = reply.kept ? "note (kept in decisions.csv)" : "note (in memory alone)";
    if (focused(this.element) !== this.note) this.note.value = item.note;
    if (!reply.more) this.known.replaceChildren();
    else if (this.known.childElementCount === 0) this.wait();
  }

  wait() {
    this.known.replaceChildren(html("p", { class: "mw-empty" }, "Looking up its scores and neighbours …"));
  }

  /* ------------------------------------------------------------ deciding */

  /** @param {string} decision */
  decide(decision) {
    const { choices = [], refused = {} } = this.reply?.decisions ?? {};
    if (refused[decision]) this.actions.refuse(refused[decision]);
    if (!choices.includes(decision)) return;
    this.relabelling.hide();
    if (decision === "relabel") {
      this.offerClasses();
      this.relabelling.focus();
    } else this.actions.decide(decision, null);
  }

  /** Offers the classes that this sample can get; the finished model's and its neighbours' first. */
  offerClasses() {
    if (this.reply === null) return;
    const { item, decisions } = this.reply;
    const classes = decisions.classes.slice(0, item.options?.length);
    this.relabelling.show(classes, suggestions(item, classes, this.knows));
  }

  /* ------------------------------------------------------------ what its source knows */

  /**
   * @param {Known | undefined} known
   * @param {string} [problem]
   * @param {DataView[]} [buffers]
   */
  showKnown(known, problem, buffers = []) {
    if (known === undefined) {
      this.known.replaceChildren(html("p", { class: "mw-refused" }, problem ?? ""));
      return;
    }
    this.knows = known;
    if (!this.relabelling.element.hidden && !this.relabelling.element.contains(focused(this.element))) this.offerClasses();
    const bytes = buffers.length > 0 ? new Uint8Array(bytesOf(buffers[0])) : new Uint8Array(0);
    const parts = [];
    if (known.checkpoints.length > 0) {
      parts.push(heading(`${known.title} at every checkpoint and layer`), this.table(known));
    }
    if (known.shadows !== null) {
      parts.push(heading(`Logit gap under shadow models, ${known.shadows.checkpoint}`), liraPicture(known.shadows, this.eta));
      if (known.shadows.support) parts.push(html("p", { class: "mw-support" }, supportText(known.shadows.support)));
    }
    if (known.neighbours.length > 0) {
      parts.push(heading("Nearest samples at this layer"), neighbours(known.neighbours, bytes, this.actions.go));
    }
    for (const note of known.notes) parts.push(html("p", { class: "mw-remark" }, note));
    this.known.replaceChildren(...parts);
    showChosen(this.known);
  }

  /** @param {Known} known */
  table(known) {
    const values = known.scores.flat().filter((value) => value !== null);
    const low = Math.min(...values);
    const high = Math.max(...values);
    const table = html("table", { class: "mw-scores" });
    const named = known.layers.length > 1 || known.layers[0].value !== "";
    const top = html("tr", {}, html("th", { scope: "col" }, named ? "layer" : ""));
    for (const { label, marked } of known.checkpoints) {
      top.append(html("th", { scope: "col", class: marked ? "mw-here" : "" }, label));
    }
    const body = html("tbody", {});
    known.layers.forEach((layer, column) => {
      const name = html("th", { scope: "row", class: layer.marked && named ? "mw-here" : "" }, layer.label);
      const row = html("tr", {}, name);
      known.checkpoints.forEach((checkpoint, i) => {
        const cell = this.cell(known, i, column, (value) => heat(value, low, high));
        if (layer.marked && checkpoint.marked) {
          cell.classList.add("mw-here");
          cell.setAttribute("aria-current", "true");
        }
        row.append(cell);
      });
      body.append(row);
    });
    table.append(html("thead", {}, top), body);
    const buttons = [...table.querySelectorAll("button")];
    buttons.forEach((button, i) => (button.tabIndex = i === 0 ? 0 : -1));
    table.addEventListener("keydown", (event) => moveInTable(event, table));
    const scroll = html("div", { class: "mw-scroll", tabindex: 0, role: "group", "aria-label": "scores" }, table);
    return scroll;
  }

  /**
   * @param {Known} known
   * @param {number} i  checkpoint
   * @param {number} j  layer
   * @param {(value: number) => number} shade
   */
  cell(known, i, j, shade) {
    const value = known.scores[i][j];
    const cell = html("td", {});
    if (value !== null) {
      cell.textContent = fixed(value, known.digits);
      cell.style.setProperty("--mw-heat", `${(35 * shade(value)).toFixed(0)}%`);
      return cell;
    }
    if (known.computed[i][j]) {
      cell.append(html("span", { title: "its class has too few members" }, "none"));
      return cell;
    }
    if (known.fixed) {
      cell.append(html("span", { title: "not on this page" }, "–"));
      return cell;
    }
    const [checkpoint, layer] = [known.checkpoints[i], known.layers[j]];
    const button = html("button", { type: "button", class: "mw-compute-cell" }, "compute");
    const place = layer.value === "" ? checkpoint.label : `${layer.label}, ${checkpoint.label}`;
    button.setAttribute("aria-label", `not computed: compute ${known.title} at ${place}`);
    button.title = "not computed yet";
    button.addEventListener("click", () => this.actions.compute(layer.value, checkpoint.value));
    cell.append(button);
    return cell;
  }
}

/**
 * Scrolls a table so that the cell of the shown layer and checkpoint is in view, beside its fixed
 * row and column.
 * @param {Element} known
 */
function showChosen(known) {
  const scroll = known.querySelector(".mw-scroll");
  const [cell, corner] = [".mw-scores td.mw-here", ".mw-scores th"].map((part) => known.querySelector(part));
  if (scroll === null || cell === null || corner === null) return;
  const [view, at, fixed] = [scroll, cell, corner].map((part) => part.getBoundingClientRect());
  const left = view.left + fixed.width;
  if (at.right > view.right || at.left < left) scroll.scrollLeft += at.left - (left + view.right - at.width) / 2;
  const top = view.top + fixed.height;
  if (at.bottom > view.bottom || at.top < top) scroll.scrollTop += at.top - (top + view.bottom - at.height) / 2;
}

/**
 * Returns the classes that a sample may better have, each once: what the finished model says, what
 * most of the neighbours have, and what the model at this checkpoint says.
 * @param {import("./messages.js").Item} item
 * @param {string[]} classes
 * @param {Pick<Known, "guess" | "neighbours"> | null} known
 */
export function suggestions(item, classes, known) {
  const near = known?.neighbours ?? [];
  const many = classes.map((_, i) => near.filter(({ answer }) => answer === i).length);
  const most = Math.max(0, ...many);
  const told = [
    { to: known?.guess ?? -1, why: "finished model" },
    { to: most > 0 ? many.indexOf(most) : -1, why: `${most} of ${near.length} neighbours` },
    { to: classes.indexOf(item.guess), why: "model at this checkpoint" },
  ];
  const own = classes.indexOf(item.label);
  /** @type {Map<number, string[]>} */
  const found = new Map();
  for (const { to, why } of told) {
    if (to >= 0 && to < classes.length && to !== own) found.set(to, [...(found.get(to) ?? []), why]);
  }
  return [...found].map(([to, why]) => ({ to, why: why.join(", ") }));
}

/**
 * Returns how strongly a cell is shaded, from 0 to 1. The lowest score, most at risk, has 1.
 * @param {number} value
 * @param {number} low
 * @param {number} high
 */
export function heat(value, low, high) {
  return high > low ? (high - value) / (high - low) : 0;
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

/** @param {Place} place */
function placeText(place) {
  return `${whole(place.number)} of ${whole(place.total)}`;
}

/**
 * @param {string} sign
 * @param {string} label
 * @param {() => void} action
 */
function step(sign, label, action) {
  const button = html("button", { type: "button", class: "mw-button mw-step", "aria-label": label }, sign);
  button.addEventListener("click", action);
  return button;
}

/** @param {string} text */
function heading(text) {
  return html("h4", { class: "mw-heading" }, text);
}

/**
 * The sample itself.
 * @param {OpenedReply} reply
 * @param {Uint8Array} bytes
 */
function sampleWhole(reply, bytes) {
  const { item } = reply;
  const head = html("div", { class: "mw-card-head" });
  if (item.status) head.append(chip(item.status));
  head.append(...tags(item));
  head.append(facts(item, reply), html("div", { class: "mw-facts" }, ...answer(item)));
  const id = html("p", { class: "mw-whole-id" }, "id ", strong(item.id));
  if (item.image) return [sharp(item, item.image, bytes, ROOM), head, labels(item), id];
  return [head, ...body(item), id];
}

/**
 * An image that is shown by itself.
 * @param {{label: string}} item
 * @param {import("./messages.js").Image} image
 * @param {Uint8Array} bytes
 * @param {number} room  screen pixels for its longer side
 */
function sharp(item, image, bytes, room) {
  return picture(item, alone(image, bytes, enlargement(image, room)));
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
    const label = html("span", { class: "mw-near-label" });
    if (near.label !== "") label.append("label ", strong(near.label));
    if (near.image) button.append(sharp(near, near.image, bytes, 64));
    else {
      const text = near.values ? valuesText(near.values) : proseText(near.text ?? "");
      button.append(html("bdi", { class: "mw-near-text", dir: "auto" }, text));
    }
    const answer = near.options[near.answer];
    if (answer !== undefined) label.append(" · ", html("bdi", {}, proseText(answer)));
    button.append(label, html("span", { class: "mw-distance" }, `distance ${near.distance.toPrecision(3)}`));
    list.append(html("li", {}, button));
  }
  return list;
}

/**
 * Arrow keys go from one button of a table to the next; Tab leaves it.
 * @param {KeyboardEvent} event
 * @param {HTMLTableElement} table
 */
function moveInTable(event, table) {
  const buttons = [...table.querySelectorAll("button")];
  const at = buttons.findIndex((button) => button === focused(table));
  if (at < 0 || !event.key.startsWith("Arrow")) return;
  event.preventDefault();
  event.stopPropagation();
  const back = event.key === "ArrowLeft" || event.key === "ArrowUp";
  const next = buttons[Math.min(buttons.length - 1, Math.max(0, at + (back ? -1 : 1)))];
  buttons.forEach((button) => (button.tabIndex = button === next ? 0 : -1));
  next.focus();
}
