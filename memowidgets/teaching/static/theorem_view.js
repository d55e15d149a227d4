/** The playground of Theorem 1: PSMI of outliers and others, and where the theorem breaks. */

import { html } from "../../widgets/static/dom.js";
import {
  button,
  facts,
  fixedText,
  legend,
  linear,
  panel,
  Playground,
  Plot,
  row,
  shareText,
  shown,
  sliders,
  tile,
} from "./kit.js";
import { clopperPearson } from "../../widgets/static/maths.js";
import { tickText } from "../../widgets/static/numbers.js";
import {
  DIMENSIONS,
  directionsFor,
  psmiOf,
  ratesAt,
  roomFor,
  sample,
  SEPARATIONS,
  worldOf,
} from "./theorem_maths.js";

/** @typedef {import("../../widgets/static/dom.js").Model} Model */
/** @typedef {import("./kit.js").Palette} Palette */
/** @typedef {import("./kit.js").Scale} Scale */
/** @typedef {import("./kit.js").Tile} Tile */
/** @typedef {import("./theorem_maths.js").Mixture} Mixture */
/** @typedef {import("./theorem_maths.js").Samples} Samples */
/** @typedef {import("./theorem_maths.js").World} World */
/** @typedef {ReturnType<typeof ratesAt>} Rates */

/** @typedef {Mixture & {tau: number, n: number, seed: number}} State  what Python and the page share */

/** @typedef {{separation: number, outliers: number, others: number}} Means */

/**
 * @typedef {object} Population
 * @property {string} key  of its size and seed
 * @property {World} world
 * @property {Samples} samples
 * @property {Float64Array} psmi
 */

/**
 * @typedef {object} Parts  what changes on the page, plots apart
 * @property {import("./kit.js").Sliders<"epsilon" | "separation" | "dimension" | "tau">} slides
 * @property {HTMLButtonElement[]} switches
 * @property {Tile} wrong
 * @property {Tile} tpr
 * @property {Tile} fpr
 * @property {Tile} outliers
 * @property {Tile} typical
 */

const BINS = 72;
const NAMED = 24; // pixels above a row of the histogram, for its name
const SWITCHES = /** @type {const} */ ([
  ["imbalance", "Imbalance", "the second class has 10 % of the samples"],
  ["overlap", "Overlap", "the deviation within a class is 3 in place of 1"],
  [
    "heavy_tails",
    "Heavy tails",
    "Student’s t with two degrees of freedom in place of Gaussian",
  ],
]);
const HEARD = /** @type {const} */ ([
  "epsilon",
  "separation",
  "dimension",
  "tau",
  "imbalance",
  "overlap",
  "heavy_tails",
  "n",
  "seed",
]);
const PLACES = [0, 0.5, 1, 1.5, 2, 3, 4, 5, 6]; // separations whose means are drawn
const ABOUT = {
  name: "theorem",
  title: "Theorem 1: why τ = 0",
  words:
    "There are two Gaussian classes. A share ε of the samples are outliers, which have a random label. The theorem says " +
    "that the mean PSMI is above 0 for the others, and 0 for outliers. But PSMI compares each class with all samples, " +
    "outliers included. A wrong label lowers PSMI more than a right one raises it, so the mean of outliers is below 0.",
  tries: [
    "Look at the lower histogram: half of the outliers kept their right label by chance, and their PSMI is that of the other samples. No score can find those, because nothing is wrong with them. That is why only half of the outliers are flagged, but nearly all wrong labels.",
    "Lower the separation: both means meet at 0, the only place where the paper’s equality holds.",
    "Switch on imbalance: PSMI of the large class hardly rises above 0, so τ = 0 flags many of its ordinary samples, and nearly none of the small class’s.",
  ],
};

/**
 * Room for so many samples and all their randomness.
 * @param {{n: number, seed: number}} size
 * @returns {Population}
 */
function populationOf({ n, seed }) {
  return {
    key: `${n} ${seed}`,
    world: worldOf(n, seed),
    samples: roomFor(n),
    psmi: new Float64Array(n),
  };
}

/** @param {number} dimension */
function directedTo(dimension) {
  return { dimension, directions: directionsFor(dimension) };
}

/**
 * One view of the playground.
 * @extends {Playground<State>}
 */
