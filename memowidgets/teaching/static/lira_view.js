/** The LiRA playground: how sure few shadow models can be that a sample is memorised. */

import { bytesOf, html, segments } from "../../widgets/static/dom.js";
import {
  button,
  drawSides,
  facts,
  fixedText,
  legend,
  linear,
  packed,
  panel,
  Playground,
  Plot,
  row,
  shareText,
  shown,
  sliders,
  tile,
} from "./kit.js";
import { besideText, tickText } from "../../widgets/static/numbers.js";
import { errorOf, estimatesFor } from "./lira_fit.js";
import {
  density,
  drawsOf,
  logRatio,
  othersSquares,
  OUT_MEAN,
  REDRAWS,
  SIDE,
  sideOf,
  stretched,
  VARIANCES,
  varianceOf,
} from "./lira_maths.js";

/** @typedef {import("../../widgets/static/dom.js").Model} Model */
/** @typedef {import("./kit.js").Tile} Tile */
/** @typedef {import("./lira_maths.js").Draws} Draws */
/** @typedef {import("./lira_maths.js").Estimates} Estimates */
/** @typedef {import("./lira_maths.js").Gaussian} Gaussian */
/** @typedef {import("./lira_maths.js").Side} Side */
/** @typedef {import("./lira_maths.js").Variance} Variance */

/**
 * @typedef {object} Settings  what the user changes
 * @property {number} target_gap
 * @property {number} n_shadows
 * @property {number} effect
 * @property {number} spread
 * @property {number} eta
 * @property {number} seed
 * @property {Variance} variance
 */

/**
 * @typedef {object} Sent  what Python alone sets
 * @property {DataView[]} _given  measured gaps in and out; none where they are simulated
 */

/** @typedef {Settings & Sent} State */
/** @typedef {[Float64Array, Float64Array]} Gaps  in and out */
/** @typedef {[Side, Side]} Sides  in and out */
/** @typedef {{mean: number, spread: number}} Law */

/**
 * @typedef {object} Standard  what the seed and the numbers of models alone decide
 * @property {number} seed
 * @property {Draws} draws
 * @property {[number, number]} counts  models in and out
 * @property {[Side[], Side[]]} sides  the sample's own models, then each re-draw
 * @property {number[][]} others  sums of squares of the other samples, in and out
 */

/**
 * @typedef {object} Shadows  the sample's shadow models, as the settings say
 * @property {Gaps} gaps
 * @property {Sides} sides
 * @property {Sides[]} again  the same of each re-draw
 * @property {Estimates & {least: number}} estimates
 * @property {[Gaussian, Gaussian]} truth  what infinitely many models would give
 */

/**
 * @typedef {object} Parts  what changes on the page, plots apart
 * @property {import("./kit.js").Sliders<typeof SLID[number]>} slides
 * @property {HTMLElement[]} all  what follows the answer
 * @property {ReturnType<typeof segments>} choice
 * @property {Tile} result
 * @property {Tile} truth
 * @property {Tile} flips
 */

const CHOICES = VARIANCES.map((value) => ({ value, label: value }));
const SLID = /** @type {const} */ ([
  "target_gap",
  "n_shadows",
  "effect",
  "spread",
  "eta",
]);
const SETTINGS = /** @type {const} */ ([...SLID, "seed", "variance"]);
const HEARD = /** @type {const} */ ([...SETTINGS, "_given"]);
const PLACES = [4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256]; // numbers of models
const LOW = -5;
const HIGH = 14;
const KNEE = 3; // of the axis of log-LiRA: even below, logarithmic beyond
const STRIP = [-40, 400]; // what lies beyond is drawn at the edge
const TICKS = [-30, -10, 0, 4, 10, 30, 100, 300];
const squeezed = (/** @type {number} */ ratio) => Math.asinh(ratio / KNEE);
const ABOUT = {
  name: "lira",
  title: "LiRA: was this sample in the training set?",
  words:
    "Shadow models that trained on a sample are surer of its label than those that did not: they give it a larger logit gap.",
  tries: [
    "Press “Other shadow models” with 8 of them: the answer flips although nothing about the sample changed.",
    "Raise the number of models: the re-draws of “per-sample” and “shrunk” come closer to the result of infinitely many models, the long line.",
    "Set the sample’s spread to 0.5 or 3 with many models: now “global” scatters little but is far from the truth, because this sample is not like the others. “shrunk” is right.",
  ],
};

