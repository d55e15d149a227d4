/** The inspector: pages of samples as cards or tiles, asked from the kernel and never kept. */

import {
  arrowStep, bytesOf, html, KERNEL_GONE, listeners, root, setAttributes, tell,
} from "./dom.js";
import { fixed, whole } from "./maths.js";

/** @typedef {import("./dom.js").Model} Model */

/**
 * @typedef {object} Item  one sample of a page
 * @property {number} position
 * @property {string} id
 * @property {string} status
 * @property {string} label  name of the class it is trained on; "" if unknown
 * @property {string} guess  the model's most probable class; "" if unknown
 * @property {number | null} guessProbability
 * @property {number | null} labelProbability
 * @property {number | null} score
 * @property {number | null} error
 * @property {boolean} uncertain  the score and τ are less than two errors apart
 * @property {number | null} logLira
 * @property {boolean} canary
 * @property {string} [text]
 * @property {number} [hidden]  characters of the text that were not sent
 * @property {{text: string, label: boolean, probability: number | null}[]} [options]
 * @property {{offset: number, height: number, width: number, channels: number}} [image]
 */

/**
 * @typedef {object} Reply
 * @property {string} type
 * @property {string} request
 * @property {number} page
 * @property {number} pages
 * @property {number} first  number of the first sample shown, from 1; 0 if there is none
 * @property {number} total
 * @property {string} scoreName
 * @property {number} digits
 * @property {Record<string, number>} counts  samples behind each filter
 * @property {Item[]} items
 * @property {string} kind  "image", "text" or "mcq"
 * @property {[string, string][]} sorts
 * @property {[number, string][]} classes  empty where there are too many to choose from
 * @property {number | null} selected
 */

const KERNEL_BUSY = "The kernel has not answered yet: it is busy, or gone.";

const WORDS = /** @type {Record<string, string>} */ ({
  flagged: "flagged",
  "not flagged": "not flagged",
  hit: "hit",
  "false alarm": "false alarm",
  missed: "missed",
  clear: "clear",
  all: "all",
});

const HELP = /** @type {Record<string, string>} */ ({
  all: "every sample",
  flagged: "score at most τ",
  "not flagged": "score above τ",
  hit: "flagged, and memorised",
  "false alarm": "flagged, but not memorised",
  missed: "memorised, but not flagged",
  clear: "neither flagged nor memorised",
});

/**
 * Grey or colour bytes as the four channels that a canvas takes.
 * @param {Uint8Array} bytes
 * @param {number} channels
 */
export function toRgba(bytes, channels) {
  const pixels = bytes.length / channels;
  const rgba = new Uint8ClampedArray(4 * pixels);
  for (let i = 0; i < pixels; i++) {
    for (let c = 0; c < 3; c++) rgba[4 * i + c] = bytes[channels * i + (channels < 3 ? 0 : c)];
    rgba[4 * i + 3] = channels === 4 ? bytes[4 * i + 3] : 255;
  }
  return rgba;
}

/**
 * How many screen pixels an image's pixel is wide: a whole number for small images, so that
 * all are alike.
 * @param {number} side  the longer side of the image
 * @param {number} room
 */
export function zoomFor(side, room) {
  return side > room ? room / side : Math.max(1, Math.floor(room / side));
}

/** One view of the inspector. */
class Inspector {
  /**
   * @param {Model} model
   * @param {HTMLElement} el
   */
  constructor(model, el) {
    this.model = model;
    this.ears = listeners(model);
    this.name = Math.random().toString(36).slice(2, 8);
    this.asked = 0;
    this.root = root(el, "inspector", "Sample inspector");
    /** @type {Map<string, HTMLElement>} */
    this.cards = new Map();
    this.search = "";
    this.label = "";
    /** @type {number | null} */
    this.selected = null;
    this.asking = false;
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    this.patience = undefined;
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    this.typing = undefined;
    this.filters = html("div", { class: "mw-filters", role: "group", "aria-label": "Show" });
    /** @type {Record<string, {button: HTMLButtonElement, count: HTMLElement}>} */
    this.filter = {};
    this.classes = html("select", { class: "mw-select", "aria-label": "class", hidden: true });
    this.query = html("input", { type: "search", class: "mw-search", hidden: true });
    setAttributes(this.query, { placeholder: "search text", "aria-label": "search text" });
    this.sort = html("select", { class: "mw-select", "aria-label": "sort" });
    this.range = html("span", { class: "mw-range", role: "status" });
    this.back = html("button", { type: "button", class: "mw-button mw-step", "aria-label": "previous page" }, "‹");
    this.on = html("button", { type: "button", class: "mw-button mw-step", "aria-label": "next page" }, "›");
    this.list = html("ul", { class: "mw-cards", role: "listbox", "aria-label": "samples" });
    this.empty = html("p", { class: "mw-empty" }, "Waiting for the kernel …");
    const narrow = html("div", { class: "mw-row mw-narrowing" }, this.filters, this.classes, this.query);
    const sort = html("label", { class: "mw-labelled" }, "sort", this.sort);
    const pages = html("div", { class: "mw-row mw-paging" }, sort, this.range, this.back, this.on);
    const bar = html("div", { class: "mw-row mw-inspector-bar" }, narrow, pages);
    this.root.append(bar, this.list, this.empty);
    this.addFilters();
    this.listen();
    this.dim();
    this.ask();
  }

