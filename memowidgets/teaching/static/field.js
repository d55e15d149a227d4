/** A field of samples, one dot each: hidden, then at a time of the training, then with what was memorised. */

import { html, onTheme, onWidth } from "../../widgets/static/dom.js";
import { whole } from "../../widgets/static/numbers.js";
import { columnOf, heightsOf } from "../../widgets/static/times.js";

const HIGH = 168; // pixels, as in the style sheet
const TOP = 24;
const BELOW = 22; // where the ends of the axis are named
const SIDE = 14;
const COLUMN = 6.4;
const STACKED = 4.9; // pixels between two dots of a column
const RISEN = 7.2; // and between two memorised ones
const SHARE_ABOVE = 0.42; // of the height, for what was memorised
const APART = 19; // pixels between two letters
const OUTER = 0.005; // share of the scores at each end that are drawn at the edge
const COLORS = {
  red: "--mw-risk",
  reds: "--mw-risk-soft",
  other: "--mw-other",
  dark: "--mw-dark",
  ground: "--mw-bg",
  text: "--mw-fg",
  muted: "--mw-muted",
  accent: "--mw-accent",
};

/** @typedef {{position: number, letter: string, picked: boolean}} Mark  a sample that is called by a letter */

/** Where the dots are: 0 to 1 each. */
const HIDDEN = { seen: 0, settled: 0, truth: 0 };

/** One view of the field. */
export class Field {
  /**
   * @param {HTMLElement} section  that has the colours
   * @param {Float32Array[]} scores  of all samples, at each checkpoint
   * @param {boolean[]} memorized
   * @param {ReturnType<typeof import("../../widgets/static/dom.js").listeners>} ears
   */
  constructor(section, scores, memorized, ears) {
    this.section = section;
    this.scores = scores;
    this.memorized = memorized;
    this.element = html("canvas", { class: "mw-guess-field", role: "img" });
    const heights = heightsOf(scores[0].length);
    this.heights = heights;
    /** Places that tell nothing. */
    this.anywhere = heights.map((_, i) => scattered(i));
    this.reach = reachOfMost(scores);
    /** Where time stands, as in 2.5 between two checkpoints. */
    this.head = 0;
    this.shown = { ...HIDDEN };
    /** @type {Mark[]} */
    this.marks = [];
    this.now = new Float32Array(heights.length);
    ears.later(onWidth(this.element, () => this.draw()));
    onTheme(ears, () => requestAnimationFrame(() => this.draw()));
  }

  /** Hides where the samples stand, and which were memorised. */
  hide() {
    this.shown = { ...HIDDEN };
  }

  /** How many samples stand left of the line at a checkpoint. @param {number} at */
  left(at) {
    return this.scores[at].filter((score) => score <= 0).length;
  }

  /** How many of these are memorised. @param {number} at */
  found(at) {
    return this.scores[at].filter((score, i) => score <= 0 && this.memorized[i]).length;
  }

  /** The scores at a time between two checkpoints. */
  move() {
    const before = Math.floor(this.head);
    const after = Math.min(this.scores.length - 1, before + 1);
    const share = this.head - before;
    const [a, b] = [this.scores[before], this.scores[after]];
    for (let i = 0; i < a.length; i++) this.now[i] = a[i] + (b[i] - a[i]) * share;
  }

  draw() {
    const { element, shown } = this;
    const width = element.clientWidth;
    const context = this.fresh(width);
    if (context === null) return;
    this.move();
    const colors = this.colors();
    const [low, high] = this.reach;
    const bottom = HIGH - BELOW;
    const line = TOP + (bottom - TOP) * SHARE_ABOVE;
    const x = (/** @type {number} */ score) => {
      const place = (Math.min(high, Math.max(low, score)) - low) / (high - low);
      return SIDE + place * (width - 2 * SIDE);
    };
    const middle = x(0);
    context.globalAlpha = shown.seen;
    context.fillStyle = colors.reds;
    context.fillRect(0, TOP, middle, bottom - TOP);
    context.globalAlpha = 1;
    context.strokeStyle = colors.muted;
    context.beginPath();
    context.moveTo(0, line + 0.5);
    context.lineTo(width, line + 0.5);
    context.stroke();
    const places = this.places(x, line, bottom, width);
    this.drawDots(context, colors, places);
    if (shown.seen > 0.5) this.drawMarks(context, colors, places);
    this.drawWords(context, colors, middle, line, bottom, width);
    element.setAttribute("aria-label", this.words);
  }

