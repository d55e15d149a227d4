/** The inspector: pages of samples, the open one beside them. The kernel sends them, and they are never stored. */

import { card, nameText } from "./cards.js";
import { DecideBar, decisionOf, download } from "./decide.js";
import {
  arrowStep,
  bytesOf,
  emptied,
  focused,
  hideStandIn,
  html,
  listeners,
  root,
  setAttributes,
  svg,
  write,
} from "./dom.js";
import { setLayer } from "./layers.js";
import { onLack, tell, whyLate } from "./kernel.js";
import { whole } from "./numbers.js";
import { Opened } from "./opened.js";
import { timesOf } from "./times.js";
import { pictures } from "./pixels.js";
import { SELDOM, TABS } from "./words.js";
import { Question } from "./pace.js";

/** @typedef {import("./dom.js").Model} Model */
/** @typedef {import("./messages.js").Item} Item */
/** @typedef {import("./messages.js").Page} Reply */
/** @typedef {import("./messages.js").Decide | import("./messages.js").Plain} Asked  what is answered with a sentence */

const SAVE_AFTER = 200;
const SOON = 1000; // milliseconds in which a free kernel answers
const AHEAD = 2; // rows that are in view before and after the chosen one
const ROOM = 64; // screen pixels for the longer side of an image

/** One view of the inspector. */
export class Inspector {
  /**
   * @param {Model} model
   * @param {HTMLElement} el
   * @param {boolean} [led]  whether `follow` is called at every move of τ
   */
  constructor(model, el, led = false) {
    this.model = model;
    this.ears = listeners(model);
    this.name = Math.random().toString(36).slice(2, 8);
    this.tau = /** @type {number} */ (model.get("tau"));
    /** Samples behind each filter at τ, as the explorer counts them. @type {Record<string, number> | null} */
    this.live = null;
    this.pages = new Question(this.name, (request) => this.askPage(request));
    this.details = new Question(this.name, (request) => this.askDetail(request));
    /** Positions of samples that are decided on together. @type {Set<number>} */
    this.marked = new Set();
    this.lastMark = -1;
    /** Place of the open sample in the list, from which on it goes on; −1 for the last. */
    this.at = 0;
    /** Position of the sample that is open. @type {number | null} */
    this.open = null;
    this.turning = false; // whether the page that is to come has the sample to open
    this.carried = false; // whether the open sample is of the list before
    this.known = false; // whether all that is known of it is asked for
    this.lookedAt = {
      position: /** @type {number | null} */ (null),
      known: false,
      carried: false,
    };
    this.decided = () => {}; // what follows once the last decision is made
    this.root = root(el, "inspector", "Sample inspector", this.ears);
    this.looks = /** @type {string[]} */ ([]); // all that each card shows, as a text
    this.search = "";
    /** The part of two compared scores whose samples are shown. @type {import("./messages.js").Part | null} */
    this.part = null;
    this.partName = "";
    /** @type {Record<string, ReturnType<typeof setTimeout>>} */
    this.timers = {};
    /** @type {Record<string, {button: HTMLButtonElement, count: HTMLElement}>} */
    this.filter = {};
    this.query = html("input", {
      type: "search",
      class: "mw-search",
      placeholder: "text or class",
      "aria-label": "search",
    });
    this.made = html("select", {
      class: "mw-select",
      "aria-label": "filter by decision",
    });
    this.sort = html("select", { class: "mw-select", "aria-label": "sort" });
    this.range = html("span", { class: "mw-range", role: "status" });
    this.back = html(
      "button",
      { type: "button", class: "mw-button mw-step", "aria-label": "previous page" },
      "‹",
    );
    this.on = html(
      "button",
      { type: "button", class: "mw-button mw-step", "aria-label": "next page" },
      "›",
    );
    this.list = html("ul", {
      class: "mw-cards",
      role: "listbox",
      "aria-label": "samples",
    });
    this.empty = html("p", { class: "mw-empty" }, "");
    this.partChip = html("button", {
      type: "button",
      class: "mw-button mw-part-chip",
      hidden: true,
      title: "show all samples again",
    });
    this.more = html(
      "button",
      {
        type: "button",
        class: "mw-button mw-find",
        "aria-expanded": "false",
        "aria-label": "search, order, select",
        title: "search, order, select",
      },
      svg(
        "svg",
        { viewBox: "0 0 16 16", class: "mw-icon", "aria-hidden": "true" },
        svg("circle", { cx: 7, cy: 7, r: 4.5 }),
        svg("path", { d: "M10.5 10.5L14 14" }),
      ),
    );
    this.tools = html("div", { class: "mw-row mw-finding", hidden: true });
    this.notice = html("p", { class: "mw-notice", hidden: true });
    this.scroll = html("div", { class: "mw-list-scroll" }, this.empty, this.list);
    this.pictures = new CSSStyleSheet();
    /** @type {Reply | null} */
    this.reply = null;
    this.bytes = new Uint8Array(0);
    this.bar = new DecideBar({
      decide: (what) => this.decide(what),
      next: () => this.go(1),
      suggested: () => this.opened.suggested(),
      undo: () => this.request({ type: "undo" }),
      exportAll: () => this.request({ type: "export" }),
    });
    this.opened = new Opened(
      {
        go: (position) => {
          this.choose(position);
          this.opened.element.focus({ preventScroll: true }); // what was pressed goes
        },
        note: (note) =>
          this.request({
            type: "decide",
            positions: [/** @type {number} */ (this.open)],
            note,
          }),
        tau: () => (model.get("axis") === "class" ? null : this.tau),
        times: () => timesOf(model.get("_timeline")?.moments ?? []),
      },
      this.bar.element,
    );
    this.build(led);
    this.listen(led);
    this.dim();
    onLack(model, this.ears, (lack) => this.showLack(lack));
    this.pages.ask();
  }

