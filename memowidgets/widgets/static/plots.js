/** The two plots of the τ explorer: drawn when their data change, moved when τ does. */

import { setAttributes, svg, write } from "./dom.js";
import {
  axisTicks,
  countsPerBin,
  decadesFor,
  histogram,
  LINEAR,
  ratePosition,
  rocPoints,
} from "./maths.js";
import { rateText, tickText, whole } from "./numbers.js";

/** @typedef {import("./maths.js").Axis} Axis */
/** @typedef {import("./maths.js").Histogram} Histogram */
/** @typedef {import("./maths.js").Interval} Interval */
/** @typedef {import("./maths.js").RocPoint} RocPoint */
/** @typedef {import("./maths.js").Scores} Scores */

/**
 * The inner rectangle of a plot, in pixels.
 * @typedef {{left: number, right: number, top: number, bottom: number, width: number, height: number}} Frame
 */

const COLUMN = 6; // pixels, so that dots stand beside each other
export const SMALLEST = 1.5; // pixels between two dots of a column: below, it is drawn as a bar
export const MOST_FLAGGED = 500; // that are dots where the rest of their side is bars
const GAP = 1.5; // pixels between the common line and the first sample

/** One dot for each sample along its score, memorised ones upwards: what is flagged apart from what is not. */
export class HistogramPlot {
  constructor() {
    this.element = svg("svg", { class: "mw-histogram", role: "slider", tabindex: 0 });
    this.memorized = new Side("memorized", 6, 500);
    this.others = new Side("other", 4, 1500);
    this.region = svg("rect", { class: "mw-region" });
    this.lines = svg("g", { class: "mw-axis" });
    this.names = svg("g");
    this.stem = svg("line", { class: "mw-tau-line" });
    this.knob = svg("circle", { r: 7, class: "mw-tau-knob" });
    this.tau = svg("g", {}, this.stem, this.knob);
    this.element.append(
      this.region,
      this.lines,
      this.others.element,
      this.memorized.element,
      this.tau,
      this.names,
    );
    /** @type {Histogram | null} */
    this.bins = null;
    this.frame = EMPTY;
    this.low = 0;
    this.high = 1;
    this.rank = -1;
    /** @type {Axis} */
    this.axis = LINEAR;
  }

  /**
   * With ground truth memorised samples go up from a common line and the others down, so that neither
   * covers the other. Without it all stand on the lower edge.
   * @param {Scores} scores
   * @param {Axis} axis
   * @param {string} title
   * @param {string} positives  what goes up
   * @param {[number, number] | null} [reach]  scores that have room, too
   */
  draw(scores, axis, title, positives, reach = null) {
    const frame = frameOf(this.element, { left: 8, right: 8, top: 20, bottom: 36 });
    const wanted = Math.max(8, Math.floor(frame.width / COLUMN));
    const bins = histogram(scores, wanted, axis, reach);
    Object.assign(this, {
      frame,
      axis,
      bins,
      low: bins.low,
      high: bins.high,
      rank: -1,
    });
    const known = scores.memorizedUpTo !== null;
    const line = known ? frame.top + 0.5 * frame.height : frame.bottom;
    this.memorized.fit(bins.memorized, line, known ? frame.height / 2 - 14 : 0, -1);
    this.others.fit(
      bins.others,
      line,
      known ? frame.height / 2 - 14 : frame.height - 16,
      known ? 1 : -1,
    );
    const along = svg("text", {
      x: (frame.left + frame.right) / 2,
      y: frame.bottom + 33,
      class: "mw-axis-title",
    });
    this.lines.replaceChildren(
      ...this.scoreTicks(),
      svg("line", { x1: frame.left, x2: frame.right, y1: line, y2: line }),
      along,
    );
    fitName(along, (name) => `${name} (low = at risk)`, title, frame.width);
    const alike = known && this.others.dots && this.memorized.dots;
    const name = (/** @type {number} */ y, /** @type {string} */ text, kind = "") =>
      svg("text", { class: `mw-side-text ${kind}`, x: frame.left + 4, y }, text);
    const below = known ? `not ${positives}` : "samples";
    const top = frame.top + 11;
    this.names.replaceChildren(
      ...(known
        ? [name(top, `${positives}, ${this.memorized.scale}`, "mw-side-memorized")]
        : []),
      name(
        known ? frame.bottom - 4 : top,
        alike ? below : `${below}, ${this.others.scale}`,
      ),
    );
    setAttributes(this.region, { x: frame.left, y: frame.top, height: frame.height });
    setAttributes(this.stem, { y1: frame.top - 6, y2: frame.bottom });
    setAttributes(this.knob, { cy: frame.top - 10 });
  }

