/** The two plots of the τ explorer: drawn when their data change, moved when τ does. */

import { setAttributes, svg } from "./dom.js";
import {
  axisTicks, barHeight, countTicks, decadesFor, histogram, LINEAR, ratePosition, rocPoints,
} from "./maths.js";
import { countText, rateText, tickText } from "./numbers.js";

/** @typedef {import("./maths.js").Axis} Axis */
/** @typedef {import("./maths.js").Histogram} Histogram */
/** @typedef {import("./maths.js").RocPoint} RocPoint */
/** @typedef {import("./maths.js").Scores} Scores */

/**
 * The inner rectangle of a plot, in pixels.
 * @typedef {{left: number, right: number, top: number, bottom: number, width: number, height: number}} Frame
 */

let instances = 0;

const SMALLEST_SIDE = 0.25; // of the highest bar: what a side is high at least, so that its name fits

/** The histogram of scores, with what is flagged apart from what is not. */
export class HistogramPlot {
  constructor() {
    this.element = svg("svg", { class: "mw-histogram", role: "application", tabindex: 0 });
    const id = `mw${(instances += 1)}-${Date.now().toString(36)}`;
    this.flaggedClip = svg("rect", { x: 0, y: 0 });
    this.clearClip = svg("rect", { y: 0 });
    const defs = svg("defs", {},
      svg("clipPath", { id: `${id}-flagged` }, this.flaggedClip),
      svg("clipPath", { id: `${id}-clear` }, this.clearClip),
      hatch(`${id}-hatch`),
    );
    this.flagged = new Bars(id, "flagged");
    this.clear = new Bars(id, "clear");
    this.region = svg("rect", { class: "mw-region" });
    this.regionText = svg("text", { class: "mw-region-text" }, "flagged");
    this.lines = svg("g", { class: "mw-axis" });
    this.names = svg("g");
    this.bar = svg("rect", { class: "mw-bar-mark", visibility: "hidden" });
    this.stem = svg("line", { class: "mw-tau-line" });
    this.knob = svg("circle", { r: 7, class: "mw-tau-knob" });
    this.tau = svg("g", {}, this.stem, this.knob);
    this.tauText = svg("text", { class: "mw-tau-text" });
    this.element.append(
      defs, this.region, this.lines, this.flagged.element, this.clear.element, this.bar, this.names, this.regionText,
      this.tau, this.tauText,
    );
    /** @type {Histogram | null} */
    this.bins = null;
    this.frame = emptyFrame();
    this.low = 0;
    this.high = 1;
    this.nameWidth = 0; // pixels that the names of both sides take
    /** How many samples of each bar the rule by class flags, others and memorised. @type {[Float64Array, Float64Array] | null} */
    this.inClasses = null;
    /** The bars of counts. @type {(others: Float64Array, memorized: Float64Array) => [string, string]} */
    this.paths = () => ["", ""];
    /** @type {Axis} */
    this.axis = LINEAR;
  }