  addFilters() {
    for (const [name, word] of Object.entries(WORDS)) {
      const count = html("span", { class: "mw-count" });
      const button = html("button", { type: "button", class: "mw-chip", title: HELP[name] }, word, " ", count);
      button.dataset.filter = name;
      button.addEventListener("click", () => this.change({ filter: name, page: 0 }));
      this.filter[name] = { button, count };
      this.filters.append(button);
    }
  }

  listen() {
    for (const trait of ["page", "page_size", "filter", "sort", "tau", "_version"]) {
      this.ears.onModel(`change:${trait}`, () => this.ask());
    }
    this.ears.onModel("change:_dimmed", () => this.dim());
    this.ears.onModel("msg:custom", (content, buffers) => this.hear(content, buffers));
    this.ears.on(this.classes, "change", () => {
      this.label = this.classes.value;
      this.change({ page: 0 });
    });
    this.ears.on(this.query, "input", () => {
      clearTimeout(this.typing);
      this.typing = setTimeout(() => {
        this.search = this.query.value;
        this.change({ page: 0 });
      }, 200);
    });
    this.ears.on(this.sort, "change", () => this.change({ sort: this.sort.value, page: 0 }));
    this.ears.on(this.back, "click", () => this.change({ page: this.model.get("page") - 1 }));
    this.ears.on(this.on, "click", () => this.change({ page: this.model.get("page") + 1 }));
    this.ears.on(this.list, "keydown", (event) => this.key(event));
  }

  dim() {
    this.root.classList.toggle("mw-dimmed", this.model.get("_dimmed"));
  }

  /** @param {Record<string, any>} values */
  change(values) {
    for (const [name, value] of Object.entries(values)) this.model.set(name, value);
    tell(this.model);
    this.ask();
  }

  /* ------------------------------------------------------------ pages */

  /** Asks for the page that the traits describe, once for all changes of this moment. */
  ask() {
    if (this.asking) return;
    this.asking = true;
    queueMicrotask(() => {
      this.asking = false;
      this.asked += 1;
      const heard = tell(this.model, {
        type: "page",
        request: `${this.name}-${this.asked}`,
        page: this.model.get("page"),
        filter: this.model.get("filter"),
        sort: this.model.get("sort"),
        label: this.label === "" ? null : Number(this.label),
        search: this.search,
      });
      clearTimeout(this.patience);
      if (heard) this.patience = setTimeout(() => this.unanswered(KERNEL_BUSY), 8000);
      else this.unanswered(KERNEL_GONE);
    });
  }

  /** @param {string} reason */
  unanswered(reason) {
    this.root.classList.add("mw-unanswered");
    this.empty.textContent = reason;
    this.empty.hidden = false;
  }

  /**
   * @param {any} content
   * @param {DataView[]} buffers
   */
  hear(content, buffers) {
    if (content.type === "select") this.showSelected(content.position);
    if (content.type !== "page" || content.request !== `${this.name}-${this.asked}`) return;
    clearTimeout(this.patience);
    this.root.classList.remove("mw-unanswered");
    this.show(content, buffers);
  }

  /**
   * @param {Reply} reply
   * @param {DataView[]} buffers
   */
  show(reply, buffers) {
    if (reply.page !== this.model.get("page")) {
      this.asking = true; // this change is an answer, not a question
      this.model.set("page", reply.page);
      this.asking = false;
      tell(this.model);
    }
    this.showBar(reply);
    const bytes = buffers.length > 0 ? new Uint8Array(bytesOf(buffers[0])) : new Uint8Array(0);
    const focused = this.list.contains(document.activeElement);
    /** @type {Map<string, HTMLElement>} */
    const cards = new Map();
    for (const item of reply.items) {
      const key = JSON.stringify([reply.scoreName, { ...item, image: undefined }]) + imageKey(item, bytes);
      cards.set(key, this.cards.get(key) ?? this.card(item, reply, bytes));
    }
    this.cards = cards;
    const elements = [...cards.values()];
    if (!sameChildren(this.list, elements)) this.list.replaceChildren(...elements);
    this.list.className = `mw-cards mw-cards-${reply.kind}`;
    this.empty.hidden = reply.items.length > 0;
    this.empty.textContent = "No sample here. Move τ, or choose another filter.";
    this.showSelected(reply.selected);
    if (focused) this.current()?.focus({ preventScroll: true });
  }