  /** @param {boolean} led */
  build(led) {
    const tabs = html("div", {
      class: "mw-filters",
      role: "group",
      "aria-label": "Show",
    });
    for (const [name, [word, help]] of Object.entries(TABS)) {
      const count = html("span", { class: "mw-count" });
      const button = html(
        "button",
        { type: "button", class: "mw-chip mw-tab", title: help, hidden: true },
        word,
        " ",
        count,
      );
      button.dataset.filter = name;
      button.addEventListener("click", () => this.showFilter(name));
      this.filter[name] = { button, count };
      tabs.append(button);
    }
    this.partChip.addEventListener("click", () => this.showPart(null, ""));
    this.tools.append(
      this.query,
      this.made,
      html("label", { class: "mw-labelled mw-sort" }, "sort", this.sort),
    );
    const bar = html(
      "div",
      { class: "mw-tabs" },
      tabs,
      this.partChip,
      html("span", { class: "mw-gap" }),
      this.bar.progress,
      this.more,
    );
    const turning = html(
      "span",
      { class: "mw-turning" },
      this.range,
      this.back,
      this.on,
    );
    const list = html(
      "div",
      { class: "mw-list-box" },
      this.scroll,
      html("div", { class: "mw-list-foot" }, this.bar.banner, turning),
    );
    this.root.classList.toggle("mw-alone", !led);
    this.root.append(
      bar,
      this.tools,
      this.notice,
      html("div", { class: "mw-inspector-body" }, list, this.opened.element),
    );
  }

  /** @param {boolean} led */
  listen(led) {
    const { ears } = this;
    for (const trait of [
      "page_size",
      "filter",
      "sort",
      "decision",
      "_version",
      "_decided",
    ]) {
      ears.onModel(`change:${trait}`, () => this.pages.ask());
    }
    ears.onModel("change:page", () => {
      if (this.model.get("page") !== this.reply?.page) this.pages.ask();
    });
    if (!led)
      ears.onModel("change:tau", () => this.follow(this.model.get("tau"), null));
    ears.onModel("change:_version", () => this.beginAgain());
    ears.onModel("change:_dimmed", () => this.dim());
    ears.onModel("change:selected", () => this.showChosen());
    ears.onModel("msg:custom", (content, buffers) => this.hear(content, buffers));
    ears.on(this.query, "input", () =>
      this.wait("typing", 200, () => {
        this.search = this.query.value;
        this.change({ page: 0 });
      }),
    );
    ears.on(this.sort, "change", () => this.change({ sort: this.sort.value, page: 0 }));
    ears.on(this.made, "change", () =>
      this.change({ decision: this.made.value, page: 0 }),
    );
    ears.on(this.more, "click", () => this.showTools(this.tools.hidden));
    ears.on(this.list, "click", (event) => this.click(event));
    ears.on(this.back, "click", () =>
      this.change({ page: this.model.get("page") - 1 }),
    );
    ears.on(this.on, "click", () => this.change({ page: this.model.get("page") + 1 }));
    ears.on(this.list, "keydown", (event) => this.key(event));
    ears.on(this.list, "focusin", ({ target }) => {
      // a press would lose the row that it is on
      if (/** @type {Element} */ (target).matches(":focus-visible")) this.reveal();
    });
    ears.on(this.opened.element, "keydown", (event) => this.key(event));
  }