class TheoremView extends Playground {
  /**
   * @param {Model} model
   * @param {HTMLElement} el
   */
  constructor(model, el) {
    super(model, el, ABOUT);
    this.cloud = new Plot("mixture", 300, { left: 14, right: 14, top: 10, bottom: 38 });
    this.histogram = new Plot("histogram", 300, {
      left: 44,
      right: 14,
      top: 34,
      bottom: 38,
    });
    this.means = new Plot("means", 232, { left: 48, right: 14, top: 12, bottom: 40 });
    this.plots = [this.cloud, this.histogram, this.means];
    this.sliding = false;
    this.stale = false;
    /** @type {Scale | null} */
    this.scale = null; // of the histogram as it is drawn
    /** @type {{palette: Palette, pattern: CanvasPattern} | null} */
    this.hatched = null;
    /** @type {{key: string, means: Means[]}} */
    this.curve = { key: "", means: [] }; // of which settings, but for separation and τ
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    this.sweeping = undefined;
    this.room = 0; // pixels beside the line at τ, for the rows' names
    /** @type {State} */
    this.now = this.traits(HEARD);
    this.population = populationOf(this.now);
    this.directed = directedTo(this.now.dimension);
    this.changed();
    this.parts = this.compose();
    this.showControls();
    for (const name of HEARD) this.onTrait(name, () => this.hear());
    this.drag(this.histogram, {
      press: (x) => this.pull(x),
      move: (x) => this.pull(x),
      release: () => this.rest(),
    });
    this.start();
    this.say();
  }

  load() {
    this.now = this.traits(HEARD);
    if (this.population.key !== `${this.now.n} ${this.now.seed}`)
      this.population = populationOf(this.now);
    this.changed();
  }

  hear() {
    if (this.dragging || this.sliding) return;
    this.load();
    this.showControls();
    this.say();
  }

  /** Draws and scores all samples again. */
  changed() {
    const { dimension } = this.now;
    const { world, samples, psmi } = this.population;
    if (this.directed.dimension !== dimension) this.directed = directedTo(dimension);
    sample(world, this.now, samples);
    psmiOf(samples, dimension, this.directed.directions, psmi);
    this.later();
  }

  /** @returns {Parts} */
  compose() {
    const slides = sliders(
      {
        epsilon: {
          name: "outliers ε",
          help: "share of samples whose label is a coin toss",
          max: 0.5,
          step: 0.01,
          say: (x) => `${Math.round(100 * x)} %`,
        },
        separation: {
          name: "separation",
          help: "distance of the classes’ means, in deviations",
          max: SEPARATIONS,
          step: 0.1,
          say: (x) => fixedText(x, 1),
        },
        dimension: {
          name: "dimension",
          help: "dimension of the space",
          places: DIMENSIONS,
          say: String,
        },
        tau: {
          name: "threshold τ",
          min: -2,
          max: 1,
          step: 0.01,
          say: (x) => fixedText(x, 2),
        },
      },
      (name, value) => {
        if (name === "tau") return this.moveTau(value);
        this.sliding = true;
        this.now[name] = value;
        this.stale = true;
        this.later();
      },
      () => this.rest(),
    );
    const switches = SWITCHES.map(([trait, name, help]) =>
      button(name, help, () => this.flip(trait)),
    );
    const zero = button("τ = 0", "the theorem’s threshold", () => {
      this.moveTau(0);
      this.rest();
    });
    const breaks = html(
      "div",
      { class: "mw-row mw-span", role: "group", "aria-label": "Where it breaks" },
      html("span", { class: "mw-labelled" }, "where it breaks"),
      ...switches,
      zero,
    );
    const left = panel(
      "The mixture",
      "the axis of the means, and one more",
      this.cloud.canvas,
      legend([
        ["●", "c0", "labelled A"],
        ["■", "c1", "labelled B"],
        ["✕", "risk", "outlier with a wrong label"],
      ]),
    );
    const right = panel(
      "PSMI of all samples",
      "number of samples in each bar; drag τ",
      this.histogram.canvas,
      legend([
        ["▮", "other", "others"],
        ["▨", "risk", "outliers, wrong label"],
        ["▯", "risk", "outliers, right label"],
        ["┊", "fg", "mean"],
      ]),
    );
    const wrong = tile(
      "wrong labels flagged",
      "outliers whose label came out wrong, with PSMI of at most τ",
    );
    const tpr = tile("outliers flagged", "TPR at τ");
    const fpr = tile("others flagged", "FPR at τ");
    const outliers = tile(
      "mean PSMI of outliers",
      "the paper says 0; computed it is below",
    );
    const typical = tile("mean PSMI of others");
    const results = facts("Results", [wrong, tpr, fpr, outliers, typical], "mw-span");
    const parting = html(
      "div",
      { class: "mw-span" },
      panel(
        "Where the paper and the computed PSMI part",
        "mean PSMI at every separation",
        this.means.canvas,
        legend([
          ["●", "accent", "others"],
          ["▼", "risk", "outliers, computed"],
          ["┄", "fg", "outliers, as the theorem states it"],
        ]),
      ),
    );
    this.body.append(left, right, slides.element, breaks, results, parting);
    return { slides, switches, wrong, tpr, fpr, outliers, typical };
  }

