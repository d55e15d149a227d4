/** The τ explorer: histogram, ROC, sliders and tiles that follow τ and η without the kernel. */

import {
  arrowStep, bytesOf, html, KERNEL_GONE, listeners, onWidth, root, segments, setAttributes, svg,
  tell, throttle,
} from "./dom.js";
import {
  aucOf, boundsOf, clopperPearson, countsAt, countUpTo, cumulative, intervalText, isSkewed, judgedAt,
  kneeFor, LINEAR, makeScores, neighbourEta, percentText, rankFprAtMost, rankShareAtMost,
  rankTprAtLeast, rankYouden, rateText, scoreText, symmetricLog, tauAtRank, undecidedAt, whole,
  withHits,
} from "./maths.js";
import { HistogramPlot, RocPlot } from "./plots.js";

/** @typedef {import("./dom.js").Model} Model */
/** @typedef {import("./maths.js").Scores} Scores */
/** @typedef {import("./maths.js").Bounds} Bounds */
/** @typedef {import("./maths.js").Auc} Auc */
/** @typedef {import("./maths.js").Counts} Counts */
/** @typedef {import("./maths.js").Axis} Axis */
/** @typedef {import("./maths.js").Interval} Interval */

/**
 * What the kernel sends of the scores, unpacked.
 * @typedef {object} Data
 * @property {number} version  counts the updates
 * @property {Scores} scores  without a truth
 * @property {ArrayLike<number>} shared  places of the values that several samples share
 * @property {Bounds | null} bounds  of two standard errors
 * @property {string} title
 * @property {string} truth  what counts as memorised; "" where η says it, or without ground truth
 * @property {[number, number] | null} etaRange  where its slider ends; null where η says nothing
 * @property {string} note  on samples that are left out
 */

/**
 * What takes the kernel a while to work out.
 * @typedef {object} Late
 * @property {Float32Array | null} band  fpr, low, high, one after the other
 * @property {Other[]} others
 * @property {string[]} remarks
 */

/**
 * Another score of the same samples.
 * @typedef {object} Other
 * @property {string} name
 * @property {[number, number, number]} auc  AUC and its interval
 * @property {[number, number, number] | null} difference  by how much it is above the one shown
 * @property {{fpr: number, tpr: number}[]} points
 */

/**
 * @param {any} wire
 * @returns {Data}
 */
export function unpack(wire) {
  const values = floats(wire.values, wire.wide);
  const shared = unsigned(wire.shared, wire.n_shared);
  const ties = unsigned(wire.ties, wire.n_shared);
  const counts = shared.length > 0 ? new Uint32Array(values.length).fill(1) : null;
  for (let i = 0; i < shared.length; i++) if (counts !== null) counts[shared[i]] = ties[i];
  const scores = makeScores(values, counts, null);
  const bounds = wire.levels
    ? boundsOf(scores, floats(wire.levels, true), unsigned(wire.codes, scores.n))
    : null;
  return {
    version: wire.version,
    scores,
    shared,
    bounds,
    title: wire.title,
    truth: wire.truth,
    etaRange: wire.eta_range ?? null,
    note: wire.note ?? "",
  };
}

/**
 * The same scores with the truth that came for them.
 * @param {Data} data
 * @param {any} wire
 * @returns {Scores}
 */
export function unpackTruth(data, wire) {
  if (!wire.bits) return withHits(data.scores, null);
  const hits = unpackBits(new Uint8Array(bytesOf(wire.bits)), data.scores.values.length);
  const ofShared = unsigned(wire.hits, data.shared.length);
  for (let i = 0; i < data.shared.length; i++) hits[data.shared[i]] = ofShared[i];
  return withHits(data.scores, cumulative(hits.length, hits));
}

/**
 * @param {any} wire
 * @returns {Late}
 */
export function unpackLate(wire) {
  const others = wire.others.map((/** @type {any} */ other) => {
    const rates = floats(other.points, false);
    const half = rates.length / 2;
    const points = Array.from({ length: half }, (_, i) => ({ fpr: rates[i], tpr: rates[half + i] }));
    return { name: other.name, auc: other.auc, difference: other.difference, points };
  });
  const remarks = wire.failed ? [wire.failed, ...wire.remarks] : wire.remarks;
  const band = wire.band ? new Float32Array(bytesOf(wire.band)) : null;
  return { band, others, remarks: remarks.map(asSentence) };
}

/** @param {string} text */
function asSentence(text) {
  const sentence = text.charAt(0).toUpperCase() + text.slice(1);
  return /[.!?]$/.test(sentence) ? sentence : `${sentence}.`;
}

/**
 * @param {any} bytes
 * @param {boolean} wide
 */
function floats(bytes, wide) {
  return wide ? new Float64Array(bytesOf(bytes)) : new Float32Array(bytesOf(bytes));
}

