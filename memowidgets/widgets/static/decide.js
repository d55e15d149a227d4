/** Decisions on one sample, or on all that a filter shows: the bar with its buttons, and undo. */

import { nameText } from "./cards.js";
import { html, menu, write } from "./dom.js";
import { whole } from "./numbers.js";

/**
 * @typedef {object} DecideActions
 * @property {(decision: string, all: boolean, expected: string, to: number | null) => void} decide
 * @property {() => void} undo
 * @property {(suffix: string, samples: boolean) => void} exportAll
 */

/** The key of each decision. */
export const KEYS = /** @type {Record<string, string>} */ ({
  keep: "K",
  anonymise: "A",
  remove: "R",
  relabel: "L",
  undecided: "U",
});

const VERBS = /** @type {Record<string, string>} */ ({
  keep: "Keep",
  anonymise: "Anonymise",
  remove: "Remove",
  relabel: "Relabel",
  undecided: "Undecided",
});

/**
 * Returns the decision that a key stands for, "undo", or "".
 * @param {{key: string, ctrlKey: boolean, metaKey: boolean, altKey: boolean, shiftKey?: boolean}} event
 */
export function decisionOf(event) {
  const key = event.key.toUpperCase();
  const command = event.ctrlKey || event.metaKey;
  const redo = command && event.shiftKey; // it must not undo one more
  if (key === "Z" && !event.altKey && !redo) return "undo";
  if (command || event.altKey) return "";
  return Object.keys(KEYS).find((name) => KEYS[name] === key) ?? "";
}

/**
 * Makes a button for each decision. The current decision's button is pressed.
 * @param {(decision: string) => void} choose
 */
export function decisionButtons(choose) {
  const group = html("div", { class: "mw-row mw-choices", role: "group", "aria-label": "decision" });
  const buttons = Object.keys(KEYS).map((name) => {
    const key = html("kbd", { class: "mw-key", "aria-hidden": "true" }, KEYS[name]);
    const button = html("button", { type: "button", class: "mw-button mw-choice" }, VERBS[name], key);
    button.dataset.decision = name;
    button.setAttribute("aria-keyshortcuts", KEYS[name]);
    button.addEventListener("click", () => choose(name));
    group.append(button);
    return button;
  });
  /**
   * @param {import("./messages.js").DecisionStatus} status
   * @param {string | null} made
   * @param {boolean} able
   */
  const show = ({ choices, refused }, made, able) => {
    for (const button of buttons) {
      const name = button.dataset.decision ?? "";
      const reason = refused[name] ?? "";
      button.hidden = !choices.includes(name) && (reason === "" || choices.length === 0);
      button.disabled = !able;
      button.title = reason;
      if (reason === "") button.removeAttribute("aria-disabled"); // so that it can still say why
      else button.setAttribute("aria-disabled", "true");
      if (made === null) button.removeAttribute("aria-pressed");
      else button.setAttribute("aria-pressed", String(name === made));
    }
  };
  return { group, show };
}

/**
 * @typedef {object} Suggestion
 * @property {number} to  number of the class
 * @property {string} why  who suggests it
 */

/** Offers the classes that samples can get: those that are suggested, and any other by a list. */
export class Relabelling {
  /** @param {(to: number) => void} choose */
  constructor(choose) {
    this.choose = choose;
    this.shown = "";
    this.suggested = html("span", { class: "mw-row" });
    this.other = html("select", { class: "mw-select", "aria-label": "any class" });
    this.apply = html("button", { type: "button", class: "mw-button mw-apply" }, "Relabel");
    this.apply.addEventListener("click", () => this.take(Number(this.other.value)));
    this.other.addEventListener("change", () => (this.apply.disabled = this.other.value === ""));
    this.element = html("div", { class: "mw-row mw-relabel", role: "group", "aria-label": "new class", hidden: true });
    this.element.append(html("span", {}, "relabel as"), this.suggested, this.other, this.apply);
  }

  /**
   * @param {string[]} classes
   * @param {Suggestion[]} suggestions
   */
  show(classes, suggestions) {
    this.element.hidden = false;
    const shown = JSON.stringify([classes, suggestions]);
    if (shown === this.shown) return;
    this.shown = shown;
    const buttons = suggestions.map(({ to, why }) => {
      const name = html("bdi", { class: "mw-strong" });
      name.textContent = nameText(classes[to]);
      const button = html("button", { type: "button", class: "mw-button mw-suggested" }, name, ` (${why})`);
      button.addEventListener("click", () => this.take(to));
      return button;
    });
    this.suggested.replaceChildren(...buttons);
    const first = new Option(buttons.length > 0 ? "another class …" : "choose a class …", "");
    this.other.replaceChildren(first, ...classes.map((name, i) => new Option(nameText(name), String(i))));
    this.apply.disabled = true;
  }

