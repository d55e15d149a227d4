/** Controls of τ and η outside the plots, and the tiles that show the results. */

import { html, setAttributes, svg } from "./dom.js";
import {
  clopperPearson, countUpTo, rankFprAtMost, rankShareAtMost, rankTprAtLeast, rankYouden, tauAtRank,
} from "./maths.js";
import {
  intervalText, percentIntervalText, percentText, rateText, scoreText, tickText, whole,
} from "./numbers.js";

/** @typedef {import("./maths.js").Scores} Scores */
/** @typedef {import("./maths.js").Interval} Interval */
/** @typedef {import("./maths.js").Counts} Counts */
/** @typedef {import("./maths.js").Auc} Auc */

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

const LOWEST = [0.05, 0.2];
const BELOW_CLASS = "more than one robust deviation (1.4826 times the median absolute deviation) below the median of its class";

/**
 * Rules to choose τ, in words. `more` marks those for who knows their names.
 * @param {boolean} truth  whether both memorised and other samples are known
 * @param {number | null} natural  threshold that means the same for every model
 * @param {number | null} canaryTau  lowest τ that flags 75 % of the planted canaries
 * @param {boolean} byClass  whether there is a rule that has no one τ
 */
export function presets(truth, natural, canaryTau, byClass) {
  /** @type {{label: string, title: string, fitted: boolean, more?: boolean, rule?: string, tau: (scores: Scores) => number}[]} */
  const always = [];
  if (natural !== null) {
    const label = `τ = ${tickText(natural)}`;
    always.push({ label, title: "the score's own threshold", fitted: false, tau: () => natural });
  }
  for (const lowest of LOWEST) {
    always.push({
      label: `lowest ${100 * lowest} %`,
      title: "highest τ that flags at most this share of the samples",
      fitted: false,
      more: truth && lowest !== LOWEST[0],
      tau: (scores) => tauAtRank(scores, rankShareAtMost(scores, lowest)),
    });
  }
  if (byClass) {
    const title = `flags samples whose score is ${BELOW_CLASS}; no truth is needed`;
    always.push({ label: "one deviation below its class", title, fitted: false, more: truth, rule: "class", tau: () => NaN });
  }
  if (canaryTau !== null) {
    const title = "lowest τ that flags 75 % of the planted canaries";
    always.push({ label: "75 % of canaries", title, fitted: false, more: truth, tau: () => canaryTau });
  }
  if (!truth) return always;
  /** @type {(rank: (scores: Scores) => number) => (scores: Scores) => number} */
  const at = (rank) => (scores) => tauAtRank(scores, rank(scores));
  return [
    ...always,
    {
      label: "find 75 %",
      title: "lowest τ that finds 75 % of the memorised samples",
      fitted: true,
      tau: at((scores) => rankTprAtLeast(scores, 0.75)),
    },
    {
      label: "at most 1 % flagged only",
      title: "highest τ that flags at most 1 % of the others",
      fitted: true,
      tau: at((scores) => rankFprAtMost(scores, 0.01)),
    },
    { label: "Youden", title: "highest TPR − FPR, Youden's J", fitted: true, more: true, tau: at(rankYouden) },
  ];
}

export const SCORE_SCALES = [
  { value: "linear", label: "linear" },
  { value: "log", label: "±log" },
];
export const COUNT_SCALES = [
  { value: "linear", label: "linear" },
  { value: "sqrt", label: "√" },
  { value: "log", label: "log" },
];
export const ROC_SCALES = [
  { value: "linear", label: "linear" },
  { value: "log", label: "log-log" },
];

/** One result with its interval. */
export class Tile {
  /**
   * @param {string} name
   * @param {string} label
   * @param {string} help
   */
  constructor(name, label, help) {
    this.value = html("div", { class: "mw-tile-value" });
    this.detail = html("div", { class: "mw-tile-detail" });
    this.element = html("div", { class: `mw-tile mw-tile-${name}`, title: help });
    this.why = html("button", { type: "button", class: "mw-why", "aria-label": `what ${label} says`, "aria-expanded": "false" }, "?");
    /** One sentence with the figures of now. */
    this.sentence = "";
    this.element.append(html("div", { class: "mw-tile-name" }, label), this.value, this.detail, this.why);
  }

  /**
   * @param {string} value
   * @param {string} detail
   */
  show(value, detail) {
    this.value.textContent = value;
    this.detail.textContent = detail;
  }

  /** There is a number, but not yet for the current η. */
  wait() {
    this.show("…", "");
  }

  /**
   * A share of n with its exact interval.
   * @param {number} k
   * @param {number} n
   */
  showShare(k, n) {
    this.show(n > 0 ? rateText(k / n) : "–", intervalText(clopperPearson(k, n)));
  }
}

/**
 * Returns the interval of a count, from the exact interval of the share k / n.
 * @param {number} k
 * @param {number} n
 */
export function countInterval(k, n) {
  const interval = clopperPearson(k, n);
  if (interval === null) return "";
  const [low, high] = interval;
  return `${whole(Math.floor(low * n))} – ${whole(Math.ceil(high * n))} of ${whole(n)}`;
}