  /**
   * @param {string} name
   * @param {number} time
   * @param {() => void} action
   */
  wait(name, time, action) {
    clearTimeout(this.timers[name]);
    this.timers[name] = setTimeout(action, time);
  }

  dim() {
    this.root.classList.toggle("mw-dimmed", this.model.get("_dimmed"));
  }

  /** @param {boolean} shown  whether search, sort, selection and the tabs that are seldom wanted are shown */
  showTools(shown) {
    this.tools.hidden = !shown;
    this.more.setAttribute("aria-expanded", String(shown));
    if (this.reply !== null) this.showTabs(this.reply);
    const close = () => this.showTools(false);
    setLayer(this.tools, shown, { close, by: this.more, unfolds: true });
  }

  /** @param {string} name  of a filter, with a tab or without */
  showFilter(name) {
    this.change({ filter: name, page: 0 });
  }

  /** Begins the list of another score at its top. The open sample stays open if it is in that list. */
  beginAgain() {
    this.part = null; // of another score
    const { open, model } = this;
    this.carried =
      open !== null &&
      model.get("page") === 0 &&
      [null, open].includes(model.get("selected"));
    this.turning = true;
    if (this.carried) model.set("selected", open);
    this.open = null; // what is known of the sample is of another score too
    this.at = this.scroll.scrollTop = 0;
  }

  /**
   * Shows the samples that one of two compared scores flags, and the other does not; null shows all again.
   * @param {import("./messages.js").Part | null} part
   * @param {string} name
   */
  showPart(part, name) {
    Object.assign(this, { part, partName: name });
    this.change({ filter: "all", page: 0 });
  }

  /**
   * Shows other samples, the first of them open.
   * @param {Record<string, any>} values
   */
  change(values) {
    this.at = 0;
    this.open = null;
    this.turning = true;
    for (const [name, value] of Object.entries({ ...values, selected: null }))
      this.model.set(name, value);
    this.scroll.scrollTop = 0;
    this.pages.ask(); // it says all that the answer needs
    this.saveLater();
  }

  /** Saves the traits later, because the kernel's reply to them would delay the answer. */
  saveLater() {
    this.wait("saving", SAVE_AFTER, () => this.save());
  }

  save() {
    clearTimeout(this.timers.saving);
    delete this.timers.saving;
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
    if (moved) this.pages.ask();
  }

  /**
   * Asks for the page that the traits describe.
   * @param {string} request
   */
  askPage(request) {
    const { at, model } = this;
    return this.tell({
      type: "page",
      request,
      page: model.get("page"),
      open: model.get("selected"),
      at,
      ...this.shown(),
    });
  }

  /**
   * Sends what the kernel answers at once, unless it is busy or gone: then the page says so.
   * @param {import("./messages.js").FromPage} message
   */
  tell(message) {
    const heard = tell(this.model, message);
    this.wait("patience", SOON, () => this.unanswered(whyLate(this.model)));
    return heard;
  }

  /**
   * In a dashboard, the bar says it.
   * @param {string} lack  why no kernel hears the list, which asks again once that is over
   */
  showLack(lack) {
    this.root.classList.toggle("mw-nothing-listed", lack !== "" && this.reply === null);
    if (lack === "") this.pages.askAnew();
    else if (this.root.classList.contains("mw-alone")) this.unanswered(lack);
  }

  /** What is shown, and in what order. */
  shown() {
    return {
      tau: this.tau,
      filter: this.model.get("filter"),
      sort: this.model.get("sort"),
      decision: this.model.get("decision"),
      search: this.search,
      part: this.part,
    };
  }

  /** @param {string} reason */
  unanswered(reason) {
    clearTimeout(this.timers.patience);
    this.root.classList.add("mw-unanswered");
    this.empty.textContent = reason;
    this.empty.hidden = false;
  }

