/** The bar of the dashboard: pickers, Compute, progress and Cancel. */

import { html, KERNEL_GONE, listeners, root, segments, setAttributes, tell, throttle } from "./dom.js";
import { durationText } from "./numbers.js";
import { Share } from "./share.js";

/** @typedef {import("./dom.js").Model} Model */
/** @typedef {import("./messages.js").Picked} Choice */

const MOST_BUTTONS = 5; // more scores take a second row in a notebook beside its sidebar
const NO_LAYER = "This score is the same at every layer";
const ADDRESS = "memowidgets=";
const PICKS = ["checkpoint", "layer", "metric"];
const SOON = 400; // milliseconds in which a free kernel answers
const AGAIN = 200;
const BETWEEN_ADDRESSES = 400; // a browser refuses more than a hundred in half a minute
const OTHER_CELL = "Waiting for the kernel: another cell is running.";
const OURS = "Waiting for the kernel: it reads the numbers.";
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
    this.since = 0;
    this.gone = false;
    /** What the kernel has not answered yet: whether it has time, then what was asked. @type {"" | "free" | "done"} */
    this.awaits = "";
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    this.patience = undefined;
    /** Scores that differ from layer to layer. @type {Set<string>} */
    this.byLayer = new Set();
    this.root = root(el, "bar", "What to score", this.ears);
    this.checkpoint = html("select", { class: "mw-select", "aria-label": "checkpoint" });
    this.layer = html("select", { class: "mw-select", "aria-label": "layer" });
    this.ears.on(this.checkpoint, "change", () => this.choose("checkpoint", this.checkpoint.value));
    this.ears.on(this.layer, "change", () => this.choose("layer", this.layer.value));
    this.scoreBox = html("div", { class: "mw-picker" });
    this.device = html("span", { class: "mw-device" });
    this.deviceBox = picker("Device", this.device);
    this.deviceBox.classList.add("mw-has-device");
    this.compute = html("button", { type: "button", class: "mw-button mw-compute" }, "Compute");
    this.ears.on(this.compute, "click", () => this.ask({ type: "compute" }));
    this.cancel = html("button", { type: "button", class: "mw-button mw-cancel" }, "Cancel");
    this.ears.on(this.cancel, "click", () => {
      this.cancel.disabled = true;
      this.tell({ type: "cancel" });
    });
    this.refresh = html("button", { type: "button", class: "mw-button mw-refresh" }, "↻ Show new results");
    this.refresh.title = "There are new checkpoints, scores or shadow models";
    this.ears.on(this.refresh, "click", () => this.ask({ type: "refresh" }));
    this.what = html("span", { class: "mw-what" });
    this.left = html("span", { class: "mw-left" });
    const line = html("div", { class: "mw-work-line" }, this.what, this.left);
    this.meterFill = html("div", { class: "mw-meter-fill" });
    this.meter = html("div", { class: "mw-meter", role: "progressbar" }, this.meterFill);
    setAttributes(this.meter, { "aria-valuemin": 0, "aria-valuemax": 100, "aria-label": "progress" });
    this.work = html("div", { class: "mw-work" }, line, this.meter);
    this.message = html("p", { class: "mw-message", role: "status" });
    this.warnings = html("ul", { class: "mw-warnings", "aria-label": "Warnings" });
    this.share = new Share(model, this.ears);
    const actions = html("div", { class: "mw-row mw-actions" }, this.refresh, this.compute, this.work, this.cancel, this.share.element);
    const row = html("div", { class: "mw-row mw-bar-row" });
    row.append(picker("Checkpoint", this.checkpoint), picker("Layer", this.layer), this.scoreBox);
    row.append(this.deviceBox, actions);
    this.notes = html("ul", { class: "mw-notes", "aria-label": "Notes" });
    this.root.append(row, this.message, this.warnings, this.notes);
    /** @type {{ group: HTMLElement, show: (value: string) => void }} */
    this.scores = segments("Metric", [], () => {});
    this.ears.onModel("change:_choices", () => this.fill());
    for (const name of ["checkpoint", "layer", "metric"]) {
      this.ears.onModel(`change:${name}`, () => this.showChosen());
    }
    for (const name of ["computed", "outdated", "_work", "_status", "_message", "_warnings", "_notes", "_button"]) {
      this.ears.onModel(`change:${name}`, () => this.show());
    }
    this.ears.onModel("msg:custom", (content) => this.hear(content));
    this.ears.later(() => clearTimeout(this.patience));
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
    if (!this.knock("free") || !this.tell(message) || !this.knock("done")) {
      this.box.classList.add("mw-asked"); // nobody will answer
      return;
    }
    this.awaits = "free";
    this.box.classList.add("mw-asked");
    clearTimeout(this.patience);
    this.patience = setTimeout(() => this.show(), SOON);
    this.since = performance.now();
  }

  /** @param {"free" | "done"} what */
  knock(what) {
    return this.tell({ type: "knock", request: `${this.name}-${this.asked}-${what}` });
  }

  /** @param {import("./messages.js").FromKernel} content */
  hear(content) {
    if (content.type !== "heard") return;
    const [name, asked, what] = content.request.split("-");
    if (name !== this.name || Number(asked) !== this.asked) return;
    clearTimeout(this.patience);
    const wanted = PICKS.map((pick) => this.model.get(pick));
    if (what === "free") {
      this.awaits = "done";
      this.patience = setTimeout(() => this.show(), SOON);
    } else if (content.picked.every((value, i) => value === wanted[i])) {
      this.awaits = "";
      this.box.classList.remove("mw-asked");
      this.show();
    } else this.patience = setTimeout(() => this.knock("done"), AGAIN); // the pick is still on its way
  }

  /** In Voila and on the site a page has an address of its own, so that a user can send somebody a link to a view. */
  followAddress() {
    const page = document.documentElement;
    const own = document.body.dataset.voila !== undefined || this.model.get("_has_address") === true;
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
    this.ears.onModel("msg:custom", (/** @type {import("./messages.js").FromKernel} */ told) => {
      if (told.type !== "state") return;
      state = told.state;
      writeSoon();
    });
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
    fillPicker(this.checkpoint, checkpoints, " (ρ)");
    fillPicker(this.layer, layers, "");
    const few = metrics.length <= MOST_BUTTONS;
    const choose = (/** @type {string} */ value) => this.choose("metric", value);
    this.scores = few ? segments("Metric", metrics, choose) : dropDown("metric", metrics, choose);
    this.scoreBox.replaceChildren(html("span", { class: "mw-picker-name" }, "Metric"), this.scores.group);
    this.showChosen();
  }

  showChosen() {
    this.checkpoint.value = this.model.get("checkpoint");
    this.layer.value = this.model.get("layer");
    const metric = this.model.get("metric");
    this.scores.show(metric);
    this.layer.disabled = !this.byLayer.has(metric);
    this.layer.title = this.layer.disabled ? NO_LAYER : "";
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
    this.gone = true;
    this.message.className = "mw-message mw-message-error";
    this.message.textContent = KERNEL_GONE;
    this.message.hidden = false;
    return false;
  }

  show() {
    const work = this.model.get("_work");
    const busy = work !== null && work !== undefined && work.busy === true;
    const asked = this.box.classList.contains("mw-asked");
    const computed = this.model.get("computed") && !asked;
    this.refresh.hidden = busy || !this.model.get("outdated");
    this.compute.disabled = busy || computed || asked;
    this.compute.classList.toggle("mw-wanted", !busy && !computed && !asked);
    const label = this.model.get("_button") ?? "Compute"; // "" where nothing can be computed
    this.compute.textContent = asked ? "waiting …" : computed && !busy ? "✓ computed" : label;
    this.compute.hidden = busy || (label === "" && !computed && !asked);
    this.cancel.hidden = !busy;
    this.root.classList.toggle("mw-busy", busy);
    this.work.hidden = !busy;
    if (busy) this.showWork(work);
    else this.cancel.disabled = false;
    const status = this.model.get("_status");
    this.device.textContent = status;
    this.deviceBox.hidden = status === "";
    if (this.gone) return; // the last word
    const late = this.awaits !== "" && performance.now() - this.since >= SOON - 1;
    const { kind, text } = late
      ? { kind: "wait", text: this.awaits === "free" ? OTHER_CELL : OURS }
      : this.model.get("_message");
    this.message.className = `mw-message mw-message-${kind}`;
    this.message.textContent = text;
    this.message.hidden = text === "";
    for (const [list, trait] of /** @type {[HTMLElement, string][]} */ ([[this.warnings, "_warnings"], [this.notes, "_notes"]])) {
      /** @type {string[]} */
      const texts = this.model.get(trait);
      list.replaceChildren(...texts.map((text) => html("li", {}, text)));
      list.hidden = texts.length === 0;
    }
  }

  /** @param {import("./messages.js").Work} work */
  showWork(work) {
    const share = work.total > 0 ? work.done / work.total : 0;
    const left = durationText(work.seconds_left);
    const steps = work.total > 0 ? ` ${work.done} of ${work.total}` : "";
    this.what.textContent = `${work.what}${steps}`;
    this.what.title = this.what.textContent;
    this.left.textContent = left;
    this.meterFill.style.width = `${(100 * share).toFixed(1)}%`;
    this.meter.setAttribute("aria-valuenow", (100 * share).toFixed(0));
    this.meter.setAttribute("aria-valuetext", `${this.what.textContent} ${left}`);
  }

  destroy() {
    this.ears.clear();
    this.root.remove();
  }
}

/**
 * @param {string} name
 * @param {HTMLElement} control
 */
function picker(name, control) {
  const tag = control instanceof HTMLSelectElement ? "label" : "div";
  return html(tag, { class: "mw-picker" }, html("span", { class: "mw-picker-name" }, name), control);
}

/**
 * A drop-down that is used as `segments` are.
 * @param {string} label
 * @param {Choice[]} choices
 * @param {(value: string) => void} choose
 */
function dropDown(label, choices, choose) {
  const group = html("select", { class: "mw-select", "aria-label": label });
  fillPicker(group, choices, "");
  group.addEventListener("change", () => choose(group.value));
  return { group, show: (/** @type {string} */ value) => void (group.value = value) };
}

/**
 * @param {HTMLSelectElement} select
 * @param {Choice[]} choices
 * @param {string} mark  what is said of the recommended choice
 */
function fillPicker(select, choices, mark) {
  const name = (/** @type {Choice} */ choice) => (choice.marked ? choice.label + mark : choice.label);
  select.replaceChildren(...choices.map((choice) => new Option(name(choice), choice.value)));
}
