/** The inspector: pages of samples as cards or tiles. The kernel sends them, and they are never stored. */

import { Sheets } from "./bitmap.js";
import {
  body, chip, enlargement, facts, footer, imageKey, labels, nameText, picture, tags,
} from "./cards.js";
import { DecideBar, decisionOf, download } from "./decide.js";
import {
  arrowStep, become, bytesOf, focused, html, KERNEL_GONE, listeners, onScroll, root, segments, setAttributes, tell,
  throttle, write,
} from "./dom.js";
import { fixed, whole } from "./numbers.js";
import { Opened } from "./opened.js";

/** @typedef {import("./dom.js").Model} Model */
/** @typedef {import("./messages.js").Item} Item */
/** @typedef {import("./messages.js").Page} Reply */
/** What is answered with a sentence. @typedef {Extract<import("./messages.js").FromPage, {type: "decide" | "undo" | "export" | "compute_at"}>} Asked */

const AFTER_PAINT = 30; // milliseconds in which the browser gets a frame to the screen
const SAVE_AFTER = 200;
const SOON = 1000; // milliseconds in which a free kernel answers
const LOST = 8000; // then a page is asked for again where τ moves
const KERNEL_BUSY = "Waiting for the kernel. Perhaps another cell is running.";

const WORDS = /** @type {Record<string, string>} */ ({
  flagged: "flagged",
  found: "found",
  "flagged only": "flagged only",
  missed: "missed",
  "left alone": "left alone",
  all: "all",
});

const HELP = /** @type {Record<string, string>} */ ({
  all: "every sample",
  flagged: "score at most τ",
  found: "flagged, and memorised",
  "flagged only": "flagged, but not memorised",
  missed: "memorised, but not flagged",
  "left alone": "not flagged",
});

const SIZES = [
  { value: "64", label: "S" },
  { value: "112", label: "M" },
  { value: "224", label: "L" },
];