  /**
   * With ground truth the bars of memorised samples go up from a common line and those of the others
   * down, so that neither covers the other. Without it all bars stand on the lower edge.
   * @param {Scores} scores
   * @param {Axis} axis
   * @param {string} countScale  "linear", "sqrt" or "log"
   * @param {string} title
   * @param {string} positives  what goes up
   */
  draw(scores, axis, countScale, title, positives) {
    const frame = frameOf(this.element, { left: 46, right: 14, top: 30, bottom: 40 });
    const bins = histogram(scores, Math.min(90, Math.max(24, frame.width / 9)), axis);
    Object.assign(this, { frame, axis, bins, low: bins.low, high: bins.high });
    const known = scores.memorizedUpTo !== null;
    const [up, down] = known ? [bins.memorized, bins.others] : [bins.others, null];
    const tops = [up, down].map((counts) => (counts === null ? 0 : Math.max(...counts)));
    const most = Math.max(...tops);
    const share = (/** @type {number} */ count) => barHeight(count, most, countScale);
    const parts = known ? tops.map((top) => Math.max(SMALLEST_SIDE, share(top))) : [1, 0];
    const pixels = frame.height / (parts[0] + parts[1]);
    const line = frame.top + parts[0] * pixels;
    const above = (/** @type {number} */ count) => line - share(count) * pixels;
    const below = (/** @type {number} */ count) => line + share(count) * pixels;
    this.paths = (others, memorized) => [
      this.barPath(bins, others, line, known ? below : above),
      known ? this.barPath(bins, memorized, line, above) : "",
    ];
    this.clear.draw(...this.paths(bins.others, bins.memorized));
    this.inClasses = null;
    this.flagged.draw(...this.paths(bins.others, bins.memorized));
    const name = countScale === "linear" ? "samples" : `samples (${countScale === "sqrt" ? "√" : "log"} scale)`;
    const levels = [...levelsOf(tops[0], most, countScale, above), ...levelsOf(tops[1], most, countScale, below)];
    this.lines.replaceChildren(
      ...this.scoreTicks(),
      ...levels.flatMap(([y, count]) => levelTick(frame, y, countText(count))),
      svg("line", { x1: frame.left, x2: frame.right, y1: frame.bottom, y2: frame.bottom }),
      svg("line", { x1: frame.left, x2: frame.right, y1: line, y2: line }),
      axisName(frame, `${title} (low = at risk)`),
      svg("text", {
        class: "mw-axis-title",
        transform: `translate(11 ${(frame.top + frame.bottom) / 2}) rotate(-90)`,
      }, name),
    );
    const side = { x: frame.right - 5, "text-anchor": "end", class: "mw-side-text" };
    this.nameWidth = known ? 26 + 7.5 * positives.length : 0;
    // a name that would cover bars is left to the legend
    /** @type {(counts: Float64Array, wide: number, reaches: (count: number) => boolean) => boolean} */
    const covers = (counts, wide, reaches) =>
      counts.some((count, i) => reaches(count) && this.x(bins.start + (i + 1) * bins.width) > frame.right - wide);
    const names = [];
    if (known && !covers(bins.memorized, this.nameWidth, (count) => above(count) < frame.top + 18)) {
      names.push(svg("text", { ...side, y: frame.top + 14 }, `↑ ${positives}`));
    }
    if (known && !covers(bins.others, 64, (count) => below(count) > frame.bottom - 20)) {
      names.push(svg("text", { ...side, y: frame.bottom - 7 }, "↓ others"));
    }
    this.names.replaceChildren(...names);
    setAttributes(this.flaggedClip, { height: frame.bottom });
    setAttributes(this.clearClip, { height: frame.bottom, width: frame.right });
    setAttributes(this.region, { x: frame.left, y: frame.top, height: frame.height });
    setAttributes(this.regionText, { x: frame.left + 8, y: known ? frame.bottom - 7 : frame.top + 17 });
    setAttributes(this.stem, { y1: frame.top - 10, y2: frame.bottom });
    setAttributes(this.knob, { cy: frame.top - 12 });
    setAttributes(this.tauText, { y: frame.top - 7 });
  }

  scoreTicks() {
    const { frame, axis } = this;
    const pixel = (this.high - this.low) / frame.width;
    const wide = axisTicks(axis, this.low, this.high, pixel * (axis === LINEAR ? 90 : 54));
    const found = wide.length > 2 ? wide : axisTicks(axis, this.low, this.high, pixel * 48);
    return found.flatMap((tick) => {
      const x = this.x(axis.to(tick));
      return [
        svg("line", { x1: x, x2: x, y1: frame.bottom, y2: frame.bottom + 4 }),
        svg("text", { x, y: frame.bottom + 17, "text-anchor": "middle" }, tickText(tick)),
      ];
    });
  }

  /**
   * All bars of one kind as one path.
   * @param {Histogram} bins
   * @param {Float64Array} counts
   * @param {number} line  where the bars begin
   * @param {(count: number) => number} end
   */
  barPath(bins, counts, line, end) {
    let path = "";
    for (let i = 0; i < counts.length; i++) {
      if (counts[i] === 0) continue;
      const left = this.x(bins.start + i * bins.width) + 0.5;
      const wide = Math.max(0.5, this.x(bins.start + (i + 1) * bins.width) - 0.5 - left);
      const long = end(counts[i]) - line;
      const at = line + Math.sign(long) * Math.max(1.5, Math.abs(long));
      path += `M${left.toFixed(2)} ${line.toFixed(2)}V${at.toFixed(2)}h${wide.toFixed(2)}V${line.toFixed(2)}z`;
    }
    return path;
  }