  /**
   * @param {import("./messages.js").FromKernel} content
   * @param {DataView[]} buffers
   */
  hear(content, buffers) {
    if (content.type === "said") this.hearSaid(content);
    if (content.type === "opened" || content.type === "known")
      this.hearOpened(content, buffers);
    if (content.type !== "page" || content.request !== this.pages.request) return;
    clearTimeout(this.timers.patience);
    this.root.classList.remove("mw-unanswered");
    if (!this.turning || !this.pages.again) this.show(content, bytesIn(buffers));
    this.pages.answered();
  }

  /**
   * @param {Reply} reply
   * @param {Uint8Array<ArrayBuffer>} bytes
   */
  show(reply, bytes) {
    const later = this.turning && this.at === 0 ? "mw-later" : ""; // at its top: most cards are out of view
    Object.assign(this, { reply, bytes, turning: false });
    if (reply.page !== this.model.get("page")) {
      this.model.set("page", reply.page);
      this.saveLater();
    }
    this.showBar(reply);
    const had = focused(this.list);
    const showed = had?.dataset.position;
    this.fill(reply);
    setAttributes(this.list, { class: `mw-cards mw-cards-${reply.kind} ${later}` });
    this.empty.hidden = reply.items.length > 0;
    write(
      this.empty,
      this.search === ""
        ? "No sample here. Move τ, or choose another tab."
        : `No sample here matches “${nameText(this.search)}”.`,
    );
    this.showChosen();
    if (showed === undefined) return;
    if (had?.isConnected && had.dataset.position !== showed) had.blur(); // so that another sample is read out
    this.current()?.focus({ preventScroll: true });
  }

  /** Shows what can wait until what is in view is painted: the other cards, and all that is known of the open sample. */
  showLater() {
    this.list.classList.remove("mw-later");
    if (this.known && this.reply?.more) this.details.ask();
  }

  /**
   * Makes the cards those of a page, and leaves a card that stays the same.
   * @param {Reply} reply
   */
  fill(reply) {
    const cards = this.elements();
    for (const extra of cards.slice(reply.items.length)) extra.remove();
    const looks = reply.items.map((item) => JSON.stringify([reply.eta, item]));
    const images = reply.items.flatMap(({ image }) => image ?? []);
    const shown = images.length > 0 ? this.share(images) : [];
    for (const [i, item] of reply.items.entries()) {
      if (i < cards.length && looks[i] === this.looks[i]) continue;
      const made = card(item, reply.eta, shown[i]);
      if (i < cards.length) cards[i].replaceWith(made);
      else this.list.append(made);
    }
    this.looks = looks;
  }

  /**
   * Returns the pictures of images, which share one rule of style.
   * @param {import("./messages.js").Image[]} images
   */
  share(images) {
    const { elements, style } = pictures(
      images,
      this.bytes,
      ROOM,
      `mw-of-${this.name}`,
    );
    this.pictures.replaceSync(style);
    const scope = /** @type {Document | ShadowRoot} */ (this.root.getRootNode());
    if (!scope.adoptedStyleSheets.includes(this.pictures))
      scope.adoptedStyleSheets.push(this.pictures);
    return elements;
  }

  /** @param {Reply} reply */
  showTabs(reply) {
    const filter = this.model.get("filter");
    for (const [name, { button }] of Object.entries(this.filter)) {
      const folded = this.tools.hidden && SELDOM.includes(name) && name !== filter;
      button.hidden = folded || !(name in reply.counts);
      setAttributes(button, { "aria-pressed": String(name === filter) });
    }
  }

  /** @param {Reply} reply */
  showBar(reply) {
    this.showTabs(reply);
    const made = this.model.get("decision");
    const choices = Object.entries(reply.byDecision).map(
      ([name, n]) => /** @type {[string, string]} */ ([name, `${name} ${whole(n)}`]),
    );
    fillSelect(this.made, [["any", "any decision"], ...choices], made);
    fillSelect(this.sort, reply.sorts, this.model.get("sort"));
    if (this.isNarrowed()) this.showTools(true);
    this.partChip.hidden = this.part === null;
    write(this.partChip, `${this.partName} ✕`);
    this.notice.textContent = reply.notice;
    this.notice.hidden = reply.notice === "";
    this.showCounts(reply);
    this.back.hidden = this.on.hidden = reply.pages < 2;
    this.back.disabled = reply.page <= 0;
    this.on.disabled = reply.page >= reply.pages - 1;
  }