/**
 * Draws and their moments. Those that are still valid are kept.
 * @param {number} seed
 * @param {[number, number]} counts  models in and out
 * @param {Standard | null} before
 * @returns {Standard}
 */
function standardOf(seed, counts, before) {
  const [nIn, nOut] = counts;
  const same = before?.seed === seed ? before : null;
  if (same !== null && same.counts[0] === nIn && same.counts[1] === nOut) return same;
  const draws = same?.draws ?? drawsOf(seed);
  /** @type {(draws: Float64Array, n: number) => Side[]} */
  const sides = (draws, n) =>
    Array.from({ length: REDRAWS + 1 }, (_, k) => sideOf(draws, k * SIDE, n));
  return {
    seed,
    draws,
    counts,
    sides: [sides(draws.inside, nIn), sides(draws.outside, nOut)],
    others: othersSquares(draws, counts),
  };
}

/**
 * Moves and stretches standard normal gaps, or takes the measured ones with their moments.
 * @param {Standard} standard
 * @param {Settings} settings
 * @param {Gaps | null} given
 * @returns {Shadows}
 */
function shadowsOf({ draws, counts, sides: unit, others }, { effect, spread }, given) {
  /** @type {(gaps: Float64Array) => Law} */
  const lawOf = (gaps) => {
    const { mean, squares, count } = sideOf(gaps);
    return { mean, spread: Math.sqrt(squares / count) };
  };
  const inLaw = given ? lawOf(given[0]) : { mean: OUT_MEAN + effect, spread };
  const outLaw = given ? lawOf(given[1]) : { mean: OUT_MEAN, spread };
  /** @type {[Gaussian, Gaussian]} */
  const truth = [
    { mean: inLaw.mean, variance: inLaw.spread ** 2 },
    { mean: outLaw.mean, variance: outLaw.spread ** 2 },
  ];
  /** @type {(draws: Float64Array, count: number, law: Law) => Float64Array} */
  const gapsOf = (draws, count, law) =>
    draws.subarray(0, count).map((z) => law.mean + law.spread * z);
  /** @type {Gaps} */
  const gaps = given ?? [
    gapsOf(draws.inside, counts[0], inLaw),
    gapsOf(draws.outside, counts[1], outLaw),
  ];
  /** @type {Sides} */
  const sides = [sideOf(gaps[0]), sideOf(gaps[1])];
  return {
    gaps,
    sides,
    again: unit[0]
      .slice(1)
      .map((side, k) => [
        stretched(side, inLaw.mean, inLaw.spread),
        stretched(unit[1][k + 1], outLaw.mean, outLaw.spread),
      ]),
    estimates: estimatesFor(sides, others),
    truth,
  };
}

/**
 * One view of the playground.
 * @extends {Playground<State>}
 */
class LiRAView extends Playground {
  /**
   * @param {Model} model
   * @param {HTMLElement} el
   */
  constructor(model, el) {
    super(model, el, ABOUT);
    this.rows = new Plot("rows", 120, { left: 48, right: 14, top: 8, bottom: 92 });
    this.gaps = new Plot("gaps", 286, { left: 48, right: 14, top: 30, bottom: 84 });
    this.ratio = new Plot("ratio", 180, { left: 48, right: 14, top: 12, bottom: 38 });
    this.strip = new Plot("strip", 340, { left: 92, right: 16, top: 26, bottom: 40 });
    this.sliding = false;
    /** @type {Settings} */
    this.now = this.traits(SETTINGS);
    this.given = this.measured();
    this.standard = standardOf(this.now.seed, this.counts, null);
    this.shadows = shadowsOf(this.standard, this.now, this.given);
    this.parts = this.compose();
    this.plots = [this.rows]; // until the question is answered
    this.body.append(this.asked());
    this.showControls();
    for (const name of HEARD) this.onTrait(name, () => this.hear());
    for (const plot of [this.gaps, this.ratio]) {
      this.drag(plot, {
        press: (x) => this.pull(x),
        move: (x) => this.pull(x),
        release: () => this.rest(),
      });
    }
    this.start();
    this.say();
  }