  /** @param {number} place  on the axis */
  x(place) {
    const inside = Math.min(this.high, Math.max(this.low, place));
    return this.frame.left + ((inside - this.low) / (this.high - this.low)) * this.frame.width;
  }

  /**
   * Returns the bar at a pixel, or null beside all of them.
   * @param {number} x
   */
  barAt(x) {
    if (this.bins === null) return null;
    const place = this.low + ((x - this.frame.left) / this.frame.width) * (this.high - this.low);
    const bar = Math.floor((place - this.bins.start) / this.bins.width);
    return bar >= 0 && bar < this.bins.others.length ? bar : null;
  }

  /**
   * Marks a bar; null marks none.
   * @param {number | null} bar
   */
  showBar(bar) {
    this.bar.setAttribute("visibility", bar === null ? "hidden" : "visible");
    if (bar === null || this.bins === null) return;
    const { frame, bins } = this;
    const left = this.x(bins.start + bar * bins.width);
    const right = this.x(bins.start + (bar + 1) * bins.width);
    setAttributes(this.bar, { x: left, width: Math.max(1, right - left), y: frame.top, height: frame.height });
  }

  /** @param {number} x  a pixel */
  tauAt(x) {
    const share = Math.min(1, Math.max(0, (x - this.frame.left) / this.frame.width));
    return this.axis.from(this.low + share * (this.high - this.low));
  }

  /** @param {number} bar */
  flaggedIn(bar) {
    return this.inClasses === null ? 0 : this.inClasses[0][bar] + this.inClasses[1][bar];
  }

  /**
   * Shows the flagged part of each bar, where each class has a threshold of its own: there is no line.
   * @param {Scores} flagged  with the flagged samples in place of the memorised ones
   * @param {Scores} found  with those that are memorised, too
   */
  moveByClass(flagged, found) {
    const { frame, bins } = this;
    if (bins === null) return;
    const [all, hits] = [flagged, found].map((scores) => perBar(scores, bins.ranks));
    this.inClasses = [all.map((count, bar) => count - hits[bar]), hits];
    this.flagged.draw(...this.paths(...this.inClasses));
    setAttributes(this.flaggedClip, { width: frame.right });
    setAttributes(this.clearClip, { x: 0 });
    setAttributes(this.region, { width: 0 });
    setAttributes(this.names, { transform: "" });
    this.regionText.style.visibility = this.tau.style.visibility = "hidden";
    this.tauText.textContent = "strong colour: flagged, each class has its own τ";
    setAttributes(this.tauText, { x: frame.right, "text-anchor": "end" });
  }

  /**
   * @param {number} tau
   * @param {string} text
   */
  move(tau, text) {
    const { frame, bins } = this;
    if (this.inClasses !== null && bins !== null) {
      this.inClasses = null;
      this.flagged.draw(...this.paths(bins.others, bins.memorized));
    }
    this.tau.style.visibility = "visible";
    const place = this.axis.to(tau);
    const x = this.x(place);
    setAttributes(this.flaggedClip, { width: x });
    setAttributes(this.clearClip, { x });
    setAttributes(this.region, { width: Math.max(0, x - frame.left) });
    this.regionText.style.visibility = x - frame.left > 66 ? "visible" : "hidden";
    setAttributes(this.tau, { transform: `translate(${x} 0)` });
    const crosses = x > frame.right - this.nameWidth && x < frame.right - 2; // so the names stand before the line
    setAttributes(this.names, { transform: `translate(${crosses ? x - frame.right - 3 : 0} 0)` });
    this.tauText.textContent =
      place > this.high ? `τ = ${text} →` : place < this.low ? `← τ = ${text}` : `τ = ${text}`;
    const rightward = x < frame.right - 110;
    setAttributes(this.tauText, {
      x: x + (rightward ? 13 : -13),
      "text-anchor": rightward ? "start" : "end",
    });
  }
}

/**
 * Returns how many samples that count as memorised each bar has.
 * @param {Scores} scores
 * @param {Uint32Array} ranks
 */
function perBar({ memorizedUpTo }, ranks) {
  const upTo = (/** @type {number} */ rank) => (rank === 0 || memorizedUpTo === null ? 0 : memorizedUpTo[rank - 1]);
  return Float64Array.from({ length: ranks.length - 1 }, (_, bar) => upTo(ranks[bar + 1]) - upTo(ranks[bar]));
}

