/** Samples on their way between two checkpoints, drawn over the explorer's dots while these stand still. */

import { html } from "./dom.js";
import { MOST_FLAGGED, SMALLEST } from "./plots.js";
import { columnOf, countsOf, heightsOf, reachOf, tauThere } from "./times.js";
import { unpackBits } from "./wire.js";

/** @typedef {import("./explorer.js").Explorer} Explorer */
/** @typedef {import("./plots.js").Side} Side */

const OTHER = 0;
const MEMORIZED = 1;
const COLORS = ["--mw-risk", "--mw-other", "--mw-dark", "--mw-bg"];

/** The scores at each checkpoint, and the picture of any time between two. */
export class Film {
  /** @param {Explorer} explorer */
  constructor(explorer) {
    this.explorer = explorer;
    this.canvas = html("canvas", {
      class: "mw-film",
      "aria-hidden": "true",
      hidden: true,
    });
    explorer.histogram.element.after(this.canvas);
    /** @type {Map<string, Float32Array>} */
    this.scores = new Map();
    /** Those that are compared with them. @type {Map<string, Float32Array[]>} */
    this.others = new Map();
    /** Where the scores stand on the axis on show. @type {Map<string, Float32Array>} */
    this.places = new Map();
    /** @type {import("./maths.js").Axis | null} */
    this.axis = null;
    this.kinds = new Uint8Array(0);
    this.heights = new Float32Array(0);
    this.now = new Float32Array(0);
    /** @type {Uint8Array | null} */
    this.bits = null;
    this.colors = COLORS;
  }

  /** Forgets all scores, because others are looked at. */
  clear() {
    this.scores.clear();
    this.others.clear();
    this.places.clear();
    this.hide();
    this.explorer.hold(null);
  }

  /**
   * @param {string} checkpoint
   * @param {Float32Array[]} all  the scores on show, and those that are compared with them
   */
  take(checkpoint, [scores, ...others]) {
    this.scores.set(checkpoint, scores);
    this.others.set(checkpoint, others);
    if (this.heights.length === scores.length) return;
    this.heights = heightsOf(scores.length);
    this.now = new Float32Array(scores.length);
    this.judge();
  }

  /** @param {Uint8Array | null} bits  who is memorised; null without ground truth */
  takeTruth(bits) {
    this.bits = bits;
    this.judge();
  }

  judge() {
    const { bits } = this;
    const n = this.heights.length;
    this.kinds =
      bits === null ? new Uint8Array(n) : Uint8Array.from(unpackBits(bits, n));
  }

  get known() {
    return this.bits !== null;
  }

  /** Holds one axis for all times, so that what moves is the samples. */
  begin() {
    if (this.scores.size > 0) this.explorer.hold(reachOf(this.scores.values()));
    const style = getComputedStyle(this.canvas);
    this.colors = COLORS.map((name) => style.getPropertyValue(name).trim());
  }

  get isShown() {
    return !this.canvas.hidden;
  }

  hide() {
    if (!this.isShown) return;
    this.canvas.hidden = true;
    this.explorer.histogram.element.classList.remove("mw-filmed");
    this.explorer.moved();
  }

  /** @param {string} checkpoint */
  placesAt(checkpoint) {
    const { axis } = this.explorer;
    if (axis !== this.axis) this.places.clear();
    this.axis = axis;
    const known = this.places.get(checkpoint);
    if (known !== undefined) return known;
    const scores = this.scores.get(checkpoint) ?? new Float32Array(0);
    const places = scores.map((score) => axis.to(score));
    this.places.set(checkpoint, places);
    return places;
  }

  /** @param {string} checkpoint */
  tauAt(checkpoint) {
    const { asked, axis, tau } = this.explorer;
    const scores = this.scores.get(checkpoint) ?? new Float32Array(0);
    return axis.to(tauThere(scores, asked, tau));
  }

  /**
   * Draws a time between two checkpoints whose scores are there.
   * @param {string} from
   * @param {string} to
   * @param {number} share  of the way
   * @param {number} settled  0 while samples move, 1 where they stand in columns
   */
  draw(from, to, share, settled) {
    const { histogram } = this.explorer;
    if (histogram.bins === null) return;
    const [a, b] = [this.placesAt(from), this.placesAt(to)];
    const [low, high] = [histogram.low, histogram.high];
    for (let i = 0; i < a.length; i++) {
      const place = a[i] + (b[i] - a[i]) * share;
      this.now[i] = place < low ? low : place > high ? high : place;
    }
    const tau = this.tauAt(from) + (this.tauAt(to) - this.tauAt(from)) * share;
    this.canvas.hidden = false;
    histogram.element.classList.add("mw-filmed");
    histogram.moveLine(tau);
    this.explorer.nameFixed(tau);
    const context = this.fresh();
    if (context === null) return;
    this.drawSide(context, histogram.others, OTHER, tau, settled);
    if (this.known)
      this.drawSide(context, histogram.memorized, MEMORIZED, tau, settled);
  }

  /** An empty canvas in pixels of the page. */
  fresh() {
    const { canvas } = this;
    const { clientWidth, clientHeight } = this.explorer.histogram.element;
    const ratio = devicePixelRatio || 1;
    const [width, height] = [clientWidth * ratio, clientHeight * ratio].map(Math.round);
    if (canvas.width !== width || canvas.height !== height)
      Object.assign(canvas, { width, height });
    const context = canvas.getContext("2d");
    context?.setTransform(ratio, 0, 0, ratio, 0, 0);
    context?.clearRect(0, 0, clientWidth, clientHeight);
    return context;
  }