  /** @param {number} width */
  fresh(width) {
    const { element } = this;
    const ratio = devicePixelRatio || 1;
    element.width = Math.round(width * ratio);
    element.height = Math.round(HIGH * ratio);
    const context = width > 0 ? element.getContext("2d") : null;
    context?.scale(ratio, ratio);
    return context;
  }

  colors() {
    const style = getComputedStyle(this.section);
    const found = Object.entries(COLORS).map(([name, property]) => [
      name,
      style.getPropertyValue(property).trim(),
    ]);
    return /** @type {typeof COLORS} */ (Object.fromEntries(found));
  }

  /** @param {number} i */
  isUp(i) {
    return this.memorized[i] && this.shown.truth > 0;
  }

  /**
   * Where each sample is drawn: in columns once all stand still.
   * @param {(score: number) => number} x
   * @param {number} line
   * @param {number} bottom
   * @param {number} width
   * @returns {[number, number][]}
   */
  places(x, line, bottom, width) {
    const { now, shown, heights } = this;
    const middle = x(0);
    const start = middle - COLUMN * Math.ceil(middle / COLUMN);
    const columns = Math.ceil((width - start) / COLUMN);
    const column = Array.from(now, (score) =>
      columnOf(x(score), start, COLUMN, columns),
    );
    const many = new Uint32Array(columns);
    column.forEach((at, i) => {
      if (!this.isUp(i)) many[at] += 1;
    });
    const step = Math.min(STACKED, (bottom - line - 6) / Math.max(1, ...many));
    const stacked = [new Uint32Array(columns), new Uint32Array(columns)];
    const order = Array.from(now.keys()).sort((a, b) => now[a] - now[b]);
    /** @type {[number, number][]} */
    const places = [];
    for (const i of order) {
      const truth = this.isUp(i) ? shown.truth : 0;
      const nth = stacked[truth > 0 ? 1 : 0][column[i]]++;
      const stood = start + (column[i] + 0.5) * COLUMN;
      const at = x(now[i]) + (stood - x(now[i])) * shown.settled;
      const hidden = SIDE + this.anywhere[i] * (width - 2 * SIDE);
      const floats = line + 6 + heights[i] * (bottom - line - 14);
      const below = floats + (line + 5 + nth * step - floats) * shown.settled;
      const risen = line - 6 - heights[i] * 44;
      const above = risen + (line - 6 - nth * RISEN - risen) * shown.settled;
      const from = truth > 0 ? floats : below;
      places[i] = [
        at * shown.seen + hidden * (1 - shown.seen),
        from + (above - from) * truth,
      ];
    }
    return places;
  }

  /**
   * @param {CanvasRenderingContext2D} context
   * @param {typeof COLORS} colors
   * @param {[number, number][]} places
   */
  drawDots(context, colors, places) {
    const { now, shown } = this;
    const lettered = new Set(
      shown.seen > 0.5 ? this.marks.map(({ position }) => position) : [],
    );
    places.forEach(([x, y], i) => {
      if (lettered.has(i)) return;
      const isFlagged = now[i] <= 0 && shown.seen > 0.5;
      context.beginPath();
      context.arc(x, y, this.isUp(i) ? 2.2 + 1.1 * shown.truth : 2.2, 0, 7);
      context.fillStyle = isFlagged ? colors.dark : colors.other;
      if (this.isUp(i)) context.fillStyle = isFlagged ? colors.red : colors.ground;
      context.fill();
      if (!this.isUp(i)) return;
      context.lineWidth = 1.4;
      context.strokeStyle = colors.red;
      context.stroke();
    });
  }