  /* ------------------------------------------------------------ what changes */

  /** @param {typeof SWITCHES[number][0]} trait */
  flip(trait) {
    this.now[trait] = !this.now[trait];
    this.changed();
    this.rest();
  }

  /** @param {number} tau */
  moveTau(tau) {
    this.now.tau = Math.round(tau * 1000) / 1000;
    this.parts.slides.show(this.now);
    this.later();
  }

  /** @param {number} x  pixel */
  pull(x) {
    if (this.scale === null) return false;
    this.moveTau(
      Math.min(this.scale.high, Math.max(this.scale.low, this.scale.back(x))),
    );
    return true;
  }

  rest() {
    this.sliding = false;
    this.commit({ ...this.now });
    if (this.stale) this.changed();
    this.stale = false;
    this.showControls();
    this.later();
    this.say();
  }

  showControls() {
    const { slides, switches } = this.parts;
    slides.show(this.now);
    SWITCHES.forEach(([trait], i) =>
      switches[i].setAttribute("aria-pressed", String(this.now[trait])),
    );
  }

  /** Means of PSMI, and what τ flags, with 95 % intervals. */
  get rates() {
    const found = ratesAt(
      this.population.psmi,
      this.population.samples.kinds,
      this.now.tau,
    );
    const interval = (/** @type {number} */ rate, /** @type {number} */ of) =>
      clopperPearson(Math.round(rate * of), of);
    return {
      ...found,
      tprInterval: interval(found.tpr, found.outliers),
      wrongInterval: interval(found.tprWrong, found.wrong),
      fprInterval: interval(found.fpr, found.n - found.outliers),
    };
  }

  /** What the curve of means belongs to. */
  get swept() {
    return JSON.stringify({ ...this.now, separation: 0, tau: 0 });
  }

  /** Computes the means at every separation, after the frame that the hand waits for. */
  sweep() {
    clearTimeout(this.sweeping);
    const key = this.swept;
    if (this.curve.key === key) return;
    this.sweeping = setTimeout(() => {
      const {
        now,
        population: { world },
        directed: { dimension, directions },
      } = this;
      const [samples, psmi] = [roomFor(now.n), new Float64Array(now.n)];
      const means = PLACES.map((separation) => {
        sample(world, { ...now, separation }, samples);
        psmiOf(samples, dimension, directions, psmi);
        const { meanOutliers, meanOthers } = ratesAt(psmi, samples.kinds, now.tau);
        return { separation, outliers: meanOutliers, others: meanOthers };
      });
      this.curve = { key, means };
      this.later();
    });
  }

  /** Tells screen readers and Python the result when the user stops moving. */
  say() {
    this.sweep();
    const found = this.rates;
    const {
      flagged,
      n,
      tpr,
      fpr,
      tprWrong,
      meanOutliers,
      meanOthers,
      meanWrong,
      meanRight,
    } = found;
    this.report({
      means: {
        outliers: meanOutliers,
        others: meanOthers,
        wrong: meanWrong,
        right: meanRight,
      },
      rates: {
        flagged,
        n,
        tpr,
        tpr_interval: found.tprInterval,
        fpr,
        fpr_interval: found.fprInterval,
        tpr_wrong: tprWrong,
        tpr_wrong_interval: found.wrongInterval,
      },
    });
    const words =
      `τ ${fixedText(this.now.tau, 2)}: ${shareText(found.tprWrong)} of wrong labels, ${shareText(found.tpr)} of outliers and ${shareText(found.fpr)} of others flagged; ` +
      `mean PSMI ${fixedText(found.meanOutliers, 2)} of outliers, ${fixedText(found.meanOthers, 2)} of others.`;
    this.speak(words);
    this.cloud.canvas.setAttribute("aria-label", `The mixture's samples. ${words}`);
    this.histogram.canvas.setAttribute("aria-label", `Histograms of PSMI. ${words}`);
    this.means.canvas.setAttribute(
      "aria-label",
      `Mean PSMI against separation. ${words}`,
    );
  }