/**
 * Whole numbers of one, two or four bytes: what the length leaves for each.
 * @param {any} bytes
 * @param {number} length
 * @returns {Uint8Array | Uint16Array | Uint32Array}
 */
export function unsigned(bytes, length) {
  const buffer = bytesOf(bytes);
  const size = length === 0 ? 1 : buffer.byteLength / length;
  if (size === 1) return new Uint8Array(buffer);
  return size === 2 ? new Uint16Array(buffer) : new Uint32Array(buffer);
}

/**
 * @param {Uint8Array} bits  eight samples a byte, the first in the highest bit
 * @param {number} length
 */
export function unpackBits(bits, length) {
  const flags = new Uint32Array(length);
  for (let i = 0; i < length; i++) flags[i] = (bits[i >> 3] >> (7 - (i & 7))) & 1;
  return flags;
}

/**
 * Where Shift and an arrow lead: to the next score that changes who is flagged.
 * @param {Scores} scores
 * @param {number} tau
 * @param {number} step  +1 or −1
 */
export function neighbourTau(scores, tau, step) {
  const rank = countUpTo(scores.values, tau) + step;
  return tauAtRank(scores, Math.min(scores.values.length, Math.max(0, rank)));
}

/**
 * The named ways to choose τ.
 * @param {boolean} truth  whether both memorised and other samples are known
 */
function presets(truth) {
  const zero = { label: "τ = 0", title: "PSMI's default", fitted: false, tau: () => 0 };
  if (!truth) return [zero];
  /** @type {(rank: (scores: Scores) => number) => (scores: Scores) => number} */
  const at = (rank) => (scores) => tauAtRank(scores, rank(scores));
  return [
    zero,
    { label: "Youden", title: "highest TPR − FPR", fitted: true, tau: at(rankYouden) },
    {
      label: "TPR ≥ 75 %",
      title: "lowest τ that finds 75 % of the memorised samples",
      fitted: true,
      tau: at((scores) => rankTprAtLeast(scores, 0.75)),
    },
    {
      label: "FPR ≤ 1 %",
      title: "highest τ that flags at most 1 % of the others",
      fitted: true,
      tau: at((scores) => rankFprAtMost(scores, 0.01)),
    },
  ];
}

const OPTIMISTIC = "This τ was chosen on the samples it is measured on: its rates are optimistic.";

const WAITING = "Counting anew: log-LiRA is on its way from the kernel.";

/** What is shown before anything is: one score, hidden. */
const NOTHING = {
  version: 0,
  values: new Float32Array(1),
  wide: false,
  n_shared: 0,
  shared: new Uint8Array(0),
  ties: new Uint8Array(0),
  title: "",
  truth: "",
};

const SCORE_SCALES = [
  { value: "linear", label: "linear" },
  { value: "log", label: "±log" },
];
const COUNT_SCALES = [
  { value: "linear", label: "linear" },
  { value: "sqrt", label: "√" },
  { value: "log", label: "log" },
];
const ROC_SCALES = [
  { value: "linear", label: "linear" },
  { value: "log", label: "log-log" },
];

/** One result with its interval. */
class Tile {
  /**
   * @param {string} name
   * @param {string} label
   * @param {string} help
   */
  constructor(name, label, help) {
    this.value = html("div", { class: "mw-tile-value" });
    this.detail = html("div", { class: "mw-tile-detail" });
    this.element = html("div", { class: `mw-tile mw-tile-${name}`, title: help });
    this.element.append(html("div", { class: "mw-tile-name" }, label), this.value, this.detail);
  }

  /**
   * @param {string} value
   * @param {string} detail
   */
  show(value, detail) {
    this.value.textContent = value;
    this.detail.textContent = detail;
  }