  /**
   * @param {CanvasRenderingContext2D} context
   * @param {typeof COLORS} colors
   * @param {[number, number][]} places
   */
  drawMarks(context, colors, places) {
    const { now, shown } = this;
    context.font = "650 12px system-ui, sans-serif";
    context.textAlign = "center";
    /** @type {[number, number][]} */
    const taken = [];
    const inOrder = [...this.marks].sort(
      (a, b) => places[a.position][0] - places[b.position][0],
    );
    for (const { position, letter, picked } of inOrder) {
      const isRed = this.memorized[position] && shown.truth > 0.5;
      const x = places[position][0];
      const away = isRed ? -5 * shown.truth : 8;
      let y = places[position][1] + away * shown.settled;
      if (shown.settled > 0.9)
        for (const [otherX, otherY] of taken)
          if (Math.hypot(otherX - x, otherY - y) < APART) y += isRed ? -APART : APART;
      taken.push([x, y]);
      const line = isRed ? colors.red : picked ? colors.accent : colors.text;
      const isFull = isRed ? now[position] <= 0 : picked;
      context.beginPath();
      context.arc(x, y, 9, 0, 7);
      context.fillStyle = isFull ? line : colors.ground;
      context.fill();
      context.lineWidth = 1.6;
      context.strokeStyle = line;
      context.stroke();
      context.fillStyle = isFull ? colors.ground : line;
      context.fillText(letter, x, y + 4);
    }
    context.textAlign = "left";
  }

  /**
   * @param {CanvasRenderingContext2D} context
   * @param {typeof COLORS} colors
   * @param {number} middle
   * @param {number} line
   * @param {number} bottom
   * @param {number} width
   */
  drawWords(context, colors, middle, line, bottom, width) {
    const { shown } = this;
    const say = (
      /** @type {string} */ words,
      /** @type {number} */ x,
      /** @type {number} */ y,
      color = colors.muted,
      align = /** @type {CanvasTextAlign} */ ("left"),
    ) => {
      context.fillStyle = color;
      context.textAlign = align;
      context.fillText(words, x, y);
    };
    context.font = "12px system-ui, sans-serif";
    if (shown.truth === 0)
      say(
        "what it memorises will rise above this line",
        width - 6,
        line - 8,
        colors.muted,
        "right",
      );
    if (shown.seen <= 0.5) {
      say(`${whole(this.now.length)} notes, one dot each`, 6, 18);
      return;
    }
    say("← label and note disagree", 6, HIGH - 6);
    say("they agree →", width - 6, HIGH - 6, colors.muted, "right");
    if (shown.truth > 0) {
      say("memorised", 6, TOP + 15, colors.red);
      say("not memorised", 6, bottom - 6);
    }
    context.fillStyle = colors.text;
    context.fillRect(middle - 1, 10, 2, bottom - 10);
    context.font = "650 13px system-ui, sans-serif";
    const left = whole(this.now.filter((score) => score <= 0).length);
    const said = `${left} left of the line`;
    const beside = context.measureText(said).width + 16 > width - middle;
    say(
      said,
      beside ? middle - 8 : middle + 8,
      17,
      colors.text,
      beside ? "right" : "left",
    );
  }

  /** What a screen reader says of it. */
  get words() {
    const { now, shown } = this;
    const all = `${whole(now.length)} notes, one dot each`;
    if (shown.seen <= 0.5) return `${all}, at places that tell nothing`;
    const left = now.filter((score) => score <= 0).length;
    const said = `${all}, by their score: ${whole(left)} left of the line`;
    if (shown.truth === 0) return said;
    const memorized = this.memorized.filter(Boolean).length;
    return `${said}, and ${whole(memorized)} memorised ones above the others`;
  }
}

/** A number from 0 to 1 that looks like chance, and is the same each time. @param {number} i */
function scattered(i) {
  const large = Math.sin(12.9898 * (i + 1)) * 43758.5453;
  return large - Math.floor(large);
}

/**
 * Lowest and highest of all but the outermost scores.
 * @param {Float32Array[]} scores
 * @returns {[number, number]}
 */
function reachOfMost(scores) {
  const all = Float32Array.from(scores.flatMap((each) => [...each])).sort();
  const beyond = Math.floor(OUTER * all.length);
  return [all[beyond], all[all.length - 1 - beyond]];
}