  /** @returns {Gaps | null} */
  measured() {
    const [inside, outside] = this.trait("_given").map(
      (side) => new Float64Array(bytesOf(side)),
    );
    return inside && outside ? [inside, outside] : null;
  }

  /** @returns {[number, number]}  models in and out */
  get counts() {
    if (this.given !== null) return [this.given[0].length, this.given[1].length];
    return [this.now.n_shadows / 2, this.now.n_shadows / 2];
  }

  load() {
    this.now = this.traits(SETTINGS);
    this.given = this.measured();
    this.simulate();
  }

  hear() {
    if (this.dragging || this.sliding) return;
    this.load();
    this.showControls();
    this.later();
    this.say();
  }

  /** @returns {Parts} */
  compose() {
    const one = (/** @type {number} */ x) => fixedText(x, 1);
    const slides = sliders(
      {
        target_gap: { name: "target’s gap", min: LOW, max: HIGH, step: 0.1, say: one },
        n_shadows: {
          name: "shadow models",
          help: "half of them trained on the sample",
          places: PLACES,
          say: String,
        },
        effect: {
          name: "effect of training",
          help: "by how much training on the sample raises its gap",
          min: 0,
          max: 8,
          step: 0.1,
          say: one,
        },
        spread: {
          name: "sample’s spread",
          help: "true deviation of its gaps; that of usual samples is about 1.5",
          min: 0.4,
          max: 3,
          step: 0.1,
          say: one,
        },
        eta: {
          name: "η",
          help: "a sample is memorised from this log-LiRA on",
          min: 0,
          max: 12,
          step: 0.5,
          say: one,
        },
      },
      (name, value) => {
        this.sliding = true;
        this.now[name] = value;
        if (name !== "target_gap" && name !== "eta") this.simulate();
        this.later();
      },
      () => this.rest(),
    );
    const choice = segments("Variance", CHOICES, (value) => {
      this.now.variance = /** @type {Variance} */ (value);
      this.rest();
    });
    const again = button(
      "Other shadow models",
      "the same sample under shadow models with other seeds",
      () => this.redraw(),
    );
    const above = panel(
      "Logit gaps of the sample",
      "drag the target’s gap",
      this.gaps.canvas,
      legend([
        ["●", "in", "trained on it"],
        ["□", "out", "did not"],
        ["┄", "fg", "what infinitely many models would give"],
      ]),
    );
    const below = panel("Log-LiRA of every gap", "", this.ratio.canvas);
    const right = html(
      "div",
      { class: "mw-play-side" },
      panel(
        "200 times other shadow models",
        "log-LiRA of the same target",
        this.strip.canvas,
        legend([
          ["┆", "other", "one re-draw (at the edge: beyond)"],
          ["◆", "accent", "the models on the left"],
          ["│", "fg", "infinitely many models"],
        ]),
      ),
      row("variance", choice.group, again),
    );
    const result = tile(
      "log-LiRA",
      "± standard error, as memorization.log_lira computes it",
    );
    const truth = tile("with infinitely many models");
    const flips = tile("re-draws that say memorised", "with the chosen variance");
    right.append(facts("Results", [result, truth, flips]));
    const all = [above, slides.element, below, right]; // on a phone in this order: the sliders move the plots beside them
    return { all, slides, choice, result, truth, flips };
  }

  /** The question that comes before everything else, with both rows of models. */
  asked() {
    const answers = ["Yes", "No"].map((word) =>
      button(word, "", () => this.answer(word)),
    );
    const question = html(
      "p",
      { class: "mw-verdict" },
      "Did the audited model train on this sample?",
    );
    const key = legend([
      ["●", "in", "models that trained on a sample"],
      ["□", "out", "models that did not"],
      ["│", "fg", "the audited model"],
    ]);
    return html(
      "div",
      { class: "mw-panel mw-span" },
      this.rows.canvas,
      key,
      question,
      html("div", { class: "mw-row" }, ...answers),
    );
  }

