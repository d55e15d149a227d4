/** The τ explorer: histogram, ROC, slider and tiles that follow τ without the kernel. */

import {
  arrowStep, bytesOf, html, KERNEL_GONE, listeners, onWidth, root, segments, setAttributes, tell,
  throttle,
} from "./dom.js";
import {
  clopperPearson, countsAt, countUpTo, intervalText, isSkewed, kneeFor, LINEAR, makeScores,
  percentText, rankFprAtMost, rankShareAtMost, rankTprAtLeast, rankYouden, rateText, scoreText,
  symmetricLog, tauAtRank, undecidedAt, whole,
} from "./maths.js";
import { HistogramPlot, RocPlot } from "./plots.js";

/** @typedef {import("./dom.js").Model} Model */
/** @typedef {import("./maths.js").Scores} Scores */
/** @typedef {import("./maths.js").Counts} Counts */
/** @typedef {import("./maths.js").Axis} Axis */

/**
 * What the kernel sends, unpacked.
 * @typedef {object} Data
 * @property {Scores} scores
 * @property {string} title
 * @property {number[] | null} auc  AUC and its interval; null where it is undefined
 * @property {string} truth  what counts as memorised; "" without ground truth
 * @property {string[]} remarks
 * @property {Float32Array | null} band  fpr, low, high, one after the other
 * @property {Float32Array | null} lows
 * @property {Float32Array | null} highs
 */

/**
 * @param {any} wire
 * @returns {Data}
 */
