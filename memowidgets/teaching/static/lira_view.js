/** The LiRA playground: how sure few shadow models can be that a sample is memorised. */

import { bytesOf, html, segments } from "../../widgets/static/dom.js";
import {
  button, fixedText, legend, linear, panel, plainText, Playground, Plot, shareText, slider, tile,
} from "./kit.js";
import {
  density, drawsOf, estimatesFor, logRatio, othersSquares, OUT_MEAN, REDRAWS, SIDE, sideOf, stretched, VARIANCES,
  varianceOf,
} from "./lira_maths.js";

/** @typedef {import("../../widgets/static/dom.js").Model} Model */
/** @typedef {import("./lira_maths.js").Side} Side */
/** @typedef {import("./lira_maths.js").Gaussian} Gaussian */

const CHOICES = VARIANCES.map((value) => ({ value, label: value }));
const NUMBERS = ["target_gap", "n_shadows", "effect", "spread", "eta", "seed"];
const LOW = -5;
const HIGH = 14;
const KNEE = 3; // of the axis of log-LiRA: even below, logarithmic beyond
const STRIP = [-40, 400]; // what lies beyond is drawn at the edge
const TICKS = [-30, -10, 0, 4, 10, 30, 100, 300];
const ABOUT = {
  name: "lira",
  title: "LiRA: was this sample in the training set?",
  words:
    "Shadow models that trained on a sample give its label a larger logit gap than those that did not. A Gaussian is " +
    "fitted to each side; log-LiRA asks under which of them the audited model’s gap is likelier. From η = 4 on the " +
    "sample counts as memorised. But both Gaussians are guesses from few models.",
  tries: [
    "Press “Other shadow models” with 8 of them: the verdict flips although nothing about the sample changed.",
    "Raise the number of models: the 200 re-draws close in on the truth.",
    "With few models, compare the three rows: “per-sample” scatters; “global” and “shrunk” learn from other samples and are calmer.",
    "Set the sample’s spread to 0.5 or 3 with many models: now “global” is calm and wrong, for this sample is not like the others; “shrunk” has learned it.",
    "Drag the target’s gap far to the right: with unequal variances log-LiRA can fall again.",
  ],
};