  /** @param {string} word  yes or no */
  answer(word) {
    const [value, eta] = besideText(this.judged.value, this.now.eta);
    const words =
      `You said ${word.toLowerCase()}. A Gaussian is fitted to each row. Log-LiRA compares both at the line: it is ${value}. ` +
      `From η = ${eta} on the sample counts as memorised. But both Gaussians come from few models.`;
    const answer = html("p", { class: "mw-play-answer mw-span", tabindex: -1 }, words);
    this.plots = [this.gaps, this.ratio, this.strip];
    this.body.replaceChildren(answer, ...this.parts.all);
    answer.focus();
    for (const plot of this.plots) plot.fit();
    this.later();
    this.say();
  }

  get answered() {
    return this.plots[0] !== this.rows;
  }

  /* ------------------------------------------------------------ what changes */

  /** Draws the shadow models' gaps again, as the settings say. */
  simulate() {
    this.standard = standardOf(this.now.seed, this.counts, this.standard);
    this.shadows = shadowsOf(this.standard, this.now, this.given);
  }

  /**
   * Both Gaussians that a choice of variance gives.
   * @param {Variance} variance
   * @param {Sides} sides
   * @returns {[Gaussian, Gaussian]}
   */
  gaussians(variance, [inside, outside]) {
    const { estimates } = this.shadows;
    const of = estimates[variance];
    return [
      { mean: inside.mean, variance: varianceOf(of.in, inside, estimates.least) },
      { mean: outside.mean, variance: varianceOf(of.out, outside, estimates.least) },
    ];
  }

  redraw() {
    this.now.seed = (this.now.seed + 1) % 1_000_000;
    this.simulate();
    this.rest();
  }

  /** @param {number} x  pixel */
  pull(x) {
    const { left, right } = this.gaps.frame;
    const gap = LOW + ((HIGH - LOW) * (x - left)) / (right - left);
    this.now.target_gap = Math.round(Math.min(HIGH, Math.max(LOW, gap)) * 100) / 100;
    this.later();
    return true;
  }

  rest() {
    this.sliding = false;
    this.commit({ ...this.now });
    this.showControls();
    this.later();
    this.say();
  }

  showControls() {
    this.parts.slides.show(this.now);
    this.parts.choice.show(this.now.variance);
  }

  /** Log-LiRA of the target's gap: as the models say, its standard error, the truth, and re-draws. */
  get judged() {
    const {
      now: { target_gap: gap, variance },
      shadows: { sides, again, estimates, truth },
    } = this;
    const value = logRatio(gap, ...this.gaussians(variance, sides));
    return {
      value,
      error: errorOf(gap, sides, estimates[variance], estimates.least, value),
      truth: logRatio(gap, ...truth),
      redraws: VARIANCES.map((name) =>
        again.map((one) => logRatio(gap, ...this.gaussians(name, one))),
      ),
    };
  }

  /** Tells screen readers and Python the result when the user stops moving. */
  say() {
    const { value, error, truth, redraws } = this.judged;
    const [inside, outside] = this.shadows.gaps;
    this.report({
      gaps_in: packed(inside),
      gaps_out: packed(outside),
      log_lira: value,
      log_lira_std: error,
      true_log_lira: truth,
      redraws: Object.fromEntries(
        VARIANCES.map((name, i) => [name, packed(redraws[i])]),
      ),
    });
    const verdict = value >= this.now.eta ? "memorised" : "not memorised";
    const [shown, eta] = besideText(value, this.now.eta);
    const words = `Gap ${fixedText(this.now.target_gap, 1)}: log-LiRA ${shown}, ${verdict} at η = ${eta}.`;
    if (this.answered) this.speak(words);
    const ends = [inside, outside].map(
      (gaps) =>
        `${fixedText(Math.min(...gaps), 1)} to ${fixedText(Math.max(...gaps), 1)}`,
    );
    this.rows.canvas.setAttribute(
      "aria-label",
      `Logit gaps of the models that trained on the sample: ${ends[0]}. Of the others: ${ends[1]}. Of the audited model: ${fixedText(this.now.target_gap, 1)}.`,
    );
    this.gaps.canvas.setAttribute(
      "aria-label",
      `Gaps of the shadow models on both sides. ${words}`,
    );
    this.ratio.canvas.setAttribute("aria-label", `Log-LiRA of every gap. ${words}`);
    this.strip.canvas.setAttribute(
      "aria-label",
      `Log-LiRA under 200 re-draws. ${words}`,
    );
  }