  /** Whether a text or a decision narrows the list. */
  isNarrowed() {
    return this.search !== "" || this.model.get("decision") !== "any";
  }

  /**
   * Shows how many samples each filter has, as the sentences at τ do, and which of them the list shows.
   * @param {Reply} reply
   */
  showCounts(reply) {
    const counts = { ...reply.counts, ...this.live };
    for (const [name, { count }] of Object.entries(this.filter)) {
      write(count, name in reply.counts ? whole(counts[name]) : "");
    }
    const { first, items, total } = reply;
    const all = counts[this.model.get("filter")] ?? total;
    const narrowed = this.part !== null || this.isNarrowed();
    const of = narrowed ? `${whole(total)} of ${whole(all)} match` : `of ${whole(all)}`;
    const last = Math.min(narrowed ? total : all, first + items.length - 1);
    const shown =
      narrowed && reply.pages < 2
        ? ""
        : `${whole(first)}–${whole(last)}${narrowed ? "," : ""} `;
    write(
      this.range,
      items.length === 0 && !narrowed
        ? "none"
        : `${items.length > 0 ? shown : ""}${of}`,
    );
  }

  showDeciding() {
    if (this.reply === null) return;
    const { undecided = 0, ...made } = this.reply.byDecision;
    const decided = Object.values(made).reduce((sum, n) => sum + n, 0);
    this.bar.show(this.reply.decisions, {
      marked: this.marked.size,
      chosen: this.open !== null,
      decided,
      of: decided + undecided,
    });
  }

  /* ------------------------------------------------------------ deciding */

  /**
   * Asks the kernel to do something. It answers with a sentence.
   * @param {Asked} message
   */
  request(message) {
    this.tell({ ...message, request: `${this.name}:${message.type}` });
  }

  /**
   * Decides on the selected samples, or else on the open one, and goes on to the next as soon as that is done.
   * @param {{decision: string, to?: number}} what
   */
  decide(what) {
    const { marked, open } = this;
    const onward =
      marked.size > 0 || what.decision === "undecided" ? null : this.beside(1);
    const positions = marked.size > 0 ? [...marked] : open === null ? [] : [open];
    this.decided = () => {
      for (const one of positions) marked.delete(one);
      if (this.open === open) onward?.();
    };
    if (positions.length > 0) this.request({ type: "decide", positions, ...what });
  }

  /** @param {import("./messages.js").Said} reply */
  hearSaid(reply) {
    if (reply.request !== null && !reply.request.startsWith(`${this.name}:`)) return;
    clearTimeout(this.timers.patience);
    this.root.classList.remove("mw-unanswered");
    this.bar.say(reply.text, reply.done);
    if (reply.file !== undefined) download(reply.file, reply.content ?? "", "text/csv");
    if (!reply.done || !reply.request?.endsWith(":decide")) return;
    this.decided(); // only what was decided on: others may have been marked or opened since
    this.decided = () => {};
    this.showChosen();
  }

  /* ------------------------------------------------------------ the open sample */

  /**
   * Returns what goes to the sample so many places on, on the next page if need be; null at the end.
   * @param {number} step
   */
  beside(step) {
    const items = this.reply?.items ?? [];
    const here = items.findIndex(({ position }) => position === this.open);
    const to = here < 0 ? this.at : here + step;
    if (to >= 0 && to < items.length) return () => this.choose(items[to].position);
    const page = this.model.get("page") + Math.sign(step);
    if (page < 0 || page >= (this.reply?.pages ?? 0)) return null;
    return () => {
      this.change({ page });
      this.at = step > 0 ? 0 : -1;
    };
  }

  /** @param {number} step */
  go(step) {
    this.beside(step)?.();
  }

  /**
   * @param {number} position  of the sample to open
   */
  choose(position) {
    this.model.set("selected", position);
    this.saveLater();
  }

