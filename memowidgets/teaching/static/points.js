/** Points of classes in the plane: mouse, finger and keyboard move, label, add and remove them. */

import { html, segments } from "../../widgets/static/dom.js";
import { button, legend, panel, Playground, Plot, row, sign } from "./kit.js";

/** @typedef {import("../../widgets/static/dom.js").Model} Model */
/** @typedef {import("./kit.js").Palette} Palette */
/** @typedef {ReturnType<Plot["stamp"]>} Stamp */

/**
 * @typedef {object} Points
 * @property {Float64Array} points  x and y in turn
 * @property {Uint8Array} labels
 * @property {number} count  of classes
 * @property {number} selected
 */

/**
 * @typedef {object} Stamped  the classes' signs, and what they were drawn for
 * @property {Palette} palette
 * @property {number} r
 * @property {number} count
 * @property {number} ratio
 * @property {[Stamp[], Stamp[]]} signs  full and hollow
 */

/**
 * @typedef {object} Look
 * @property {number} height  of the plane, in pixels
 * @property {number} most  points
 * @property {string} words  beside its heading
 * @property {string} keys  of the keyboard, beside those that move, choose and remove
 * @property {[string, string, string][]} signs  in the legend, after those of the classes
 */

export const NAMES = ["A", "B", "C", "D"];
const SIGNS = ["●", "■", "▲", "◆"];
export const LEAST_REACH = 4.6; // from the middle to an edge
const NEAR = 18; // pixels from a point, to grab it
const STEADY = 5; // pixels that a finger may move while it taps
const TWICE = 450; // milliseconds between two taps

/**
 * Base class of the playgrounds with points. `Now` has the points and how they are looked at.
 * @template {object} State
 * @template {Points} Now
 * @extends {Playground<State>}
 */
export class PointsPlayground extends Playground {
  /**
   * @param {Model} model
   * @param {HTMLElement} el
   * @param {{name: string, title: string, words: string, tries: string[]}} about
   * @param {Look} look
   */
  constructor(model, el, about, look) {
    super(model, el, about);
    this.look = look;
    this.cloud = new Plot("cloud", look.height, {
      left: 0,
      right: 0,
      top: 0,
      bottom: 0,
    });
    this.reach = LEAST_REACH;
    this.now = this.taken();
    this.named = 0; // how many classes have their buttons
    this.moved = false;
    /** Where a point was pressed. @type {[number, number]} */
    this.pressed = [0, 0];
    this.tapped = { time: -Infinity, x: 0, y: 0 };
    /** @type {Stamped | null} */
    this.stamped = null;
    this.label = segments("Label of the chosen point", [], () => {});
    this.signs = html("div");
    this.removing = button("Remove", "removes the chosen point (Delete)", () =>
      this.drop(),
    );
  }

  /* ------------------------------------------------------------ what a playground says of itself */

  /** @returns {Now} */
  taken() {
    throw new Error("a playground takes its points from somewhere");
  }

  /** Points or labels are others now. */
  edited() {}

  /** A point is being dragged. */
  moving() {}

  /** A point was pressed and let go. */
  clicked() {}

  /** The first points again. */
  restart() {}

  /** @param {number} _which  chosen now */
  choose(_which) {}

  /** @param {number} _which  is no more; those after it have moved up */
  removed(_which) {}

  /* ------------------------------------------------------------ on the page */

  cloudPanel() {
    const { canvas } = this.cloud;
    canvas.tabIndex = 0;
    canvas.setAttribute("role", "application");
    const help = html(
      "span",
      { class: "mw-spoken", id: `mw-play-${Math.random().toString(36).slice(2)}` },
      `Arrow keys move the chosen point, Page Up and Page Down choose another, Delete removes it${this.look.keys}.`,
    );
    canvas.setAttribute("aria-describedby", help.id);
    this.drag(this.cloud, {
      press: (x, y) => this.grab(x, y),
      move: (x, y) => this.pull(x, y),
      release: () => this.letGo(),
    });
    this.ears.on(canvas, "keydown", (event) => this.key(event));
    // a finger on a point drags it; beside the points it scrolls the page
    this.ears.on(canvas, "touchstart", (event) => {
      if (this.dragging) event.preventDefault();
    });
    return panel("The points", this.look.words, canvas, help, this.signs);
  }