  /**
   * @param {CanvasRenderingContext2D} context
   * @param {Side} side
   * @param {number} kind
   * @param {number} tau
   * @param {number} settled
   */
  drawSide(context, side, kind, tau, settled) {
    const columns = this.columns();
    const counts = countsOf(this.now, this.kinds, kind, columns);
    const n = counts.reduce((sum, count) => sum + count, 0);
    const top = Math.max(1, ...counts);
    const pitch = Math.min(side.size, side.room / top);
    if (n <= side.most) {
      this.drawDots(context, side, kind, tau, settled, pitch);
      return;
    }
    this.drawBars(context, side, kind, tau, settled, side.room / top, counts);
  }

  columns() {
    const { bins } = this.explorer.histogram;
    if (bins === null) throw new Error("there is no histogram");
    return { start: bins.start, width: bins.width, bins: bins.ranks.length - 1 };
  }

  /**
   * @param {CanvasRenderingContext2D} context
   * @param {Side} side
   * @param {number} kind
   * @param {number} tau
   * @param {number} settled
   * @param {number} pitch
   */
  drawDots(context, side, kind, tau, settled, pitch) {
    const radius = Math.max(2.2, Math.min(pitch, 6) - 0.4) / 2;
    const left = new Path2D();
    const flagged = new Path2D();
    this.place(side, kind, tau, settled, pitch, (x, y, isFlagged) => {
      const path = isFlagged ? flagged : left;
      path.moveTo(x + radius, y);
      path.arc(x, y, radius, 0, 7);
    });
    const [red, pale, dark, ground] = this.colors;
    context.globalAlpha = kind === OTHER && this.known ? 0.75 : 1;
    context.fillStyle = kind === MEMORIZED ? ground : pale;
    context.fill(left);
    context.globalAlpha = 1;
    context.strokeStyle = red;
    context.lineWidth = 1.2;
    if (kind === MEMORIZED) context.stroke(left);
    context.fillStyle = kind === MEMORIZED ? red : dark;
    context.fill(flagged);
  }

  /**
   * Calls back with the place of each sample of a kind: flagged ones first, which stand below.
   * @param {Side} side
   * @param {number} kind
   * @param {number} tau
   * @param {number} settled
   * @param {number} pitch
   * @param {(x: number, y: number, isFlagged: boolean) => void} put
   * @param {boolean} [onlyFlagged]
   */
  place(side, kind, tau, settled, pitch, put, onlyFlagged = false) {
    const { histogram } = this.explorer;
    const { start, width, bins } = this.columns();
    const stacked = new Uint32Array(bins);
    for (const wanted of onlyFlagged ? [true] : [true, false])
      for (let i = 0; i < this.now.length; i++) {
        const at = this.now[i];
        if (this.kinds[i] !== kind || Number.isNaN(at) || at <= tau !== wanted)
          continue;
        const column = columnOf(at, start, width, bins);
        const x = histogram.x(at);
        const stood = histogram.x(start + (column + 0.5) * width);
        const floats = 6 + this.heights[i] * Math.max(0, side.room - 12);
        const stands = 1.5 + (stacked[column]++ + 0.5) * pitch;
        const away = floats + (stands - floats) * settled;
        put(x + (stood - x) * settled, side.line + side.sign * away, wanted);
      }
  }

  /**
   * @param {CanvasRenderingContext2D} context
   * @param {Side} side
   * @param {number} kind
   * @param {number} tau
   * @param {number} settled
   * @param {number} pitch
   * @param {Float64Array} counts
   */
  drawBars(context, side, kind, tau, settled, pitch, counts) {
    const { histogram } = this.explorer;
    const columns = this.columns();
    const flaggedPlaces = this.now.map((at) => (at <= tau ? at : NaN));
    const flagged = countsOf(flaggedPlaces, this.kinds, kind, columns);
    const many = flagged.reduce((sum, count) => sum + count, 0);
    const inColumn = Math.min(side.size, side.room / Math.max(1, ...flagged));
    const apart = many <= MOST_FLAGGED && inColumn >= SMALLEST;
    const [red, pale, dark, ground] = this.colors;
    counts.forEach((count, i) => {
      if (count === 0) return;
      const x = histogram.x(columns.start + i * columns.width) + 0.5;
      const wide = histogram.x(columns.start + (i + 1) * columns.width) - 0.5 - x;
      const high = 1.5 + count * pitch;
      const below = apart ? 0 : flagged[i] * pitch;
      const y = side.sign > 0 ? side.line : side.line - high;
      context.globalAlpha = 0.5;
      context.fillStyle = kind === MEMORIZED ? ground : pale;
      context.fillRect(x, y, wide, high);
      context.globalAlpha = 1;
      context.strokeStyle = red;
      if (kind === MEMORIZED) context.strokeRect(x, y, wide, high);
      context.fillStyle = kind === MEMORIZED ? red : dark;
      if (below > 0)
        context.fillRect(x, side.sign > 0 ? side.line : side.line - below, wide, below);
    });
    if (!apart) return;
    const radius = Math.max(2.2, Math.min(inColumn, 6) - 0.4) / 2;
    context.fillStyle = kind === MEMORIZED ? red : dark;
    context.beginPath();
    const put = (/** @type {number} */ x, /** @type {number} */ y) => {
      context.moveTo(x + radius, y);
      context.arc(x, y, radius, 0, 7);
    };
    this.place(side, kind, tau, settled, inColumn, put, true);
    context.fill();
  }
}