  scoreTicks() {
    const { frame, axis } = this;
    const pixel = (this.high - this.low) / frame.width;
    const wide = axisTicks(
      axis,
      this.low,
      this.high,
      pixel * (axis === LINEAR ? 70 : 54),
    );
    const found =
      wide.length > 2 ? wide : axisTicks(axis, this.low, this.high, pixel * 48);
    return found.map((tick) => {
      const x = Math.min(
        frame.right - 4,
        Math.max(frame.left + 8, this.x(axis.to(tick))),
      );
      return svg(
        "text",
        { x, y: frame.bottom + 18, "text-anchor": "middle" },
        tickText(tick),
      );
    });
  }

  /** @param {number} place  on the axis */
  x(place) {
    const inside = Math.min(this.high, Math.max(this.low, place));
    return (
      this.frame.left +
      ((inside - this.low) / (this.high - this.low)) * this.frame.width
    );
  }

  /**
   * The τ at a pixel.
   * @param {number} x
   */
  tauAt(x) {
    const share = Math.min(1, Math.max(0, (x - this.frame.left) / this.frame.width));
    return this.axis.from(this.low + share * (this.high - this.low));
  }

  /**
   * @param {Scores} scores
   * @param {number} tau
   * @param {number} rank  how many distinct scores are flagged
   * @returns {number}  the pixel of τ
   */
  move(scores, tau, rank) {
    const { bins } = this;
    if (bins !== null && rank !== this.rank)
      this.mark(countsPerBin(scores, bins.ranks, rank));
    this.rank = rank;
    return this.moveLine(this.axis.to(tau));
  }

  /**
   * @param {number} place  of τ on the axis
   * @returns {number}  its pixel
   */
  moveLine(place) {
    const x = this.x(place);
    setAttributes(this.region, { width: Math.max(0, x - this.frame.left) });
    setAttributes(this.tau, { transform: `translate(${x} 0)` });
    return x;
  }

  /** @param {{others: Float64Array, memorized: Float64Array}} flagged */
  mark(flagged) {
    const { bins } = this;
    if (bins === null) return;
    const edges = Float64Array.from(bins.ranks, (_, i) =>
      this.x(bins.start + i * bins.width),
    );
    this.others.draw(edges, bins.others, flagged.others);
    this.memorized.draw(edges, bins.memorized, flagged.memorized);
  }
}

/** The samples on one side of the common line: one dot each, or bars where they are too many. */
export class Side {
  /**
   * @param {string} kind
   * @param {number} size  pixels of a dot at most
   * @param {number} most  samples that are drawn as dots
   */
  constructor(kind, size, most) {
    this.size = size;
    this.most = most;
    this.left = svg("path", { class: "mw-left" });
    this.hollow = svg("path", { class: "mw-hollow" });
    this.flagged = svg("path", { class: "mw-flagged" });
    this.element = svg(
      "g",
      { class: `mw-side mw-side-${kind}` },
      this.left,
      this.hollow,
      this.flagged,
    );
    this.line = this.sign = this.pitch = this.room = 0;
    this.dots = true;
    this.scale = "";
  }

  /**
   * @param {Float64Array} counts  of each column
   * @param {number} line  where they stand
   * @param {number} room  pixels
   * @param {number} sign  -1: upwards
   */
  fit(counts, line, room, sign) {
    const top = Math.max(1, ...counts);
    this.pitch = Math.min(this.size, room / top);
    this.dots =
      counts.reduce((sum, count) => sum + count, 0) <= this.most &&
      this.pitch >= SMALLEST;
    if (!this.dots) this.pitch = room / top;
    this.scale = this.dots ? "one dot each" : `highest bar ${whole(top)}`;
    Object.assign(this, { line, sign, room });
    this.element.setAttribute(
      "class",
      `${this.element.getAttribute("class")?.replace(/ mw-as-\w+/, "")} mw-as-${this.dots ? "dots" : "bars"}`,
    );
    const wide = this.dots ? Math.max(2.2, Math.min(this.pitch, COLUMN) - 0.4) : null;
    for (const path of [this.left, this.flagged])
      setAttributes(path, { "stroke-width": wide });
    setAttributes(this.hollow, { "stroke-width": wide && Math.max(0.8, wide - 2.4) });
  }