  /** The keyboard goes to what is suggested first. */
  focus() {
    (this.suggested.querySelector("button") ?? this.other).focus();
  }

  /** @param {number} to */
  take(to) {
    this.hide();
    this.choose(to);
  }

  hide() {
    this.element.hidden = true;
    this.shown = "";
  }
}

/** The menu that writes a file: in a dashboard flagged and decided samples, alone the decisions. */
class Exporting {
  /**
   * @param {DecideActions["exportAll"]} choose
   * @param {boolean} led
   */
  constructor(choose, led) {
    this.led = led;
    this.samples = html("input", { type: "checkbox" });
    this.contents = html("span", {});
    this.box = html("label", { class: "mw-check" }, this.samples, this.contents);
    const what = led ? "The flagged samples and all that were decided on, with what is known of each." : "All decisions.";
    const formats = (led ? [["CSV", ".csv"], ["JSON Lines", ".jsonl"]] : [["CSV", ".csv"]]).map(([name, suffix]) => {
      const button = html("button", { type: "button", class: "mw-button" }, name);
      button.addEventListener("click", () => {
        this.element.open = false;
        choose(suffix, this.samples.checked && !this.box.hidden);
      });
      return button;
    });
    this.problem = html("p", { class: "mw-unkept" });
    this.element = menu("Export ▾", this.problem, html("p", {}, what), this.box, html("div", { class: "mw-row" }, ...formats));
    this.element.classList.add("mw-export");
  }

  /** @param {import("./messages.js").DecisionStatus} status */
  show({ contents, decided, problem }) {
    this.problem.hidden = problem === "";
    write(this.problem, `Decisions are kept in memory only: ${problem}. Export them before the kernel ends.`);
    this.element.hidden = !this.led && decided === 0;
    this.box.hidden = !this.led || contents === "";
    this.contents.textContent = `with ${contents}`;
  }
}

/** The bar between the filters and the samples. */
export class DecideBar {
  /**
   * @param {DecideActions} actions
   * @param {boolean} led  whether this is part of a dashboard
   */
  constructor(actions, led) {
    this.actions = actions;
    this.total = 0;
    this.refused = /** @type {Record<string, string>} */ ({});
    this.these = "";
    this.decided = html("span", { class: "mw-labelled mw-decided" });
    this.asked = { decision: "", these: "", to: /** @type {number | null} */ (null) };
    this.classes = /** @type {string[]} */ ([]);
    this.relabelling = new Relabelling((to) => {
      if (this.scope.value === "all") this.ask("relabel", this.total, this.these, to);
      else this.actions.decide("relabel", false, "", to);
    });
    this.relabelling.element.addEventListener("keydown", (event) => {
      if (event.key !== "Escape") return;
      event.preventDefault();
      this.relabelling.hide();
      this.scope.focus();
    });
    this.scope = html("select", { class: "mw-select", "aria-label": "decide on" });
    this.one = new Option("the chosen sample", "one");
    this.all = new Option("all shown", "all");
    this.scope.append(this.one, this.all);
    this.buttons = decisionButtons((decision) => this.choose(decision));
    this.undo = html("button", { type: "button", class: "mw-button mw-undo" });
    this.undo.addEventListener("click", () => actions.undo());
    this.undo.setAttribute("aria-keyshortcuts", "Z");
    this.exporting = new Exporting(actions.exportAll, led);
    this.said = html("p", { class: "mw-said", role: "status" });
    this.banner = html("span", { class: "mw-banner", role: "status" });
    const scope = html("label", { class: "mw-labelled mw-scope" }, html("span", {}, "decide on"), this.scope);
    const row = html("div", { class: "mw-row mw-decide-row" }, scope, this.buttons.group);
    row.append(html("span", { class: "mw-row mw-last" }, this.undo, this.exporting.element));
    const outcome = html("div", { class: "mw-row mw-outcome" }, this.decided, this.banner, this.said);
    this.question = html("span", {});
    this.yes = html("button", { type: "button", class: "mw-button mw-yes" });
    this.no = html("button", { type: "button", class: "mw-button mw-no" }, "Cancel");
    this.confirm = html("div", { class: "mw-row mw-confirm", role: "alertdialog" });
    this.confirm.append(this.question, this.yes, this.no);
    this.confirm.hidden = true;
    this.yes.addEventListener("click", () => this.confirmed());
    this.no.addEventListener("click", () => this.dismiss());
    this.confirm.addEventListener("keydown", (event) => {
      if (event.key !== "Escape") return;
      event.preventDefault();
      this.dismiss();
    });
    this.element = html("div", { class: "mw-decide", role: "group", "aria-label": "Decisions" });
    this.element.append(row, outcome, this.relabelling.element, this.confirm);
  }

