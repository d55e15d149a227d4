/** The bar of the dashboard: what is audited, pickers, and the work with its Cancel. */

import { html, listeners, root, write } from "./dom.js";
import { GONE, onLack, tell, whyLate, whyUnheard } from "./kernel.js";
import { durationText } from "./numbers.js";
import { Share } from "./share.js";
import { LAST, NO_LAYER } from "./words.js";
import { throttle } from "./pace.js";

/** @typedef {import("./dom.js").Model} Model */
/** @typedef {import("./messages.js").Picked} Choice */

const ADDRESS = "memowidgets=";
export const PICKS = /** @type {const} */ (["checkpoint", "layer", "metric"]);
const PICKERS = /** @type {const} */ (["layer", "metric"]);
const SOON = 400; // milliseconds in which a free kernel answers
const AGAIN = 200;
const BETWEEN_ADDRESSES = 400; // a browser refuses more than a hundred in half a minute
/** Only the first dashboard of a page follows the page's address. */
const FOLLOWS = "data-memowidgets-follows";

/**
 * Returns the dashboard's part of a page's address, unchecked. "" if there is none.
 * @param {string} hash  with or without its #
 */
export function textInAddress(hash) {
  const part = partsOf(hash).find((text) => text.startsWith(ADDRESS));
  if (part === undefined) return "";
  try {
    return decodeURIComponent(part.slice(ADDRESS.length));
  } catch {
    return part; // the kernel says that it is no state
  }
}

/**
 * Returns an address with another state of the dashboard. Its other parts stay.
 * @param {string} hash
 * @param {import("./messages.js").State} state
 */
export function addressWith(hash, state) {
  const others = partsOf(hash).filter((text) => !text.startsWith(ADDRESS));
  return `#${[...others, ADDRESS + encodeURIComponent(JSON.stringify(state))].join("&")}`;
}