  /** Opens the chosen sample, else the first one of the page, and shows it as it is now. */
  showChosen() {
    if (this.reply === null || this.turning) return;
    const { items } = this.reply;
    const chosen = /** @type {number | null} */ (
      this.model.get("selected") ??
        items.at(this.at)?.position ??
        items[0]?.position ??
        null
    );
    const here = items.findIndex(({ position }) => position === chosen);
    const other = chosen !== this.open;
    this.open = chosen;
    if (here >= 0) this.at = here;
    this.markCards();
    if (other || chosen === null) this.opened.start(chosen);
    if (other) this.bar.relabelling.element.hidden = true;
    const { first, total } = this.reply;
    const whole = this.reply.open?.find(({ position }) => position === chosen);
    if (here >= 0)
      this.showItem(
        whole ?? items[here],
        { number: first + here, total },
        this.bytes,
        whole !== undefined,
      );
    this.known ||= other;
    if (whole === undefined && (other || here < 0)) this.details.ask();
    this.showDeciding();
    if (!other) return;
    this.reveal(); // last: it makes the browser lay out
    requestAnimationFrame(() => setTimeout(() => this.showLater()));
  }

  /**
   * @param {Item} item
   * @param {import("./messages.js").PlaceShown | null} place
   * @param {Uint8Array} bytes
   * @param {boolean} full  whether a long text is there to its end
   */
  showItem(item, place, bytes, full) {
    const reply = /** @type {Reply} */ (this.reply);
    this.opened.show(item, reply, place, bytes, full);
    this.bar.showItem(item, this.opened.names(reply.decisions.classes));
  }

  /**
   * Asks for the open sample in full: the first time for its scores, shadows and neighbours, too.
   * @param {string} request
   */
  askDetail(request) {
    const { open: position, known, carried } = this;
    this.lookedAt = { position, known, carried };
    this.known = false;
    this.carried &&= position === null;
    return (
      position !== null &&
      tell(this.model, { type: "detail", request, position, known, ...this.shown() })
    );
  }

  /**
   * @param {import("./messages.js").Opened | import("./messages.js").NotThere | import("./messages.js").KnownNow} content
   * @param {DataView[]} buffers
   */
  hearOpened(content, buffers) {
    if (content.request !== this.details.request) return;
    const now = this.lookedAt.position === this.open;
    if (content.type === "known") {
      if (now) this.opened.showKnown(content.known, content.problem, buffers);
    } else if (content.position === null) {
      if (now) this.change({});
    } else if (now && this.lookedAt.carried && content.place === null) {
      this.change({ page: 0 });
    } else if (now && this.reply !== null) {
      this.showItem(content.item, content.place, bytesIn(buffers), true);
      this.turnTo(content.place);
    }
    if (
      content.type === "opened" &&
      content.position !== null &&
      content.more &&
      this.lookedAt.known
    )
      return;
    this.details.answered();
  }

  /**
   * Turns the list to the page of the open sample.
   * @param {import("./messages.js").PlaceShown | null} place
   */
  turnTo(place) {
    if (place === null) return;
    const page = Math.floor((place.number - 1) / this.model.get("page_size"));
    if (page === this.model.get("page")) return;
    this.model.set("page", page);
    this.saveLater();
  }

  /** Scrolls the list so that the open sample's row is in view, and the page so that it is seen whole. */
  reveal() {
    const row = this.current();
    this.opened.scroll.scrollTop = 0;
    if (row) {
      const [box, at] = [
        this.scroll.getBoundingClientRect(),
        row.getBoundingClientRect(),
      ];
      const ahead = Math.min(AHEAD * at.height, (box.height - at.height) / 2);
      if (at.top - ahead < box.top) this.scroll.scrollTop += at.top - ahead - box.top;
      else if (at.bottom + ahead > box.bottom)
        this.scroll.scrollTop += at.bottom + ahead - box.bottom;
    }
    if (this.root.contains(focused(this.root)))
      this.opened.element.scrollIntoView({ block: "nearest" });
  }

  /* ------------------------------------------------------------ the list */

  /** @param {MouseEvent} event */
  click(event) {
    const target = /** @type {Element} */ (event.target);
    const one = /** @type {HTMLElement | null} */ (target.closest(".mw-card"));
    if (one === null) return;
    const position = Number(one.dataset.position);
    if (target.closest(".mw-mark") || event.shiftKey)
      this.mark(position, event.shiftKey);
    else this.choose(position);
    if (target.closest(".mw-mark")) return;
    this.current()?.focus({ preventScroll: true });
    this.reveal();
  }

  /**
   * Marks a sample, or takes its mark away. Several that are marked are decided on together.
   * @param {number} position
   * @param {boolean} through  whether all cards since the last mark get it, too
   */
  mark(position, through) {
    const here = this.elements().map((one) => Number(one.dataset.position));
    const [from, to] = [here.indexOf(this.lastMark), here.indexOf(position)];
    if (through && from >= 0 && to >= 0) {
      for (const one of here.slice(Math.min(from, to), Math.max(from, to) + 1))
        this.marked.add(one);
    } else if (!this.marked.delete(position)) this.marked.add(position);
    this.lastMark = position;
    this.markCards();
    this.showDeciding();
  }