/** One view of the playground. */
class LiRAView extends Playground {
  /**
   * @param {Model} model
   * @param {HTMLElement} el
   */
  constructor(model, el) {
    super(model, el, ABOUT);
    this.gaps = new Plot("gaps", 286, { left: 48, right: 14, top: 30, bottom: 84 });
    this.ratio = new Plot("ratio", 180, { left: 48, right: 14, top: 12, bottom: 38 });
    this.strip = new Plot("strip", 340, { left: 92, right: 16, top: 26, bottom: 40 });
    this.plots = [this.gaps, this.ratio, this.strip];
    /** @type {Record<string, number>} */
    this.now = {};
    this.load();
    this.compose();
    this.ears.onModel("change:_fit", () => this.hear());
    for (const name of [...NUMBERS, "variance", "_given"]) this.ears.onModel(`change:${name}`, () => this.hear());
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

  load() {
    for (const name of NUMBERS) this.now[name] = this.model.get(name);
    this.variance = this.model.get("variance");
    this.given = this.model.get("_given").map((/** @type {any} */ part) => new Float64Array(bytesOf(part)));
    this.draw0();
  }

  hear() {
    if (this.dragging || this.sliding) return;
    this.load();
    this.showControls();
    this.later();
  }

  compose() {
    /** @type {(name: string, how: any) => ReturnType<typeof slider>} */
    const make = (name, how) =>
      slider({
        ...how,
        move: (value) => {
          this.sliding = true;
          this.now[name] = value;
          if (name !== "target_gap" && name !== "eta") this.draw0();
          this.later();
        },
        rest: () => this.rest(),
      });
    const one = (/** @type {number} */ x) => fixedText(x, 1);
    this.slides = {
      target_gap: make("target_gap", { name: "target’s gap", min: LOW, max: HIGH, step: 0.1, say: one }),
      n_shadows: make("n_shadows", {
        name: "shadow models", help: "half of them trained on the sample",
        places: this.model.get("_places"), say: String,
      }),
      effect: make("effect", { name: "effect of training", help: "by how much training on the sample raises its gap", min: 0, max: 8, step: 0.1, say: one }),
      spread: make("spread", { name: "sample’s spread", help: "true deviation of its gaps; that of usual samples is about 1.5", min: 0.4, max: 3, step: 0.1, say: one }),
      eta: make("eta", { name: "η", help: "a sample is memorised from this log-LiRA on", min: 0, max: 12, step: 0.5, say: one }),
    };
    this.choice = segments("Variance", CHOICES, (value) => this.choose(value));
    const again = button("Other shadow models", "the same sample under shadow models with other seeds", () => this.redraw());
    const acts = html("div", { class: "mw-row" }, html("span", { class: "mw-labelled" }, "variance", this.choice.group), again);
    const slides = html("div", { class: "mw-slides mw-span" });
    slides.append(...Object.values(this.slides).map(({ element }) => element));
    const left = html("div", { class: "mw-play-side" },
      panel("Logit gaps of the sample", "drag the target’s gap", this.gaps.canvas,
        legend([["●", "in", "trained on it"], ["□", "out", "did not"], ["┄", "fg", "what infinitely many models would give"]])),
      panel("Log-LiRA of every gap", "", this.ratio.canvas));
    const right = html("div", { class: "mw-play-side" },
      panel("200 times other shadow models", "log-LiRA of the same target", this.strip.canvas,
        legend([["┆", "other", "one re-draw (at the edge: beyond)"], ["◆", "accent", "the models on the left"], ["│", "fg", "infinitely many models"]])),
      acts);
    this.result = tile("log-LiRA", "± jackknife error over the shadow models, from memorization.log_lira");
    this.truth = tile("with infinitely many models");
    this.flips = tile("re-draws that say memorised", "with the chosen variance");
    const facts = html("div", { class: "mw-facts", role: "group", "aria-label": "Results" });
    facts.append(...[this.result, this.truth, this.flips].map((fact) => fact.element));
    right.append(facts);
    this.body.append(left, right, slides);
    this.showControls();
  }

  /* ------------------------------------------------------------ what changes */

  /** Draws the shadow models' gaps again, as the settings say. */
  draw0() {
    const { n_shadows, seed, effect, spread } = this.now;
    if (this.drawn !== seed) this.draws = drawsOf(seed);
    this.drawn = seed;
    const own = this.given.length === 2;
    const [nIn, nOut] = own ? this.given.map((side) => side.length) : [n_shadows / 2, n_shadows / 2];
    /** @type {[number, number, number, number]} */
    this.true = [OUT_MEAN + effect, spread, OUT_MEAN, spread];
    if (own) {
      const [a, b] = this.given.map((side) => sideOf(side));
      this.true = [a.mean, Math.sqrt(a.squares / a.count), b.mean, Math.sqrt(b.squares / b.count)];
    }
    const key = `${seed} ${nIn} ${nOut}`;
    if (this.counted !== key) {
      this.counted = key;
      /** @type {(draws: Float64Array, n: number) => Side[]} */
      const sides = (draws, n) => Array.from({ length: REDRAWS + 1 }, (_, k) => sideOf(draws, k * SIDE, n));
      this.unit = [sides(this.draws.inside, nIn), sides(this.draws.outside, nOut)];
      this.others = othersSquares(this.draws, nIn, nOut);
    }
    const [meanIn, spreadIn, meanOut, spreadOut] = this.true;
    this.inside = own ? this.given[0] : this.draws.inside.subarray(0, nIn).map((z) => meanIn + spreadIn * z);
    this.outside = own ? this.given[1] : this.draws.outside.subarray(0, nOut).map((z) => meanOut + spreadOut * z);
    this.sides = [sideOf(this.inside), sideOf(this.outside)];
    this.estimates = estimatesFor(this.sides[0], this.sides[1], this.others, this.model.get("_fit").estimates);
    this.again = this.unit[0].slice(1).map((side, k) => [
      stretched(side, meanIn, spreadIn),
      stretched(this.unit[1][k + 1], meanOut, spreadOut),
    ]);
  }

  /**
   * Both Gaussians that a choice of variance gives.
   * @param {string} variance
   * @param {Side[]} sides
   * @returns {[Gaussian, Gaussian]}
   */
  gaussians(variance, [inside, outside]) {
    const { least, [variance]: of } = /** @type {any} */ (this.estimates);
    return [
      { mean: inside.mean, variance: varianceOf(of.in, inside, least) },
      { mean: outside.mean, variance: varianceOf(of.out, outside, least) },
    ];
  }

  get trueGaussians() {
    const [meanIn, spreadIn, meanOut, spreadOut] = this.true;
    return [{ mean: meanIn, variance: spreadIn ** 2 }, { mean: meanOut, variance: spreadOut ** 2 }];
  }

  /** @param {string} value */
  choose(value) {
    this.variance = value;
    this.rest();
  }

  redraw() {
    this.now.seed = (this.now.seed + 1) % 1_000_000;
    this.draw0();
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
    this.commit({ ...this.now, variance: this.variance });
    this.showControls();
    this.later();
    this.say();
  }

  showControls() {
    for (const [name, { show }] of Object.entries(this.slides)) show(this.now[name]);
    this.choice.show(this.variance);
  }

  get logLira() {
    const [inside, outside] = this.gaussians(this.variance, this.sides);
    return logRatio(this.now.target_gap, inside, outside);
  }

  say() {
    const value = this.logLira;
    const verdict = value >= this.now.eta ? "memorised" : "not memorised";
    const words = `Gap ${fixedText(this.now.target_gap, 1)}: log-LiRA ${fixedText(value, 1)}, ${verdict} at η = ${plainText(this.now.eta)}.`;
    this.speak(words);
    this.gaps.canvas.setAttribute("aria-label", `Gaps of the shadow models on both sides. ${words}`);
    this.ratio.canvas.setAttribute("aria-label", `Log-LiRA of every gap. ${words}`);
    this.strip.canvas.setAttribute("aria-label", `Log-LiRA under 200 re-draws. ${words}`);
  }

  /* ------------------------------------------------------------ what is shown */

  draw() {
    const { target_gap: gap, eta } = this.now;
    if (!this.sliding && this.dragging) this.slides.target_gap.show(gap);
    const value = this.logLira;
    const [inside, outside] = this.trueGaussians;
    const truth = logRatio(gap, inside, outside);
    this.values = VARIANCES.map((name) => this.again.map((sides) => logRatio(gap, ...this.gaussians(name, sides))));
    const flips = this.values[VARIANCES.indexOf(this.variance)].filter((one) => one >= eta).length / REDRAWS;
    this.drawGaps();
    this.drawRatio(value);
    this.drawStrip(value, truth);
    const fit = this.model.get("_fit");
    const settled = !this.dragging && !this.sliding && Math.abs(fit.log_lira - value) < 1e-6 * Math.max(1, Math.abs(value));
    const error = settled && fit.std !== null ? ` ± ${fixedText(fit.std, 1)}` : "";
    const verdict = (/** @type {number} */ x) => (x >= eta ? "▲ memorised" : "▽ not memorised");
    this.result.show(`${fixedText(value, 1)}${error}`, verdict(value));
    this.truth.show(fixedText(truth, 1), verdict(truth));
    this.flips.show(shareText(flips), flips > 0.1 && flips < 0.9 ? "chance decides" : "mostly of one mind");
    if (this.heard) this.hint.textContent = fit.remark ?? "";
    this.root.dataset.logLira = String(value);
  }

  drawGaps() {
    const plot = this.gaps;
    const context = plot.begin(this.palette);
    const { left, right, top, bottom } = plot.frame;
    const x = linear(LOW, HIGH, left, right);
    const fitted = this.gaussians(this.variance, this.sides);
    const tallest = Math.min(0.9, Math.max(...[...fitted, ...this.trueGaussians].map((g) => density(g.mean, g))));
    const y = linear(0, tallest * 1.05, bottom, top);
    /** @type {(gaussian: Gaussian) => [number, number][]} */
    const curve = (gaussian) => {
      /** @type {[number, number][]} */
      const points = [];
      for (let px = left; px <= right; px += 1.5) points.push([px, y.at(density(x.back(px), gaussian))]);
      return points;
    };
    plot.clip();
    for (const [name, gaussian] of /** @type {[string, Gaussian][]} */ ([["out", fitted[1]], ["in", fitted[0]]])) {
      const points = curve(gaussian);
      plot.area([[left, bottom], ...points, [right, bottom]], name, 0.2);
      plot.line(points, name, 2.4);
    }
    for (const gaussian of this.trueGaussians) plot.line(curve(gaussian), "fg", 1.2, [3, 4]);
    plot.free();
    context.globalAlpha = this.inside.length > 40 ? 0.55 : 0.9;
    context.fillStyle = plot.colour("in");
    for (const gap of this.inside) {
      context.beginPath();
      context.arc(x.clip(gap), bottom + 15, 4, 0, 2 * Math.PI);
      context.fill();
    }
    context.strokeStyle = plot.colour("out");
    context.lineWidth = 1.7;
    for (const gap of this.outside) context.strokeRect(x.clip(gap) - 3.2, bottom + 28.8, 6.4, 6.4);
    context.globalAlpha = 1;
    plot.text("in", left - 10, bottom + 19, { colour: "in", align: "right", bold: true });
    plot.text("out", left - 10, bottom + 36, { colour: "out", align: "right", bold: true });
    plot.line([[left, bottom + 0.5], [right, bottom + 0.5]], "line");
    plot.frame = { ...plot.frame, bottom: bottom + 44 };
    plot.lowerAxis(x, "logit gap");
    plot.frame = { ...plot.frame, bottom };
    const at = x.at(this.now.target_gap);
    plot.line([[at, 8], [at, bottom + 44]], "fg", 2);
    context.beginPath();
    context.moveTo(at, 1);
    context.lineTo(at + 7, 9);
    context.lineTo(at, 17);
    context.lineTo(at - 7, 9);
    context.closePath();
    context.fillStyle = plot.colour("fg");
    context.fill();
    for (const [name, gaussian, words] of /** @type {[string, Gaussian, string][]} */ ([["out", fitted[1], "out"], ["in", fitted[0], "in"]])) {
      const place = Math.max(left + 14, Math.min(right - 14, x.at(gaussian.mean)));
      plot.text(words, place, Math.max(top - 4, y.at(density(gaussian.mean, gaussian)) - 6), { colour: name, align: "center", bold: true, halo: true });
    }
    const leftward = at > right - 130;
    plot.text(`target ${fixedText(this.now.target_gap, 1)}`, at + (leftward ? -13 : 13), 14, { colour: "fg", align: leftward ? "right" : "left", bold: true, halo: true });
  }

  /** @param {number} value */
  drawRatio(value) {
    const plot = this.ratio;
    const context = plot.begin(this.palette);
    const { left, right, top, bottom } = plot.frame;
    const { eta } = this.now;
    const x = linear(LOW, HIGH, left, right);
    const y = linear(-12, 16, bottom, top);
    plot.area([[left, y.clip(eta)], [right, y.clip(eta)], [right, top], [left, top]], "risk", 0.09);
    plot.levels(y, 4);
    const [inside, outside] = this.gaussians(this.variance, this.sides);
    const [trueIn, trueOut] = this.trueGaussians;
    /** @type {(a: Gaussian, b: Gaussian) => [number, number][]} */
    const curve = (a, b) => {
      /** @type {[number, number][]} */
      const points = [];
      for (let px = left; px <= right; px += 2) points.push([px, y.at(logRatio(x.back(px), a, b))]);
      return points;
    };
    plot.clip();
    plot.line(curve(trueIn, trueOut), "fg", 1.2, [3, 4]);
    plot.line(curve(inside, outside), "accent", 2.4);
    plot.free();
    plot.line([[left, y.clip(eta)], [right, y.clip(eta)]], "risk", 1.6, [7, 4]);
    plot.text(`memorised from η = ${plainText(eta)}`, left + 8, y.clip(eta) - 6, { colour: "risk-text", halo: true });
    const at = x.at(this.now.target_gap);
    plot.line([[at, top], [at, bottom]], "fg", 1.2);
    context.beginPath();
    context.arc(at, y.clip(value), 6, 0, 2 * Math.PI);
    context.fillStyle = plot.colour("fg");
    context.fill();
    context.strokeStyle = plot.colour("bg");
    context.lineWidth = 1.5;
    context.stroke();
    plot.lowerAxis(x, "logit gap");
  }

  /**
   * @param {number} value
   * @param {number} truth
   */
  drawStrip(value, truth) {
    const plot = this.strip;
    const context = plot.begin(this.palette);
    const { left, right, top, bottom } = plot.frame;
    const squeeze = (/** @type {number} */ ratio) => Math.asinh(ratio / KNEE);
    const x = linear(squeeze(STRIP[0]), squeeze(STRIP[1]), left, right);
    const at = (/** @type {number} */ ratio) => x.clip(squeeze(ratio));
    const eta = at(this.now.eta);
    plot.area([[eta, top], [right, top], [right, bottom], [eta, bottom]], "risk", 0.09);
    const row = (bottom - top) / VARIANCES.length;
    VARIANCES.forEach((name, i) => {
      const chosen = name === this.variance;
      const middle = top + (i + 0.5) * row;
      if (i > 0) plot.line([[left, top + i * row], [right, top + i * row]], "line");
      plot.text(name, left - 8, middle - 2, { colour: chosen ? "fg" : "muted", align: "right", bold: chosen });
      const share = this.values[i].filter((one) => one >= this.now.eta).length / REDRAWS;
      plot.text(`${Math.round(100 * share)} % ≥ η`, left - 8, middle + 14, { colour: chosen ? "fg" : "muted", align: "right" });
      context.globalAlpha = chosen ? 0.8 : 0.75;
      context.strokeStyle = plot.colour(chosen ? "accent" : "other");
      context.lineWidth = 1.3;
      context.beginPath();
      this.values[i].forEach((ratio, k) => {
        const up = middle + (((k * 7) % 13) - 6) * (row / 34);
        context.moveTo(at(ratio), up - 5);
        context.lineTo(at(ratio), up + 5);
      });
      context.stroke();
      context.globalAlpha = 1;
    });
    plot.line([[eta, top - 6], [eta, bottom]], "risk", 1.8, [7, 4]);
    plot.text("memorised", eta + 6, top - 10, { colour: "risk-text" });
    const real = at(truth);
    plot.line([[real, top], [real, bottom]], "fg", 1.8);
    const middle = top + (VARIANCES.indexOf(this.variance) + 0.5) * row;
    const px = at(value);
    context.beginPath();
    context.moveTo(px, middle - 10);
    context.lineTo(px + 8, middle);
    context.lineTo(px, middle + 10);
    context.lineTo(px - 8, middle);
    context.closePath();
    context.fillStyle = plot.colour("accent");
    context.fill();
    context.strokeStyle = plot.colour("bg");
    context.lineWidth = 2;
    context.stroke();
    const ticks = TICKS.map(squeeze);
    plot.lowerAxis(x, "log-LiRA", { ticks, say: (tick) => plainText(Math.round(KNEE * Math.sinh(tick))) });
  }
}

export default {
  /** @param {{model: Model, el: HTMLElement}} context */
  render({ model, el }) {
    const view = new LiRAView(model, el);
    return () => view.destroy();
  },
};