export function unpack(wire) {
  const values = wire.wide
    ? new Float64Array(bytesOf(wire.values))
    : new Float32Array(bytesOf(wire.values));
  const floats = (/** @type {any} */ part) => (part ? new Float32Array(bytesOf(part)) : null);
  const ties = new Uint32Array(bytesOf(wire.ties));
  const memorized = wire.bits
    ? unpackBits(new Uint8Array(bytesOf(wire.bits)), values.length)
    : null;
  const counts = ties.length > 0 ? new Uint32Array(values.length).fill(1) : null;
  for (let i = 0; i < ties.length; i += 3) {
    if (counts !== null) counts[ties[i]] = ties[i + 1];
    if (memorized !== null) memorized[ties[i]] = ties[i + 2];
  }
  return {
    scores: makeScores(values, counts, memorized),
    title: wire.title,
    auc: wire.auc,
    truth: wire.truth,
    remarks: wire.remarks,
    band: floats(wire.band),
    lows: floats(wire.lows),
    highs: floats(wire.highs),
  };
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

/** What is shown before anything is: one score, hidden. */
const NOTHING = {
  values: new Float32Array(1),
  wide: false,
  bits: null,
  ties: new Uint32Array(0),
  title: "",
  auc: null,
  truth: "",
  remarks: [],
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

  /**
   * A share of n with its exact interval.
   * @param {number} k
   * @param {number} n
   */
  showShare(k, n) {
    this.show(n > 0 ? rateText(k / n) : "–", intervalText(clopperPearson(k, n)));
  }
}

/** Slider, number field, presets and scales: what moves τ without the plots. */
class Controls {
  constructor() {
    this.slider = html("input", { type: "range", class: "mw-slider", step: "any" });
    setAttributes(this.slider, {
      "aria-label": "threshold τ",
      title: "Arrow keys move τ; with Shift, to the next score",
    });
    this.field = html("input", { type: "text", inputmode: "decimal", class: "mw-field" });
    setAttributes(this.field, { "aria-label": "τ", spellcheck: "false", autocomplete: "off" });
    this.presets = html("div", { class: "mw-presets", role: "group", "aria-label": "Ways to choose τ" });
    this.share = html("input", { type: "number", min: 0, max: 100, step: "any", value: 5 });
    setAttributes(this.share, { class: "mw-share", "aria-label": "share to flag, per cent" });
    const help = "highest τ that flags at most this share of the samples";
    this.flag = html("button", { type: "button", class: "mw-button", title: help }, "flag");
    this.scales = html("div", { class: "mw-scales" });
    this.hint = html("p", { class: "mw-hint" });
    const unit = html("span", { class: "mw-unit" }, "% most at risk");
    const most = html("span", { class: "mw-joined" }, this.flag, this.share, unit);
    const name = html("span", { class: "mw-tau-name", "aria-hidden": "true" }, "τ");
    const first = html("div", { class: "mw-row mw-tau-row" }, name, this.slider, this.field);
    const second = html("div", { class: "mw-row" }, this.presets, most, this.scales);
    this.element = html("div", { class: "mw-controls" }, first, second, this.hint);
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
    this.data = unpack(NOTHING);
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
    this.sync = throttle(() => {
      model.set("tau", this.tau);
      model.save_changes();
    }, 80);

    this.root = root(el, "explorer", "Threshold explorer");
    this.histogram = new HistogramPlot();
    this.roc = new RocPlot();
    this.noRoc = html("p", { class: "mw-empty", hidden: true });
    this.rocBox = html("div", { class: "mw-roc-box" }, this.roc.element, this.noRoc);
    this.legend = html("div", { class: "mw-legend" });
    this.flagged = new Tile("flagged", "flagged", "samples with a score of at most τ");
    this.tpr = new Tile("tpr", "TPR", "share of the memorised samples that are flagged; exact 95 % interval");
    this.fpr = new Tile("fpr", "FPR", "share of the other samples that are flagged; exact 95 % interval");
    this.precision = new Tile("precision", "precision", "share of the flagged samples that are memorised; exact 95 % interval");
    this.auc = new Tile("auc", "AUC", "area under the ROC; DeLong 95 % interval");
    this.flagged.detail.title = "their score and τ are less than two standard errors apart";
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
    for (const tile of [this.flagged, this.tpr, this.fpr, this.precision, this.auc]) {
      tiles.append(tile.element);
    }
    const left = html("div", { class: "mw-histogram-box" }, this.legend, this.histogram.element);
    const plots = html("div", { class: "mw-plots" }, left, this.rocBox, tiles);
    this.controls.scales.append(
      html("span", { class: "mw-labelled" }, "scores", this.scoreScales.group),
      html("span", { class: "mw-labelled" }, "counts", this.countScales.group),
      this.rocScalesBox,
    );
    this.countScales.show(this.countScale);
    this.rocScales.show(this.rocScale);
    this.root.append(plots, this.controls.element, this.spoken);
  }

  listen() {
    const { slider, field, flag, share } = this.controls;
    this.ears.onModel("change:_data", () => this.load());
    this.ears.onModel("change:_dimmed", () => this.dim());
    this.ears.onModel("change:tau", () => this.hear());
    this.dragOn(this.histogram.element, (x) => this.histogram.tauAt(x));
    this.dragOn(this.roc.element, (x, y) => this.roc.tauAt(x, y));
    this.ears.on(slider, "input", () => this.move(this.axis.from(Number(slider.value))));
    this.ears.on(slider, "change", () => this.commit());
    this.ears.on(slider, "keydown", (event) => this.key(event));
    this.ears.on(field, "input", () => (this.typing = true));
    this.ears.on(field, "change", () => this.typed());
    this.ears.on(field, "blur", () => this.typed());
    this.ears.on(field, "keydown", (event) => {
      if (event.key === "Enter") this.typed();
      if (event.key === "ArrowUp" || event.key === "ArrowDown") this.key(event);
    });
    this.ears.on(flag, "click", () => this.flagShare());
    this.ears.on(share, "keydown", (event) => {
      if (event.key === "Enter") this.flagShare();
    });
  }

  /** A τ that Python set; while the user drags, the user is right. */
  hear() {
    const tau = this.model.get("tau");
    if (this.dragging || tau === this.tau) return;
    this.fitted = false;
    this.tau = tau;
    this.moved();
  }

  get known() {
    return this.data.scores.hitsUpTo !== null;
  }

  get hasRoc() {
    const { memorized, n } = this.data.scores;
    return this.known && memorized > 0 && memorized < n;
  }

  /* ------------------------------------------------------------ what the kernel sends */

  load() {
    const wire = this.model.get("_data");
    this.root.hidden = !wire.values;
    if (!wire.values) return;
    this.data = unpack(wire);
    if (!this.dragging) this.tau = this.model.get("tau");
    this.fitted = false;
    this.showParts();
    this.showAuc();
    this.showLegend();
    this.showPresets();
    this.chooseAxis();
    this.draw();
  }

  /** Hides what needs a truth that is not known. */
  showParts() {
    const { known, hasRoc } = this;
    this.root.classList.toggle("mw-without-truth", !known);
    this.rocBox.hidden = !known;
    setAttributes(this.roc.element, { hidden: !hasRoc });
    this.rocScalesBox.hidden = !hasRoc;
    this.noRoc.hidden = hasRoc;
    const which = this.data.scores.memorized === 0 ? "None" : "All";
    this.noRoc.textContent = `${which} of these samples ${which === "None" ? "is" : "are"} memorised: there is no ROC to draw.`;
    for (const tile of [this.tpr, this.fpr, this.precision]) tile.element.hidden = !known;
  }

  showAuc() {
    const { auc } = this.data;
    this.auc.element.hidden = auc === null;
    if (auc === null) return;
    const [area, low, high] = auc;
    this.auc.show(rateText(area), Number.isFinite(low) ? intervalText([low, high]) : "");
  }

  showLegend() {
    const { scores, truth } = this.data;
    /** @type {(kind: string, text: string) => HTMLElement} */
    const entry = (kind, text) => {
      const swatch = html("span", { class: `mw-swatch mw-swatch-${kind}`, "aria-hidden": "true" });
      return html("span", { class: "mw-legend-entry" }, swatch, text);
    };
    const reason = truth ? ` (${truth})` : "";
    const entries = this.known
      ? [
          entry("memorized", `memorised${reason} · ${whole(scores.memorized)}`),
          entry("other", `others · ${whole(scores.n - scores.memorized)}`),
        ]
      : [entry("other", `samples · ${whole(scores.n)}`)];
    this.legend.replaceChildren(...entries);
  }

  showPresets() {
    const buttons = presets(this.hasRoc).map((preset) => {
      const button = html("button", { type: "button", class: "mw-button", title: preset.title }, preset.label);
      button.addEventListener("click", () => this.choose(preset.tau(this.data.scores), preset.fitted));
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
    const { scores } = this.data;
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
    const { scores, title, band } = this.data;
    this.histogram.draw(scores, this.axis, this.countScale, title);
    if (this.hasRoc) this.roc.draw(scores, band, this.rocScale === "log");
    setAttributes(this.controls.slider, { min: this.histogram.low, max: this.histogram.high });
    this.moved();
  }

  /** Moves what depends on τ; everything else stays as it is drawn. */
  moved() {
    const { slider, field } = this.controls;
    const counts = countsAt(this.data.scores, this.tau);
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
    this.root.dataset.counts = JSON.stringify(counts);
  }

  showHint() {
    const hints = [...this.data.remarks];
    if (this.fitted) hints.unshift(OPTIMISTIC);
    if (!this.heard) hints.unshift(KERNEL_GONE);
    this.controls.hint.textContent = hints.join(" ");
  }

  tauText() {
    const { low, high } = this.histogram;
    const beside = this.axis.from(this.axis.to(this.tau) + (high - low) / 100);
    return scoreText(this.tau, Math.abs(beside - this.tau));
  }

  /**
   * @param {Counts} counts
   * @returns {[number, number]}  FPR and TPR
   */
  rates(counts) {
    const { n, memorized } = this.data.scores;
    return [counts.falseAlarms / (n - memorized), counts.hits / memorized];
  }

  /** @param {Counts} counts */
  showTiles(counts) {
    const { scores, lows, highs } = this.data;
    const close = lows && highs ? undecidedAt(lows, highs, this.tau) : 0;
    this.flagged.show(
      `${whole(counts.flagged)} · ${percentText(counts.flagged / scores.n)}`,
      close > 0 ? `${whole(close)} could go either way` : "",
    );
    if (!this.known) return;
    this.tpr.showShare(counts.hits, scores.memorized);
    this.fpr.showShare(counts.falseAlarms, scores.n - scores.memorized);
    this.precision.showShare(counts.hits, counts.flagged);
  }

  /* ------------------------------------------------------------ moving τ */

  /** @param {number} tau */
  move(tau) {
    if (!Number.isFinite(tau)) return;
    this.tau = tau;
    this.fitted = false;
    this.sync();
    cancelAnimationFrame(this.frame);
    this.frame = requestAnimationFrame(() => this.moved());
  }

  commit() {
    this.sync.cancel();
    cancelAnimationFrame(this.frame);
    this.moved();
    this.model.set("tau", this.tau);
    this.model.set("tau_committed", this.tau);
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
    this.commit();
  }

  flagShare() {
    const { share } = this.controls;
    const most = share.value === "" ? NaN : Number(share.value) / 100;
    if (!(most >= 0 && most <= 1)) return;
    this.choose(tauAtRank(this.data.scores, rankShareAtMost(this.data.scores, most)), false);
  }

  typed() {
    this.typing = false;
    const text = this.controls.field.value.trim().replace("−", "-").replace(",", ".");
    const tau = text === "" ? NaN : Number(text);
    const shown = this.controls.field.value === this.tauText();
    if (Number.isFinite(tau) && !shown) this.choose(tau, false);
    else this.controls.field.value = this.tauText();
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
    if (step !== 0 && event.shiftKey) tau = neighbourTau(this.data.scores, this.tau, step);
    else if (step !== 0) tau = along(step / 200);
    else if (event.key === "PageUp") tau = along(1 / 20);
    else if (event.key === "PageDown") tau = along(-1 / 20);
    else if (event.key === "Home") tau = this.axis.from(this.histogram.low);
    else if (event.key === "End") tau = this.axis.from(this.histogram.high);
    if (tau === null) return;
    event.preventDefault();
    this.move(tau);
    this.commit();
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
      this.dragging = true;
      this.root.classList.add("mw-dragging");
      this.controls.slider.focus({ preventScroll: true });
      follow(event);
    });
    this.ears.on(plot, "pointermove", (event) => {
      if (this.dragging && plot.hasPointerCapture(event.pointerId)) follow(event);
    });
    const stop = () => {
      if (!this.dragging) return;
      this.dragging = false;
      this.root.classList.remove("mw-dragging");
      this.commit();
    };
    this.ears.on(plot, "pointerup", stop);
    this.ears.on(plot, "pointercancel", stop);
  }

  /** Says the result once τ rests, for those who listen to the page. */
  speak() {
    const counts = countsAt(this.data.scores, this.tau);
    let text = `τ ${this.tauText()}: ${whole(counts.flagged)} of ${whole(this.data.scores.n)} flagged`;
    if (this.hasRoc) {
      const [fpr, tpr] = this.rates(counts);
      text += `, TPR ${rateText(tpr)}, FPR ${rateText(fpr)}`;
    }
    this.spoken.textContent = text;
    this.histogram.element.setAttribute("aria-label", `Histogram of ${this.data.title}; ${text}`);
    this.roc.element.setAttribute("aria-label", `ROC curve; ${text}`);
  }

  destroy() {
    cancelAnimationFrame(this.frame);
    this.sync.cancel();
    this.ears.clear();
    this.root.remove();
  }
}

export default {
  /** @param {{model: Model, el: HTMLElement}} context */
  render({ model, el }) {
    const view = new Explorer(model, el);
    return () => view.destroy();
  },
};
