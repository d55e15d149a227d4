/** Decisions on the open sample, or on several that are selected: one row of buttons, and undo. */

import { nameText, plain } from "./cards.js";
import { html, write } from "./dom.js";
import { setLayer } from "./layers.js";
import { whole } from "./numbers.js";

/**
 * @typedef {object} DecideActions
 * @property {(what: {decision: string, to?: number}) => void} decide
 * @property {() => void} next  goes to the next sample without a decision
 * @property {() => Suggestion[]} suggested  classes that the chosen sample may better have
 * @property {() => void} undo
 * @property {() => void} exportAll  writes a file
 */

/**
 * @typedef {object} Suggestion
 * @property {number} to  number of the class
 * @property {string} why  who suggests it
 */

/** The key of each decision. */
const KEYS = /** @type {Record<string, string>} */ ({
  relabel: "L",
  keep: "K",
  anonymise: "A",
  remove: "R",
  undecided: "U",
});

/**
 * Returns the decision that a key stands for, "next", "undo", or "".
 * @param {{key: string, ctrlKey: boolean, metaKey: boolean, altKey: boolean, shiftKey?: boolean}} event
 */
export function decisionOf(event) {
  const key = event.key.toUpperCase();
  const command = event.ctrlKey || event.metaKey;
  const redo = command && event.shiftKey; // it must not undo one more
  if (key === "Z" && !event.altKey && !redo) return "undo";
  if (command || event.altKey) return "";
  return key === "J"
    ? "next"
    : (Object.keys(KEYS).find((name) => KEYS[name] === key) ?? "");
}

/** Offers the classes that samples can get: those that are suggested, and any other by a list. */
class Relabelling {
  /**
   * @param {(to: number) => void} choose
   * @param {HTMLElement} opener  its button
   */
  constructor(choose, opener) {
    this.choose = choose;
    this.opener = opener;
    this.suggested = html("span", { class: "mw-row" });
    this.other = html("select", { class: "mw-select", "aria-label": "any class" });
    this.apply = html(
      "button",
      { type: "button", class: "mw-button mw-apply" },
      "Relabel",
    );
    this.apply.addEventListener("click", () => this.take(Number(this.other.value)));
    this.other.addEventListener(
      "change",
      () => (this.apply.disabled = this.other.value === ""),
    );
    this.element = html("div", {
      class: "mw-row mw-relabel",
      role: "group",
      "aria-label": "new class",
      hidden: true,
    });
    this.element.append(
      html("span", {}, "relabel as"),
      this.suggested,
      this.other,
      this.apply,
    );
  }

  /** @param {boolean} shown */
  unfold(shown) {
    this.element.hidden = !shown;
    const close = () => this.unfold(false);
    setLayer(this.element, shown, { close, by: this.opener });
  }

  /**
   * @param {string[]} classes
   * @param {Suggestion[]} suggestions
   */
  show(classes, suggestions) {
    this.unfold(true);
    const buttons = suggestions
      .filter(({ to }) => to < classes.length)
      .map(({ to, why }) => {
        const button = html("button", {
          type: "button",
          class: "mw-button mw-suggested",
        });
        button.append(plain("bdi", classes[to], "mw-strong"), ` (${why})`);
        button.addEventListener("click", () => this.take(to));
        return button;
      });
    this.suggested.replaceChildren(...buttons);
    const first = new Option("choose a class …", "");
    this.other.replaceChildren(
      first,
      ...classes.map((name, i) => new Option(nameText(name), String(i))),
    );
    this.apply.disabled = true;
    (this.suggested.querySelector("button") ?? this.other).focus();
  }

  /** @param {number} to */
  take(to) {
    this.unfold(false);
    this.choose(to);
  }
}

/** What is below the open sample: the decisions, and what came of the last one. */
export class DecideBar {
  /** @param {DecideActions} actions */
  constructor(actions) {
    this.actions = actions;
    this.marked = 0;
    this.chosen = false;
    this.status = /** @type {import("./messages.js").DecisionStatus | null} */ (null);
    /** Class that the evidence suggests for the chosen sample. @type {number | null} */
    this.suggestion = null;
    this.guess = "";
    /** Names of the classes that the chosen sample can get. @type {string[]} */
    this.names = [];
    this.made = "undecided";
    this.scopeText = html("p", { class: "mw-scope-text", hidden: true });
    this.group = html("div", {
      class: "mw-choices",
      role: "group",
      "aria-label": "decision",
    });
    this.buttons = ["relabel", "keep", "anonymise", "remove"].map((name) =>
      this.button(name),
    );
    this.other = html(
      "button",
      {
        type: "button",
        class: "mw-button mw-other",
        "aria-label": "relabel as another class",
        title: "another class",
      },
      "▾",
    );
    this.other.addEventListener("click", () => this.offerClasses());
    this.relabelling = new Relabelling(
      (to) => actions.decide({ decision: "relabel", to }),
      this.other,
    );
    this.next = html(
      "button",
      { type: "button", class: "mw-button mw-next", "aria-keyshortcuts": "J" },
      "Next",
      key("J"),
    );
    this.next.addEventListener("click", () => actions.next());
    this.buttons[0].after(this.other);
    this.undo = html(
      "button",
      { type: "button", class: "mw-button mw-undo", "aria-keyshortcuts": "Z" },
      "Undo",
    );
    this.undo.addEventListener("click", () => actions.undo());
    this.said = html("p", { class: "mw-said", role: "status" });
    this.outcome = html(
      "div",
      { class: "mw-outcome" },
      this.said,
      this.undo,
      this.next,
    );
    this.progress = html("span", { class: "mw-progress" });
    const save = html("button", { type: "button", class: "mw-link" }, "Export");
    save.addEventListener("click", () => actions.exportAll());
    this.problem = html("span", {});
    this.banner = html(
      "p",
      { class: "mw-banner", role: "status", hidden: true },
      this.problem,
      save,
    );
    this.element = html("div", {
      class: "mw-decide",
      role: "group",
      "aria-label": "Decisions",
    });
    this.element.append(
      this.relabelling.element,
      this.scopeText,
      this.group,
      this.outcome,
    );
  }