/** The bars of all samples on one side of τ. */
class Bars {
  /**
   * @param {string} id
   * @param {string} side  "flagged" or "clear"
   */
  constructor(id, side) {
    this.others = svg("path", { class: "mw-bars-other" });
    this.memorized = svg("path", { class: "mw-bars-memorized" });
    this.hatched = svg("path", { fill: `url(#${id}-hatch)` });
    const attributes = { "clip-path": `url(#${id}-${side})`, class: `mw-half-${side}` };
    this.element = svg("g", attributes, this.others, this.memorized, this.hatched);
  }

  /**
   * @param {string} others
   * @param {string} memorized
   */
  draw(others, memorized) {
    this.others.setAttribute("d", others);
    this.memorized.setAttribute("d", memorized);
    this.hatched.setAttribute("d", memorized);
  }
}

/**
 * The ROC of another score, as it is drawn.
 * @typedef {{fpr: number, tpr: number}[]} OtherCurve
 */

/** The ROC with its band, the ROCs of other scores, and the point of τ. */
export class RocPlot {
  constructor() {
    this.element = svg("svg", { class: "mw-roc", role: "img" });
    this.lines = svg("g", { class: "mw-axis" });
    this.chance = svg("path", { class: "mw-chance" });
    this.others = svg("g");
    this.band = svg("path", { class: "mw-band" });
    this.curve = svg("path", { class: "mw-curve" });
    this.point = svg("circle", { r: 7, class: "mw-point" });
    this.pointText = svg("text", { class: "mw-point-text" });
    this.element.append(
      this.lines, this.chance, this.band, this.others, this.curve, this.point, this.pointText,
    );
    this.frame = emptyFrame();
    this.xDecades = 0;
    this.yDecades = 0;
    /** @type {RocPoint[]} */
    this.points = [];
  }

  /**
   * @param {Scores} scores
   * @param {Float32Array | null} band  fpr, low, high, one after the other
   * @param {OtherCurve[]} others
   * @param {{scores?: Scores, points?: OtherCurve} | null} pinned  the curve that stays
   * @param {boolean} log
   */
  draw(scores, band, others, pinned, log) {
    this.frame = frameOf(this.element, { left: 42, right: 12, top: 30, bottom: 40 });
    this.xDecades = log ? decadesFor(scores.n - scores.memorized) : 0;
    this.yDecades = log ? decadesFor(scores.memorized) : 0;
    const { frame } = this;
    this.points = rocPoints(scores, (fpr) => this.x(fpr), (tpr) => this.y(tpr));
    this.lines.replaceChildren(
      ...rateTicks(this.xDecades).flatMap((rate) => this.fprTick(rate)),
      ...rateTicks(this.yDecades).flatMap((rate) => levelTick(frame, this.y(rate), String(rate))),
      axisName(frame, "FPR"),
      svg("text", { x: frame.left - 30, y: frame.top - 11, class: "mw-axis-corner" }, "TPR"),
    );
    this.chance.setAttribute("d", this.path(chanceRates(log)));
    this.curve.setAttribute("d", this.path(this.points));
    this.band.setAttribute("d", band === null ? "" : `${this.path(outline(band))}z`);
    const curves = others.map((points, i) =>
      svg("path", { class: `mw-other-curve mw-other-${i + 1}`, d: this.path(points) }),
    );
    if (pinned !== null) {
      const points = pinned.scores ? rocPoints(pinned.scores, (fpr) => this.x(fpr), (tpr) => this.y(tpr)) : pinned.points ?? [];
      curves.push(svg("path", { class: "mw-pinned-curve", d: this.path(points) }));
    }
    this.others.replaceChildren(...curves);
  }

  /** @param {number} rate */
  fprTick(rate) {
    const { frame } = this;
    const x = this.x(rate);
    return [
      svg("line", { x1: x, x2: x, y1: frame.top, y2: frame.bottom, class: "mw-grid" }),
      svg("text", { x, y: frame.bottom + 17, "text-anchor": "middle" }, String(rate)),
    ];
  }

  /** @param {number} fpr */
  x(fpr) {
    return this.frame.left + ratePosition(fpr, this.xDecades) * this.frame.width;
  }

  /** @param {number} tpr */
  y(tpr) {
    return this.frame.bottom - ratePosition(tpr, this.yDecades) * this.frame.height;
  }