  /** There is a number, but not yet for where η stands. */
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
 * How many of n there could be, from the exact interval of the share k / n.
 * @param {number} k
 * @param {number} n
 */
export function countInterval(k, n) {
  const interval = clopperPearson(k, n);
  if (interval === null) return "";
  const [low, high] = interval;
  return `${whole(Math.floor(low * n))} – ${whole(Math.ceil(high * n))} of ${whole(n)}`;
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

/** Sliders, number fields, presets and scales: what moves τ and η without the plots. */
class Controls {
  constructor() {
    this.tau = thresholdRow("τ", "threshold", "Arrow keys move τ; with Shift, to the next score");
    this.eta = thresholdRow("η", "memorised from log-LiRA", "Arrow keys move η; with Shift, until one sample more or less is memorised");
    this.etaReset = html("button", { type: "button", class: "mw-button", title: "what the paper takes" }, "η = 4");
    const meaning = html("span", { class: "mw-unit" }, "memorised: log-LiRA ≥ η");
    this.eta.row.append(this.etaReset, meaning);
    this.presets = html("div", { class: "mw-presets", role: "group", "aria-label": "Ways to choose τ" });
    this.share = html("input", { type: "number", min: 0, max: 100, step: "any", value: 5 });
    setAttributes(this.share, { class: "mw-share", "aria-label": "share to flag, per cent" });
    const help = "highest τ that flags at most this share of the samples";
    this.flag = html("button", { type: "button", class: "mw-button", title: help }, "flag");
    this.compare = html("input", { type: "checkbox" });
    this.compareBox = html("label", { class: "mw-check", hidden: true }, this.compare, "compare scores");
    this.scales = html("div", { class: "mw-scales" });
    this.hint = html("p", { class: "mw-hint" });
    const unit = html("span", { class: "mw-unit" }, "% most at risk");
    const most = html("span", { class: "mw-joined" }, this.flag, this.share, unit);
    const ways = html("div", { class: "mw-row" }, this.presets, most, this.scales);
    this.element = html("div", { class: "mw-controls" }, this.tau.row, this.eta.row, ways, this.hint);
  }
}

/** One view of the explorer. */
class Explorer {
  /**
   * @param {Model} model
   * @param {HTMLElement} el
   */
  constructor(model, el) {
    this.model = model;
    this.ears = listeners(model);
    this.tau = /** @type {number} */ (model.get("tau"));
    this.eta = /** @type {number} */ (model.get("eta"));
    this.data = unpack(NOTHING);
    this.scores = this.data.scores; // with the truth at judgedEta
    this.judgedEta = this.eta;
    /** @type {Float32Array | Float64Array | null} */
    this.logLira = null;
    /** @type {(() => void) | null} */
    this.whenLogLira = null;
    /** @type {Auc | null} */
    this.auc = null;
    /** @type {Late | null} */
    this.late = null;
    /** @type {Axis} */
    this.axis = LINEAR;
    this.scoreScale = "";
    this.countScale = "sqrt";
    this.rocScale = "linear";
    this.dragging = false;
    this.typing = false;
    this.fitted = false;
    this.heard = true;
    this.frame = 0;
    this.redraw = false;
    /** @type {Set<"tau" | "eta">} */
    this.unsent = new Set();
    this.sync = throttle(() => {
      this.setTraits();
      model.save_changes();
    }, 80);

    this.root = root(el, "explorer", "Threshold explorer");
    this.histogram = new HistogramPlot();
    this.roc = new RocPlot();
    this.noRoc = html("p", { class: "mw-empty", hidden: true });
    this.curves = html("ul", { class: "mw-curves", "aria-label": "Curves", hidden: true });
    this.rocBox = html("div", { class: "mw-roc-box" }, this.roc.element, this.curves, this.noRoc);
    this.legend = html("div", { class: "mw-legend" });
    this.flagged = new Tile("flagged", "flagged", "samples with a score of at most τ; exact 95 % interval of their share");
    this.close = html("div", { class: "mw-tile-detail mw-close", title: "their score and τ are less than two standard errors apart" });
    this.flagged.element.append(this.close);
    this.tpr = new Tile("tpr", "TPR", "share of the memorised samples that are flagged; exact 95 % interval");
    this.missed = new Tile("missed", "missed", "memorised samples that are not flagged; exact 95 % interval of 1 − TPR, in samples");
    this.fpr = new Tile("fpr", "FPR", "share of the other samples that are flagged; exact 95 % interval");
    this.precision = new Tile("precision", "precision", "share of the flagged samples that are memorised; exact 95 % interval");
    this.area = new Tile("auc", "AUC", "area under the ROC; Newcombe's 95 % interval");
    this.controls = new Controls();
    this.spoken = html("p", { class: "mw-spoken", role: "status" });
    this.scoreScales = segments("Scale of the scores", SCORE_SCALES, (value) => this.rescale({ scoreScale: value }));
    this.countScales = segments("Scale of the counts", COUNT_SCALES, (value) => this.rescale({ countScale: value }));
    this.rocScales = segments("Scale of the ROC", ROC_SCALES, (value) => this.rescale({ rocScale: value }));
    this.rocScalesBox = html("span", { class: "mw-labelled" }, "ROC", this.rocScales.group);
    this.compose();

    this.size = onWidth(this.root, (width) => this.layout(width));
    this.ears.later(this.size.stop);
    this.listen();
    this.load();
    this.dim();
  }

  compose() {
    const tiles = html("div", { class: "mw-tiles", role: "group", "aria-label": "Results at τ" });
    for (const tile of [this.flagged, this.tpr, this.missed, this.fpr, this.precision, this.area]) {
      tiles.append(tile.element);
    }
    const left = html("div", { class: "mw-histogram-box" }, this.legend, this.histogram.element);
    const plots = html("div", { class: "mw-plots" }, left, this.rocBox, tiles);
    this.controls.scales.append(
      this.controls.compareBox,
      html("span", { class: "mw-labelled" }, "scores", this.scoreScales.group),
      html("span", { class: "mw-labelled" }, "counts", this.countScales.group),
      this.rocScalesBox,
    );
    this.countScales.show(this.countScale);
    this.rocScales.show(this.rocScale);
    this.root.append(plots, this.controls.element, this.spoken);
  }

  listen() {
    const { tau, eta, etaReset, flag, share, compare } = this.controls;
    this.ears.onModel("change:_data", () => this.load());
    this.ears.onModel("change:_truth", () => this.hearTruth());
    this.ears.onModel("change:_late", () => this.hearLate());
    this.ears.onModel("change:_dimmed", () => this.dim());
    this.ears.onModel("change:_comparable", () => this.hearLate());
    this.ears.onModel("change:comparing", () => this.hearLate());
    this.ears.onModel("change:tau", () => this.hearTau());
    this.ears.onModel("change:eta", () => this.hearEta());
    this.ears.onModel("msg:custom", (content, buffers) => this.receive(content, buffers));
    this.dragOn(this.histogram.element, (x) => this.histogram.tauAt(x));
    this.dragOn(this.roc.element, (x, y) => this.roc.tauAt(x, y));
    this.listenToRow(tau, {
      slide: (place) => this.move(this.axis.from(place)),
      commit: () => this.commit("tau"),
      key: (event) => this.key(event),
      text: () => this.tauText(),
      choose: (value) => this.choose(value, false),
    });
    this.listenToRow(eta, {
      slide: (place) => this.moveEta(place),
      commit: () => this.commit("eta"),
      key: (event) => this.etaKey(event),
      text: () => this.etaText(),
      choose: (value) => this.chooseEta(value),
    });
    this.ears.on(etaReset, "click", () => this.chooseEta(4));
    this.ears.on(flag, "click", () => this.flagShare());
    this.ears.on(share, "keydown", (event) => {
      if (event.key === "Enter") this.flagShare();
    });
    this.ears.on(compare, "change", () => {
      this.model.set("comparing", compare.checked);
      this.heard = tell(this.model);
      this.hearLate();
    });
  }

  /**
   * @param {{slider: HTMLInputElement, field: HTMLInputElement}} row
   * @param {{slide: (place: number) => void, commit: () => void, key: (event: KeyboardEvent) => void, text: () => string, choose: (value: number) => void}} acts
   */
  listenToRow({ slider, field }, acts) {
    const typed = () => {
      if (!this.typing) return;
      this.typing = false;
      const text = field.value.trim().replace("−", "-").replace(",", ".");
      const value = text === "" ? NaN : Number(text);
      if (Number.isFinite(value)) acts.choose(value); // what it shows may be rounded
      else field.value = acts.text();
    };
    this.ears.on(slider, "pointerdown", () => (this.dragging = true));
    this.ears.on(slider, "input", () => acts.slide(Number(slider.value)));
    this.ears.on(slider, "change", () => {
      this.dragging = false;
      acts.commit();
    });
    for (const name of ["pointerup", "pointercancel", "blur"]) {
      this.ears.on(slider, name, () => (this.dragging = false));
    }
    this.ears.on(slider, "keydown", acts.key);
    this.ears.on(field, "input", () => (this.typing = true));
    this.ears.on(field, "change", typed);
    this.ears.on(field, "blur", typed);
    this.ears.on(field, "keydown", (event) => {
      if (event.key === "Enter") typed();
      if (event.key === "Escape") {
        this.typing = false;
        field.value = acts.text();
      }
      if (event.key === "ArrowUp" || event.key === "ArrowDown") acts.key(event);
    });
  }

  get known() {
    return this.scores.hitsUpTo !== null;
  }

  get hasRoc() {
    const { memorized, n } = this.scores;
    return this.known && memorized > 0 && memorized < n;
  }

  /** Whether the truth is the one at η, and not yet that of where η was. */
  get settled() {
    return this.data.etaRange === null || this.judgedEta === this.eta;
  }

  /* ------------------------------------------------------------ what the kernel sends */

  load() {
    const wire = this.model.get("_data");
    const truth = this.model.get("_truth");
    this.root.hidden = !wire.values;
    if (!wire.values || truth.version !== wire.version) return;
    this.data = unpack(wire);
    this.logLira = this.whenLogLira = null;
    this.late = null;
    if (!this.dragging) {
      this.tau = this.model.get("tau");
      this.eta = this.model.get("eta");
    }
    this.fitted = false;
    this.takeTruth(truth);
    if (!this.settled) this.withLogLira(() => this.judge());
  }

  /** A truth for where η is, or for new scores; one for where η was is of no use. */
  hearTruth() {
    const truth = this.model.get("_truth");
    if (truth.version !== this.data.version) this.load();
    else if (truth.eta === this.eta && !this.settled) this.takeTruth(truth);
  }

  /** @param {any} truth */
  takeTruth(truth) {
    this.judgedEta = truth.eta ?? this.eta;
    this.showTruth(unpackTruth(this.data, truth));
  }

  /** Counts anew who is memorised. */
  judge() {
    if (this.logLira === null || this.settled) return;
    this.judgedEta = this.eta;
    this.showTruth(judgedAt(this.data.scores, this.logLira, this.eta));
  }

  /** @param {Scores} scores */
  showTruth(scores) {
    const had = [this.known, this.hasRoc];
    this.scores = scores;
    this.auc = aucOf(scores);
    this.takeLate();
    this.showParts();
    if (had[0] !== this.known || had[1] !== this.hasRoc || !this.controls.presets.hasChildNodes()) {
      this.showPresets();
    }
    this.chooseAxis();
    this.draw();
  }

  hearLate() {
    this.takeLate();
    this.draw();
  }

  /** Takes the band and the other scores, if they are those of what is shown. */
  takeLate() {
    const late = this.model.get("_late");
    const fits =
      late?.version === this.data.version && (late.eta === null || late.eta === this.judgedEta);
    this.late = fits ? unpackLate(late) : null;
    this.showCompared();
  }

  /**
   * Does something with log-LiRA, which is sent once it is needed.
   * @param {() => void} action  the last one counts
   */
  withLogLira(action) {
    if (this.logLira !== null) {
      action();
      return;
    }
    const asked = this.whenLogLira !== null;
    this.whenLogLira = action;
    if (asked) return;
    this.heard = tell(this.model, { type: "log_lira", version: this.data.version });
    if (this.heard) return;
    this.whenLogLira = null;
    this.eta = this.judgedEta;
    this.draw();
  }

  /**
   * @param {any} content
   * @param {any[]} buffers
   */
  receive(content, buffers) {
    if (content.type !== "log_lira" || content.version !== this.data.version) return;
    this.logLira = /** @type {Float32Array | Float64Array} */ (floats(buffers[0], content.wide));
    const action = this.whenLogLira;
    this.whenLogLira = null;
    action?.();
  }

  /** A τ that Python set; while the user drags, the user is right. */
  hearTau() {
    const tau = this.model.get("tau");
    if (this.dragging || tau === this.tau) return;
    this.fitted = false;
    this.tau = tau;
    this.moved();
  }

  /** An η that Python set: its truth comes along, or is counted here. */
  hearEta() {
    const eta = this.model.get("eta");
    if (this.dragging || eta === this.eta) return;
    this.eta = eta;
    this.fitted = false;
    const truth = this.model.get("_truth");
    if (truth.version === this.data.version && truth.eta === eta) this.takeTruth(truth);
    else if (this.logLira !== null) this.judge();
    else this.draw();
  }

  /* ------------------------------------------------------------ what is there to see */

  /** Hides what needs a truth that is not known. */
  showParts() {
    const { known, hasRoc } = this;
    this.root.classList.toggle("mw-without-truth", !known);
    this.rocBox.hidden = !known;
    setAttributes(this.roc.element, { hidden: !hasRoc });
    this.rocScalesBox.hidden = !hasRoc;
    this.noRoc.hidden = hasRoc;
    const none = this.scores.memorized === 0;
    this.noRoc.textContent = `${none ? "None of these samples is" : "All of these samples are"} memorised: there is no ROC to draw.`;
    for (const tile of [this.tpr, this.missed, this.fpr, this.precision]) tile.element.hidden = !known;
    this.area.element.hidden = !hasRoc;
    const range = this.data.etaRange;
    this.controls.eta.row.hidden = range === null;
    if (range === null) return;
    const ends = { min: Math.min(range[0], this.eta), max: Math.max(range[1], this.eta) };
    setAttributes(this.controls.eta.slider, ends);
  }

  /** The checkbox, and the list of curves with their AUCs. */
  showCompared() {
    const comparing = this.model.get("comparing");
    this.controls.compareBox.hidden = !(this.model.get("_comparable") && this.hasRoc);
    this.controls.compare.checked = comparing;
    const shown = comparing && !this.controls.compareBox.hidden;
    this.curves.hidden = !shown;
    if (!shown) {
      this.curves.replaceChildren();
      this.root.style.removeProperty("--mw-curves");
      return;
    }
    if (this.late === null) {
      this.curves.classList.add("mw-waiting");
      for (const number of this.curves.querySelectorAll(".mw-curve-auc")) number.textContent = "…";
      if (!this.curves.hasChildNodes()) this.curves.append(html("li", {}, "comparing …"));
      return;
    }
    this.curves.classList.remove("mw-waiting");
    const others = this.late.others.map((other, i) => {
      const [area, low, high] = other.auc;
      return curveEntry(`mw-other-curve mw-other-${i + 1}`, other.name, area, [low, high], other.difference);
    });
    const { auc } = this;
    const own = auc === null ? [] : [curveEntry("mw-curve", this.data.title, auc.area, auc.interval, null)];
    this.curves.replaceChildren(...own, ...others);
    this.root.style.setProperty("--mw-curves", String(this.curves.children.length));
  }

  showArea() {
    if (this.auc === null) return;
    if (this.settled) this.area.show(rateText(this.auc.area), intervalText(this.auc.interval));
    else this.area.wait();
  }

  showLegend() {
    const { scores, settled } = this;
    /** @type {(kind: string, text: string) => HTMLElement} */
    const entry = (kind, text) => {
      const swatch = html("span", { class: `mw-swatch mw-swatch-${kind}`, "aria-hidden": "true" });
      return html("span", { class: "mw-legend-entry" }, swatch, text);
    };
    const truth = this.data.etaRange === null ? this.data.truth : `log-LiRA ≥ ${this.etaText()}`;
    const reason = truth ? ` (${truth})` : "";
    const many = (/** @type {number} */ count) => (settled ? whole(count) : "…");
    const entries = this.known
      ? [
          entry("memorized", `memorised${reason} · ${many(scores.memorized)}`),
          entry("other", `others · ${many(scores.n - scores.memorized)}`),
        ]
      : [entry("other", `samples · ${whole(scores.n)}`)];
    this.legend.replaceChildren(...entries);
  }

  showPresets() {
    const buttons = presets(this.hasRoc).map((preset) => {
      const button = html("button", { type: "button", class: "mw-button", title: preset.title }, preset.label);
      button.addEventListener("click", () => {
        if (this.settled || !preset.fitted) this.choose(preset.tau(this.scores), preset.fitted);
      });
      return button;
    });
    this.controls.presets.replaceChildren(...buttons);
  }

  dim() {
    this.root.classList.toggle("mw-dimmed", this.model.get("_dimmed"));
  }

  /* ------------------------------------------------------------ drawing */

  /** @param {{scoreScale?: string, countScale?: string, rocScale?: string}} scales */
  rescale(scales) {
    Object.assign(this, scales);
    this.chooseAxis();
    this.draw();
  }

  /** Takes the user's scale of the scores, or the one that shows most of them. */
  chooseAxis() {
    const { scores } = this;
    const scale = this.scoreScale || (isSkewed(scores) ? "log" : "linear");
    this.axis = scale === "log" ? symmetricLog(kneeFor(scores)) : LINEAR;
    this.scoreScales.show(scale);
  }

  /** @param {number} width */
  layout(width) {
    this.root.classList.toggle("mw-narrow", width < 640);
    this.root.classList.toggle("mw-wide", width >= 980);
    this.draw();
  }

  draw() {
    if (this.root.hidden) return;
    if (this.histogram.element.clientWidth === 0) {
      this.size.again(); // hidden for now, as in a tab behind another
      return;
    }
    const { scores, late, settled } = this;
    this.root.classList.toggle("mw-pending", !settled);
    this.histogram.draw(scores, this.axis, this.countScale, this.data.title);
    if (this.hasRoc) {
      const others = this.model.get("comparing") && late ? late.others.map((other) => other.points) : [];
      this.roc.draw(scores, late ? late.band : null, others, this.rocScale === "log");
    }
    setAttributes(this.controls.tau.slider, { min: this.histogram.low, max: this.histogram.high });
    this.showEta();
    this.showLegend();
    this.showArea();
    this.moved();
    this.describe();
  }

  showEta() {
    if (this.data.etaRange === null) return;
    const { slider, field } = this.controls.eta;
    const text = this.etaText();
    if (Number(slider.value) !== this.eta) slider.value = String(this.eta);
    const many = this.settled ? `, ${whole(this.scores.memorized)} samples memorised` : "";
    slider.setAttribute("aria-valuetext", `${text}${many}`);
    if (!this.typing) field.value = text;
    this.root.dataset.eta = String(this.eta);
  }

  /** Moves what depends on τ; everything else stays as it is drawn. */
  moved() {
    const { slider, field } = this.controls.tau;
    const counts = countsAt(this.scores, this.tau);
    const text = this.tauText();
    this.histogram.move(this.tau, text);
    this.showTiles(counts);
    if (this.hasRoc) this.roc.move(...this.rates(counts));
    const place = this.axis.to(this.tau);
    if (Math.abs(Number(slider.value) - place) > 1e-12) slider.value = String(place);
    slider.setAttribute("aria-valuetext", `${text}, ${whole(counts.flagged)} samples flagged`);
    if (!this.typing) field.value = text;
    this.showHint();
    this.root.dataset.tau = String(this.tau);
    this.root.dataset.counts = JSON.stringify(this.settled ? counts : { flagged: counts.flagged });
  }

  showHint() {
    const hints = [this.data.note, ...(this.late ? this.late.remarks : [])].filter(Boolean);
    if (this.fitted) hints.unshift(OPTIMISTIC);
    if (!this.settled) hints.unshift(WAITING);
    if (!this.heard) hints.unshift(KERNEL_GONE);
    this.controls.hint.textContent = hints.join(" ");
  }

  tauText() {
    const { low, high } = this.histogram;
    const beside = this.axis.from(this.axis.to(this.tau) + (high - low) / 100);
    return scoreText(this.tau, Math.abs(beside - this.tau));
  }

  etaText() {
    return String(Number(this.eta.toPrecision(5))).replace("-", "−");
  }

  /**
   * @param {Counts} counts
   * @returns {[number, number]}  FPR and TPR
   */
  rates(counts) {
    const { n, memorized } = this.scores;
    return [counts.falseAlarms / (n - memorized), counts.hits / memorized];
  }

  /** @param {Counts} counts */
  showTiles(counts) {
    const { scores } = this;
    const { bounds } = this.data;
    const close = bounds ? undecidedAt(bounds, this.tau) : 0;
    const interval = this.known ? clopperPearson(counts.flagged, scores.n) : null;
    this.flagged.show(
      `${whole(counts.flagged)} · ${percentText(counts.flagged / scores.n)}`,
      interval ? `${percentText(interval[0])} – ${percentText(interval[1])}` : "",
    );
    this.close.textContent = close > 0 ? `${whole(close)} could go either way` : "";
    if (!this.known) return;
    if (!this.settled) {
      for (const tile of [this.tpr, this.missed, this.fpr, this.precision]) tile.wait();
      return;
    }
    this.tpr.showShare(counts.hits, scores.memorized);
    this.missed.show(whole(counts.missed), countInterval(counts.missed, scores.memorized));
    this.fpr.showShare(counts.falseAlarms, scores.n - scores.memorized);
    this.precision.showShare(counts.hits, counts.flagged);
  }

  /* ------------------------------------------------------------ moving τ and η */

  /** @param {number} tau */
  move(tau) {
    if (!Number.isFinite(tau)) return;
    this.tau = tau;
    this.fitted = false;
    this.unsent.add("tau");
    this.sync();
    this.nextFrame();
  }

  /** @param {number} eta */
  moveEta(eta) {
    if (!Number.isFinite(eta)) return;
    this.eta = eta;
    this.fitted = false;
    this.unsent.add("eta");
    this.sync();
    this.redraw = true;
    this.nextFrame();
    this.withLogLira(() => this.nextFrame());
  }

  nextFrame() {
    cancelAnimationFrame(this.frame);
    this.frame = requestAnimationFrame(() => this.paint());
  }

  paint() {
    if (this.logLira !== null && !this.settled) this.judge();
    else if (this.redraw) this.draw();
    else this.moved();
    this.redraw = false;
  }

  setTraits() {
    for (const name of this.unsent) this.model.set(name, this[name]);
    this.unsent.clear();
  }

  /** @param {"tau" | "eta"} name  what came to rest */
  commit(name) {
    this.sync.cancel();
    cancelAnimationFrame(this.frame);
    this.paint();
    this.setTraits();
    this.model.set(name, this[name]);
    this.model.set(`${name}_committed`, this[name]);
    this.heard = tell(this.model);
    this.showHint();
    this.speak();
  }

  /**
   * @param {number} tau
   * @param {boolean} fitted  whether the ground truth chose it
   */
  choose(tau, fitted) {
    this.move(tau);
    this.fitted = fitted;
    this.commit("tau");
  }

  /** @param {number} eta */
  chooseEta(eta) {
    this.moveEta(eta);
    this.commit("eta");
  }

  flagShare() {
    const { share } = this.controls;
    const most = share.value === "" ? NaN : Number(share.value) / 100;
    if (!(most >= 0 && most <= 1)) return;
    this.choose(tauAtRank(this.scores, rankShareAtMost(this.scores, most)), false);
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const step = arrowStep(event.key);
    /** @type {(share: number) => number} */
    const along = (share) => {
      const place = this.axis.to(this.tau) + share * (this.histogram.high - this.histogram.low);
      return this.axis.from(Math.min(this.histogram.high, Math.max(this.histogram.low, place)));
    };
    /** @type {number | null} */
    let tau = null;
    if (step !== 0 && event.shiftKey) tau = neighbourTau(this.scores, this.tau, step);
    else if (step !== 0) tau = along(step / 200);
    else if (event.key === "PageUp") tau = along(1 / 20);
    else if (event.key === "PageDown") tau = along(-1 / 20);
    else if (event.key === "Home") tau = this.axis.from(this.histogram.low);
    else if (event.key === "End") tau = this.axis.from(this.histogram.high);
    if (tau === null) return;
    event.preventDefault();
    this.move(tau);
    this.commit("tau");
  }

  /** @param {KeyboardEvent} event */
  etaKey(event) {
    const { slider } = this.controls.eta;
    const step = arrowStep(event.key);
    const pages = { PageUp: 1, PageDown: -1 }[event.key];
    /** @type {number | null} */
    let eta = null;
    if (step !== 0 && !event.shiftKey) eta = Math.round(10 * this.eta + step) / 10;
    else if (pages) eta = this.eta + pages;
    else if (event.key === "Home") eta = Number(slider.min);
    else if (event.key === "End") eta = Number(slider.max);
    if (eta === null && step === 0) return;
    event.preventDefault();
    if (eta !== null) {
      this.chooseEta(eta);
      return;
    }
    this.withLogLira(() => {
      if (this.logLira !== null) this.chooseEta(neighbourEta(this.logLira, this.eta, step));
    });
  }

  /**
   * @param {SVGSVGElement} plot
   * @param {(x: number, y: number) => number} tauAt
   */
  dragOn(plot, tauAt) {
    /** @param {PointerEvent} event */
    const follow = (event) => {
      const corner = plot.getBoundingClientRect();
      this.move(tauAt(event.clientX - corner.left, event.clientY - corner.top));
    };
    this.ears.on(plot, "pointerdown", (event) => {
      if (event.button !== 0) return;
      event.preventDefault();
      plot.setPointerCapture(event.pointerId);
      this.controls.tau.slider.focus({ preventScroll: true }); // the other slider's blur ends a drag
      this.dragging = true;
      this.root.classList.add("mw-dragging");
      follow(event);
    });
    this.ears.on(plot, "pointermove", (event) => {
      if (this.dragging && plot.hasPointerCapture(event.pointerId)) follow(event);
    });
    const stop = () => {
      if (!this.dragging) return;
      this.dragging = false;
      this.root.classList.remove("mw-dragging");
      this.commit("tau");
    };
    this.ears.on(plot, "pointerup", stop);
    this.ears.on(plot, "pointercancel", stop);
  }

  /** Says the result once τ or η rests, for those who listen to the page. */
  speak() {
    if (!this.settled) return;
    this.spoken.textContent = this.result();
    this.describe();
  }

  /** Says what the plots show, where they can't be seen. */
  describe() {
    if (!this.settled) return;
    const text = this.result();
    this.histogram.element.setAttribute("aria-label", `Histogram of ${this.data.title}; ${text}`);
    this.roc.element.setAttribute("aria-label", `ROC curve; ${text}`);
  }

  /** The result at τ and η in words. */
  result() {
    const counts = countsAt(this.scores, this.tau);
    let text = `τ ${this.tauText()}: ${whole(counts.flagged)} of ${whole(this.scores.n)} flagged`;
    if (this.hasRoc) {
      const [fpr, tpr] = this.rates(counts);
      text += `, TPR ${rateText(tpr)}, FPR ${rateText(fpr)}`;
    }
    if (this.data.etaRange !== null) text += `; η ${this.etaText()}: ${whole(this.scores.memorized)} memorised`;
    return text;
  }

  destroy() {
    cancelAnimationFrame(this.frame);
    this.sync.cancel();
    this.ears.clear();
    this.root.remove();
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
function curveEntry(kind, name, area, interval, difference) {
  const line = svg("line", { x1: 1, x2: 27, y1: 6, y2: 6, class: kind });
  const swatch = svg("svg", { width: 28, height: 12, "aria-hidden": "true", class: "mw-curve-swatch" }, line);
  const label = html("span", { class: "mw-curve-name", title: name, dir: "auto" }, name);
  const number = html("span", { class: "mw-curve-auc" }, `${rateText(area)} (${intervalText(interval)})`);
  if (difference !== null) {
    const [by, low, high] = difference.map((x) => scoreText(x, 0.01));
    number.title = `AUC; less that of the score shown: ${by} (${low} to ${high}, DeLong's paired interval)`;
  }
  return html("li", { class: "mw-curve-entry" }, swatch, label, number);
}

export default {
  /** @param {{model: Model, el: HTMLElement}} context */
  render({ model, el }) {
    const view = new Explorer(model, el);
    return () => view.destroy();
  },
};
