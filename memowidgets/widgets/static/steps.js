/** What stands in the ROC's place where nobody knows who is memorised: three steps, with their prices. */

import { html, write } from "./dom.js";

/** @typedef {import("./messages.js").StepsShown} Next */
/** @typedef {import("./messages.js").StepShown} Offer */
/** @typedef {import("./messages.js").LinesShown} Lines */

/** Least, mean and most of what is memorised that the lowest tenth holds, in per cent: docs/measurements.md. */
const HOLDS = /** @type {Record<string, [number, number, number]>} */ ({
  psmi: [14, 53, 99],
  reference: [26, 64, 100],
});
const [SCORED, MORE] = ["about half", "about two thirds"];

/** Three steps: scored, find more, know it. */
export class Steps {
  /** @param {(type: "references" | "check") => void} begin */
  constructor(begin) {
    this.begin = begin;
    this.shown = "";
    this.element = html("ol", {
      class: "mw-steps",
      "aria-label": "Steps",
      hidden: true,
    });
  }

  /**
   * @param {Next} next
   * @param {boolean} busy  whether models are trained already
   * @param {boolean} early  whether the model has learned too little here
   */
  show(next, busy, early) {
    const shown = JSON.stringify([next, busy, early]);
    if (shown === this.shown) return;
    this.shown = shown;
    const { metric, predicts, more, know } = next;
    const found = metric === "reference";
    const first = html("p", {}, html("b", {}, "Scored."));
    const isKnown = metric === "psmi" && predicts; // what the lowest tenth holds
    if (isKnown) first.append(` ${holding("The lowest tenth", SCORED)}`);
    const second = html("p", {}, html("b", {}, found ? "Found more." : "Find more:"));
    const isOffered = !found && more.button !== "";
    const holds = found ? predicts : isOffered && !early;
    if (found && holds) second.append(` ${holding("The lowest tenth", MORE)}`);
    else if (holds) second.append(` a tenth that holds ${MORE}.`);
    else if (isOffered) second.append(" short trainings on other samples.");
    else if (!found) second.append(` ${more.said}.`);
    const third = html("p", {}, html("b", {}, "Know it:"), ` ${know.said}.`);
    const train = (
      /** @type {Offer} */ { button },
      /** @type {"references" | "check"} */ type,
    ) => this.button(button, type, busy);
    this.element.replaceChildren(
      step("✓", first, isKnown ? range(metric) : null),
      step(
        found ? "✓" : "2",
        second,
        found ? null : train(more, "references"),
        holds ? range("reference") : null,
        found ? null : unfolded(more),
      ),
      step("3", third, train(know, "check"), unfolded(know)),
    );
  }

  /**
   * @param {string} label  "" where there is none
   * @param {"references" | "check"} type
   * @param {boolean} busy
   */
  button(label, type, busy) {
    if (label === "") return null;
    const button = html(
      "button",
      { type: "button", class: "mw-button mw-check-now" },
      label,
    );
    button.disabled = busy;
    button.addEventListener("click", () => this.begin(type));
    return button;
  }
}

/**
 * @param {string} what
 * @param {string} share
 */
function holding(what, share) {
  return `${what} holds ${share} of what will be memorised.`;
}

/**
 * @param {string} sign
 * @param {...(Node | null)} parts
 */
function step(sign, ...parts) {
  const there = parts.flatMap((part) => (part === null ? [] : [part]));
  return html(
    "li",
    { class: sign === "✓" ? "mw-stage mw-done" : "mw-stage" },
    html("span", { class: "mw-stage-sign", "aria-hidden": "true" }, sign),
    html("div", {}, ...there),
  );
}

/**
 * The range over 16 settings as a line, the mean as a dot.
 * @param {string} metric
 */
function range(metric) {
  const [low, mean, high] = HOLDS[metric];
  const said = `${low} to ${high} % in 16 settings, ${mean} % in the mean`;
  const box = html("div", {
    class: "mw-holds",
    role: "img",
    "aria-label": said,
    title: said,
  });
  const line = html("i", {});
  [line.style.left, line.style.right] = [`${low}%`, `${100 - high}%`];
  const dot = html("b", {});
  dot.style.left = `${mean}%`;
  const ends = [low, high].map((end) => html("span", {}, `${end} %`));
  ends[0].style.left = `${low}%`;
  ends[1].style.right = `${100 - high}%`;
  box.append(line, dot, ...ends);
  return box;
}

/**
 * Lines that a reader copies, unfolded in place.
 * @param {Offer} offer
 */
function unfolded({ lines }) {
  if (lines === null) return null;
  const { title, said, code } = lines;
  const copy = html("button", { type: "button", class: "mw-button" }, "Copy the lines");
  copy.addEventListener("click", () => {
    navigator.clipboard.writeText(code).then(
      () => write(copy, "Copied"),
      () => write(copy, "Select the lines, and copy them"),
    );
  });
  return html(
    "details",
    { class: "mw-costs" },
    html("summary", {}, title),
    html("p", {}, said),
    html("pre", { tabindex: 0, role: "group", "aria-label": "Lines to copy" }, code),
    copy,
  );
}
