/** The PSMI playground: points to drag, a direction to turn, and the mean over all directions. */

import { bytesOf, html } from "../../widgets/static/dom.js";
import {
  button,
  facts,
  fixedText,
  isStill,
  linear,
  packed,
  panel,
  Plot,
  shareText,
  shown,
  sign,
  slider,
  tile,
} from "./kit.js";
import { LEAST_REACH, NAMES, PointsPlayground } from "./points.js";
import {
  along,
  classesOf,
  DIMENSIONS,
  FAN,
  fan,
  inDimensions,
  psmiOfAll,
  valuesOf,
} from "./psmi_plane.js";
import { pointwise } from "./psmi_maths.js";

/** @typedef {import("../../widgets/static/dom.js").Model} Model */
/** @typedef {import("./kit.js").Slider} Slider */
/** @typedef {import("./kit.js").Tile} Tile */
/** @typedef {import("./psmi_plane.js").Along} Along */
/** @typedef {import("./psmi_plane.js").Classes} Classes */
/** @typedef {import("./psmi_plane.js").Summary} Summary */

/** @typedef {{points: DataView, labels: DataView}} Packed */

/**
 * @typedef {object} State  what Python and the page share
 * @property {Packed} _cloud
 * @property {Packed} _first  where "Start again" returns to
 * @property {number} angle
 * @property {number} selected
 * @property {number} dimension
 */

/**
 * @typedef {object} Cloud  with how it is looked at
 * @property {Float64Array} points
 * @property {Uint8Array} labels
 * @property {number} count  of classes
 * @property {number} selected
 * @property {number} angle
 * @property {number} dimension
 */

/**
 * @typedef {object} Scored  what follows from points and labels
 * @property {Classes} classes
 * @property {Float64Array} psmi
 * @property {Along[]} curves
 */

/**
 * @typedef {object} Parts  what changes on the page, plots apart
 * @property {Slider} turn
 * @property {Slider} more
 * @property {HTMLButtonElement} atypical
 * @property {Tile} mean
 * @property {Tile} value
 * @property {Tile} every
 * @property {Tile} among
 * @property {Tile} deep
 */

const STEPS = 180; // directions of the curve over all angles
const GLIDE = 900; // milliseconds
const SLICE = 8; // milliseconds of computing between two frames
const ABOUT = {
  name: "psmi",
  title: "PSMI: does this point go with its label?",
  words:
    "Project the points onto one direction, and fit a Gaussian to each class. A point's value says how much likelier " +
    "its place is in its own class than among all points. PSMI is the mean of that value over all directions. Below 0, " +
    "the place contradicts the label: a model that trains on such a sample is more likely to memorise it, but not certain to.",
  tries: [
    "Drag the ringed point into another class, or press “Make it atypical”: its PSMI falls below 0 and its sign turns hollow.",
    "Turn the direction until two classes lie on each other: along it, their points have small values, because it cannot tell the two classes apart. Other directions can.",
    "Give a point in the middle of a class another label: that is what a canary is.",
    "Raise d: noise dimensions make most directions blind, so PSMI shrinks towards 0, but the order of the points mostly stays.",
  ],
};

/**
 * @param {Cloud} cloud
 * @returns {Scored}
 */
function scoredOf({ points, labels, count }) {
  const classes = classesOf(points, labels, count);
  const psmi = new Float64Array(labels.length);
  psmiOfAll(points, labels, classes, fan(classes, FAN), psmi);
  return { classes, psmi, curves: fan(classes, STEPS) };
}

/**
 * Value of the ringed point in every direction.
 * @param {Cloud} cloud
 * @param {Scored} scored
 */
function curveOf({ points, labels, selected }, { classes, curves }) {
  return valuesOf(
    curves,
    classes,
    points[2 * selected],
    points[2 * selected + 1],
    labels[selected],
  );
}

/**
 * Largest distance of a point from the middle, and a little more.
 * @param {Float64Array} points
 * @param {number} least
 */
function reachOf(points, least) {
  return Math.max(
    least,
    1.12 * points.reduce((most, x) => Math.max(most, Math.abs(x)), 0),
  );
}

/**
 * One view of the playground.
 * @extends {PointsPlayground<State, Cloud>}
 */