/** One view of the inspector. */
export class Inspector {
  /**
   * @param {Model} model
   * @param {HTMLElement} el
   * @param {boolean} [led]  whether `follow` is called at every move of τ
   */
  constructor(model, el, led = false) {
    this.model = model;
    this.led = led;
    this.ears = listeners(model);
    this.name = Math.random().toString(36).slice(2, 8);
    this.tau = /** @type {number} */ (model.get("tau"));
    /** Samples behind each filter at τ, as the explorer counts them. @type {Record<string, number> | null} */
    this.live = null;
    this.asked = 0;
    this.waiting = false; // for the page that was asked for last
    this.since = 0;
    this.behind = false; // whether τ has moved since
    /** Positions of samples that are decided on together. @type {Set<number>} */
    this.marked = new Set();
    this.lastMark = -1;
    /** Where a decision leads once it is made. @type {number | null} */
    this.onward = null;
    this.moved = false; // whether a decision led on, and the page that follows it is still to come
    this.selectedAt = -1; // what was asked last when the user chose a sample
    this.root = root(el, "inspector", "Sample inspector", this.ears);
    this.looks = /** @type {string[]} */ ([]); // all that each card shows, as a text
    /** Cards in view. @type {Set<Element>} */
    this.inView = new Set();
    this.watch = new IntersectionObserver((entries) => {
      for (const { target, isIntersecting } of entries) this.inView[isIntersecting ? "add" : "delete"](target);
    });
    this.unfilled = /** @type {number[]} */ ([]); // cards out of view that still show the last page
    this.sheets = new Sheets(this.root);
    this.search = "";
    this.label = "";
    /** Lowest and highest score of the bar whose samples are shown; or those on the line. @type {[number, number] | "line" | null} */
    this.between = null;
    /** @type {number | null} */
    this.selected = null;
    this.asking = false;
    this.lookSoon = throttle(() => this.look(false), 150);
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    this.patience = undefined;
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    this.silence = undefined;
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    this.typing = undefined;
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    this.saving = undefined;
    this.filters = html("div", { class: "mw-filters", role: "group", "aria-label": "Show" });
    /** @type {Record<string, {button: HTMLButtonElement, count: HTMLElement}>} */
    this.filter = {};
    this.classes = html("select", { class: "mw-select", "aria-label": "class", hidden: true });
    this.query = html("input", { type: "search", class: "mw-search", hidden: true });
    setAttributes(this.query, { placeholder: "search text", "aria-label": "search text" });
    this.made = html("select", { class: "mw-select", "aria-label": "filter by decision" });
    this.sort = html("select", { class: "mw-select", "aria-label": "sort" });
    this.room = 112;
    this.size = segments("image size", SIZES, (value) => this.resize(Number(value)));
    this.size.group.hidden = true;
    this.size.show(String(this.room));
    this.range = html("span", { class: "mw-range", role: "status" });
    this.back = html("button", { type: "button", class: "mw-button mw-step", "aria-label": "previous page" }, "‹");
    this.on = html("button", { type: "button", class: "mw-button mw-step", "aria-label": "next page" }, "›");
    this.list = html("ul", { class: "mw-cards", role: "listbox", "aria-label": "samples" });
    this.empty = html("p", { class: "mw-empty" }, "Waiting for the kernel …");
    /** @type {Reply | null} */
    this.reply = null;
    this.bytes = new Uint8Array(0);
    /** Position of the sample that is open. @type {number | null} */
    this.open = null;
    this.known = 0;
    this.relabels = false; // whether an opened sample begins with the choice of a class
    /** What was last asked for all that is shown. @type {{decision: string, to: number | null}} */
    this.wanted = { decision: "keep", to: null };
    this.bar = new DecideBar({
      decide: (decision, all, expected, to) => this.decide(decision, all, expected, to),
      undo: () => this.request({ type: "undo" }),
      exportAll: (suffix, samples) => this.request({ type: "export", suffix, samples }),
    }, led);
    this.opened = new Opened({
      close: () => this.close(),
      go: (position) => this.openSample(position),
      decide: (decision, to) => this.decideOpen({ decision, ...asClassOf(to) }),
      refuse: (reason) => this.bar.say(reason, false),
      note: (note) => this.decideOpen({ note }),
      compute: (layer, checkpoint) => this.request({ type: "compute_at", layer, checkpoint }),
    });
    const sort = html("label", { class: "mw-labelled mw-sort" }, "sort", this.sort);
    this.barChip = html("button", { type: "button", class: "mw-button mw-between", hidden: true, title: "show all scores again" });
    this.barChip.addEventListener("click", () => this.showBetween(null));
    this.filters.append(this.barChip);
    const turning = html("span", { class: "mw-row mw-turning" }, this.range, this.back, this.on);
    const first = html("div", { class: "mw-row mw-inspector-bar" }, this.filters, turning);
    const narrow = html("div", { class: "mw-row mw-inspector-bar" }, this.classes, this.made, this.query, sort, this.size.group);
    this.narrowing = narrow;
    const bar = html("div", { class: "mw-inspector-bars" }, first, narrow);
    this.notice = html("p", { class: "mw-notice", hidden: true });
    const list = html("div", { class: "mw-list-box" }, this.empty, this.list);
    this.root.append(bar, this.bar.element, this.notice, html("div", { class: "mw-inspector-body" }, list, this.opened.element));
    this.addFilters();
    this.listen();
    this.showNarrowing();
    this.dim();
    this.ask();
    this.followOpened();
  }

  /** Opens the sample that Python, or a link, names. */
  followOpened() {
    const opened = this.model.get("opened") ?? null;
    if (opened === this.open) return;
    if (opened === null) this.close();
    else this.openSample(opened, false, false);
  }

  /** @param {number | null} position  of the sample that is open from now on */
  keepOpen(position) {
    this.open = position;
    if ((this.model.get("opened") ?? null) === position) return;
    this.model.set("opened", position);
    this.saveLater();
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
    for (const trait of ["rule", "page", "page_size", "filter", "sort", "decision", "_version", "_decided"]) {
      this.ears.onModel(`change:${trait}`, () => this.ask());
    }
    if (!this.led) this.ears.onModel("change:tau", () => this.follow(this.model.get("tau"), null));
    for (const trait of ["rule", "_decided"]) this.ears.onModel(`change:${trait}`, () => this.look(false));
    this.ears.later(() => this.lookSoon.cancel());
    this.ears.onModel("change:_version", () => {
      this.between = null; // of another score
      this.look(true);
    });
    this.ears.onModel("change:_dimmed", () => this.dim());
    this.ears.onModel("change:opened", () => this.followOpened());
    if (this.led) this.ears.onModel("change:more", () => this.showNarrowing());
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
    this.ears.on(this.made, "change", () => this.change({ decision: this.made.value, page: 0 }));
    this.ears.on(this.opened.element, "keydown", (event) => this.keyOpened(event));
    this.ears.on(this.list, "click", (event) => this.click(event));
    this.ears.on(this.list, "dblclick", () => this.openSample(this.selected));
    this.ears.on(this.back, "click", () => this.change({ page: this.model.get("page") - 1 }));
    this.ears.on(this.on, "click", () => this.change({ page: this.model.get("page") + 1 }));
    this.ears.on(this.list, "keydown", (event) => this.key(event));
    onScroll(this.root, this.ears, (top) => this.stick(top));
  }

