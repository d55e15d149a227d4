/** Controls of τ and η outside the plots, the sentences at τ, and what stands behind "i". */

import { countAsked, fixedText, isAsked } from "./asked.js";
import { html, segments, setAttributes, write } from "./dom.js";
import { clopperPearson, countUpTo, tauAtRank } from "./maths.js";
import { intervalText, rateText, whole } from "./numbers.js";

/** @typedef {import("./maths.js").Scores} Scores */
/** @typedef {import("./maths.js").Interval} Interval */
/** @typedef {import("./maths.js").Counts} Counts */

/**
 * Returns the τ that Shift and an arrow lead to: the next score that changes which samples are
 * flagged.
 * @param {Scores} scores
 * @param {number} tau
 * @param {number} step  +1 or −1
 */
export function neighbourTau(scores, tau, step) {
  const rank = countUpTo(scores.values, tau) + step;
  return tauAtRank(scores, Math.min(scores.values.length, Math.max(0, rank)));
}

export const SCORE_SCALES = [
  { value: "linear", label: "linear" },
  { value: "log", label: "±log" },
];
export const ROC_SCALES = [
  { value: "linear", label: "linear" },
  { value: "log", label: "log-log" },
];

/** What τ flags, in sentences. */
export class Answers {
  constructor() {
    this.found = sentence("found");
    this.truly = sentence("truly");
    this.only = sentence("only");
    this.line = html("p", {
      class: "mw-on-line",
      title: "their score and τ are less than two standard errors apart",
    });
    this.element = html(
      "div",
      { class: "mw-answers", role: "group", "aria-label": "The answer at τ" },
      this.found.element,
      this.truly.element,
      this.only.element,
      this.line,
    );
  }

  /**
   * @param {Counts} counts
   * @param {Scores} scores
   * @param {number} close  samples that are too close to τ to call
   * @param {string} positives  "memorised", or what was given as the truth
   * @param {string} truly  how many of them truly are
   * @param {boolean} settled  whether the truth is that of where η stands
   */
  tell(
    { found, flaggedOnly },
    { memorized, memorizedUpTo },
    close,
    positives,
    truly,
    settled,
  ) {
    const known = memorizedUpTo !== null;
    const many = settled ? whole(memorized) : "…";
    const are = settled && found === 1 ? "is" : "are";
    this.found.tell(
      settled ? whole(found) : "…",
      ` of ${many} ${positives} ${are} found`,
    );
    this.truly.tell("", truly);
    this.truly.element.hidden = !settled || truly === "";
    this.only.tell(settled ? whole(flaggedOnly) : "…", " flagged only");
    this.found.element.hidden = !known || memorized === 0;
    this.only.element.hidden = !known;
    write(
      this.line,
      close === 1
        ? "One is too close to call"
        : `${whole(close)} are too close to call`,
    );
    this.line.hidden = close === 0;
  }
}

/** @param {string} name */
function sentence(name) {
  const number = html("b");
  const rest = html("span");
  const element = html("p", { class: `mw-sentence mw-sentence-${name}` }, number, rest);
  /** @type {(count: string, text: string) => void} */
  const tell = (count, text) => {
    write(number, count);
    write(rest, text);
  };
  return { element, tell };
}

/** The rates at τ with their intervals, as a table. */
export class Rates {
  constructor() {
    this.body = html("tbody");
    const head = html(
      "tr",
      {},
      ...["at τ", "", "95 % interval"].map((name) =>
        html("th", { scope: "col" }, name),
      ),
    );
    this.element = html(
      "table",
      { class: "mw-rates" },
      html("thead", {}, head),
      this.body,
    );
  }

  /**
   * @param {Counts} counts
   * @param {Scores} scores
   */
  show({ flagged, found, flaggedOnly }, { n, memorized }) {
    /** @type {[string, number | null, Interval | null][]} */
    const rows = [
      [
        "TPR, share of the memorised that are found",
        found / memorized,
        clopperPearson(found, memorized),
      ],
      [
        "FPR, share of the others that are flagged",
        flaggedOnly / (n - memorized),
        clopperPearson(flaggedOnly, n - memorized),
      ],
      [
        "precision, share of the flagged that are memorised",
        flagged > 0 ? found / flagged : null,
        clopperPearson(found, flagged),
      ],
    ];
    this.body.replaceChildren(
      ...rows.map(([name, value, interval]) => {
        const cells = [rateText(value), intervalText(interval)].map((cell) =>
          html("td", {}, cell),
        );
        return html("tr", {}, html("th", { scope: "row" }, name), ...cells);
      }),
    );
  }
}