class PSMIView extends PointsPlayground {
  /**
   * @param {Model} model
   * @param {HTMLElement} el
   */
  constructor(model, el) {
    super(model, el, ABOUT, {
      height: 352, // all that moves with the cloud, the direction and d fits on a screen of 900 pixels
      most: 5000,
      words: "drag one, double-click to add, turn the line by its ends",
      keys: "",
      signs: [
        ["○", "fg", "hollow: PSMI below 0"],
        ["━", "risk", "direction with a value below 0"],
      ],
    });
    this.shadow = new Plot("shadow", 146, { left: 14, right: 14, top: 34, bottom: 20 });
    this.plots = [this.cloud, this.shadow];
    this.glide = 0; // frame of a point that moves by itself; 0 if none does
    this.turning = false;
    this.stale = false;
    /** @type {Summary | null} */
    this.depth = null; // in d dimensions; null while it is computed
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    this.deeper = undefined;
    /** @type {Packed | null} */
    this.mine = null; // the cloud as it was sent last
    this.reach = reachOf(this.now.points, LEAST_REACH);
    this.scored = scoredOf(this.now);
    this.curve = curveOf(this.now, this.scored);
    this.parts = this.compose();
    this.nameClasses();
    this.listen();
    this.start();
    this.rest();
  }

  /** @returns {Cloud}  as Python has it */
  taken() {
    const { points, labels } = this.trait("_cloud");
    const classes = new Uint8Array(bytesOf(labels));
    return {
      points: new Float64Array(bytesOf(points)),
      labels: classes,
      count: Math.max(...classes) + 1,
      angle: this.trait("angle"),
      selected: Math.min(this.trait("selected"), classes.length - 1),
      dimension: this.trait("dimension"),
    };
  }

  load() {
    this.endGlide();
    this.now = this.taken();
    this.reach = reachOf(this.now.points, LEAST_REACH);
    this.changed();
  }

  /** @returns {Parts} */
  compose() {
    const turn = slider({
      name: "direction",
      help: "angle of the direction, in degrees",
      max: 180,
      step: 1,
      say: (value) => `${Math.round(value)}°`,
      move: (value) => this.turnTo(value),
      rest: () => this.commitAngle(),
    });
    const atypical = button(
      "Make it atypical",
      "moves the ringed point into another class, or home",
      () => this.wander(),
    );
    const more = slider({
      name: "dimensions d",
      help: "the two above and noise",
      places: DIMENSIONS,
      say: String,
      move: (value) => this.widen(value),
      rest: () => this.commit({ dimension: this.now.dimension }),
    });
    const mean = tile(
      "PSMI of the ringed point",
      "mean over all directions of the plane",
    );
    const value = tile("value along the direction", "log p(θᵀx | y) − log p(θᵀx)");
    const every = tile("values of all directions", "their mean is PSMI");
    const among = tile("its rank among the points", "1 has the lowest PSMI");
    const deep = tile("PSMI in d dimensions", "d − 2 of them are noise; ± its error");
    const left = html(
      "div",
      { class: "mw-play-side" },
      this.cloudPanel(),
      this.acts(atypical),
    );
    const right = html(
      "div",
      { class: "mw-play-side" },
      panel(
        "Seen along this direction",
        "a Gaussian per class, weighed by its size",
        this.shadow.canvas,
      ),
      html("div", { class: "mw-slides" }, turn.element, more.element),
      facts("Results", [mean, value, every, among, deep]),
    );
    this.body.append(left, right);
    return { turn, more, atypical, mean, value, every, among, deep };
  }

  listen() {
    this.onTrait("_cloud", () => {
      if (this.dragging || this.mine === this.trait("_cloud")) return;
      this.load();
      this.nameClasses();
      this.rest();
    });
    this.onTrait("selected", () => this.choose(this.trait("selected"), false));
    this.onTrait("angle", () => {
      if (this.dragging || this.trait("angle") === this.now.angle) return;
      this.turnTo(this.trait("angle"));
      this.say();
    });
    this.onTrait("dimension", () => this.widen(this.trait("dimension")));
  }

  /* ------------------------------------------------------------ what changes */

  /** PSMI of the ringed point. */
  get score() {
    return this.scored.psmi[this.now.selected];
  }

  /** Computes everything again after points or labels changed. */
  changed() {
    clearTimeout(this.deeper);
    this.depth = null;
    this.scored = scoredOf(this.now);
    this.followed();
  }

  /** Computes again what belongs to the ringed point. */
  followed() {
    this.curve = curveOf(this.now, this.scored);
    this.later();
  }