  /* ------------------------------------------------------------ what is shown */

  draw() {
    if (!this.answered) return this.drawRows();
    const { eta, variance } = this.now;
    if (!this.sliding && this.dragging) this.parts.slides.show(this.now);
    const { value, error, truth, redraws } = this.judged;
    const flips =
      redraws[VARIANCES.indexOf(variance)].filter((one) => one >= eta).length / REDRAWS;
    this.drawGaps();
    this.drawRatio(value);
    this.drawStrip(value, truth, redraws);
    const about = Number.isFinite(error) ? ` ± ${fixedText(error, 1)}` : "";
    const verdict = (/** @type {number} */ x) =>
      x >= eta ? "▲ memorised" : "▽ not memorised";
    this.parts.result.show(`${besideText(value, eta)[0]}${about}`, verdict(value));
    this.parts.truth.show(besideText(truth, eta)[0], verdict(truth));
    this.parts.flips.show(
      shareText(flips),
      flips > 0.1 && flips < 0.9 ? "chance decides" : "mostly of one mind",
    );
    this.root.dataset.logLira = String(value);
  }

  drawRows() {
    const plot = this.rows;
    plot.begin(this.palette);
    const { left, right, bottom } = plot.frame;
    const x = linear(LOW, HIGH, left, right);
    drawSides(plot, x, ...this.shadows.gaps);
    const at = x.at(this.now.target_gap);
    plot.line(
      [
        [at, bottom - 14],
        [at, bottom + 44],
      ],
      "fg",
      2,
    );
  }

  drawGaps() {
    const plot = this.gaps;
    plot.begin(this.palette);
    const { left, right, top, bottom } = plot.frame;
    const x = linear(LOW, HIGH, left, right);
    const fitted = this.gaussians(this.now.variance, this.shadows.sides);
    const tallest = Math.min(
      0.9,
      Math.max(...[...fitted, ...this.shadows.truth].map((g) => density(g.mean, g))),
    );
    const y = linear(0, tallest * 1.05, bottom, top);
    const curve = (/** @type {Gaussian} */ gaussian) =>
      plot.curve((px) => y.at(density(x.back(px), gaussian)));
    plot.clip();
    const sides = /** @type {[string, Gaussian][]} */ ([
      ["out", fitted[1]],
      ["in", fitted[0]],
    ]);
    for (const [name, gaussian] of sides) {
      const points = curve(gaussian);
      plot.area([[left, bottom], ...points, [right, bottom]], name, 0.2);
      plot.line(points, name, 2.4);
    }
    for (const gaussian of this.shadows.truth)
      plot.line(curve(gaussian), "fg", 1.2, [3, 4]);
    plot.free();
    drawSides(plot, x, ...this.shadows.gaps);
    const at = x.at(this.now.target_gap);
    plot.line(
      [
        [at, 8],
        [at, bottom + 44],
      ],
      "fg",
      2,
    );
    plot.polygon(
      [
        [at, 1],
        [at + 7, 9],
        [at, 17],
        [at - 7, 9],
      ],
      "fg",
    );
    for (const [name, gaussian] of sides) {
      const place = Math.max(left + 14, Math.min(right - 14, x.at(gaussian.mean)));
      plot.text(
        name,
        place,
        Math.max(top - 4, y.at(density(gaussian.mean, gaussian)) - 6),
        { colour: name, align: "center", bold: true, halo: true },
      );
    }
    const leftward = at > right - 130;
    plot.text(
      `target ${fixedText(this.now.target_gap, 1)}`,
      at + (leftward ? -13 : 13),
      14,
      { colour: "fg", align: leftward ? "right" : "left", bold: true, halo: true },
    );
  }