/** @param {string} hash */
function partsOf(hash) {
  return hash.replace(/^#/, "").split("&").filter(Boolean);
}

/** One view of the bar. */
export class Bar {
  /**
   * @param {Model} model
   * @param {HTMLElement} el
   */
  constructor(model, el) {
    this.model = model;
    this.ears = listeners(model);
    this.box = el;
    this.name = Math.random().toString(36).slice(2, 8);
    this.asked = 0;
    this.lack = ""; // why no kernel hears the page
    this.late = false; // whether the kernel takes its time to answer
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    this.patience = undefined;
    /** Scores that differ from layer to layer. @type {Set<string>} */
    this.byLayer = new Set();
    this.root = root(el, "bar", "What to score", this.ears);
    this.title = html("b", { class: "mw-name", dir: "auto" });
    /** The only checkpoint; several have a timeline. */
    this.only = html("span", { class: "mw-only", hidden: true });
    this.layer = this.picker("layer");
    this.metric = this.picker("metric");
    this.compute = html(
      "button",
      { type: "button", class: "mw-button mw-compute" },
      "Compute",
    );
    this.ears.on(this.compute, "click", () => this.ask({ type: "compute" }));
    this.cancel = html(
      "button",
      { type: "button", class: "mw-button mw-cancel" },
      "Cancel",
    );
    this.ears.on(this.cancel, "click", () => {
      this.cancel.disabled = true;
      this.tell({ type: "cancel" });
    });
    this.refresh = html(
      "button",
      { type: "button", class: "mw-button mw-refresh" },
      "↻ Show new results",
    );
    this.refresh.title = "There are new checkpoints, scores or shadow models";
    this.ears.on(this.refresh, "click", () => this.ask({ type: "refresh" }));
    this.what = html("span", { class: "mw-what" });
    this.left = html("span", { class: "mw-left" });
    const line = html("div", { class: "mw-work-line" }, this.what, this.left);
    this.meter = html("progress", { class: "mw-meter", "aria-label": "progress" });
    this.work = html("div", { class: "mw-work" }, line, this.meter);
    this.message = html("p", { class: "mw-message", role: "status" });
    this.early = html("p", { class: "mw-early", role: "alert", hidden: true });
    /** The menus, and "i". */
    this.tools = html("div", { class: "mw-row mw-tools" });
    this.share = new Share(model, this.ears);
    const what =
      "the flagged samples and all that were decided on, with what is known of each, as CSV";
    this.exporting = html(
      "button",
      { type: "button", class: "mw-button mw-export", title: what, hidden: true },
      "Export",
    );
    this.tools.append(this.exporting, this.share.element);
    this.row = html(
      "div",
      { class: "mw-row mw-bar-row" },
      this.title,
      this.only,
      this.layer,
      this.metric,
      this.tools,
    );
    this.working = html(
      "div",
      { class: "mw-row mw-working" },
      this.message,
      this.refresh,
      this.compute,
      this.work,
      this.cancel,
    );
    this.root.append(this.row, this.working, this.early);
    this.ears.onModel("change:_choices", () => this.fill());
    for (const name of PICKS)
      this.ears.onModel(`change:${name}`, () => this.showChosen());
    for (const name of [
      "computed",
      "outdated",
      "_work",
      "_message",
      "_early",
      "_button",
      "_name",
    ]) {
      this.ears.onModel(`change:${name}`, () => this.show());
    }
    this.ears.onModel("msg:custom", (content) => this.hear(content));
    this.ears.later(() => clearTimeout(this.patience));
    onLack(model, this.ears, (lack) => this.showLack(lack));
    this.fill();
    this.show();
    this.followAddress();
  }

  /**
   * Asks for other numbers. From now until the kernel has answered, those on show are dimmed.
   * @param {import("./messages.js").FromPage} [message]  none where a trait says it
   */
  ask(message) {
    this.asked += 1;
    this.box.classList.add("mw-asked");
    clearTimeout(this.patience);
    if (this.tell(message) && this.knock())
      this.patience = setTimeout(() => this.wait(true), SOON);
  }

  /** @param {boolean} late */
  wait(late) {
    this.late = late;
    this.show();
  }

  knock() {
    return this.tell({ type: "knock", request: `${this.name}-${this.asked}` });
  }

  /** @param {import("./messages.js").FromKernel} content */
  hear(content) {
    if (content.type !== "heard" || content.request !== `${this.name}-${this.asked}`)
      return;
    clearTimeout(this.patience);
    const wanted = PICKS.map((pick) => this.model.get(pick));
    if (content.picked.every((value, i) => value === wanted[i])) {
      this.box.classList.remove("mw-asked");
      this.wait(false);
    } else this.patience = setTimeout(() => this.knock(), AGAIN); // the pick is still on its way
  }

  /** In Voila and on the site a page has an address of its own, so that a user can send somebody a link to a view. */
  followAddress() {
    const page = document.documentElement;
    const own =
      document.body.dataset.voila !== undefined ||
      this.model.get("_has_address") === true;
    if (!own || page.hasAttribute(FOLLOWS)) return;
    page.setAttribute(FOLLOWS, "");
    /** @type {import("./messages.js").State | null} */
    let state = null;
    let known = location.hash; // another one is a new link, whose event is on its way
    const write = () => {
      if (state === null || location.hash !== known) return;
      history.replaceState(history.state, "", addressWith(known, state));
      known = location.hash;
    };
    const writeSoon = throttle(write, BETWEEN_ADDRESSES);
    this.share.offerLink(write);
    this.ears.later(() => {
      writeSoon.cancel();
      page.removeAttribute(FOLLOWS);
    });
    this.ears.onModel(
      "msg:custom",
      (/** @type {import("./messages.js").FromKernel} */ told) => {
        if (told.type !== "state") return;
        state = told.state;
        writeSoon();
      },
    );
    const restore = () => {
      known = location.hash;
      this.tell({ type: "address", text: textInAddress(known) });
    };
    this.ears.on(window, "hashchange", restore);
    restore();
  }

  fill() {
    const { checkpoints, layers, metrics } = this.model.get("_choices");
    const byLayer = metrics.filter((/** @type {Choice} */ metric) => metric.usesLayer);
    this.byLayer = new Set(byLayer.map((/** @type {Choice} */ metric) => metric.value));
    this.only.hidden = checkpoints.length > 1;
    write(this.only, checkpoints[0]?.label ?? "");
    fillPicker(this.layer, layers, LAST);
    fillPicker(this.metric, metrics, "");
    this.showChosen();
  }

  showChosen() {
    for (const name of PICKERS) this[name].value = this.model.get(name);
    const metric = this.model.get("metric");
    const unheard = this.root.classList.contains("mw-unheard");
    for (const name of PICKERS) this[name].disabled = unheard;
    this.layer.disabled ||= !this.byLayer.has(metric);
    this.layer.title = this.byLayer.has(metric) ? "" : NO_LAYER;
  }

  /** @param {string} name */
  picker(name) {
    const select = html("select", { class: "mw-select", "aria-label": name });
    this.ears.on(select, "change", () => this.choose(name, select.value));
    return select;
  }

  /**
   * @param {string} name
   * @param {string} value
   */
  choose(name, value) {
    this.model.set(name, value);
    this.ask();
    this.show();
  }

  /**
   * @param {import("./messages.js").FromPage} [message]
   * @returns {boolean}  whether there is a kernel to hear it
   */
  tell(message) {
    if (tell(this.model, message)) return true;
    this.showLack(whyLate(this.model));
    return false;
  }

  /** @param {string} lack */
  showLack(lack) {
    this.lack = lack;
    this.root.classList.toggle("mw-unheard", whyUnheard(this.model) !== "");
    if (lack !== "") this.box.classList.remove("mw-asked"); // no answer is on its way
    this.showChosen();
    this.show();
  }

  show() {
    const work = this.model.get("_work");
    const unheard = this.root.classList.contains("mw-unheard");
    const busy = work?.busy === true && !unheard;
    const asked = this.box.classList.contains("mw-asked");
    this.refresh.hidden = busy || unheard || !this.model.get("outdated");
    const label = this.model.get("_button") ?? ""; // where nothing is left to compute, or can be
    this.compute.textContent = label;
    this.compute.hidden = busy || asked || unheard || label === "";
    this.cancel.hidden = !busy;
    this.root.classList.toggle("mw-busy", busy);
    this.work.hidden = !busy;
    if (busy) this.showWork(work);
    else this.cancel.disabled = false;
    write(this.title, this.model.get("_name") ?? "");
    this.title.title = this.title.textContent ?? "";
    this.showEarly();
    const late = this.lack || (this.late ? whyLate(this.model) : "");
    const { kind, text } = late
      ? { kind: this.lack === GONE ? "error" : "wait", text: late }
      : this.model.get("_message");
    this.message.className = `mw-message mw-message-${kind}`;
    this.message.textContent = text;
    this.message.hidden = text === "";
    this.working.hidden = [this.message, this.refresh, this.compute, this.work].every(
      (part) => part.hidden,
    );
  }

  /** Says that the model knows nothing yet at this checkpoint, and leads to the one where it does. */
  showEarly() {
    const text = /** @type {string} */ (this.model.get("_early") ?? "");
    const { checkpoints } = this.model.get("_choices");
    const best = checkpoints.find(
      (/** @type {Choice} */ choice) =>
        choice.marked && choice.value !== this.model.get("checkpoint"),
    );
    this.early.hidden = text === "";
    this.early.replaceChildren(text);
    if (best === undefined) return;
    const go = html(
      "button",
      { type: "button", class: "mw-link" },
      `Go to ${best.label}`,
    );
    go.addEventListener("click", () => this.choose("checkpoint", best.value));
    this.early.append(" ", go);
  }

  /** @param {import("./messages.js").Work} work */
  showWork(work) {
    const left = durationText(work.seconds_left);
    const steps = work.total > 0 ? ` ${work.done} of ${work.total}` : "";
    this.what.textContent = this.what.title = `${work.what}${steps}`;
    this.left.textContent = left;
    this.meter.value = work.total > 0 ? work.done / work.total : 0;
    this.meter.setAttribute("aria-valuetext", `${this.what.textContent} ${left}`);
  }

  destroy() {
    this.ears.clear();
    this.root.remove();
  }
}

/**
 * @param {HTMLSelectElement} select
 * @param {Choice[]} choices
 * @param {string} mark  what is said of the recommended choice, above it
 */
function fillPicker(select, choices, mark) {
  select.replaceChildren(
    ...choices.map(({ label, value, marked }) => {
      const option = new Option(label, value);
      return marked && mark !== "" ? html("optgroup", { label: mark }, option) : option;
    }),
  );
}