  /** Shows which sample is open, and which are marked. */
  markCards() {
    for (const [i, one] of this.elements().entries()) {
      const position = Number(one.dataset.position);
      setAttributes(one, {
        "aria-selected": String(position === this.open),
        "aria-checked": this.marked.size > 0 ? String(this.marked.has(position)) : null,
        tabindex: i === Math.max(0, this.at) ? 0 : -1,
      });
    }
  }

  elements() {
    return /** @type {HTMLElement[]} */ ([...this.list.children]);
  }

  /** The card that the keyboard reaches. */
  current() {
    return this.elements().find((one) => one.tabIndex === 0);
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const target = /** @type {Element} */ (event.target);
    const inList = this.list.contains(target);
    const [writing, { key }] = [isWriting(target), event];
    if (key === "Escape" && !inList) {
      event.preventDefault();
      (writing ? this.opened.element : this.current())?.focus({ preventScroll: true }); // what is written is not lost by one key
      return;
    }
    if (writing) return;
    const decision = decisionOf(event);
    if (decision === "next") this.go(1);
    else if (decision !== "" && event.repeat)
      event.preventDefault(); // a key held down decides once
    else if (decision === "undo") this.request({ type: "undo" });
    else if (decision !== "") this.bar.choose(decision);
    else if (inList && (key === " " || key.toUpperCase() === "X"))
      this.mark(Number(this.current()?.dataset.position), event.shiftKey);
    else if (inList && key === "Enter")
      this.opened.element.focus({ preventScroll: true });
    else if (inList && (key === "Home" || key === "End"))
      this.choose(
        Number(this.elements().at(key === "Home" ? 0 : -1)?.dataset.position),
      );
    else if (arrowStep(key) !== 0 && !target.closest("summary, .mw-scroll"))
      this.go(this.stepOf(key));
    else return;
    event.preventDefault();
    if (inList && key !== "Enter") this.current()?.focus({ preventScroll: true });
  }

  /**
   * How many samples on an arrow leads: in a grid of images up and down go by rows.
   * @param {string} key
   */
  stepOf(key) {
    const cards = this.elements();
    const below = cards.findIndex((one) => one.offsetTop > cards[0].offsetTop);
    const across = below < 0 ? cards.length : below;
    if (key === "ArrowLeft" || key === "ArrowRight") return arrowStep(key);
    const step = key === "ArrowUp" ? -across : across;
    const to = Math.min(cards.length - 1, Math.max(0, this.at + step)) - this.at;
    return to === 0 ? Math.sign(step) : to;
  }

  destroy() {
    const unsaved = this.timers.saving !== undefined;
    for (const timer of Object.values(this.timers)) clearTimeout(timer);
    if (unsaved) this.save();
    this.ears.clear();
    this.pictures.replaceSync("");
    this.root.remove();
  }
}

/**
 * @param {DataView[]} buffers
 * @returns {Uint8Array<ArrayBuffer>}
 */
function bytesIn(buffers) {
  return buffers.length > 0 ? new Uint8Array(bytesOf(buffers[0])) : new Uint8Array(0);
}

/**
 * Counts in the words of the filters.
 * @param {import("./maths.js").Counts} counts
 * @returns {Record<string, number>}
 */
function byFilter({ flagged, found, flaggedOnly, missed, leftAlone }) {
  return {
    flagged,
    found,
    "flagged only": flaggedOnly,
    missed,
    "left alone": leftAlone,
    all: flagged + missed + leftAlone,
  };
}

/** @param {EventTarget | null} target */
function isWriting(target) {
  return [HTMLTextAreaElement, HTMLInputElement, HTMLSelectElement].some(
    (kind) => target instanceof kind,
  );
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
  initialize: emptied,
  /** @param {{model: Model, el: HTMLElement}} context */
  render({ model, el }) {
    const view = new Inspector(model, el);
    const hiding = hideStandIn(model, view.ears);
    onLack(model, view.ears, (lack) => {
      hiding.disabled = lack !== "" && view.reply === null; // it is all there is to see
    });
    return () => view.destroy();
  },
};
