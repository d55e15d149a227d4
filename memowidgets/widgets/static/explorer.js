/** The τ explorer: histogram, ROC, slider and tiles that follow τ without the kernel. */

import {
  arrowStep, bytesOf, html, listeners, onWidth, root, segments, setAttributes, svg, throttle,
} from "./dom.js";
import {
  axisTicks, barHeight, clopperPearson, countsAt, countTicks, countUpTo, decadesFor, histogram,
  intervalText, isSkewed, kneeFor, LINEAR, makeScores, percentText, rankFprAtMost,
  rankShareAtMost, rankTprAtLeast, rankYouden, ratePosition, rateText, rocPoints, scoreText,
  symmetricLog, tauAtRank, tickText, undecidedAt, whole,
} from "./maths.js";

/** @typedef {import("./dom.js").Model} Model */
/** @typedef {import("./maths.js").Scores} Scores */
/** @typedef {import("./maths.js").Counts} Counts */
/** @typedef {import("./maths.js").RocPoint} RocPoint */
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
 * The τ of the point of a drawn curve that is nearest to a place.
 * @param {RocPoint[]} points
 * @param {(point: RocPoint) => [number, number]} place
 * @param {number} x
 * @param {number} y
 */
export function nearestTau(points, place, x, y) {
  let best = Infinity;
  let tau = points[0].tau;
  for (const point of points) {
    const [px, py] = place(point);
    const distance = (px - x) ** 2 + (py - y) ** 2;
    if (distance < best) {
      best = distance;
      tau = point.tau;
    }
  }
  return tau;
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

const TILES = [
  ["flagged", "flagged"],
  ["tpr", "TPR"],
  ["fpr", "FPR"],
  ["precision", "precision"],
  ["auc", "AUC"],
];

const TILE_HELP = {
  flagged: "samples with a score of at most τ",
  tpr: "share of the memorised samples that are flagged; exact 95 % interval",
  fpr: "share of the other samples that are flagged; exact 95 % interval",
  precision: "share of the flagged samples that are memorised; exact 95 % interval",
  auc: "area under the ROC; DeLong 95 % interval",
};

let instances = 0;

/** One view of the explorer. */
class Explorer {
  /**
   * @param {Model} model
   * @param {HTMLElement} el
   */
  constructor(model, el) {
    this.model = model;
    this.id = `mw${(instances += 1)}-${Date.now().toString(36)}`;
    this.ears = listeners(model);
    this.root = root(el, "explorer", "Threshold explorer");
    this.tau = model.get("tau");
    this.dragging = false;
    this.countScale = "sqrt";
    this.scoreScale = "";
    /** @type {Axis} */
    this.axis = LINEAR;
    this.rocScale = "linear";
    this.fitted = false;
    this.typing = false;
    this.frame = 0;
    this.width = 0;
    this.sync = throttle(() => {
      model.set("tau", this.tau);
      model.save_changes();
    }, 80);
    this.build();
    this.load();
    this.ears.onModel("change:_data", () => this.load());
    this.ears.onModel("change:_dimmed", () => this.dim());
    this.ears.onModel("change:tau", () => {
      const tau = model.get("tau");
      if (this.dragging || tau === this.tau) return;
      this.fitted = false;
      this.tau = tau;
      this.moved();
    });
    this.size = onWidth(this.root, (width) => this.layout(width));
    this.ears.later(this.size.stop);
    this.dim();
  }

  /* ------------------------------------------------------------ what stays */

  build() {
    this.plots = html("div", { class: "mw-plots" });
    this.histogram = svg("svg", { class: "mw-histogram", role: "img" });
    this.roc = svg("svg", { class: "mw-roc", role: "img" });
    this.noRoc = html("p", { class: "mw-empty", hidden: true });
    this.rocBox = html("div", { class: "mw-roc-box" }, this.roc, this.noRoc);
    this.legend = html("div", { class: "mw-legend" });
    const left = html("div", { class: "mw-histogram-box" }, this.legend, this.histogram);
    this.tiles = html("div", { class: "mw-tiles", role: "group", "aria-label": "Results at τ" });
    /** @type {Record<string, {box: HTMLElement, value: HTMLElement, detail: HTMLElement}>} */
    this.tile = {};
    for (const [name, label] of TILES) {
      const value = html("div", { class: "mw-tile-value" });
      const detail = html("div", { class: "mw-tile-detail" });
      const title = TILE_HELP[/** @type {keyof typeof TILE_HELP} */ (name)];
      const box = html("div", { class: `mw-tile mw-tile-${name}`, title });
      box.append(html("div", { class: "mw-tile-name" }, label), value, detail);
      this.tile[name] = { box, value, detail };
      this.tiles.append(box);
    }
    this.plots.append(left, this.rocBox, this.tiles);
    this.spoken = html("p", { class: "mw-spoken", role: "status" });
    this.root.append(this.plots, this.buildControls(), this.spoken);
    this.dragOn(this.histogram, (x) => this.tauAtX(x));
    this.dragOn(this.roc, (x, y) => this.tauOnRoc(x, y));
  }

  buildControls() {
    this.slider = html("input", { type: "range", class: "mw-slider", step: "any" });
    setAttributes(this.slider, {
      "aria-label": "threshold τ",
      title: "Arrow keys move τ; with Shift, to the next score",
    });
    this.field = html("input", { type: "text", inputmode: "decimal", class: "mw-field" });
    setAttributes(this.field, { "aria-label": "τ", spellcheck: false, autocomplete: "off" });
    this.presets = html("div", { class: "mw-presets", role: "group", "aria-label": "Ways to choose τ" });
    this.share = html("input", { type: "number", min: 0, max: 100, step: "any", value: 5 });
    setAttributes(this.share, { class: "mw-share", "aria-label": "share to flag, per cent" });
    this.top = html("button", { type: "button", class: "mw-button" }, "flag");
    this.top.title = "highest τ that flags at most this share of the samples";
    this.hint = html("p", { class: "mw-hint" });
    this.scales = html("div", { class: "mw-scales" });
    const counts = segments("Scale of the counts", SCALES, (value) => {
      this.countScale = value;
      this.draw();
    });
    counts.show(this.countScale);
    this.scoreScales = segments("Scale of the scores", SCORE_SCALES, (value) => {
      this.scoreScale = value;
      this.chooseAxis();
      this.draw();
    });
    const rates = segments("Scale of the ROC", ROC_SCALES, (value) => {
      this.rocScale = value;
      this.draw();
    });
    rates.show(this.rocScale);
    this.rocScales = html("span", { class: "mw-labelled" }, "ROC", rates.group);
    this.scales.append(
      html("span", { class: "mw-labelled" }, "scores", this.scoreScales.group),
      html("span", { class: "mw-labelled" }, "counts", counts.group),
      this.rocScales,
    );
    this.ears.on(this.slider, "input", () => this.move(this.axis.from(Number(this.slider.value))));
    this.ears.on(this.slider, "change", () => this.commit());
    this.ears.on(this.slider, "keydown", (event) => this.key(event));
    this.ears.on(this.field, "input", () => (this.typing = true));
    this.ears.on(this.field, "blur", () => this.typed());
    this.ears.on(this.field, "keydown", (event) => {
      if (event.key === "Enter") this.typed();
      if (event.key !== "ArrowUp" && event.key !== "ArrowDown") return;
      this.key(event);
    });
    const flagShare = () => {
      const share = Number(this.share.value) / 100;
      if (!(share >= 0 && share <= 1) || this.share.value === "") return;
      this.choose(tauAtRank(this.data.scores, rankShareAtMost(this.data.scores, share)), false);
    };
    this.ears.on(this.top, "click", flagShare);
    this.ears.on(this.share, "keydown", (event) => {
      if (event.key === "Enter") flagShare();
    });
    const most = html("span", { class: "mw-joined" }, this.top, this.share);
    most.append(html("span", { class: "mw-unit" }, "% most at risk"));
    const name = html("span", { class: "mw-tau-name", "aria-hidden": "true" }, "τ");
    const first = html("div", { class: "mw-row mw-tau-row" }, name, this.slider, this.field);
    const second = html("div", { class: "mw-row" }, this.presets, most, this.scales);
    return html("div", { class: "mw-controls" }, first, second, this.hint);
  }

  /* ------------------------------------------------------------ what the kernel sends */

  load() {
    const wire = this.model.get("_data");
    this.root.hidden = !wire.values;
    if (!wire.values) return;
    this.data = unpack(wire);
    const { scores } = this.data;
    const known = scores.hitsUpTo !== null;
    this.known = known;
    this.hasRoc = known && scores.memorized > 0 && scores.memorized < scores.n;
    this.tau = this.dragging ? this.tau : this.model.get("tau");
    this.fitted = false;
    this.root.classList.toggle("mw-without-truth", !known);
    this.presets.replaceChildren();
    for (const preset of presets(this.hasRoc)) {
      const button = html("button", { type: "button", class: "mw-button" }, preset.label);
      button.title = preset.title;
      button.addEventListener("click", () => this.choose(preset.tau(scores), preset.fitted));
      this.presets.append(button);
    }
    setAttributes(this.rocBox, { hidden: !known });
    setAttributes(this.roc, { hidden: !this.hasRoc });
    setAttributes(this.rocScales, { hidden: !this.hasRoc });
    this.noRoc.hidden = this.hasRoc;
    this.noRoc.textContent = scores.memorized === 0
      ? "None of these samples is memorised: there is no ROC to draw."
      : "All of these samples are memorised: there is no ROC to draw.";
    for (const name of ["tpr", "fpr", "precision"]) this.tile[name].box.hidden = !known;
    this.tile.auc.box.hidden = this.data.auc === null;
    if (this.data.auc !== null) {
      const [auc, low, high] = this.data.auc;
      this.tile.auc.value.textContent = rateText(auc);
      this.tile.auc.detail.textContent = Number.isFinite(low) ? intervalText([low, high]) : "";
    }
    this.drawLegend();
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

  drawLegend() {
    const { scores } = this.data;
    /** @type {(kind: string, text: string) => HTMLElement} */
    const entry = (kind, text) => {
      const swatch = html("span", { class: `mw-swatch mw-swatch-${kind}`, "aria-hidden": "true" });
      return html("span", { class: "mw-legend-entry" }, swatch, text);
    };
    const entries = [];
    if (this.known) {
      const reason = this.data.truth ? ` (${this.data.truth})` : "";
      entries.push(entry("memorized", `memorised${reason} · ${whole(scores.memorized)}`));
      entries.push(entry("other", `others · ${whole(scores.n - scores.memorized)}`));
    } else {
      entries.push(entry("other", `samples · ${whole(scores.n)}`));
    }
    this.legend.replaceChildren(...entries);
  }

  dim() {
    this.root.classList.toggle("mw-dimmed", this.model.get("_dimmed"));
  }

  /* ------------------------------------------------------------ drawing */

  /** @param {number} width */
  layout(width) {
    this.width = width;
    this.root.classList.toggle("mw-narrow", width < 640);
    this.root.classList.toggle("mw-wide", width >= 980);
    this.draw();
  }

  draw() {
    if (this.width === 0 || !this.data) return;
    if (this.histogram.clientWidth === 0) {
      this.size.again();
      return;
    }
    this.drawHistogram();
    if (this.hasRoc) this.drawRoc();
    this.moved();
  }

  drawHistogram() {
    const { scores, title } = this.data;
    const box = frameOf(this.histogram, { left: 46, right: 14, top: 30, bottom: 40 });
    const { axis } = this;
    const bins = histogram(scores, Math.min(90, Math.max(24, box.width / 9)), axis);
    const count = bins.others.length;
    const { low, high, start } = bins;
    Object.assign(this, { low, high });
    const xAt = (/** @type {number} */ place) => box.left + ((place - low) / (high - low)) * box.width;
    this.xOf = (/** @type {number} */ score) => xAt(Math.min(high, Math.max(low, axis.to(score))));
    this.tauAtX = (/** @type {number} */ x) => {
      const share = Math.min(1, Math.max(0, (x - box.left) / box.width));
      return axis.from(low + share * (high - low));
    };
    let most = 0;
    for (let i = 0; i < count; i++) most = Math.max(most, bins.others[i], bins.memorized[i]);
    const yOf = (/** @type {number} */ n) =>
      box.bottom - barHeight(n, most, this.countScale) * box.height;
    /** @type {(kind: Float64Array) => string} */
    const bars = (kind) => {
      let path = "";
      for (let i = 0; i < count; i++) {
        if (kind[i] === 0) continue;
        const left = xAt(start + i * bins.width) + 0.5;
        const wide = Math.max(0.5, xAt(start + (i + 1) * bins.width) - 0.5 - left);
        const top = Math.min(box.bottom - 1.5, yOf(kind[i]));
        path += `M${left.toFixed(2)} ${box.bottom}V${top.toFixed(2)}h${wide.toFixed(2)}V${box.bottom}z`;
      }
      return path;
    };
    const others = bars(bins.others);
    const memorized = bars(bins.memorized);
    const flaggedClip = svg("rect", { x: 0, y: 0, width: 0, height: box.bottom });
    const clearClip = svg("rect", { x: 0, y: 0, width: this.width, height: box.bottom });
    const defs = svg("defs", {},
      svg("clipPath", { id: `${this.id}-flagged` }, flaggedClip),
      svg("clipPath", { id: `${this.id}-clear` }, clearClip),
      hatch(`${this.id}-hatch`),
    );
    /** @type {(side: string) => SVGElement} */
    const half = (side) => svg("g", { "clip-path": `url(#${this.id}-${side})`, class: `mw-half-${side}` },
      svg("path", { d: others, class: "mw-bars-other" }),
      svg("path", { d: memorized, class: "mw-bars-memorized" }),
      svg("path", { d: memorized, fill: `url(#${this.id}-hatch)` }),
    );
    const region = svg("rect", { x: box.left, y: box.top, width: 0, height: box.height });
    region.setAttribute("class", "mw-region");
    const regionText = svg("text", { x: box.left + 8, y: box.top + 17, class: "mw-region-text" }, "flagged");
    const line = svg("g", { class: "mw-tau" },
      svg("line", { y1: box.top - 10, y2: box.bottom, class: "mw-tau-line" }),
      svg("circle", { cy: box.top - 12, r: 7, class: "mw-tau-knob" }),
    );
    const lineText = svg("text", { y: box.top - 7, class: "mw-tau-text" });
    const lines = svg("g", { class: "mw-axis" });
    const apart = ((high - low) / box.width) * (axis === LINEAR ? 90 : 54);
    for (const tick of axisTicks(axis, low, high, apart)) {
      const x = this.xOf(tick);
      lines.append(svg("line", { x1: x, x2: x, y1: box.bottom, y2: box.bottom + 4 }));
      lines.append(svg("text", { x, y: box.bottom + 17, "text-anchor": "middle" }, tickText(tick)));
    }
    for (const tick of countTicks(most, this.countScale)) {
      const y = yOf(tick);
      lines.append(svg("line", { x1: box.left, x2: box.right, y1: y, y2: y, class: "mw-grid" }));
      lines.append(svg("text", { x: box.left - 6, y: y + 4, "text-anchor": "end" }, whole(tick)));
    }
    lines.append(svg("line", { x1: box.left, x2: box.right, y1: box.bottom, y2: box.bottom }));
    const middle = (box.left + box.right) / 2;
    const name = svg("text", { x: middle, y: box.bottom + 35, class: "mw-axis-title" });
    name.textContent = `${title} (low = at risk)`;
    const scale = this.countScale === "sqrt" ? "samples (√ scale)" : this.countScale === "log" ? "samples (log scale)" : "samples";
    const side = svg("text", { class: "mw-axis-title", transform: `translate(11 ${(box.top + box.bottom) / 2}) rotate(-90)` }, scale);
    this.histogram.replaceChildren(
      defs, region, lines, half("flagged"), half("clear"), regionText, name, side, line, lineText,
    );
    this.moving = { box, flaggedClip, clearClip, region, regionText, line, lineText };
    setAttributes(this.slider, { min: low, max: high });
  }

  drawRoc() {
    const { scores, band } = this.data;
    const box = frameOf(this.roc, { left: 42, right: 12, top: 30, bottom: 40 });
    const log = this.rocScale === "log";
    const xDecades = log ? decadesFor(scores.n - scores.memorized) : 0;
    const yDecades = log ? decadesFor(scores.memorized) : 0;
    const x = (/** @type {number} */ fpr) => box.left + ratePosition(fpr, xDecades) * box.width;
    const y = (/** @type {number} */ tpr) => box.bottom - ratePosition(tpr, yDecades) * box.height;
    this.points = rocPoints(scores, x, y);
    this.place = (/** @type {{fpr: number, tpr: number}} */ point) =>
      /** @type {[number, number]} */ ([x(point.fpr), y(point.tpr)]);
    this.tauOnRoc = (/** @type {number} */ px, /** @type {number} */ py) =>
      nearestTau(this.points, this.place, px, py);
    const axis = svg("g", { class: "mw-axis" });
    for (const tick of log ? logTicks(xDecades) : [0, 0.25, 0.5, 0.75, 1]) {
      axis.append(svg("line", { x1: x(tick), x2: x(tick), y1: box.top, y2: box.bottom, class: "mw-grid" }));
      axis.append(svg("text", { x: x(tick), y: box.bottom + 17, "text-anchor": "middle" }, String(tick)));
    }
    for (const tick of log ? logTicks(yDecades) : [0, 0.25, 0.5, 0.75, 1]) {
      axis.append(svg("line", { x1: box.left, x2: box.right, y1: y(tick), y2: y(tick), class: "mw-grid" }));
      axis.append(svg("text", { x: box.left - 7, y: y(tick) + 4, "text-anchor": "end" }, String(tick)));
    }
    const middle = (box.left + box.right) / 2;
    axis.append(svg("text", { x: middle, y: box.bottom + 35, class: "mw-axis-title" }, "FPR"));
    axis.append(svg("text", { x: box.left - 30, y: box.top - 11, class: "mw-axis-corner" }, "TPR"));
    const chance = svg("path", { d: chancePath(x, y, log), class: "mw-chance" });
    const curve = svg("path", { d: linePath(this.points.map(this.place)), class: "mw-curve" });
    const point = svg("circle", { r: 7, class: "mw-point" });
    const pointText = svg("text", { class: "mw-point-text" });
    this.roc.replaceChildren(axis, chance);
    if (band !== null) this.roc.append(svg("path", { d: bandPath(band, x, y), class: "mw-band" }));
    this.roc.append(curve, point, pointText);
    this.movingPoint = { box, point, pointText };
  }

  /* ------------------------------------------------------------ following τ */

  /** Moves what depends on τ; everything else stays as it is drawn. */
  moved() {
    if (!this.moving) return;
    const counts = countsAt(this.data.scores, this.tau);
    this.moveLine();
    this.showTiles(counts);
    if (this.hasRoc) this.movePoint(counts);
    const text = this.tauText();
    const place = this.axis.to(this.tau);
    if (Math.abs(Number(this.slider.value) - place) > 1e-12) this.slider.value = String(place);
    this.slider.setAttribute("aria-valuetext", `${text}, ${whole(counts.flagged)} samples flagged`);
    if (!this.typing) this.field.value = text;
    this.showHint();
    this.root.dataset.tau = String(this.tau);
    this.root.dataset.counts = JSON.stringify(counts);
  }

  tauText() {
    const here = this.axis.to(this.tau);
    return scoreText(this.tau, Math.abs(this.axis.from(here + (this.high - this.low) / 100) - this.tau));
  }

  moveLine() {
    const { box, flaggedClip, clearClip, region, regionText, line, lineText } = this.moving;
    const x = this.xOf(this.tau);
    const place = this.axis.to(this.tau);
    flaggedClip.setAttribute("width", String(x));
    clearClip.setAttribute("x", String(x));
    region.setAttribute("width", String(Math.max(0, x - box.left)));
    regionText.style.visibility = x - box.left > 66 ? "visible" : "hidden";
    line.setAttribute("transform", `translate(${x} 0)`);
    const rightward = x < box.right - 110;
    const beyond = place > this.high ? " →" : place < this.low ? "← " : "";
    const text = `τ = ${this.tauText()}`;
    lineText.textContent = beyond === "← " ? beyond + text : text + beyond;
    setAttributes(lineText, {
      x: x + (rightward ? 13 : -13),
      "text-anchor": rightward ? "start" : "end",
    });
  }

  /** @param {Counts} counts */
  movePoint(counts) {
    const { box, point, pointText } = this.movingPoint;
    const { tpr, fpr } = this.rates(counts);
    const [x, y] = this.place({ fpr, tpr });
    setAttributes(point, { cx: x, cy: y });
    const below = y < box.bottom - 34;
    const rightward = x < box.right - 150;
    setAttributes(pointText, {
      x: x + (rightward ? 12 : -12),
      y: below ? y + 20 : y - 12,
      "text-anchor": rightward ? "start" : "end",
    });
    pointText.textContent = `TPR ${rateText(tpr)} at FPR ${rateText(fpr)}`;
  }

  /** @param {Counts} counts */
  rates(counts) {
    const { scores } = this.data;
    return {
      tpr: counts.hits / scores.memorized,
      fpr: counts.falseAlarms / (scores.n - scores.memorized),
    };
  }

  /** @param {Counts} counts */
  showTiles(counts) {
    const { scores, lows, highs } = this.data;
    const { flagged, tpr, fpr, precision } = this.tile;
    flagged.value.textContent = `${whole(counts.flagged)} · ${percentText(counts.flagged / scores.n)}`;
    const close = lows && highs ? undecidedAt(lows, highs, this.tau) : 0;
    flagged.detail.textContent = close > 0 ? `${whole(close)} could go either way` : "";
    flagged.detail.title = "their score and τ are less than two standard errors apart";
    if (!this.known) return;
    /** @type {(tile: {value: HTMLElement, detail: HTMLElement}, k: number, n: number) => void} */
    const show = (tile, k, n) => {
      tile.value.textContent = n > 0 ? rateText(k / n) : "–";
      tile.detail.textContent = intervalText(clopperPearson(k, n));
    };
    show(tpr, counts.hits, scores.memorized);
    show(fpr, counts.falseAlarms, scores.n - scores.memorized);
    show(precision, counts.hits, counts.flagged);
  }

  showHint() {
    const remarks = [...this.data.remarks];
    if (this.fitted) remarks.unshift(OPTIMISTIC);
    this.hint.textContent = remarks.join(" ");
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
    this.model.save_changes();
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

  typed() {
    this.typing = false;
    const text = this.field.value.trim().replace("−", "-").replace(",", ".");
    const tau = text === "" ? NaN : Number(text);
    const shown = this.field.value === this.tauText();
    if (Number.isFinite(tau) && !shown) this.choose(tau, false);
    else this.field.value = this.tauText();
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const step = arrowStep(event.key);
    /** @type {(share: number) => number} */
    const along = (share) => {
      const place = this.axis.to(this.tau) + share * (this.high - this.low);
      return this.axis.from(Math.min(this.high, Math.max(this.low, place)));
    };
    /** @type {number | null} */
    let tau = null;
    if (step !== 0 && event.shiftKey) tau = neighbourTau(this.data.scores, this.tau, step);
    else if (step !== 0) tau = along(step / 200);
    else if (event.key === "PageUp") tau = along(1 / 20);
    else if (event.key === "PageDown") tau = along(-1 / 20);
    else if (event.key === "Home") tau = this.axis.from(this.low);
    else if (event.key === "End") tau = this.axis.from(this.high);
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
      this.slider.focus({ preventScroll: true });
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
      const { tpr, fpr } = this.rates(counts);
      text += `, TPR ${rateText(tpr)}, FPR ${rateText(fpr)}`;
    }
    this.spoken.textContent = text;
    this.histogram.setAttribute("aria-label", `Histogram of ${this.data.title}; ${text}`);
    this.roc.setAttribute("aria-label", `ROC curve; ${text}`);
  }

  destroy() {
    cancelAnimationFrame(this.frame);
    this.sync.cancel();
    this.ears.clear();
    this.root.remove();
  }
}

const SCALES = [
  { value: "linear", label: "linear" },
  { value: "sqrt", label: "√" },
  { value: "log", label: "log" },
];
const SCORE_SCALES = [
  { value: "linear", label: "linear" },
  { value: "log", label: "±log" },
];
const ROC_SCALES = [
  { value: "linear", label: "linear" },
  { value: "log", label: "log-log" },
];

/**
 * The inner rectangle of a plot, and the plot's own coordinates set to pixels.
 * @param {SVGSVGElement} plot
 * @param {{left: number, right: number, top: number, bottom: number}} margin
 */
function frameOf(plot, margin) {
  const width = Math.max(160, plot.clientWidth || plot.getBoundingClientRect().width);
  const height = Math.max(140, plot.clientHeight || plot.getBoundingClientRect().height);
  plot.setAttribute("viewBox", `0 0 ${width} ${height}`);
  return {
    left: margin.left,
    top: margin.top,
    right: width - margin.right,
    bottom: height - margin.bottom,
    width: width - margin.left - margin.right,
    height: height - margin.top - margin.bottom,
  };
}

/** @param {string} id */
function hatch(id) {
  const pattern = svg("pattern", { id, width: 5, height: 5, patternUnits: "userSpaceOnUse" });
  setAttributes(pattern, { patternTransform: "rotate(45)" });
  pattern.append(svg("line", { x1: 0, x2: 0, y1: 0, y2: 5, class: "mw-hatch" }));
  return pattern;
}

/** @param {number} decades */
function logTicks(decades) {
  const found = [];
  for (let i = decades; i >= 0; i--) found.push(Number((10 ** -i).toPrecision(3)));
  return found;
}

/** @param {[number, number][]} places */
function linePath(places) {
  return places.map(([x, y], i) => `${i === 0 ? "M" : "L"}${x.toFixed(2)} ${y.toFixed(2)}`).join("");
}

/**
 * @param {(fpr: number) => number} x
 * @param {(tpr: number) => number} y
 * @param {boolean} log
 */
function chancePath(x, y, log) {
  /** @type {[number, number][]} */
  const places = [];
  for (let i = 0; i <= 40; i++) {
    const rate = log ? 10 ** ((i - 40) / 8) : i / 40;
    places.push([x(rate), y(rate)]);
  }
  return linePath(places);
}

/**
 * @param {Float32Array} band
 * @param {(fpr: number) => number} x
 * @param {(tpr: number) => number} y
 */
function bandPath(band, x, y) {
  const count = band.length / 3;
  /** @type {[number, number][]} */
  const places = [];
  for (let i = 0; i < count; i++) places.push([x(band[i]), y(band[2 * count + i])]);
  for (let i = count - 1; i >= 0; i--) places.push([x(band[i]), y(band[count + i])]);
  return `${linePath(places)}z`;
}

export default {
  /** @param {{model: Model, el: HTMLElement}} context */
  render({ model, el }) {
    const view = new Explorer(model, el);
    return () => view.destroy();
  },
};