  /** Adds dimensions of noise, a few milliseconds at a time, so that the hand need not wait. */
  deepen() {
    clearTimeout(this.deeper);
    this.depth = null;
    const work = inDimensions(this.now, this.scored.classes, this.now.dimension);
    const next = () => {
      for (const until = performance.now() + SLICE; performance.now() < until;) {
        const { done, value } = work.next();
        if (!done) continue;
        this.depth = value;
        return this.later();
      }
      this.deeper = setTimeout(next);
    };
    this.deeper = setTimeout(next);
  }

  /** @param {number} angle */
  turnTo(angle) {
    this.now.angle = angle;
    this.parts.turn.show(angle);
    this.later();
  }

  commitAngle() {
    this.commit({ angle: this.now.angle });
    this.say();
  }

  /**
   * @param {number} which
   * @param {boolean} [tellPython]
   */
  choose(which, tellPython = true) {
    if (which === this.now.selected || which >= this.now.labels.length) return;
    this.stopGlide();
    this.now.selected = which;
    this.deepen();
    if (tellPython) this.commit({ selected: which });
    this.followed();
    this.showControls();
    this.say();
  }

  /** @param {number} dimension */
  widen(dimension) {
    this.now.dimension = dimension;
    this.parts.more.show(dimension);
    this.deepen();
    this.later();
  }

  rest() {
    this.reach = reachOf(this.now.points, this.reach);
    this.showControls();
    this.later();
    this.say();
    this.deepen();
    this.report({ psmi: packed(this.scored.psmi) });
  }

  /** Sends the points to Python when the user stops moving them. */
  edited() {
    this.changed();
    this.endGlide();
    this.mine = {
      points: new DataView(this.now.points.slice().buffer),
      labels: new DataView(this.now.labels.slice().buffer),
    };
    this.commit({ _cloud: this.mine, selected: this.now.selected });
    this.rest();
  }

  /** Moves the ringed point into the nearest other class, or home. */
  wander() {
    const home = this.score <= 0;
    const { means } = this.scored.classes;
    let best = Infinity;
    let goal = this.own;
    for (let c = 0; c < this.now.count && !home; c++) {
      const distance = Math.hypot(means[2 * c] - this.x, means[2 * c + 1] - this.y);
      if (c !== this.own && distance < best) [best, goal] = [distance, c];
    }
    this.glideTo(means[2 * goal], means[2 * goal + 1]);
  }

  /**
   * @param {number} x
   * @param {number} y
   */
  glideTo(x, y) {
    const [fromX, fromY, which] = [this.x, this.y, this.now.selected];
    const time = isStill() ? 0 : GLIDE;
    const begin = performance.now();
    this.endGlide();
    const step = (/** @type {number} */ now) => {
      const t = time === 0 ? 1 : Math.min(1, Math.max(0, (now - begin) / time));
      const s = t * t * (3 - 2 * t);
      this.now.points[2 * which] = fromX + s * (x - fromX);
      this.now.points[2 * which + 1] = fromY + s * (y - fromY);
      if (t === 1) return this.edited();
      this.changed();
      this.glide = requestAnimationFrame(step);
    };
    this.glide = requestAnimationFrame(step);
  }

  endGlide() {
    cancelAnimationFrame(this.glide);
    this.glide = 0;
  }

  /** Leaves a point that moves by itself where it is, and sends it from there. */
  stopGlide() {
    if (this.glide !== 0) this.edited();
  }

  restart() {
    this.stopGlide(); // else the first cloud may be the one that Python has already
    const first = { ...this.trait("_first") };
    this.commit({
      _cloud: first,
      selected: Math.min(this.now.selected, first.labels.byteLength - 1),
    });
  }

  /* ------------------------------------------------------------ the hand */

  /** Returns the line's ends, from the middle, in pixels. */
  get arm() {
    return Math.min(this.cloud.width, this.cloud.height) / 2 - 16;
  }

  /**
   * @param {number} px
   * @param {number} py
   */
  grab(px, py) {
    const turn = (this.now.angle * Math.PI) / 180;
    const [mx, my] = [px - this.cloud.width / 2, this.cloud.height / 2 - py];
    const handle = Math.min(
      ...[1, -1].map((s) =>
        Math.hypot(
          mx - s * this.arm * Math.cos(turn),
          my - s * this.arm * Math.sin(turn),
        ),
      ),
    );
    this.turning = handle < 16;
    if (this.turning) return true;
    const grabbed = super.grab(px, py);
    if (grabbed) this.stopGlide();
    return grabbed;
  }