/** The answer at τ in three counts, and all rates at τ and η. */
export class Tiles {
  constructor() {
    this.flagged = new Tile("flagged", "flagged", "samples with a score of at most τ, and their share with its exact 95 % interval");
    this.close = html("div", { class: "mw-tile-detail mw-close", title: "their score and τ are less than two standard errors apart" });
    this.flagged.element.append(this.close);
    this.found = new Tile("found", "finds", "");
    this.nothing = new Tile("nothing", "flagged only", "flagged samples that are none of them, and the share of those that are flagged with its exact 95 % interval");
    this.tpr = new Tile("tpr", "TPR", "");
    this.missed = new Tile("missed", "missed", "");
    this.fpr = new Tile("fpr", "FPR", "share of the other samples that are flagged; exact 95 % interval");
    this.precision = new Tile("precision", "precision", "");
    this.area = new Tile("auc", "AUC", "area under the ROC; 95 % interval");
    this.why = html("p", { class: "mw-why-text", role: "status", hidden: true });
    /** @type {Tile | null} */
    this.asked = null;
    this.judged = [this.found, this.nothing, this.tpr, this.missed, this.fpr, this.precision];
    this.answers = group("The answer at τ", [this.flagged, this.found, this.nothing]);
    this.answers.classList.add("mw-answers");
    this.rates = group("Rates at τ", [this.tpr, this.fpr, this.precision, this.missed, this.area]);
    this.positives = "memorised samples";
    this.all = [this.flagged, ...this.judged, this.area];
    for (const tile of this.all) {
      tile.why.addEventListener("click", () => {
        this.asked = this.asked === tile ? null : tile;
        this.explain();
      });
    }
  }

  /**
   * Tells in the tiles' help what the ground truth marks.
   * @param {string} positives  "memorised samples", or what was given as the truth
   */
  nameTruth(positives) {
    this.positives = positives;
    this.found.element.title = `flagged ${positives}, and the share of the ${positives} that are flagged with its exact 95 % interval`;
    this.tpr.element.title = `share of the ${positives} that are flagged; exact 95 % interval`;
    this.missed.element.title = `${positives} that are not flagged; exact 95 % interval of 1 − TPR, in samples`;
    this.precision.element.title = `share of the flagged samples that are ${positives}; exact 95 % interval`;
  }

  /**
   * @param {boolean} known  whether there is ground truth
   * @param {boolean} hasRoc
   */
  showParts(known, hasRoc) {
    if (!known && this.asked !== this.flagged) this.asked = null;
    for (const tile of this.judged) tile.element.hidden = !known;
    this.rates.hidden = !known;
    this.area.element.hidden = !hasRoc;
  }

  /**
   * @param {Auc} auc
   * @param {boolean} settled
   */
  showArea(auc, settled) {
    if (settled) this.area.show(rateText(auc.area), intervalText(auc.interval));
    else this.area.wait();
    this.area.sentence = `Of a random pair, one of the ${this.positives} and one other, the first has the lower score in ${percentText(auc.area)} of cases; a score that knows nothing has 50 %.`;
  }

  /** Shows the sentence that "?" asks for. */
  explain() {
    for (const tile of this.all) tile.why.setAttribute("aria-expanded", String(tile === this.asked));
    this.why.hidden = this.asked === null;
    this.why.textContent = this.asked?.sentence ?? "";
  }

  /**
   * @param {Counts} counts
   * @param {Scores} scores
   * @param {number} close  samples that could go either way
   * @param {boolean} settled  whether the truth is that of where η stands
   * @param {string} tau  "" where each class has its own
   */
  show(counts, scores, close, settled, tau) {
    const { n, memorized } = scores;
    const known = scores.memorizedUpTo !== null;
    const others = n - memorized;
    const { positives } = this;
    this.flagged.sentence = `${whole(counts.flagged)} of ${whole(n)} samples have a score ${tau === "" ? BELOW_CLASS : `of at most τ = ${tau}`}: they are predicted to be memorised.`;
    this.found.sentence = this.tpr.sentence = `Of ${whole(memorized)} ${positives}, ${whole(counts.found)} are flagged; ${whole(counts.missed)} are not.`;
    this.missed.sentence = `${whole(counts.missed)} of ${whole(memorized)} ${positives} are not flagged, so nobody is warned of them.`;
    this.nothing.sentence = this.fpr.sentence = `${whole(counts.flaggedOnly)} of ${whole(others)} other samples are flagged although they are not ${positives}.`;
    this.precision.sentence = `Of ${whole(counts.flagged)} flagged samples, ${whole(counts.found)} are ${positives}.`;
    if (this.asked !== null) this.explain();
    this.flagged.show(whole(counts.flagged), shareText(counts.flagged, n, known));
    this.close.textContent = close > 0 ? `${whole(close)} could go either way` : "";
    if (!known) return;
    if (!settled) {
      for (const tile of this.judged) tile.wait();
      return;
    }
    this.found.show(`${whole(counts.found)} of ${whole(memorized)}`, shareText(counts.found, memorized, true));
    this.nothing.show(whole(counts.flaggedOnly), shareText(counts.flaggedOnly, n - memorized, true));
    this.tpr.showShare(counts.found, memorized);
    this.missed.show(whole(counts.missed), countInterval(counts.missed, memorized));
    this.fpr.showShare(counts.flaggedOnly, n - memorized);
    this.precision.showShare(counts.found, counts.flagged);
  }
}