  /** @param {...HTMLElement} more  buttons */
  acts(...more) {
    const add = button(
      "Add",
      "adds a point beside the centre of this class (double-click or double-tap: there)",
      () => this.add(),
    );
    const reset = button("Start again", "the points as they were at first", () =>
      this.restart(),
    );
    return row("its label", this.label.group, ...more, add, this.removing, reset);
  }

  /** Buttons and legend of as many classes as there are. */
  nameClasses() {
    const { count } = this.now;
    if (this.named === count) return;
    this.named = count;
    const choices = NAMES.slice(0, count).map((name, c) => ({
      value: String(c),
      label: `${SIGNS[c]} ${name}`,
    }));
    const label = segments("Label of the chosen point", choices, (value) =>
      this.relabel(Number(value)),
    );
    this.label.group.replaceWith(label.group);
    this.label = label;
    const signs = choices.map(
      (_, c) =>
        /** @type {[string, string, string]} */ ([
          SIGNS[c],
          `c${c}`,
          `label ${NAMES[c]}`,
        ]),
    );
    this.signs.replaceChildren(legend(this.entries(signs)));
  }

  /**
   * What the legend says.
   * @param {[string, string, string][]} classes  their signs
   */
  entries(classes) {
    return [...classes, ...this.look.signs];
  }

  /* ------------------------------------------------------------ the points */

  get x() {
    return this.now.points[2 * this.now.selected];
  }

  get y() {
    return this.now.points[2 * this.now.selected + 1];
  }

  get own() {
    return this.now.labels[this.now.selected];
  }

  get unit() {
    return Math.min(this.cloud.width, this.cloud.height) / 2 / this.reach;
  }

  /**
   * @param {number} px
   * @param {number} py
   * @returns {[number, number]}
   */
  placeAt(px, py) {
    return [
      (px - this.cloud.width / 2) / this.unit,
      (this.cloud.height / 2 - py) / this.unit,
    ];
  }

  /**
   * Where a point is drawn.
   * @param {number} i
   * @returns {[number, number]}
   */
  pixelOf(i) {
    const { points } = this.now;
    return [
      this.cloud.width / 2 + points[2 * i] * this.unit,
      this.cloud.height / 2 - points[2 * i + 1] * this.unit,
    ];
  }

  /**
   * Moves the chosen point, but not out of sight.
   * @param {number} x
   * @param {number} y
   */
  put(x, y) {
    const inside = (/** @type {number} */ a, /** @type {number} */ side) => {
      const most = side / 2 / this.unit;
      return Math.max(-most, Math.min(most, a));
    };
    this.now.points[2 * this.now.selected] = inside(x, this.cloud.width);
    this.now.points[2 * this.now.selected + 1] = inside(y, this.cloud.height);
  }

  /** Whether the chosen point's class keeps two points without it. */
  canLeave() {
    return (
      this.now.labels.reduce((n, label) => n + (label === this.own ? 1 : 0), 0) > 2
    );
  }

  /** @param {number} label */
  relabel(label) {
    if (label === this.own || !this.canLeave())
      return this.label.show(String(this.own));
    this.now.labels[this.now.selected] = label;
    this.edited();
  }

  /**
   * Adds a point with the label of the chosen one, by default beside the centre of that class.
   * @param {number} [x]
   * @param {number} [y]
   */
  add(x, y) {
    const { points, labels } = this.now;
    if (labels.length >= this.look.most) return;
    const label = this.own;
    const aside = 0.25 * ((labels.length % 5) - 2); // not one on the other
    const centre = [aside, -aside];
    const size = labels.reduce((n, one) => n + (one === label ? 1 : 0), 0);
    labels.forEach((one, i) => {
      if (one === label) [0, 1].forEach((k) => (centre[k] += points[2 * i + k] / size));
    });
    this.now.points = Float64Array.from([...points, x ?? centre[0], y ?? centre[1]]);
    this.now.labels = Uint8Array.from([...labels, label]);
    this.now.selected = labels.length;
    this.edited();
  }