  /**
   * @param {number} px
   * @param {number} py
   */
  pull(px, py) {
    if (!this.turning) return super.pull(px, py);
    const [x, y] = this.placeAt(px, py);
    const degrees = (Math.atan2(y, x) * 180) / Math.PI;
    this.turnTo(Math.round(((degrees % 180) + 180) % 180));
  }

  letGo() {
    if (this.turning) this.commitAngle();
    else super.letGo();
  }

  moving() {
    this.stale = true;
    this.later();
  }

  clicked() {
    this.rest();
  }

  /* ------------------------------------------------------------ what is shown */

  showControls() {
    this.parts.turn.show(this.now.angle);
    this.parts.more.show(this.now.dimension);
    this.label.show(String(this.own));
    this.removing.disabled = !this.canLeave();
    this.parts.atypical.textContent =
      this.score > 0 ? "Make it atypical" : "Make it typical";
  }

  /** Speaks the result to screen readers when the user stops moving. */
  say() {
    const value = fixedText(this.score, 2);
    const words = `Point ${this.now.selected + 1} of ${this.now.labels.length}, class ${NAMES[this.own]}: PSMI ${value}.`;
    this.speak(words);
    this.cloud.canvas.setAttribute("aria-label", `Cloud of points. ${words}`);
    this.shadow.canvas.setAttribute(
      "aria-label",
      `Projections at ${Math.round(this.now.angle)} degrees. ${words}`,
    );
  }

  draw() {
    if (this.stale) {
      this.stale = false;
      this.changed();
    }
    const turn = (this.now.angle * Math.PI) / 180;
    const sight = along(this.scored.classes, Math.cos(turn), Math.sin(turn));
    const value = pointwise(
      sight,
      this.scored.classes.prior,
      sight.x * this.x + sight.y * this.y,
      this.own,
    );
    this.drawCloud();
    this.drawShadow(sight, value);
    this.showFacts(value);
  }

  /** @param {number} value  along the direction */
  showFacts(value) {
    const { parts, curve, depth } = this;
    const { psmi } = this.scored;
    const own = this.score;
    parts.mean.show(
      fixedText(own, 2),
      own > 0 ? "▲ goes with its label" : "▼ below 0: at risk",
    );
    parts.value.show(fixedText(value, 2), `at ${Math.round(this.now.angle)}°`);
    const against = curve.reduce((sum, x) => sum + (x <= 0 ? 1 : 0), 0);
    parts.every.show(
      `${fixedText(Math.min(...curve), 2)} to ${fixedText(Math.max(...curve), 2)}`,
      `below 0 in ${shareText(against / curve.length)} of them`,
    );
    const lower = psmi.reduce((sum, x) => sum + (x < own ? 1 : 0), 0);
    const below = psmi.reduce((sum, x) => sum + (x <= 0 ? 1 : 0), 0);
    parts.among.show(
      `${lower + 1} of ${psmi.length}`,
      `${below} are below 0: ${shareText(below / psmi.length)}`,
    );
    this.showDepth(depth);
    const name = own > 0 ? "Make it atypical" : "Make it typical";
    if (parts.atypical.textContent !== name) parts.atypical.textContent = name;
  }

  /** @param {Summary | null} found */
  showDepth(found) {
    if (found === null) return this.parts.deep.show("…", "");
    const [low, middle, high] = found.others.map((value) => fixedText(value, 2));
    this.parts.deep.show(
      `${fixedText(found.psmi, 3)} ± ${fixedText(found.std, 3)}`,
      `d = ${found.dimension}; others: median ${middle}, 90 % in ${low} to ${high}`,
    );
  }