  /* ------------------------------------------------------------ what is shown */

  draw() {
    if (this.stale) {
      this.stale = false;
      this.changed();
    }
    const found = this.rates;
    this.drawCloud();
    this.drawHistogram(found);
    this.drawMeans(found);
    const interval = (/** @type {[number, number] | null} */ ends) =>
      ends ? `${shareText(ends[0])} to ${shareText(ends[1])}` : "";
    const none = found.outliers === 0;
    const { wrong, tpr, fpr, outliers, typical } = this.parts;
    wrong.show(
      shareText(found.tprWrong),
      found.wrong === 0 ? "no wrong labels" : interval(found.wrongInterval) || " ",
    );
    tpr.show(
      shareText(found.tpr),
      none
        ? "no outliers"
        : [
            interval(found.tprInterval),
            `${shareText(found.wrong / found.outliers)} have a wrong label`,
          ]
            .filter(Boolean)
            .join("; "),
    );
    fpr.show(shareText(found.fpr), interval(found.fprInterval) || " ");
    outliers.show(
      fixedText(found.meanOutliers, 3),
      none
        ? ""
        : `right label ${fixedText(found.meanRight, 2)}, wrong ${fixedText(found.meanWrong, 2)}`,
    );
    typical.show(
      fixedText(found.meanOthers, 3),
      `${found.meanOthers > 0 ? "above 0" : "not above 0"}, ${this.verdict(found)}`,
    );
    this.root.dataset.tpr = String(found.tpr);
    this.root.dataset.fpr = String(found.fpr);
  }

  /**
   * What the theorem has to do with the mean of the others.
   * @param {Rates} found
   */
  verdict(found) {
    const { imbalance, overlap, heavy_tails: heavyTails, separation } = this.now;
    if (imbalance || overlap || heavyTails) return "outside the theorem";
    if (separation === 0) return "the classes are one";
    return found.meanOthers > 0 ? "as the theorem says" : "by chance of this draw";
  }

  drawCloud() {
    const plot = this.cloud;
    const context = plot.begin(this.palette);
    const { left, right, top, bottom } = plot.frame;
    const { t, side, labels, kinds } = this.population.samples;
    const { dimension, separation, overlap } = this.now;
    const wide = (separation / 2 + 3.4 * (overlap ? 3 : 1)) * 1.02;
    const x = linear(-wide, wide, left, right);
    const unit = (right - left) / (2 * wide);
    const middle = (top + bottom) / 2;
    const flat = dimension === 1;
    plot.clip();
    const wrong = new Path2D();
    /** @type {(i: number) => [number, number]} */
    const place = (i) => [
      x.at(t[i]),
      middle - (flat ? (((i * 37) % 101) / 101 - 0.5) * 60 : side[i] * unit),
    ];
    for (const label of [0, 1]) {
      context.fillStyle = plot.colour(`c${label}`);
      context.globalAlpha = 0.7;
      for (let i = 0; i < t.length; i++) {
        if (kinds[i] === 2 || labels[i] !== label) continue;
        const [px, py] = place(i);
        if (label === 0) context.fillRect(px - 1.2, py - 1.2, 2.4, 2.4);
        else context.fillRect(px - 1.5, py - 1.5, 3, 3);
      }
    }
    for (let i = 0; i < t.length; i++) {
      if (kinds[i] !== 2) continue;
      const [px, py] = place(i);
      wrong.moveTo(px - 3.6, py - 3.6);
      wrong.lineTo(px + 3.6, py + 3.6);
      wrong.moveTo(px + 3.6, py - 3.6);
      wrong.lineTo(px - 3.6, py + 3.6);
    }
    context.globalAlpha = 1;
    context.strokeStyle = plot.colour("risk");
    context.lineWidth = 1.7;
    context.stroke(wrong);
    plot.free();
    plot.lowerAxis(
      x,
      flat
        ? "the axis of the means (spread across it for the eye)"
        : "the axis of the means",
    );
  }