/**
 * @param {string} label
 * @param {Tile[]} tiles
 */
function group(label, tiles) {
  return html("div", { class: "mw-tiles", role: "group", "aria-label": label }, ...tiles.map((tile) => tile.element));
}

/**
 * A share in per cent, with its exact interval where that says something.
 * @param {number} k
 * @param {number} n
 * @param {boolean} certain  whether an interval is wanted
 */
function shareText(k, n, certain) {
  if (n === 0) return "";
  const interval = certain ? clopperPearson(k, n) : null;
  const share = percentText(k / n);
  return interval === null ? share : `${share} (${percentIntervalText(interval)})`;
}

/**
 * A slider and a number field for one threshold.
 * @param {string} symbol
 * @param {string} name
 * @param {string} help
 */
function thresholdRow(symbol, name, help) {
  const slider = html("input", { type: "range", class: "mw-slider", step: "any", title: help });
  slider.setAttribute("aria-label", `${name} ${symbol}`);
  const field = html("input", { type: "text", inputmode: "decimal", class: "mw-field" });
  setAttributes(field, { "aria-label": symbol, spellcheck: "false", autocomplete: "off", title: help });
  const label = html("span", { class: "mw-tau-name", "aria-hidden": "true" }, symbol);
  const row = html("div", { class: "mw-row mw-tau-row" }, label, slider, field);
  return { slider, field, row };
}

/** The slider of τ with its presets in words; and everything else, under "More controls". */
export class Controls {
  constructor() {
    this.tau = thresholdRow("τ", "threshold", "Arrow keys move τ; with Shift, to the next score");
    this.eta = thresholdRow("η", "memorised from log-LiRA", "a sample is memorised if its log-LiRA is at least η. Arrow keys move η; with Shift, until one sample more or less is memorised");
    this.etaReset = html("button", { type: "button", class: "mw-button", title: "what the paper takes" }, "η = 4");
    this.eta.row.append(this.etaReset);
    this.presets = html("div", { class: "mw-presets", role: "group", "aria-label": "Ways to choose τ" });
    this.morePresets = html("div", { class: "mw-presets", role: "group", "aria-label": "More ways to choose τ" });
    this.share = html("input", { type: "number", min: 0, max: 100, step: "any", value: 5 });
    setAttributes(this.share, { class: "mw-share", "aria-label": "share to flag, per cent" });
    const help = "highest τ that flags at most this share of the samples";
    this.flag = html("button", { type: "button", class: "mw-button", title: help }, "flag");
    this.compare = html("input", { type: "checkbox" });
    this.compareBox = html("label", { class: "mw-check", hidden: true }, this.compare, "compare metrics");
    this.scales = html("div", { class: "mw-scales" });
    this.hint = html("p", { class: "mw-hint" });
    const unit = html("span", { class: "mw-unit" }, "%");
    const most = html("span", { class: "mw-joined" }, this.flag, this.share, unit);
    const ways = html("div", { class: "mw-row" }, this.morePresets, most, this.compareBox, this.scales);
    this.element = html("div", { class: "mw-controls" }, this.tau.row, this.presets, this.hint);
    this.more = html("div", { class: "mw-more", role: "group", "aria-label": "More controls" }, this.eta.row, ways);
    this.toggle = html("button", { type: "button", class: "mw-button mw-toggle" });
  }

  /** @param {boolean} open */
  showMore(open) {
    this.more.hidden = !open;
    this.toggle.textContent = open ? "Fewer controls ▴" : "More controls ▾";
    this.toggle.setAttribute("aria-expanded", String(open));
  }
}

/**
 * One line of the list of curves.
 * @param {string} kind
 * @param {string} name
 * @param {number} area
 * @param {Interval} interval
 * @param {[number, number, number] | null} difference
 */
export function curveEntry(kind, name, area, interval, difference) {
  const line = svg("line", { x1: 1, x2: 27, y1: 6, y2: 6, class: kind });
  const swatch = svg("svg", { width: 28, height: 12, "aria-hidden": "true", class: "mw-curve-swatch" }, line);
  const label = html("span", { class: "mw-curve-name", title: name, dir: "auto" }, name);
  const number = html("span", { class: "mw-curve-auc" }, `${rateText(area)} (${intervalText(interval)})`);
  if (difference !== null) {
    const [by, low, high] = difference.map((x) => scoreText(x, 0.01));
    number.title = `AUC; less that of the score shown: ${by} (${low} to ${high}, paired 95 % interval)`;
  }
  return html("li", { class: "mw-curve-entry" }, swatch, label, number);
}