  /** @param {Reply} reply */
  showBar(reply) {
    const filter = this.model.get("filter");
    for (const [name, { button, count }] of Object.entries(this.filter)) {
      const there = name in reply.counts;
      button.hidden = !there;
      button.setAttribute("aria-pressed", String(name === filter));
      count.textContent = there ? whole(reply.counts[name]) : "";
    }
    fillSelect(this.sort, reply.sorts, this.model.get("sort"));
    fillSelect(this.classes, [["", "every class"], ...reply.classes.map(asOption)], this.label);
    this.classes.hidden = reply.classes.length === 0;
    this.query.hidden = reply.kind === "image";
    const last = reply.first + reply.items.length - 1;
    this.range.textContent =
      reply.total === 0 ? "none" : `${whole(reply.first)}–${whole(last)} of ${whole(reply.total)}`;
    this.back.disabled = reply.page <= 0;
    this.on.disabled = reply.page >= reply.pages - 1;
  }

  /* ------------------------------------------------------------ one sample */

  /**
   * @param {Item} item
   * @param {Reply} reply
   * @param {Uint8Array} bytes
   */
  card(item, reply, bytes) {
    const card = html("li", { class: "mw-card", role: "option", tabindex: -1 });
    card.dataset.position = String(item.position);
    card.dataset.status = item.status;
    card.addEventListener("click", () => this.select(item.position));
    const head = html("div", { class: "mw-card-head" });
    if (item.status) head.append(chip(item.status));
    const facts = html("div", { class: "mw-facts" });
    if (item.score !== null) facts.append(scoreLine(item, reply));
    if (item.logLira !== null) facts.append(html("span", {}, `log-LiRA ${fixed(item.logLira, 1)}`));
    if (item.image) card.append(picture(item, bytes), head, labels(item), facts);
    else {
      head.append(facts);
      card.append(head, prose(item), item.options ? options(item) : labels(item));
    }
    card.append(footer(item));
    return card;
  }

  /** @param {number} position */
  select(position) {
    this.showSelected(position);
    this.current()?.focus({ preventScroll: true });
    tell(this.model, { type: "select", position });
  }

  /** @param {number | null} position */
  showSelected(position) {
    this.selected = position;
    const cards = this.elements();
    let reachable = cards[0];
    for (const card of cards) {
      const chosen = card.dataset.position === String(position);
      card.setAttribute("aria-selected", String(chosen));
      card.tabIndex = -1;
      if (chosen) reachable = card;
    }
    if (reachable) reachable.tabIndex = 0;
  }

  elements() {
    return /** @type {HTMLElement[]} */ ([...this.list.children]);
  }

  current() {
    return this.elements().find((card) => card.tabIndex === 0);
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const cards = this.elements();
    const at = cards.indexOf(/** @type {HTMLElement} */ (document.activeElement));
    if (at < 0) return;
    const across = Math.max(1, cards.filter((card) => card.offsetTop === cards[0].offsetTop).length);
    const upDown = event.key === "ArrowUp" ? -across : event.key === "ArrowDown" ? across : null;
    let to = at;
    if (upDown !== null) to = at + upDown;
    else if (arrowStep(event.key) !== 0) to = at + arrowStep(event.key);
    else if (event.key === "Home") to = 0;
    else if (event.key === "End") to = cards.length - 1;
    else if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    const next = cards[Math.min(cards.length - 1, Math.max(0, to))];
    this.select(Number(next.dataset.position));
    next.scrollIntoView({ block: "nearest" });
  }

  destroy() {
    clearTimeout(this.typing);
    clearTimeout(this.patience);
    this.ears.clear();
    this.root.remove();
  }
}

/** @param {string} status */
function chip(status) {
  const kind = status.replace(" ", "-");
  return html("span", { class: `mw-status mw-status-${kind}` }, status);
}

/**
 * @param {Item} item
 * @param {Reply} reply
 */
function scoreLine(item, reply) {
  const score = fixed(/** @type {number} */ (item.score), reply.digits);
  const error = item.error === null ? "" : ` ± ${fixed(item.error, reply.digits)}`;
  const text = html("span", {}, `${reply.scoreName} ${score}${error}`);
  if (item.uncertain) {
    const title = "the score and τ are less than two standard errors apart";
    text.append(html("span", { class: "mw-uncertain", title }, " · uncertain"));
  }
  return text;
}