  /** @param {number} value */
  drawRatio(value) {
    const plot = this.ratio;
    plot.begin(this.palette);
    const { left, right, top, bottom } = plot.frame;
    const { eta } = this.now;
    const x = linear(LOW, HIGH, left, right);
    const y = linear(-12, 16, bottom, top);
    plot.area(
      [
        [left, y.clip(eta)],
        [right, y.clip(eta)],
        [right, top],
        [left, top],
      ],
      "risk",
      0.09,
    );
    plot.levels(y, 4);
    const [inside, outside] = this.gaussians(this.now.variance, this.shadows.sides);
    const [trueIn, trueOut] = this.shadows.truth;
    /** @type {(a: Gaussian, b: Gaussian) => [number, number][]} */
    const curve = (a, b) => plot.curve((px) => y.at(logRatio(x.back(px), a, b)));
    plot.clip();
    plot.line(curve(trueIn, trueOut), "fg", 1.2, [3, 4]);
    plot.line(curve(inside, outside), "accent", 2.4);
    plot.free();
    plot.line(
      [
        [left, y.clip(eta)],
        [right, y.clip(eta)],
      ],
      "risk",
      1.6,
      [7, 4],
    );
    plot.text(`memorised from η = ${tickText(eta)}`, left + 8, y.clip(eta) - 6, {
      colour: "risk-text",
      halo: true,
    });
    const at = x.at(this.now.target_gap);
    plot.line(
      [
        [at, top],
        [at, bottom],
      ],
      "fg",
      1.2,
    );
    plot.dot(at, y.clip(value), 6, "fg", "bg");
    plot.lowerAxis(x, "logit gap");
  }

  /**
   * @param {number} value
   * @param {number} truth
   * @param {number[][]} values  of every re-draw, for each choice of variance
   */
  drawStrip(value, truth, values) {
    const plot = this.strip;
    const context = plot.begin(this.palette);
    const { left, right, top, bottom } = plot.frame;
    const x = linear(squeezed(STRIP[0]), squeezed(STRIP[1]), left, right);
    const at = (/** @type {number} */ ratio) => x.clip(squeezed(ratio));
    const eta = at(this.now.eta);
    plot.area(
      [
        [eta, top],
        [right, top],
        [right, bottom],
        [eta, bottom],
      ],
      "risk",
      0.09,
    );
    const row = (bottom - top) / VARIANCES.length;
    VARIANCES.forEach((name, i) => {
      const chosen = name === this.now.variance;
      const middle = top + (i + 0.5) * row;
      if (i > 0)
        plot.line(
          [
            [left, top + i * row],
            [right, top + i * row],
          ],
          "line",
        );
      plot.text(name, left - 8, middle - 2, {
        colour: chosen ? "fg" : "muted",
        align: "right",
        bold: chosen,
      });
      const share = values[i].filter((one) => one >= this.now.eta).length / REDRAWS;
      plot.text(`${Math.round(100 * share)} % ≥ η`, left - 8, middle + 14, {
        colour: chosen ? "fg" : "muted",
        align: "right",
      });
      context.globalAlpha = chosen ? 0.8 : 0.75;
      context.strokeStyle = plot.colour(chosen ? "accent" : "other");
      context.lineWidth = 1.3;
      context.beginPath();
      values[i].forEach((ratio, k) => {
        const up = middle + (((k * 7) % 13) - 6) * (row / 34);
        context.moveTo(at(ratio), up - 5);
        context.lineTo(at(ratio), up + 5);
      });
      context.stroke();
      context.globalAlpha = 1;
    });
    plot.line(
      [
        [eta, top - 6],
        [eta, bottom],
      ],
      "risk",
      1.8,
      [7, 4],
    );
    plot.text("memorised", eta + 6, top - 10, { colour: "risk-text" });
    const real = at(truth);
    plot.line(
      [
        [real, top],
        [real, bottom],
      ],
      "fg",
      1.8,
    );
    const middle = top + (VARIANCES.indexOf(this.now.variance) + 0.5) * row;
    const px = at(value);
    plot.polygon(
      [
        [px, middle - 10],
        [px + 8, middle],
        [px, middle + 10],
        [px - 8, middle],
      ],
      "accent",
      "bg",
      2,
    );
    const say = (/** @type {number} */ tick) =>
      tickText(Math.round(KNEE * Math.sinh(tick)));
    plot.lowerAxis(x, "log-LiRA (logarithmic beyond ±3)", {
      ticks: TICKS.map(squeezed),
      say,
    });
  }
}

export default shown(LiRAView);