  drawCloud() {
    const plot = this.cloud;
    plot.begin(this.palette);
    const { width, height } = plot;
    const { labels, selected, angle } = this.now;
    const { psmi } = this.scored;
    const r = labels.length > 600 ? 2.6 : labels.length > 250 ? 3.6 : 4.6;
    const turn = (angle * Math.PI) / 180;
    const [dx, dy] = [Math.cos(turn), -Math.sin(turn)];
    const [cx, cy] = [width / 2, height / 2];
    this.drawDial(plot, cx, cy);
    plot.line(
      [
        [cx - this.arm * dx, cy - this.arm * dy],
        [cx + this.arm * dx, cy + this.arm * dy],
      ],
      "muted",
      1.5,
    );
    const [full, hollow] = this.signsOf(r);
    for (let i = 0; i < labels.length; i++) {
      if (i === selected) continue;
      (psmi[i] > 0 ? full : hollow)[labels[i]](...this.pixelOf(i));
    }
    const [px, py] = this.pixelOf(selected);
    Object.assign(this.root.dataset, { x: px, y: py });
    const foot = (px - cx) * dx + (py - cy) * dy;
    plot.line(
      [
        [px, py],
        [cx + foot * dx, cy + foot * dy],
      ],
      "fg",
      1,
      [3, 3],
    );
    for (const end of [-1, 1])
      plot.dot(cx + end * this.arm * dx, cy + end * this.arm * dy, 7, "fg", "bg");
    this.drawChosen(plot, px, py, 7);
    const above = py > 40 ? -18 : 28;
    const words = `PSMI ${fixedText(this.score, 2)}`;
    plot.text(words, Math.min(width - 42, Math.max(42, px)), py + above, {
      colour: "fg",
      align: "center",
      bold: true,
      halo: true,
    });
  }

  /**
   * A circle of all directions, which is thick where they speak against the ringed point's label.
   * @param {Plot} plot
   * @param {number} cx
   * @param {number} cy
   */
  drawDial(plot, cx, cy) {
    const { context } = plot;
    const step = Math.PI / STEPS;
    plot.dot(cx, cy, this.arm, "", "muted", 1);
    for (const half of [0, Math.PI]) {
      context.beginPath();
      this.curve.forEach((value, i) => {
        if (value > 0) return;
        const turn = half - i * step; // a canvas turns the other way
        context.moveTo(
          cx + this.arm * Math.cos(turn + step / 2),
          cy + this.arm * Math.sin(turn + step / 2),
        );
        context.arc(cx, cy, this.arm, turn + step / 2, turn - step / 2, true);
      });
      plot.ink("", "risk", 5);
    }
  }

  /**
   * The ringed point, whose sign is full or hollow as all others.
   * @param {Plot} plot
   * @param {number} x
   * @param {number} y
   * @param {number} r
   */
  drawChosen(plot, x, y, r) {
    plot.context.beginPath();
    sign(plot.context, this.own, x, y, r);
    plot.ink(this.score <= 0 ? "bg" : `c${this.own}`, `c${this.own}`, 2.2);
    plot.dot(x, y, r + 5, "", "fg", 1.8);
  }

  /**
   * @param {Along} sight  the classes along the direction
   * @param {number} value
   */
  drawShadow(sight, value) {
    const plot = this.shadow;
    plot.begin(this.palette);
    const { left, right, top, bottom } = plot.frame;
    const { means, deviations } = sight;
    const x = linear(-this.reach, this.reach, left, right);
    const prior = this.scored.classes.prior;
    const heights = Array.from(means, (_, c) => prior[c] / deviations[c]);
    const tall = Math.max(...heights);
    const y = (/** @type {number} */ share) => bottom - share * (bottom - top);
    for (let c = 0; c < this.now.count; c++) {
      const outline = plot.curve((px) =>
        y(
          (heights[c] / tall) *
            Math.exp(-0.5 * ((x.back(px) - means[c]) / deviations[c]) ** 2),
        ),
      );
      plot.area(
        [[left, bottom], ...outline, [right, bottom]],
        `c${c}`,
        c === this.own ? 0.26 : 0.1,
      );
      plot.line(
        outline,
        `c${c}`,
        c === this.own ? 2.4 : 1.5,
        c === this.own ? [] : [6, 3],
      );
      const place = x.clip(means[c]);
      plot.text(
        NAMES[c],
        Math.min(right - 8, Math.max(left + 8, place)),
        y(heights[c] / tall) - 5,
        { colour: `c${c}`, align: "center", bold: true },
      );
    }
    plot.line(
      [
        [left, bottom + 0.5],
        [right, bottom + 0.5],
      ],
      "muted",
    );
    const at = x.clip(sight.x * this.x + sight.y * this.y);
    plot.line(
      [
        [at, 2],
        [at, bottom],
      ],
      "fg",
      1.6,
    );
    this.drawChosen(plot, at, bottom, 5);
    const leftward = at > (left + right) / 2;
    const words = `value ${fixedText(value, 2)}`;
    plot.text(words, at + (leftward ? -9 : 9), 12, {
      colour: "fg",
      align: leftward ? "right" : "left",
      bold: true,
      halo: true,
    });
  }

  destroy() {
    this.endGlide();
    clearTimeout(this.deeper);
    super.destroy();
  }
}

export default shown(PSMIView);