  /** @param {number} top  where decisions stay in view above the samples; an opened one has its own */
  stick(top) {
    const [bar, box] = [this.bar.element, this.root.getBoundingClientRect()];
    const down = this.open === null && box.bottom > top + 180 ? top - box.top - bar.offsetTop : 0;
    bar.classList.toggle("mw-stuck", down > 0);
    bar.style.transform = down > 0 ? `translateY(${down.toFixed(1)}px)` : "";
  }

  dim() {
    this.root.classList.toggle("mw-dimmed", this.model.get("_dimmed"));
  }

  /**
   * Shows the samples of one bar of the histogram, those on the line, or all again.
   * @param {[number, number] | "line" | null} between
   */
  showBetween(between) {
    this.between = between;
    this.change(between === null ? { page: 0 } : { filter: "all", page: 0 });
  }

  /** What narrows and sorts the samples is one of the dashboard's further controls, unless it is in use. */
  showNarrowing() {
    const used = this.label !== "" || this.search !== "" || this.model.get("decision") !== "any";
    this.narrowing.hidden = this.led && !used && !this.model.get("more");
  }

  /** @param {Record<string, any>} values */
  change(values) {
    for (const [name, value] of Object.entries(values)) this.model.set(name, value);
    this.ask(); // it says all that the answer needs
    this.saveLater();
  }

  /** Saves the traits later, because the kernel's reply to them would delay the answer. */
  saveLater() {
    clearTimeout(this.saving);
    this.saving = setTimeout(() => this.save(), SAVE_AFTER);
  }

  save() {
    clearTimeout(this.saving);
    this.saving = undefined;
    tell(this.model);
  }

  /* ------------------------------------------------------------ pages */

  /**
   * Follows τ: the counts at once, the samples as fast as the kernel answers.
   * @param {number} tau
   * @param {import("./maths.js").Counts | null} counts  null where they are not known here
   */
  follow(tau, counts) {
    const moved = tau !== this.tau;
    this.tau = tau;
    this.live = counts === null ? null : byFilter(counts);
    if (this.reply) this.showCounts(this.reply);
    if (!moved) return;
    if (this.open !== null) this.lookSoon();
    if (this.waiting && performance.now() - this.since < LOST) this.behind = true;
    else this.ask();
  }

  /** Asks for the page that the traits describe, once for all changes of this moment. */
  ask() {
    if (this.asking) return;
    this.asking = true;
    queueMicrotask(() => {
      this.asking = false;
      this.behind = false;
      this.asked += 1;
      const page = this.model.get("page");
      this.waiting = tell(this.model, { type: "page", request: `${this.name}-${this.asked}`, page, ...this.shown() });
      this.since = performance.now();
      clearTimeout(this.patience);
      if (this.waiting) this.patience = setTimeout(() => this.unanswered(KERNEL_BUSY), SOON);
      else this.unanswered(KERNEL_GONE);
    });
  }

  /** What is shown, and in what order. */
  shown() {
    return {
      tau: this.tau,
      rule: this.model.get("rule") ?? "",
      filter: this.model.get("filter"),
      sort: this.model.get("sort"),
      decision: this.model.get("decision"),
      label: this.label === "" ? null : Number(this.label),
      search: this.search,
      between: this.between === "line" ? null : this.between,
      close: this.between === "line",
    };
  }

  /** @param {string} reason */
  unanswered(reason) {
    this.root.classList.add("mw-unanswered");
    this.empty.textContent = reason;
    this.empty.hidden = false;
  }