  /** @param {{fpr: number, tpr: number}[]} points */
  path(points) {
    return points
      .map(({ fpr, tpr }, i) => `${i === 0 ? "M" : "L"}${this.x(fpr).toFixed(2)} ${this.y(tpr).toFixed(2)}`)
      .join("");
  }

  /**
   * Returns the τ of the curve's point that is nearest to a pixel.
   * @param {number} x
   * @param {number} y
   */
  tauAt(x, y) {
    return nearestTau(this.points, (point) => [this.x(point.fpr), this.y(point.tpr)], x, y);
  }

  /**
   * @param {number} fpr
   * @param {number} tpr
   */
  move(fpr, tpr) {
    const { frame } = this;
    const [x, y] = [this.x(fpr), this.y(tpr)];
    setAttributes(this.point, { cx: x, cy: y });
    const rightward = x < frame.right - 150; // the curve is concave: below and right is room
    setAttributes(this.pointText, {
      x: rightward ? x + 12 : frame.right - 4,
      y: y < frame.bottom - 34 ? y + (rightward ? 20 : 28) : y - 12,
      "text-anchor": rightward ? "start" : "end",
    });
    this.pointText.textContent = `TPR ${rateText(tpr)} at FPR ${rateText(fpr)}`;
  }
}

/**
 * Returns the τ of a drawn curve's point that is nearest to a place.
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

/** @returns {Frame} */
function emptyFrame() {
  return { left: 0, right: 1, top: 0, bottom: 1, width: 1, height: 1 };
}

/**
 * The inner rectangle of a plot, and the plot's own coordinates set to pixels.
 * @param {SVGSVGElement} plot
 * @param {{left: number, right: number, top: number, bottom: number}} margin
 * @returns {Frame}
 */
function frameOf(plot, margin) {
  const width = Math.max(160, plot.clientWidth);
  const height = Math.max(140, plot.clientHeight);
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

/**
 * Counts worth a tick on one side of the common line, and where they stand. A side whose bars are all
 * lower than the first tick gets a lower one.
 * @param {number} top  highest bar of the side
 * @param {number} most  highest bar of all
 * @param {string} countScale
 * @param {(count: number) => number} place
 * @returns {[number, number][]}
 */
function levelsOf(top, most, countScale, place) {
  const wanted = countTicks(most, countScale).filter((count) => count <= top);
  const counts = wanted.length > 0 || top === 0 ? wanted : [10 ** Math.floor(Math.log10(top))];
  return counts.map((count) => /** @type {[number, number]} */ ([place(count), count]));
}

/**
 * @param {Frame} frame
 * @param {number} y
 * @param {string} text
 */
function levelTick(frame, y, text) {
  const line = svg("line", { x1: frame.left, x2: frame.right, y1: y, y2: y, class: "mw-grid" });
  return [line, svg("text", { x: frame.left - 7, y: y + 4, "text-anchor": "end" }, text)];
}

/**
 * @param {Frame} frame
 * @param {string} text
 */
function axisName(frame, text) {
  const x = (frame.left + frame.right) / 2;
  return svg("text", { x, y: frame.bottom + 35, class: "mw-axis-title" }, text);
}

/** @param {string} id */
function hatch(id) {
  const stripe = svg("line", { x1: 0, x2: 0, y1: 0, y2: 5, class: "mw-hatch" });
  const size = { width: 5, height: 5, patternUnits: "userSpaceOnUse" };
  return svg("pattern", { id, ...size, patternTransform: "rotate(45)" }, stripe);
}

/** @param {number} decades  0: linear */
function rateTicks(decades) {
  if (decades === 0) return [0, 0.25, 0.5, 0.75, 1];
  return Array.from({ length: decades + 1 }, (_, i) => Number((10 ** -i).toPrecision(3)));
}

/** @param {boolean} log */
function chanceRates(log) {
  return Array.from({ length: 41 }, (_, i) => {
    const rate = log ? 10 ** ((i - 40) / 8) : i / 40;
    return { fpr: rate, tpr: rate };
  });
}

/**
 * Along the lower edge of a band and back along the upper one.
 * @param {Float32Array} band
 */
function outline(band) {
  const count = band.length / 3;
  const edge = (/** @type {number} */ which) =>
    Array.from({ length: count }, (_, i) => ({ fpr: band[i], tpr: band[which * count + i] }));
  return [...edge(1), ...edge(2).reverse()];
}