/** @param {Item} item */
function footer(item) {
  const line = html("div", { class: "mw-footer" });
  const id = html("span", { class: "mw-id", title: `id ${item.id}` });
  id.textContent = item.id;
  line.append(id);
  if (item.canary) line.append(html("span", { class: "mw-tag", title: "planted by the auditor" }, "canary"));
  return line;
}

/** @param {Item} item */
function labels(item) {
  const lines = html("div", { class: "mw-labels" });
  if (item.label !== "") lines.append(html("div", {}, "label ", strong(item.label)));
  if (item.guess === "") return lines;
  const probability = item.guessProbability === null ? "" : ` (${item.guessProbability.toFixed(2)})`;
  const guess = html("div", { class: item.guess === item.label ? "mw-agrees" : "mw-differs" });
  guess.append("model ", strong(item.guess), probability);
  lines.append(guess);
  return lines;
}

/** @param {string} text */
function strong(text) {
  const element = html("bdi", { class: "mw-strong" });
  element.textContent = text;
  return element;
}

/**
 * @param {Item} item
 * @param {Uint8Array} bytes
 */
function picture(item, bytes) {
  const { offset, height, width, channels } = /** @type {NonNullable<Item["image"]>} */ (item.image);
  const canvas = html("canvas", { width, height, class: "mw-image", role: "img" });
  canvas.setAttribute("aria-label", `image labelled ${item.label}`);
  const zoom = zoomFor(Math.max(width, height), 112);
  canvas.style.width = `${width * zoom}px`;
  canvas.style.height = `${height * zoom}px`;
  if (zoom < 1) canvas.style.imageRendering = "auto";
  const part = bytes.subarray(offset, offset + height * width * channels);
  const image = new ImageData(toRgba(part, channels), width, height);
  canvas.getContext("2d")?.putImageData(image, 0, 0);
  return html("div", { class: "mw-picture" }, canvas);
}

/** @param {Item} item */
function prose(item) {
  const text = html("p", { class: "mw-prose", dir: "auto" });
  text.textContent = item.text ?? "";
  if (item.hidden) text.append(html("span", { class: "mw-cut" }, ` … ${whole(item.hidden)} more characters`));
  return text;
}

/** @param {Item} item */
function options(item) {
  const list = html("div", { class: "mw-options" });
  (item.options ?? []).forEach((option, i) => {
    const row = html("div", { class: "mw-option" });
    const letter = html("span", { class: "mw-letter" }, i < 26 ? String.fromCharCode(65 + i) : String(i + 1));
    if (option.label) {
      letter.classList.add("mw-letter-label");
      letter.title = "the label";
      letter.append(html("span", { class: "mw-spoken" }, " (label)"));
    }
    const text = html("span", { class: "mw-option-text", dir: "auto" });
    text.textContent = option.text;
    row.append(letter, text);
    if (option.probability !== null) {
      const fill = html("span", { class: "mw-fill" });
      fill.style.width = `${(100 * option.probability).toFixed(1)}%`;
      row.append(html("span", { class: "mw-gauge", "aria-hidden": "true" }, fill));
      row.append(html("span", { class: "mw-probability" }, option.probability.toFixed(2)));
    }
    list.append(row);
  });
  return list;
}

/**
 * @param {[number, string]} entry
 * @returns {[string, string]}
 */
function asOption([value, name]) {
  return [String(value), name];
}

/**
 * @param {HTMLSelectElement} select
 * @param {[string, string][]} entries
 * @param {string} value
 */
function fillSelect(select, entries, value) {
  const key = JSON.stringify(entries);
  if (select.dataset.entries !== key) {
    select.dataset.entries = key;
    select.replaceChildren(...entries.map(([name, text]) => new Option(text, name)));
  }
  select.value = value;
}

/**
 * A short sum of an image's bytes, to tell whether a card still shows the same one.
 * @param {Item} item
 * @param {Uint8Array} bytes
 */
function imageKey(item, bytes) {
  if (!item.image) return "";
  const { offset, height, width, channels } = item.image;
  let sum = 0;
  for (let i = offset; i < offset + height * width * channels; i++) sum = (sum * 31 + bytes[i]) | 0;
  return `${height}x${width}x${channels}:${sum}`;
}

/**
 * @param {Element} parent
 * @param {Element[]} children
 */
function sameChildren(parent, children) {
  return (
    parent.children.length === children.length &&
    children.every((child, i) => parent.children[i] === child)
  );
}

export default {
  /** @param {{model: Model, el: HTMLElement}} context */
  render({ model, el }) {
    const view = new Inspector(model, el);
    return () => view.destroy();
  },
};