  /**
   * @param {import("./messages.js").FromKernel} content
   * @param {DataView[]} buffers
   */
  hear(content, buffers) {
    if (content.type === "select") this.showSelected(content.position);
    if (content.type === "said") this.hearSaid(content);
    if (content.type === "opened" || content.type === "known") this.hearOpened(content, buffers);
    if (content.type !== "page" || content.request !== `${this.name}-${this.asked}`) return;
    clearTimeout(this.patience);
    this.waiting = false;
    this.root.classList.remove("mw-unanswered");
    this.show(content, buffers);
    if (this.behind) this.ask();
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
      this.saveLater();
    }
    this.reply = reply;
    this.bytes = buffers.length > 0 ? new Uint8Array(bytesOf(buffers[0])) : new Uint8Array(0);
    if (this.asked > this.selectedAt) this.selected = reply.selected; // else it is older than the choice here
    this.showBar(reply);
    this.showCards(reply);
  }

  /** @param {Reply} reply */
  showCards(reply) {
    const had = focused(this.list);
    const before = this.elements().findIndex((card) => card === had);
    const showed = had?.dataset.position;
    this.fill(reply);
    this.sheets.sweep();
    const look = `mw-cards mw-cards-${reply.kind} mw-size-${this.room}`;
    if (this.list.className !== look) this.list.className = look;
    this.empty.hidden = reply.items.length > 0;
    if (!this.empty.hidden) this.empty.replaceChildren(...this.nothing());
    else if (this.empty.hasChildNodes()) this.empty.replaceChildren();
    this.showSelected(this.selected);
    if (before >= 0) {
      const next = this.current(before);
      if (next === had && next?.dataset.position !== showed) had?.blur(); // so that another sample is read out
      next?.focus({ preventScroll: true });
    }
    // by then the mark of the decision has taken its room
    if (this.moved) requestAnimationFrame(() => setTimeout(() => this.reveal(), AFTER_PAINT));
    this.moved = false;
  }

  /** Scrolls the chosen sample into view, whole below what sticks; of one that is too high, the top. */
  reveal() {
    const inList = this.open === null || this.list.contains(focused(this.list));
    const [whole, over] = inList ? [this.current(), this.bar.element] : [this.opened.sample, this.opened.top];
    this.root.style.setProperty("--mw-over", `${over.offsetHeight}px`);
    if (!inList) this.opened.element.scrollIntoView({ block: "nearest" });
    for (const part of [whole, whole?.firstElementChild]) part?.scrollIntoView({ block: "nearest" });
  }

  /** Says why there is no sample, and offers what brings some back. */
  nothing() {
    if (this.search === "") return ["No sample here. Move τ, or choose another filter."];
    const filter = this.model.get("filter");
    const which = filter === "all" ? "" : `${WORDS[filter]} `;
    const clear = html("button", { type: "button", class: "mw-button mw-clear" }, "Clear the search");
    clear.addEventListener("click", () => this.clearSearch());
    return [`No ${which}sample matches “${nameText(this.search)}”. `, clear];
  }

  clearSearch() {
    clearTimeout(this.typing);
    this.search = this.query.value = "";
    this.query.focus();
    this.change({ page: 0 });
  }

  /**
   * Makes the cards those of a page: the ones in view now, the others after the next frame.
   * @param {Reply} reply
   */
  fill(reply) {
    const cards = this.elements();
    for (const card of cards.slice(reply.items.length)) this.dropCard(card);
    const all = [...reply.items.keys()];
    const first = all.filter((i) => i >= cards.length || this.inView.has(cards[i]));
    this.unfilled = first.length > 0 ? all.filter((i) => !first.includes(i)) : [];
    this.fillThese(first.length > 0 ? first : all, reply);
    this.list.setAttribute("aria-busy", String(this.unfilled.length > 0));
    if (this.unfilled.length > 0) requestAnimationFrame(() => setTimeout(() => this.fillRest(), AFTER_PAINT));
  }

  /** Fills the cards that waited: when there is time, or before they are used. */
  fillRest() {
    if (this.unfilled.length === 0 || this.reply === null) return;
    this.fillThese(this.unfilled.splice(0), this.reply);
    this.list.setAttribute("aria-busy", "false");
    this.sheets.sweep();
    this.showSelected(this.selected);
  }

  /**
   * Leaves a card that stays the same, and changes the others in place. That takes the browser half
   * the time of new cards.
   * @param {number[]} places
   * @param {Reply} reply
   */
  fillThese(places, reply) {
    const cards = this.elements();
    const looks = new Map(places.map((i) => [i, this.lookOf(reply.items[i], reply)]));
    const changed = places.filter((i) => looks.get(i) !== this.looks[i] || i >= cards.length);
    const images = changed.flatMap((i) => reply.items[i].image ?? []);
    const shown = this.sheets.show(images, this.bytes, (image) => enlargement(image, this.room));
    for (const i of changed) {
      const item = reply.items[i];
      const card = this.card(item, reply, item.image && shown.shift());
      this.looks[i] = looks.get(i) ?? "";
      if (i < cards.length && cards[i].getAttribute("aria-selected") === "false") become(cards[i], card);
      else {
        if (i < cards.length) this.dropCard(cards[i], card); // its text may be scrolled
        else this.list.append(card);
        this.watch.observe(card);
      }
    }
  }

  /**
   * @param {Element} card
   * @param {Element[]} instead
   */
  dropCard(card, ...instead) {
    this.watch.unobserve(card);
    this.inView.delete(card);
    card.replaceWith(...instead);
  }

  /**
   * All that a card shows, as a text.
   * @param {Item} item
   * @param {Reply} reply
   */
  lookOf(item, reply) {
    const look = [reply.scoreName, reply.eta, this.room, { ...item, image: undefined }];
    return JSON.stringify(look) + imageKey(item, this.bytes);
  }

  /** @param {Reply} reply */
  showBar(reply) {
    const filter = this.model.get("filter");
    for (const [name, { button }] of Object.entries(this.filter)) {
      button.hidden = !(name in reply.counts);
      const pressed = String(name === filter);
      if (button.getAttribute("aria-pressed") !== pressed) button.setAttribute("aria-pressed", pressed);
    }
    this.size.group.hidden = reply.kind !== "image";
    const made = this.model.get("decision");
    const choices = Object.entries(reply.byDecision).map(([name, n]) => asOption([name, `${name} ${whole(n)}`]));
    fillSelect(this.made, [["any", "any decision"], ...choices], made);
    fillSelect(this.sort, reply.sorts, this.model.get("sort"));
    fillSelect(this.classes, [["", "every class"], ...reply.classes.map(asClass)], this.label);
    this.classes.hidden = reply.classes.length === 0;
    this.query.hidden = reply.kind === "image";
    this.showNarrowing();
    this.barChip.hidden = this.between === null;
    if (this.between === "line") this.barChip.textContent = "on the line ✕";
    else if (this.between !== null) {
      const [low, high] = this.between.map((score) => fixed(score, reply.digits));
      this.barChip.textContent = `${reply.scoreName} ${low} to ${high} ✕`;
    }
    this.notice.textContent = reply.notice;
    this.notice.hidden = reply.notice === "";
    this.showDeciding(reply);
    this.showCounts(reply);
    this.back.disabled = reply.page <= 0;
    this.on.disabled = reply.page >= reply.pages - 1;
  }

  /**
   * Shows how many samples each filter has. They are counted here unless something else narrows
   * them.
   * @param {Reply} reply
   */
  showCounts(reply) {
    const narrowed = this.between !== null || this.label !== "" || this.search !== "" || this.model.get("decision") !== "any";
    const counts = this.live === null || narrowed ? reply.counts : this.live;
    for (const [name, { count }] of Object.entries(this.filter)) {
      write(count, name in reply.counts ? whole(counts[name]) : "");
    }
    const total = counts[this.model.get("filter")] ?? reply.total;
    const last = Math.min(total, reply.first + reply.items.length - 1);
    const none = total === 0 || reply.items.length === 0;
    write(this.range, none ? "none" : `${whole(reply.first)}–${whole(last)} of ${whole(total)}`);
  }

  /** @param {Reply} reply */
  showDeciding(reply) {
    const here = reply.items.some((item) => item.position === this.selected);
    const { undecided = 0, ...made } = reply.byDecision;
    const decided = Object.values(made).reduce((sum, n) => sum + n, 0);
    this.bar.show(reply.decisions, {
      total: reply.total, these: reply.these, marked: this.marked.size, chosen: here || this.open !== null,
      decided, of: decided + undecided,
    });
  }

  /** @param {number} room  screen pixels for an image's longer side */
  resize(room) {
    this.room = room;
    if (this.reply) this.showCards(this.reply);
  }

  /* ------------------------------------------------------------ deciding */

  /**
   * Asks the kernel to do something. It answers with a sentence.
   * @param {Asked} message
   */
  request(message) {
    const heard = tell(this.model, { ...message, request: `${this.name}:${message.type}` });
    clearTimeout(this.silence);
    if (!heard) this.bar.say(KERNEL_GONE, false);
    else if (message.type === "decide" || message.type === "undo") { // the rest may take its time
      this.silence = setTimeout(() => this.bar.say(KERNEL_BUSY, true), SOON);
    }
  }

  /**
   * @param {string} decision
   * @param {boolean} all  everything that the filter shows, or the chosen sample
   * @param {string} expected  which samples the user agreed to
   * @param {number | null} to  the new class
   */
  decide(decision, all, expected, to) {
    const what = { decision, ...asClassOf(to) };
    if (all) this.wanted = { decision, to };
    const position = this.open ?? this.selected;
    const needsClass = decision === "relabel" && to === null;
    if (all) this.request({ type: "decide", ...this.shown(), only: this.model.get("decision"), ...what, expected });
    else if (this.marked.size > 0 && needsClass) this.bar.offerClasses();
    else if (this.marked.size > 0) this.request({ type: "decide", ...what, positions: [...this.marked] });
    else if (position === null) this.bar.say("Choose a sample first.", false);
    else if (needsClass) this.openSample(position, true);
    else this.decideOne(position, what);
  }

  /**
   * Decides on a sample, and goes on to the next one as soon as that is done.
   * @param {number} position
   * @param {{decision?: string, note?: string, to?: number}} what
   */
  decideOne(position, what) {
    const cards = this.elements().map((card) => Number(card.dataset.position));
    const beside = cards[cards.indexOf(position) + 1] ?? null;
    const goesOn = what.decision !== undefined && what.decision !== "undecided";
    this.onward = !goesOn ? null : this.open === null ? beside : this.opened.place?.after ?? null;
    this.request({ type: "decide", positions: [position], ...what });
  }

  /** @param {{decision?: string, note?: string, to?: number}} what */
  decideOpen(what) {
    if (this.open !== null) this.decideOne(this.open, what);
  }

  /** @param {import("./messages.js").Said} reply */
  hearSaid(reply) {
    if (reply.request !== null && !reply.request.startsWith(`${this.name}:`)) return;
    clearTimeout(this.silence);
    this.bar.say(reply.text, reply.done);
    if (reply.file !== undefined) download(reply.file, reply.content ?? "", reply.file.endsWith("csv") ? "text/csv" : "application/jsonl");
    if (reply.count !== undefined) this.bar.ask(this.wanted.decision, reply.count, reply.these ?? "", this.wanted.to);
    if (!reply.done || !reply.request?.endsWith(":decide")) return;
    if (this.marked.size > 0) this.unmark();
    const onward = this.onward;
    this.onward = null;
    if (onward === null) return;
    if (this.open !== null) this.openSample(onward);
    else this.select(onward, this.list.contains(focused(this.list)));
    this.reveal();
    this.moved = true;
  }

  /* ------------------------------------------------------------ the open sample */

  /**
   * @param {number | null} position
   * @param {boolean} [relabels]  whether to begin with the choice of a class
   * @param {boolean} [focus]  whether the keyboard goes there, not to the list beside it
   */
  openSample(position, relabels = false, focus = true) {
    if (position === null) return;
    this.relabels = relabels;
    if (this.open !== position) {
      this.keepOpen(position);
      this.opened.start(position);
      this.select(position, false);
      this.look(true);
    } else if (relabels) this.opened.decide("relabel");
    this.opened.element.hidden = false;
    this.root.classList.add("mw-is-open");
    if (!focus) return;
    if (!this.opened.element.contains(focused(this.root))) this.opened.element.focus({ preventScroll: true });
    this.reveal();
  }

  close() {
    this.keepOpen(null);
    this.opened.element.hidden = true;
    this.root.classList.remove("mw-is-open");
    if (this.reply) this.showCards(this.reply);
    this.current()?.focus({ preventScroll: true });
    this.reveal();
  }

  /**
   * Asks for the current state of the open sample.
   * @param {boolean} known  whether its scores, shadows and neighbours are wanted too
   */
  look(known) {
    if (this.open === null) return;
    if (known) this.known += 1;
    const request = `${this.name}-${this.known}`;
    tell(this.model, { type: "detail", request, position: this.open, known, ...this.shown() });
  }

  /**
   * @param {import("./messages.js").Opened | import("./messages.js").NotThere | import("./messages.js").KnownNow} content
   * @param {DataView[]} buffers
   */
  hearOpened(content, buffers) {
    if (this.open === null || content.request !== `${this.name}-${this.known}`) return;
    if (content.type === "known") this.opened.showKnown(content.known, content.problem, buffers);
    else if (content.position === null) this.close();
    else if (content.position === this.open) {
      const first = this.opened.reply === null;
      this.opened.show(content, buffers);
      if (first && this.opened.element.contains(focused(this.root))) this.reveal();
      this.turnTo(content.place);
      if (this.relabels) this.opened.decide("relabel");
      this.relabels = false;
    }
  }

  /**
   * Turns the list behind the open sample to its page.
   * @param {import("./messages.js").Place | null} place
   */
  turnTo(place) {
    if (place === null) return;
    const page = Math.floor((place.number - 1) / this.model.get("page_size"));
    if (page !== this.model.get("page")) this.change({ page });
  }

  /** @param {KeyboardEvent} event */
  keyOpened(event) {
    const writing = isWriting(event.target);
    if (event.key === "Escape") {
      event.preventDefault();
      event.stopPropagation();
      if (writing) this.opened.element.focus(); // what is written is not lost by one key
      else this.close();
      return;
    }
    if (writing) return;
    const decision = decisionOf(event);
    if (decision !== "" && event.repeat) event.preventDefault(); // a key held down decides once
    else if (decision === "undo") this.request({ type: "undo" });
    else if (decision !== "") this.opened.decide(decision);
    else if (event.key === "ArrowRight") this.opened.go("after");
    else if (event.key === "ArrowLeft") this.opened.go("before");
    else return;
    event.preventDefault();
  }

  /* ------------------------------------------------------------ one sample */

  /**
   * @param {Item} item
   * @param {Reply} reply
   * @param {HTMLElement} [image]
   */
  card(item, reply, image) {
    const card = html("li", { class: "mw-card", role: "option", tabindex: -1, "aria-selected": "false" });
    card.dataset.position = String(item.position);
    card.dataset.status = item.status;
    card.classList.toggle("mw-is-canary", item.canary);
    card.title = "Enter or a double click opens it";
    const head = html("div", { class: "mw-card-head" });
    const status = item.status ? [chip(item.status)] : [];
    const foot = footer(item);
    if (image) {
      card.append(picture(item, image), labels(item), facts(item, reply));
      head.append(...status, ...tags(item));
      if (head.hasChildNodes()) card.append(head);
    } else {
      head.append(...status, facts(item, reply));
      card.append(head, ...body(item));
      foot.append(...tags(item));
    }
    foot.append(html("span", { class: "mw-open", "aria-hidden": "true" }, "open"));
    card.append(foot, html("span", { class: "mw-mark", "aria-hidden": "true", title: "X, or Shift and a click: select several" }));
    return card;
  }

  /** @param {MouseEvent} event */
  click(event) {
    this.fillRest();
    const target = /** @type {Element} */ (event.target);
    const card = /** @type {HTMLElement | null} */ (target.closest(".mw-card"));
    if (card === null) return;
    const position = Number(card.dataset.position);
    if (target.closest(".mw-mark") || event.shiftKey) this.mark(position, event.shiftKey);
    else if (target.closest(".mw-open")) this.openSample(position);
    else this.select(position);
  }

  /**
   * Marks a sample, or takes its mark away. Several that are marked are decided on together.
   * @param {number} position
   * @param {boolean} through  whether all cards since the last mark get it, too
   */
  mark(position, through) {
    const here = this.elements().map((card) => Number(card.dataset.position));
    const [from, to] = [here.indexOf(this.lastMark), here.indexOf(position)];
    if (through && from >= 0 && to >= 0) {
      for (const one of here.slice(Math.min(from, to), Math.max(from, to) + 1)) this.marked.add(one);
    } else if (!this.marked.delete(position)) this.marked.add(position);
    this.lastMark = position;
    this.showSelected(this.selected);
  }

  unmark() {
    this.marked.clear();
    this.showSelected(this.selected);
  }

  /**
   * @param {number} position
   * @param {boolean} [focus]
   */
  select(position, focus = true) {
    this.selectedAt = this.asked;
    this.showSelected(position);
    if (focus) this.current()?.focus({ preventScroll: true });
    if (focus && this.open !== null) this.openSample(position, false, false);
    else tell(this.model, { type: "select", position });
  }

  /** @param {number | null} position */
  showSelected(position) {
    this.selected = position;
    const cards = this.elements();
    let reachable = cards[0];
    for (const card of cards) {
      const chosen = card.dataset.position === String(position);
      if (chosen !== (card.getAttribute("aria-selected") === "true")) card.setAttribute("aria-selected", String(chosen));
      if (chosen) reachable = card;
      const marked = this.marked.has(Number(card.dataset.position));
      card.classList.toggle("mw-is-marked", marked);
      if (this.marked.size > 0) card.setAttribute("aria-checked", String(marked));
      else card.removeAttribute("aria-checked");
    }
    for (const card of cards) setTabIndex(card, card === reachable ? 0 : -1);
    if (this.reply) this.showDeciding(this.reply);
  }

  elements() {
    return /** @type {HTMLElement[]} */ ([...this.list.children]);
  }

  /**
   * The card that the keyboard reaches.
   * @param {number} [at]  where to go if the chosen sample is no longer here
   */
  current(at = 0) {
    const cards = this.elements();
    const chosen = cards.find((card) => card.getAttribute("aria-selected") === "true");
    if (chosen || at === 0) return chosen ?? cards.find((card) => card.tabIndex === 0);
    const near = cards[Math.min(at, cards.length - 1)];
    for (const card of cards) setTabIndex(card, card === near ? 0 : -1);
    return near;
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    this.fillRest();
    const cards = this.elements();
    const at = cards.findIndex((card) => card === focused(this.list));
    if (at < 0) return;
    const decision = decisionOf(event);
    if (decision !== "") {
      event.preventDefault();
      if (event.repeat) return; // a key held down decides once
      if (decision === "undo") this.request({ type: "undo" });
      else if (this.reply?.decisions.refused[decision]) this.bar.say(this.reply.decisions.refused[decision], false);
      else if (this.reply?.decisions.choices.includes(decision)) {
        if (this.marked.size === 0) this.select(Number(cards[at].dataset.position));
        this.decide(decision, false, "", null);
      }
      return;
    }
    const across = Math.max(1, cards.filter((card) => card.offsetTop === cards[0].offsetTop).length);
    const upDown = event.key === "ArrowUp" ? -across : event.key === "ArrowDown" ? across : null;
    let to = at;
    if (upDown !== null) to = at + upDown;
    else if (arrowStep(event.key) !== 0) to = at + arrowStep(event.key);
    else if (event.key === "Home") to = 0;
    else if (event.key === "End") to = cards.length - 1;
    else if (event.key !== "Enter" && event.key !== " " && event.key.toUpperCase() !== "X") return;
    event.preventDefault();
    if (event.key === "Enter") {
      this.openSample(Number(cards[at].dataset.position));
      return;
    }
    if (event.key.toUpperCase() === "X") {
      this.mark(Number(cards[at].dataset.position), event.shiftKey);
      return;
    }
    const next = cards[Math.min(cards.length - 1, Math.max(0, to))];
    this.select(Number(next.dataset.position));
    this.reveal();
  }

  destroy() {
    clearTimeout(this.typing);
    clearTimeout(this.patience);
    clearTimeout(this.silence);
    if (this.saving !== undefined) this.save();
    this.ears.clear();
    this.watch.disconnect();
    this.unfilled = [];
    this.list.replaceChildren();
    this.sheets.sweep();
    this.root.remove();
  }
}