  /**
   * @param {import("./messages.js").DecisionStatus} status
   * @param {object} shown
   * @param {number} shown.total  samples that the filter shows
   * @param {string} shown.these  which samples they are
   * @param {number} shown.marked  samples that are selected together
   * @param {boolean} shown.chosen  whether a sample is chosen
   * @param {number} shown.decided  samples of the filter with a decision
   * @param {number} shown.of  samples of the filter with any decision or none
   */
  show(status, { total, these, marked, chosen, decided, of }) {
    this.total = total;
    this.these = these;
    this.classes = status.classes;
    this.refused = status.refused;
    if (!this.confirm.hidden && these !== this.asked.these) this.withdraw();
    write(this.one, marked > 0 ? `${whole(marked)} selected` : "the chosen sample");
    write(this.all, `all ${whole(total)} shown`);
    this.all.disabled = total === 0;
    if (total === 0) this.scope.value = "one";
    const able = () => this.buttons.show(status, null, this.scope.value === "all" || chosen || marked > 0);
    able();
    this.scope.onchange = able;
    this.decided.hidden = decided === 0;
    write(this.decided, `${whole(decided)} of ${whole(of)} decided`);
    write(this.undo, status.undo > 0 ? `Undo (${whole(status.undo)})` : "Undo");
    this.undo.disabled = status.undo === 0;
    this.exporting.show(status);
    write(this.banner, status.problem === "" ? "" : "kept in memory only");
    this.banner.title = status.problem;
  }

  /** @param {string} decision */
  choose(decision) {
    const all = this.scope.value === "all";
    this.relabelling.hide();
    if (this.refused[decision]) this.say(this.refused[decision], false);
    else if (all && decision === "relabel") this.offerClasses();
    else if (all) this.ask(decision, this.total, this.these);
    else this.actions.decide(decision, false, "", null);
  }

  /** Asks for the class that several samples get. */
  offerClasses() {
    this.relabelling.show(this.classes, []);
    this.relabelling.focus();
  }

  /**
   * Asks for confirmation before many samples change at once.
   * @param {string} decision
   * @param {number} count
   * @param {string} these  which samples they are
   * @param {number | null} [to]  the new class
   */
  ask(decision, count, these, to = null) {
    this.asked = { decision, these, to };
    const samples = `${whole(count)} ${count === 1 ? "sample" : "samples"}`;
    const as = to === null ? "" : ` as “${nameText(this.classes[to])}”`;
    this.question.textContent = `${VERBS[decision]}${as}: all ${samples} that the filter shows, on every page?`;
    this.confirm.setAttribute("aria-label", this.question.textContent);
    this.yes.textContent = `${VERBS[decision]} ${samples}`;
    this.confirm.hidden = false;
    this.no.focus(); // a key held down must not confirm what it asked for
  }

  confirmed() {
    this.dismiss();
    this.actions.decide(this.asked.decision, true, this.asked.these, this.asked.to);
  }

  /** Takes the question back: it was about other samples than the filter shows now. */
  withdraw() {
    this.dismiss();
    this.say("The filter shows other samples now. Nothing was changed.", false);
  }

  dismiss() {
    this.confirm.hidden = true;
    this.scope.focus();
  }

  /**
   * @param {string} text
   * @param {boolean} done
   */
  say(text, done) {
    this.said.textContent = text;
    this.said.classList.toggle("mw-refused", !done);
  }
}

/**
 * Offers the user a file to download. The page makes it, without any request.
 * @param {string} name
 * @param {string | ArrayBuffer} content
 * @param {string} kind
 */
export function download(name, content, kind) {
  const address = URL.createObjectURL(new Blob([content], { type: `${kind};charset=utf-8` }));
  const link = html("a", { href: address, download: name, hidden: true });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}