  /** @param {Rates} found */
  drawHistogram(found) {
    const plot = this.histogram;
    const context = plot.begin(this.palette);
    const { left, right, top, bottom } = plot.frame;
    const x = (this.scale = this.scaleOf(left, right));
    const bins = [
      new Float64Array(BINS),
      new Float64Array(BINS),
      new Float64Array(BINS),
    ];
    const {
      psmi,
      samples: { kinds },
    } = this.population;
    for (let i = 0; i < psmi.length; i++) {
      const bin = Math.floor(((psmi[i] - x.low) / (x.high - x.low)) * BINS);
      bins[kinds[i]][Math.min(BINS - 1, Math.max(0, bin))] += 1;
    }
    const [others, kept, wrong] = bins;
    const zero = x.clip(this.now.tau);
    plot.area(
      [
        [left, top],
        [zero, top],
        [zero, bottom],
        [left, bottom],
      ],
      "risk",
      0.07,
    );
    const middle = Math.round((top + bottom) / 2);
    const upper = this.axisOfCounts(others, top, middle - 6);
    const lower = this.axisOfCounts(
      wrong.map((count, i) => count + kept[i]),
      middle,
      bottom,
    );
    const wide = (right - left) / BINS;
    const bars = [new Path2D(), new Path2D(), new Path2D()];
    for (let i = 0; i < BINS; i++) {
      const px = left + i * wide + 0.5;
      /** @type {(path: Path2D, y: Scale, from: number, to: number) => void} */
      const bar = (path, y, from, to) =>
        path.rect(px, y.at(to), wide - 1, y.at(from) - y.at(to));
      if (others[i] > 0) bar(bars[0], upper, 0, others[i]);
      if (wrong[i] > 0) bar(bars[2], lower, 0, wrong[i]);
      if (kept[i] > 0) bar(bars[1], lower, wrong[i], wrong[i] + kept[i]);
    }
    context.fillStyle = plot.colour("other");
    context.fill(bars[0]);
    context.fillStyle = plot.colour("risk");
    context.fill(bars[2]);
    context.fillStyle = this.hatch();
    context.fill(bars[2]);
    context.strokeStyle = plot.colour("risk");
    context.lineWidth = 1;
    context.stroke(bars[1]);
    plot.line(
      [
        [left, middle - 6],
        [right, middle - 6],
      ],
      "muted",
    );
    plot.line(
      [
        [zero, top - 14],
        [zero, bottom],
      ],
      "fg",
      2,
    );
    const side = zero - left > (right - left) / 2 ? "left" : "right"; // away from the line at τ
    this.room = Math.max(zero - left, right - zero) - 14;
    this.nameRow(
      `${found.n - found.outliers} others`,
      found.meanOthers,
      "fg",
      x,
      top,
      middle - 6,
      side,
    );
    if (found.outliers > 0)
      this.nameRow(
        `${found.outliers} outliers`,
        found.meanOutliers,
        "risk-text",
        x,
        middle,
        bottom,
        side,
      );
    plot.dot(zero, top - 16, 7, "fg");
    const leftward = zero > right - 90;
    plot.text(
      `τ = ${fixedText(this.now.tau, 2)}`,
      zero + (leftward ? -13 : 13),
      top - 12,
      { colour: "fg", align: leftward ? "right" : "left", bold: true, halo: true },
    );
    if (zero - left > (leftward ? 150 : 70))
      plot.text("flagged", left + 6, top - 12, { colour: "risk-text" });
    plot.lowerAxis(x, "PSMI");
  }

  /**
   * Scale of PSMI. It moves in steps, so that it rests while a slider moves.
   * @param {number} left  pixel
   * @param {number} right
   */
  scaleOf(left, right) {
    const sorted = Float64Array.from(this.population.psmi).sort();
    const lowest = sorted[Math.floor(0.004 * sorted.length)];
    const highest = sorted[sorted.length - 1];
    const size = Math.max(0.02, -lowest, highest);
    const span = 0.05 * 1.5 ** Math.ceil(Math.log(size / 0.05) / Math.log(1.5));
    const low = -lowest > 0.4 * span ? -span : -0.5 * span;
    return linear(
      low,
      Math.min(span, Math.max(highest * 1.15, 0.25 * span)),
      left,
      right,
    );
  }

  /**
   * Scale of a row's counts, with its largest one on the axis and room for the row's name above.
   * @param {Float64Array} counts
   * @param {number} top
   * @param {number} bottom
   */
  axisOfCounts(counts, top, bottom) {
    const { histogram: plot } = this;
    const most = Math.max(1, ...counts);
    const y = linear(0, most, bottom, top + NAMED);
    const { left } = plot.frame;
    for (const count of [0, most])
      plot.text(tickText(count), left - 6, y.at(count) + 4, { align: "right" });
    return y;
  }

