/** Controls of τ and η outside the plots, the sentences at τ, and what stands behind "i". */

import { html, menu, segments, setAttributes, write } from "./dom.js";
import {
  clopperPearson,
  countUpTo,
  rankFprAtMost,
  rankShareAtMost,
  rankTprAtLeast,
  tauAtRank,
} from "./maths.js";
import { intervalText, rateText, scoreText, tickText, whole } from "./numbers.js";

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

/**
 * Rules to choose τ, in words.
 * @param {boolean} truth  whether both memorised and other samples are known
 * @param {number | null} natural  threshold that means the same for every model
 * @param {number | null} canaryTau  lowest τ that flags 75 % of the planted canaries
 */
export function presets(truth, natural, canaryTau) {
  /** @type {(rank: (scores: Scores) => number) => (scores: Scores) => number} */
  const at = (rank) => (scores) => tauAtRank(scores, rank(scores));
  /** @type {[boolean, string, string, boolean, (scores: Scores) => number][]} */
  const all = [
    [
      natural !== null,
      `τ = ${tickText(natural ?? 0)}`,
      "the score's own threshold",
      false,
      () => natural ?? 0,
    ],
    [
      true,
      "lowest 5 %",
      "highest τ that flags at most this share of the samples",
      false,
      at((scores) => rankShareAtMost(scores, 0.05)),
    ],
    [
      canaryTau !== null,
      "75 % of canaries",
      "lowest τ that flags 75 % of the planted canaries",
      false,
      () => canaryTau ?? 0,
    ],
    [
      truth,
      "finds 75 %",
      "lowest τ that finds 75 % of the memorised samples",
      true,
      at((scores) => rankTprAtLeast(scores, 0.75)),
    ],
    [
      truth,
      "at most 1 % flagged only",
      "highest τ that flags at most 1 % of the others",
      true,
      at((scores) => rankFprAtMost(scores, 0.01)),
    ],
  ];
  return all
    .filter(([there]) => there)
    .map(([, label, title, fitted, tau]) => ({ label, title, fitted, tau }));
}

export const SCORE_SCALES = [
  { value: "linear", label: "linear" },
  { value: "log", label: "±log" },
];
const AXES = [
  { value: "score", label: "the score" },
  { value: "class", label: "against its class" },
];
export const ROC_SCALES = [
  { value: "linear", label: "linear" },
  { value: "log", label: "log-log" },
];

/** What τ flags, in sentences. */
export class Answers {
  constructor() {
    this.flagged = sentence("flagged");
    this.found = sentence("found");
    this.truly = sentence("truly");
    this.only = sentence("only");
    this.onLine = html("span", {
      title: "their score and τ are less than two standard errors apart",
    });
    this.show = html(
      "button",
      {
        type: "button",
        class: "mw-link",
        "aria-label": "show the samples that are too close to call",
      },
      "show",
    );
    this.line = html("p", { class: "mw-on-line" }, this.onLine, " ", this.show);
    this.element = html(
      "div",
      { class: "mw-answers", role: "group", "aria-label": "The answer at τ" },
      this.flagged.element,
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
    { flagged, found, flaggedOnly },
    { n, memorized, memorizedUpTo },
    close,
    positives,
    truly,
    settled,
  ) {
    const known = memorizedUpTo !== null;
    this.flagged.tell(whole(flagged), ` flagged of ${whole(n)}`);
    const many = settled ? whole(memorized) : "…";
    const are = settled && found === 1 ? "is" : "are";
    this.found.tell(
      settled ? whole(found) : "…",
      ` of ${many} ${positives} ${are} found`,
    );
    this.truly.tell("", truly);
    this.truly.element.hidden = !settled || truly === "";
    this.only.tell(settled ? whole(flaggedOnly) : "…", " flagged only");
    this.found.element.hidden = this.only.element.hidden = !known;
    write(
      this.onLine,
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

/** The name of τ beside its line, which opens a menu: a field, the axis, and the presets in words. */
export class TauMenu {
  /** @param {(axis: string) => void} turn */
  constructor(turn) {
    this.axes = segments("Axis", AXES, turn);
    this.axes.group.title =
      "against its class: in robust deviations (1.4826 times the median absolute deviation) from the median of the class; no truth is needed";
    this.field = html("input", {
      type: "text",
      inputmode: "decimal",
      class: "mw-field",
      spellcheck: "false",
      autocomplete: "off",
    });
    setAttributes(this.field, {
      "aria-label": "τ",
      title: "Arrow keys move τ; with Shift, to the next score",
    });
    this.presets = html("div", {
      class: "mw-presets",
      role: "group",
      "aria-label": "Ways to choose τ",
    });
    this.share = html("input", {
      type: "number",
      min: 0,
      max: 100,
      step: "any",
      class: "mw-share",
      "aria-label": "share to flag, per cent",
    });
    const most = html(
      "label",
      {
        class: "mw-labelled",
        title: "highest τ that flags at most this share of the samples",
      },
      "flag the lowest",
      this.share,
      "%",
    );
    this.element = menu(
      "τ",
      html("label", { class: "mw-labelled" }, "τ =", this.field),
      this.axes.group,
      this.presets,
      most,
    );
    this.element.classList.add("mw-tau-menu");
    this.text = /** @type {HTMLElement} */ (this.element.firstChild);
    this.text.classList.add("mw-tau-text");
  }

  /**
   * @param {string} text
   * @param {number} x  pixel of τ
   * @param {number} width  of the plot
   */
  show(text, x, width) {
    write(this.text, text);
    const long = 22 + 7.4 * text.length;
    this.text.style.left = `${(x + long + 12 < width ? x + 10 : Math.max(0, x - long - 2)).toFixed(1)}px`;
  }
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