/** How many samples to look at, τ, and named ways to ask for either: what was asked for stays fixed. */
export class Look {
  /** @param {(way: import("./asked.js").Way) => void} choose */
  constructor(choose) {
    this.choose = choose;
    this.count = field("look at", "a number of samples, or a share such as 10 %");
    this.tau = field("τ", "Arrow keys move τ; with Shift, to the next score");
    this.chips = segments("what stays fixed", [], () => {});
    this.fixed = html("p", { class: "mw-fixed" });
    this.text = html("span", { class: "mw-tau-text", "aria-hidden": "true" });
    this.element = html(
      "div",
      { class: "mw-look" },
      html(
        "div",
        { class: "mw-asks" },
        html("label", { class: "mw-labelled" }, "Look at", this.count),
        html("label", { class: "mw-labelled" }, "τ", this.tau),
      ),
      this.chips.group,
      this.fixed,
    );
    /** @type {import("./asked.js").Way[]} */
    this.ways = [];
  }

  /** @param {import("./asked.js").Way[]} ways */
  offer(ways) {
    if (JSON.stringify(ways) === JSON.stringify(this.ways)) return;
    this.ways = ways;
    const choices = ways.map(({ label, title }) => ({ value: label, label, title }));
    const chips = segments("what stays fixed", choices, (value) => {
      const way = ways.find(({ label }) => label === value);
      if (way !== undefined) this.choose(way);
    });
    chips.group.className = "mw-ways";
    this.chips.group.replaceWith(chips.group);
    this.chips = chips;
  }

  /**
   * @param {{asked: import("./messages.js").Asked, axis: string, tau: number, plays: boolean}} now
   * @param {string} tau  in words
   * @param {{n: number, flagged: number}} counts
   */
  show(now, tau, { n, flagged }) {
    const itself = countAsked(now.asked, n) === null;
    this.tau.classList.toggle("mw-stays", itself);
    this.count.classList.toggle("mw-stays", !itself);
    this.chips.show(this.ways.find((way) => isAsked(way, now))?.label ?? "");
    write(this.fixed, fixedText({ ...now, tau }, { n, flagged }));
  }

  /**
   * Writes the name of τ beside its line, where the first of these has room on a side of it.
   * @param {string[]} names  the shortest is the last
   * @param {number} x  pixel of τ
   * @param {number} width  of the plot
   */
  name(names, x, width) {
    const long = (/** @type {string} */ text) => 18 + 7 * text.length;
    const isRight = (/** @type {string} */ text) => x + long(text) + 10 < width;
    const fits = (/** @type {string} */ text) => isRight(text) || x >= long(text);
    const text = names.find(fits) ?? names[names.length - 1];
    write(this.text, text);
    const left = isRight(text) ? x + 12 : Math.max(0, x - long(text));
    this.text.style.left = `${left.toFixed(1)}px`;
  }
}

/**
 * @param {string} name
 * @param {string} title
 */
function field(name, title) {
  const input = html("input", {
    type: "text",
    inputmode: "decimal",
    class: "mw-field",
    spellcheck: "false",
    autocomplete: "off",
    title,
  });
  setAttributes(input, { "aria-label": name });
  return input;
}

/** The row of η: a slider, and where it stands. */
export class EtaRow {
  constructor() {
    const help = "a sample is memorised if its log-LiRA is at least η";
    this.slider = html("input", {
      type: "range",
      class: "mw-slider",
      step: 0.1,
      title: help,
      "aria-label": "memorised from log-LiRA η",
    });
    this.text = html("span", { class: "mw-tau-name", "aria-hidden": "true" });
    this.element = html("div", { class: "mw-row mw-tau-row" }, this.text, this.slider);
  }
}