  /**
   * @param {Float64Array} edges  pixels between the columns
   * @param {Float64Array} counts
   * @param {Float64Array} flagged  of them
   */
  draw(edges, counts, flagged) {
    let [dark, light] = ["", ""];
    const pitch = Math.min(this.size, this.room / Math.max(1, ...flagged));
    const few = flagged.reduce((sum, count) => sum + count, 0) <= MOST_FLAGGED;
    const apart = !this.dots && few && pitch >= SMALLEST;
    for (let i = 0; i < counts.length; i++) {
      const [left, right, some] = [edges[i], edges[i + 1], flagged[i]];
      if (some > 0)
        dark += apart
          ? this.dotsOf((left + right) / 2, 0, some, pitch)
          : this.column(left, right, 0, some);
      if (counts[i] > some)
        light += this.column(
          left,
          right,
          apart ? 0 : some,
          counts[i] - (apart ? some : 0),
        );
    }
    this.element.classList.toggle("mw-flagged-dots", apart);
    if (!this.dots)
      setAttributes(this.flagged, {
        "stroke-width": apart ? Math.max(2.2, Math.min(pitch, COLUMN) - 0.4) : null,
      });
    this.flagged.setAttribute("d", dark);
    this.left.setAttribute("d", light);
    this.hollow.setAttribute("d", this.dots ? light : "");
  }

  /**
   * @param {number} left
   * @param {number} right
   * @param {number} from
   * @param {number} to
   */
  column(left, right, from, to) {
    const { line, sign, pitch } = this;
    const at = (/** @type {number} */ count) => line + sign * (GAP + count * pitch);
    if (!this.dots) {
      const end = line + sign * (GAP + Math.max(to * pitch, from * pitch + 1.5));
      return `M${(left + 0.5).toFixed(1)} ${at(from).toFixed(1)}V${end.toFixed(1)}H${(right - 0.5).toFixed(1)}V${at(from).toFixed(1)}z`;
    }
    return this.dotsOf((left + right) / 2, from, to, pitch);
  }

  /**
   * @param {number} x
   * @param {number} from
   * @param {number} to
   * @param {number} pitch  pixels between two of them
   */
  dotsOf(x, from, to, pitch) {
    const { line, sign } = this;
    let path = "";
    for (let k = from; k < to; k++)
      path += `M${x.toFixed(1)} ${(line + sign * (GAP + (k + 0.5) * pitch)).toFixed(1)}h0`;
    return path;
  }
}

/** The ROC, and the point of τ with a cross for its two intervals. */
export class RocPlot {
  constructor() {
    this.element = svg("svg", { class: "mw-roc", role: "img" });
    this.lines = svg("g", { class: "mw-axis" });
    this.chance = svg("path", { class: "mw-chance" });
    this.curve = svg("path", { class: "mw-curve" });
    this.cross = svg("path", { class: "mw-cross" });
    this.point = svg("circle", { r: 6, class: "mw-point" });
    this.fpr = svg("text", { "text-anchor": "middle" });
    this.tpr = svg("text", { "text-anchor": "middle" });
    this.area = svg("text", { class: "mw-auc", "text-anchor": "end" });
    this.areaInterval = svg("text", { class: "mw-auc-interval", "text-anchor": "end" });
    this.element.append(
      this.lines,
      this.chance,
      this.curve,
      this.area,
      this.areaInterval,
      this.cross,
      this.point,
      this.fpr,
      this.tpr,
    );
    this.frame = EMPTY;
    this.xDecades = 0;
    this.yDecades = 0;
    /** @type {RocPoint[]} */
    this.points = [];
  }