  drop() {
    if (!this.canLeave()) return;
    const { now } = this;
    const gone = now.selected;
    now.points = now.points.filter((_, i) => i >> 1 !== gone);
    now.labels = now.labels.filter((_, i) => i !== gone);
    now.selected = Math.min(gone, now.labels.length - 1);
    this.removed(gone);
    this.edited();
  }

  /* ------------------------------------------------------------ the hand */

  /**
   * @param {number} px
   * @param {number} py
   */
  grab(px, py) {
    let [best, nearest] = [NEAR, -1];
    for (let i = 0; i < this.now.labels.length; i++) {
      const [x, y] = this.pixelOf(i);
      const away = Math.hypot(x - px, y - py) - (i === this.now.selected ? 6 : 0);
      if (away < best) [best, nearest] = [away, i];
    }
    if (nearest < 0) {
      const { time, x, y } = this.tapped;
      const now = performance.now();
      const again = now - time < TWICE && Math.hypot(x - px, y - py) < NEAR;
      this.tapped = { time: again ? -Infinity : now, x: px, y: py };
      if (again) this.add(...this.placeAt(px, py));
      return false;
    }
    this.choose(nearest);
    this.moved = false;
    this.pressed = [px, py];
    this.root.classList.add("mw-dragging");
    return true;
  }

  /**
   * @param {number} px
   * @param {number} py
   */
  pull(px, py) {
    const [x, y] = this.pressed;
    if (!this.moved && Math.hypot(px - x, py - y) < STEADY) return;
    this.moved = true;
    this.put(...this.placeAt(px, py));
    this.moving();
  }

  letGo() {
    this.root.classList.remove("mw-dragging");
    if (this.moved) this.edited();
    else this.clicked();
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const step = (event.shiftKey ? 0.02 : 0.1) * (this.reach / LEAST_REACH);
    const moves = /** @type {Record<string, [number, number]>} */ ({
      ArrowLeft: [-step, 0],
      ArrowRight: [step, 0],
      ArrowUp: [0, step],
      ArrowDown: [0, -step],
    });
    const {
      labels: { length: n },
      selected,
    } = this.now;
    if (moves[event.key]) {
      this.put(this.x + moves[event.key][0], this.y + moves[event.key][1]);
      this.edited();
    } else if (event.key === "PageDown") this.choose((selected + 1) % n);
    else if (event.key === "PageUp") this.choose((selected + n - 1) % n);
    else if (event.key === "Delete" || event.key === "Backspace") this.drop();
    else return;
    event.preventDefault();
  }

  /**
   * Full and hollow signs of every class, drawn once for a theme.
   * @param {number} r
   */
  signsOf(r) {
    const {
      cloud,
      palette,
      now: { count },
    } = this;
    const ratio = window.devicePixelRatio;
    const key = this.stamped;
    if (
      key &&
      key.palette === palette &&
      key.r === r &&
      key.count === count &&
      key.ratio === ratio
    )
      return key.signs;
    const make = (/** @type {boolean} */ full) =>
      Array.from({ length: count }, (_, c) =>
        cloud.stamp(2 * r + 2, (context) => {
          context.beginPath();
          sign(context, c, 0, 0, r);
          context.globalAlpha = full ? 0.8 : 1;
          context.fillStyle = cloud.colour(full ? `c${c}` : "bg");
          context.fill();
          context.strokeStyle = cloud.colour(full ? "bg" : `c${c}`);
          context.lineWidth = full ? 1 : 1.6;
          context.stroke();
        }),
      );
    /** @type {[Stamp[], Stamp[]]} */
    const signs = [make(true), make(false)];
    this.stamped = { palette, r, count, ratio, signs };
    return signs;
  }
}