  /**
   * Names a row and draws its mean.
   * @param {string} words
   * @param {number} mean
   * @param {string} colour
   * @param {Scale} x
   * @param {number} top
   * @param {number} bottom
   * @param {"left" | "right"} side
   */
  nameRow(words, mean, colour, x, top, bottom, side) {
    const { histogram: plot } = this;
    const { left, right } = plot.frame;
    const at = side === "left" ? left + 6 : right - 4;
    const full = `${words}, mean ${fixedText(mean, 2)}`;
    const fits = 1.1 * plot.context.measureText(full).width < this.room; // it is written bold
    plot.text(fits ? full : words, at, top + 14, {
      colour,
      align: side,
      bold: true,
      halo: true,
    });
    plot.line(
      [
        [x.clip(mean), top + NAMED],
        [x.clip(mean), bottom],
      ],
      colour,
      2,
      [2, 2],
    );
  }

  /** Draws stripes over the bars of wrong labels, so that they differ by more than colour. */
  hatch() {
    if (this.hatched?.palette === this.palette) return this.hatched.pattern;
    const canvas = html("canvas", { width: 6, height: 6 });
    const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
    context.strokeStyle = this.palette.bg;
    context.globalAlpha = 0.45;
    context.lineWidth = 1.3;
    context.beginPath();
    for (const shift of [-6, 0, 6]) {
      context.moveTo(shift - 1, 7);
      context.lineTo(shift + 7, -1);
    }
    context.stroke();
    const pattern = /** @type {CanvasPattern} */ (
      this.histogram.context.createPattern(canvas, "repeat")
    );
    this.hatched = { palette: this.palette, pattern };
    return pattern;
  }

  /** @param {Rates} found */
  drawMeans(found) {
    const plot = this.means;
    const context = plot.begin(this.palette);
    const { left, right, top, bottom } = plot.frame;
    const { key, means: curve } = this.curve;
    const values = curve.flatMap(({ outliers, others }) => [
      outliers || 0,
      others || 0,
    ]);
    const here = [
      found.meanOthers,
      Number.isNaN(found.meanOutliers) ? 0 : found.meanOutliers,
    ];
    const x = linear(0, SEPARATIONS, left, right);
    const most = Math.max(0.02, ...values, ...here);
    const least = Math.min(-0.02, ...values, ...here);
    const y = linear(
      least - 0.08 * (most - least),
      most + 0.1 * (most - least),
      bottom,
      top,
    );
    plot.levels(y, 4);
    const at = x.at(this.now.separation);
    plot.line(
      [
        [at, top],
        [at, bottom],
      ],
      "line",
      10,
    );
    /** @type {(name: "others" | "outliers") => [number, number][]} */
    const points = (name) =>
      curve.flatMap(({ separation, [name]: mean }) =>
        Number.isNaN(mean) ? [] : [[x.at(separation), y.at(mean)]],
      );
    context.globalAlpha = key === this.swept ? 1 : 0.3; // what the settings before gave
    plot.line(points("others"), "accent", 2.4);
    plot.line(points("outliers"), "risk", 2.4);
    plot.line(
      [
        [left, y.at(0)],
        [right, y.at(0)],
      ],
      "fg",
      1.8,
      [6, 5],
    );
    for (const [px, py] of points("others")) plot.dot(px, py, 3.4, "accent");
    for (const [px, py] of points("outliers"))
      plot.polygon(
        [
          [px - 5, py - 4],
          [px + 5, py - 4],
          [px, py + 5],
        ],
        "risk",
      );
    context.globalAlpha = 1;
    for (const [value, colour] of /** @type {[number, string][]} */ ([
      [here[0], "accent"],
      [found.meanOutliers, "risk"],
    ])) {
      if (!Number.isNaN(value)) plot.dot(at, y.clip(value), 7, colour, "fg", 2);
    }
    if (curve.length === 0)
      plot.text("Computing …", (left + right) / 2, (top + bottom) / 2, {
        align: "center",
      });
    plot.lowerAxis(
      x,
      `separation (large signs: now, ε = ${tickText(Math.round(100 * this.now.epsilon))} % in ${this.now.dimension === 1 ? "1 dimension" : `${this.now.dimension} dimensions`})`,
    );
  }

  destroy() {
    clearTimeout(this.sweeping);
    super.destroy();
  }
}

export default shown(TheoremView);