/**
 * Counts in the words of the filters.
 * @param {import("./maths.js").Counts} counts
 * @returns {Record<string, number>}
 */
function byFilter({ flagged, found, flaggedOnly, missed, leftAlone }) {
  return {
    flagged, found, "flagged only": flaggedOnly, missed, "left alone": leftAlone, all: flagged + missed + leftAlone,
  };
}

/**
 * @param {[number | string, string]} entry
 * @returns {[string, string]}
 */
function asOption([value, name]) {
  return [String(value), name];
}

/**
 * @param {[number, string]} entry
 * @returns {[string, string]}
 */
function asClass([value, name]) {
  return [String(value), nameText(name)];
}

/**
 * Writes a value only if it is new, because the browser styles the element again even for the same
 * value.
 * @param {HTMLElement} card
 * @param {number} index
 */
function setTabIndex(card, index) {
  if (card.tabIndex !== index) card.tabIndex = index;
}

/** @param {EventTarget | null} target */
function isWriting(target) {
  return [HTMLTextAreaElement, HTMLInputElement, HTMLSelectElement].some((kind) => target instanceof kind);
}

/**
 * The new class of a decision, where it has one.
 * @param {number | null} to
 */
function asClassOf(to) {
  return to === null ? {} : { to };
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
  if (select.value !== value) select.value = value; // the browser looks for forms to fill at every value
}

export default {
  /** @param {{model: Model, el: HTMLElement}} context */
  render({ model, el }) {
    const view = new Inspector(model, el);
    return () => view.destroy();
  },
};