  /** @param {string} name */
  button(name) {
    const text = html(
      "span",
      { class: "mw-choice-text" },
      name[0].toUpperCase() + name.slice(1),
    );
    const button = html(
      "button",
      { type: "button", class: "mw-button mw-choice", "aria-keyshortcuts": KEYS[name] },
      text,
      key(KEYS[name]),
    );
    button.dataset.decision = name;
    button.addEventListener("click", () =>
      this.choose(button.getAttribute("aria-pressed") === "true" ? "undecided" : name),
    );
    this.group.append(button);
    return button;
  }

  /**
   * @param {import("./messages.js").DecisionStatus} status
   * @param {object} shown
   * @param {number} shown.marked  samples that are selected together
   * @param {boolean} shown.chosen  whether a sample is open
   * @param {number} shown.decided  samples of the filter with a decision
   * @param {number} shown.of  samples of the filter with any decision or none
   */
  show(status, { marked, chosen, decided, of }) {
    Object.assign(this, { marked, chosen, status });
    this.progress.hidden = status.choices.length === 0;
    write(this.progress, `${whole(decided)} of ${whole(of)} decided`);
    this.undo.hidden = status.undo === 0;
    this.next.classList.toggle("mw-unseen", status.decided === 0);
    this.banner.hidden = status.problem === "" || status.decided === 0;
    write(this.problem, `${status.problem} `);
    this.showButtons();
  }

  /**
   * @param {import("./messages.js").Item} item  the open sample
   * @param {string[]} names  classes that it can get
   */
  showItem({ decision, suggested, guess }, names) {
    const can = suggested !== null && suggested < names.length;
    Object.assign(this, {
      made: decision,
      suggestion: can ? suggested : null,
      guess,
      names,
    });
    this.showButtons();
  }

  showButtons() {
    const choices = this.status?.choices ?? [];
    const several = this.marked > 0;
    for (const button of this.buttons) {
      const name = button.dataset.decision ?? "";
      button.hidden = !choices.includes(name);
      button.disabled = !this.chosen && !several;
      button.setAttribute("aria-pressed", String(!several && name === this.made));
    }
    const [relabel] = this.buttons;
    const suggested = !several && this.suggestion !== null;
    const text = suggested ? `Relabel: ${nameText(this.guess)}` : "Relabel …";
    write(/** @type {Element} */ (relabel.firstElementChild), text);
    relabel.title = suggested ? text : "";
    relabel.classList.toggle("mw-primary", suggested);
    this.other.hidden = relabel.hidden;
    this.scopeText.hidden = !several;
    write(this.scopeText, `for the ${whole(this.marked)} selected`);
  }

  /**
   * Makes a decision on what it is for, or asks what it needs first.
   * @param {string} decision
   */
  choose(decision) {
    const choices = this.status?.choices ?? [];
    const refused = this.status?.refused[decision] ?? "";
    this.relabelling.unfold(false);
    if (refused !== "") this.say(refused, false);
    else if (!choices.includes(decision)) return;
    else if (decision !== "relabel") this.actions.decide({ decision });
    else if (this.marked > 0 || this.suggestion === null) this.offerClasses();
    else this.actions.decide({ decision, to: this.suggestion });
  }

  /** Offers the classes that the open sample, or several, can get. */
  offerClasses() {
    const several = this.marked > 0;
    this.relabelling.show(
      several ? (this.status?.classes ?? []) : this.names,
      several ? [] : this.actions.suggested(),
    );
  }

  /**
   * @param {string} text
   * @param {boolean} done
   */
  say(text, done) {
    this.said.textContent = this.said.title = text;
    this.said.classList.toggle("mw-refused", !done);
  }
}

/** @param {string} letter */
function key(letter) {
  return html("kbd", { class: "mw-key", "aria-hidden": "true" }, letter);
}

/**
 * Offers the user a file to download. The page makes it, without any request.
 * @param {string} name
 * @param {string | ArrayBuffer} content
 * @param {string} kind
 */
export function download(name, content, kind) {
  const address = URL.createObjectURL(
    new Blob([content], { type: `${kind};charset=utf-8` }),
  );
  const link = html("a", { href: address, download: name, hidden: true });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}