  /**
   * @param {Scores} scores
   * @param {boolean} log
   */
  draw(scores, log) {
    this.frame = frameOf(this.element, { left: 24, right: 6, top: 8, bottom: 22 });
    this.xDecades = log ? decadesFor(scores.n - scores.memorized) : 0;
    this.yDecades = log ? decadesFor(scores.memorized) : 0;
    const { frame } = this;
    this.points = this.pointsOf(scores);
    const { left, right, top, bottom } = frame;
    this.lines.replaceChildren(
      svg("path", {
        class: "mw-box",
        d: `M${left} ${top}H${right}V${bottom}H${left}z`,
      }),
      ...decades(this.xDecades).flatMap((rate) => {
        const x = this.x(rate);
        const name = svg("text", { x: x + 2, y: bottom - 3 }, String(rate));
        return [
          svg("line", { x1: x, x2: x, y1: top, y2: bottom, class: "mw-grid" }),
          name,
        ];
      }),
      ...decades(this.yDecades).flatMap((rate) => {
        const y = this.y(rate);
        const name = svg("text", { x: left + 2, y: y - 2 }, String(rate));
        return [
          svg("line", { x1: left, x2: right, y1: y, y2: y, class: "mw-grid" }),
          name,
        ];
      }),
    );
    setAttributes(this.fpr, { x: (left + right) / 2, y: bottom + 15 });
    setAttributes(this.tpr, {
      transform: `translate(14 ${(top + bottom) / 2}) rotate(-90)`,
    });
    setAttributes(this.area, { x: right - 4, y: bottom - (log ? 34 : 20) });
    setAttributes(this.areaInterval, { x: right - 4, y: bottom - (log ? 20 : 6) });
    this.chance.setAttribute("d", this.path(chanceRates(log)));
    this.curve.setAttribute("d", this.path(this.points));
  }

  /** @param {Scores} scores */
  pointsOf(scores) {
    return rocPoints(
      scores,
      (fpr) => this.x(fpr),
      (tpr) => this.y(tpr),
    );
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
      .map(
        ({ fpr, tpr }, i) =>
          `${i === 0 ? "M" : "L"}${this.x(fpr).toFixed(2)} ${this.y(tpr).toFixed(2)}`,
      )
      .join("");
  }

  /**
   * Returns the τ of the curve's point that is nearest to a pixel.
   * @param {number} x
   * @param {number} y
   */
  tauAt(x, y) {
    const away = (/** @type {RocPoint} */ { fpr, tpr }) =>
      (this.x(fpr) - x) ** 2 + (this.y(tpr) - y) ** 2;
    return this.points.reduce((best, point) =>
      away(point) < away(best) ? point : best,
    ).tau;
  }

  /**
   * @param {number} fpr
   * @param {number} tpr
   * @param {Interval | null} across  of the FPR
   * @param {Interval | null} along  of the TPR
   */
  move(fpr, tpr, across, along) {
    const [x, y] = [this.x(fpr), this.y(tpr)];
    setAttributes(this.point, { cx: x, cy: y });
    const [left, right] = (across ?? [fpr, fpr]).map((rate) => this.x(rate).toFixed(1));
    const [low, high] = (along ?? [tpr, tpr]).map((rate) => this.y(rate).toFixed(1));
    this.cross.setAttribute(
      "d",
      `M${left} ${y.toFixed(1)}H${right}M${x.toFixed(1)} ${low}V${high}`,
    );
    this.fpr.textContent = `FPR ${rateText(fpr)}`;
    this.tpr.textContent = `TPR ${rateText(tpr)}`;
  }
}

/** @type {Frame} */
const EMPTY = { left: 0, right: 1, top: 0, bottom: 1, width: 1, height: 1 };

/**
 * The inner rectangle of a plot, and the plot's own coordinates set to pixels.
 * @param {SVGSVGElement} plot
 * @param {{left: number, right: number, top: number, bottom: number}} margin
 * @returns {Frame}
 */
function frameOf(plot, margin) {
  const width = Math.max(120, plot.clientWidth);
  const height = Math.max(120, plot.clientHeight);
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

/** Round rates inside a log axis. @param {number} count  of decades; 0: the axis is linear */
function decades(count) {
  return Array.from({ length: Math.max(0, count - 1) }, (_, i) =>
    Number((10 ** -(i + 1)).toPrecision(3)),
  );
}

/** @param {boolean} log */
function chanceRates(log) {
  return Array.from({ length: 41 }, (_, i) => {
    const rate = log ? 10 ** ((i - 40) / 8) : i / 40;
    return { fpr: rate, tpr: rate };
  });
}

/**
 * Writes words about a name into a plot, and cuts the name where they are too long.
 * @param {SVGTextElement} element
 * @param {(name: string) => string} words
 * @param {string} name
 * @param {number} most  width in pixels
 */
export function fitName(element, words, name, most) {
  write(element, words(name));
  let kept = [...name];
  while (kept.length > 1 && element.getComputedTextLength() > most) {
    kept = kept.slice(0, Math.floor(0.9 * kept.length));
    const cut = kept.join("").trimEnd();
    write(element, words(`${cut}…`));
  }
}
