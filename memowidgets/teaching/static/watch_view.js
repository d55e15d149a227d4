/** Watch it memorise: a small network that trains in the browser, and a guess of what it memorises. */

import { html } from "../../widgets/static/dom.js";
import { besideText } from "../../widgets/static/numbers.js";
import {
  button,
  drawSides,
  fixedText,
  isStill,
  legend,
  linear,
  packed,
  panel,
  Plot,
  shareText,
  shown,
  sliders,
} from "./kit.js";
import { beside } from "./beside.js";
import { density, logRatio, sideOf } from "./lira_maths.js";
import { NAMES, PointsPlayground } from "./points.js";
import { directionsFor, psmiOfRows } from "./psmi_maths.js";
import {
  DIRECTIONS,
  EPOCHS,
  lowest,
  makeData,
  median,
  membersOf,
  MODELS,
  serve,
  workerText,
} from "./watch_maths.js";

/** @typedef {import("../../widgets/static/dom.js").Model} Model */
/** @typedef {import("./watch_maths.js").Found} Found */
/** @typedef {import("./watch_maths.js").Task} Task */

/**
 * @typedef {object} State  what Python and the page share
 * @property {number} width
 * @property {number} noise
 * @property {number} rho
 * @property {number} seed
 * @property {number} n
 * @property {number} classes
 */

/** @typedef {Found & {psmi: Float64Array, drop: number}} Stopped  where ρ stopped the training */

/**
 * @typedef {object} Asked  the shadow models' answers so far
 * @property {number[]} judged
 * @property {Uint8Array[]} members
 * @property {Float64Array[]} gaps
 * @property {number[]} models  which of the members' rows the gaps belong to
 */

const SETTINGS = /** @type {const} */ ([
  "width",
  "noise",
  "rho",
  "seed",
  "n",
  "classes",
]);
const RINGS = 5;
const ETA = 4;
const LEAST = 8; // networks a side, before a word about memorised
// `python -m benchmarks lesson` prints the two numbers.
const WHY =
  "Why PSMI? Two dimensions are easy for both, and one round decides nothing. In the mean of 17 audits of tables, " +
  "pictures and texts, PSMI has an AUC of 0.845 at ρ, and the loss 0.793.";
const STILL = 25; // epochs between two pictures where the reader asked for less motion
const ABOUT = {
  name: "watch",
  title: "Watch it memorise: which five will it be?",
  words:
    "A network with two hidden layers learns the label of each point. Some labels are wrong. Memorised means: training on " +
    "this point changed what the finished network says of it, so that an outsider who has the point can tell that it was " +
    "trained on. Ring five points that you expect it to memorise. Then train: their labels appear.",
  tries: [
    "An outlier is not yet memorised: ring the points that lie farthest out, and see.",
    "A memorised point need not be answered rightly: look for one whose gap stays below 0 and whose log-LiRA is above 4.",
    "Give one point in the middle of a class another label. Train again: the boundary makes an island for it, long after ρ.",
  ],
};

/** Trains in workers, or in slices on the page where the browser or its policy allows none. */
class Workshop {
  /** @param {number} count */
  constructor(count) {
    this.url = "";
    this.asked = 0;
    /** @type {Worker[]} */
    this.workers = [];
    /** @type {{handle: (event: {data: Task}) => void, found: Found | null} | null} */
    this.own = null;
    try {
      this.url = URL.createObjectURL(
        new Blob([workerText()], { type: "text/javascript" }),
      );
      for (let i = 0; i < count; i++) {
        const worker = new Worker(this.url);
        worker.onerror = () => (this.workers = []); // the page's policy refuses it, before it is asked
        this.workers.push(worker);
      }
    } catch {
      this.workers = [];
    }
  }

  get count() {
    return Math.max(1, this.workers.length);
  }

  /**
   * @param {number} which
   * @param {Task} task
   * @returns {Promise<Found>}
   */
  ask(which, task) {
    const worker = this.workers[which];
    if (worker === undefined) return this.slices(task);
    return new Promise((resolve, reject) => {
      const id = (this.asked += 1); // an answer to what was asked before is not taken for this one
      worker.onmessage = ({ data }) => data.id === id && resolve(data);
      worker.onerror = (event) => {
        event.preventDefault();
        this.workers = []; // refused by the policy of the page
        if (task.kind === "advance") reject(new Error("the worker stopped"));
        else this.slices(task).then(resolve, reject);
      };
      worker.postMessage({ ...task, id });
    });
  }

  /**
   * @param {Task} task
   * @returns {Promise<Found>}
   */
  async slices(task) {
    if (this.own === null || task.kind !== "advance") {
      /** @type {{handle: (event: {data: Task}) => void, found: Found | null}} */
      const own = { handle: () => {}, found: null };
      own.handle = serve((found) => (own.found = found));
      this.own = own;
    }
    const { own } = this;
    const epochs = task.epochs ?? 0;
    own.handle({ data: { ...task, epochs: Math.min(1, epochs) } });
    for (let i = 1; i < epochs; i++) {
      await new Promise((wait) => setTimeout(wait)); // the page stays alive
      if (own !== this.own) break; // another training was begun, or the view is closed
      own.handle({
        data: {
          kind: "advance",
          epochs: 1,
          grid: i === epochs - 1 ? task.grid : undefined,
        },
      });
    }
    return /** @type {Found} */ (own.found);
  }

  stop() {
    this.own = null;
    for (const worker of this.workers) worker.terminate();
    if (this.url) URL.revokeObjectURL(this.url);
  }
}

/**
 * One view of the playground.
 * @extends {PointsPlayground<State, import("./points.js").Points>}
 */
class WatchView extends PointsPlayground {
  /**
   * @param {Model} model
   * @param {HTMLElement} el
   */
  constructor(model, el) {
    super(model, el, ABOUT, {
      height: 360,
      most: 400,
      words: "click rings one, drag moves it, double-click adds one",
      keys: ", Enter rings it",
      signs: [
        ["◯", "fg", "your guess"],
        ["P", "fg", "PSMI’s"],
        ["L", "fg", "the loss’s"],
        ["★", "fg", "memorised"],
      ],
    });
    this.curves = new Plot("curves", 170, { left: 48, right: 14, top: 12, bottom: 38 });
    this.gaps = new Plot("shadows", 200, { left: 48, right: 14, top: 26, bottom: 84 });
    this.plots = [this.cloud, this.curves, this.gaps];
    this.workshop = new Workshop(Math.min(2, navigator.hardwareConcurrency || 1));
    /** @type {number[]} */
    this.rings = [];
    /** Whether the points show their labels. They do not before the first guess. */
    this.labelled = false;
    this.round = 0; // a training that was begun before is not listened to
    this.busy = false;
    this.failed = "";
    this.setting = this.traits(SETTINGS);
    /** Every epoch so far. @type {Found[]} */
    this.past = [];
    /** @type {Stopped | null} */
    this.stopped = null;
    /** @type {Asked | null} */
    this.asked = null;
    /** @type {HTMLCanvasElement | null} */
    this.image = null;
    this.parts = this.compose();
    this.listen();
    this.start();
    this.showLabels(false);
    this.show();
  }

  taken() {
    return this.drawn(this.traits(SETTINGS));
  }

  /** @param {Pick<State, typeof SETTINGS[number]>} settings */
  drawn({ n, classes, noise, seed }) {
    const { points, labels } = makeData(n, classes, noise, seed);
    return { points, labels, count: classes, selected: 0 };
  }

  /** Forgets what was trained. The points and the rings stay. */
  forget() {
    this.round += 1;
    this.busy = false;
    this.past = [];
    this.stopped = null;
    this.asked = null;
    this.image = null;
  }

  compose() {
    const next = button("Train until ρ", "", () => void this.step());
    next.classList.add("mw-watch-next");
    const other = button("Other points", "another seed", () =>
      this.redraw((this.setting.seed + 1) % 1_000_000),
    );
    const ring = button("Ring it", "guess that the chosen point is memorised", () =>
      this.ring(this.now.selected),
    );
    const slides = sliders(
      {
        width: {
          name: "width",
          help: "neurons in each hidden layer",
          places: [8, 16, 24, 32, 48, 64],
          say: String,
        },
        noise: {
          name: "wrong labels",
          help: "share of points with a wrong label",
          max: 0.2,
          step: 0.01,
          say: (x) => `${Math.round(100 * x)} %`,
        },
        rho: {
          name: "ρ",
          help: "drop of the median loss at which PSMI is computed",
          min: 0.5,
          max: 0.99,
          step: 0.01,
          say: (x) => fixedText(x, 2),
        },
        seed: {
          name: "seed",
          help: "of the points and of all networks",
          max: 99,
          step: 1,
          say: String,
        },
      },
      (name, value) => (this.setting[name] = value),
      (name) => (name === "noise" || name === "seed" ? this.restart() : this.edited()),
    );
    const phase = html("p", { class: "mw-panel-words mw-watch-phase" });
    const left = html(
      "div",
      { class: "mw-play-side" },
      this.cloudPanel(),
      html("div", { class: "mw-row" }, next, phase),
      this.acts(ring, other),
    );
    const right = html(
      "div",
      { class: "mw-play-side" },
      panel(
        "Probability of each point’s label",
        "by epoch; the chosen and the ringed points are bold",
        this.curves.canvas,
      ),
      panel(
        "Logit gaps of the chosen point",
        `${MODELS} other networks`,
        this.gaps.canvas,
        legend([
          ["●", "in", "trained on it"],
          ["□", "out", "did not"],
          ["│", "fg", "the network you watched"],
        ]),
      ),
    );
    const settings = html(
      "details",
      { class: "mw-try mw-span" },
      html("summary", {}, "Another network"),
      slides.element,
    );
    this.body.append(left, right, settings);
    return { next, phase, ring, slides };
  }

  listen() {
    for (const name of SETTINGS) {
      this.onTrait(name, () => {
        if (this.trait(name) === this.setting[name]) return;
        this.setting = this.traits(SETTINGS);
        this.restart();
      });
    }
  }

  /* ------------------------------------------------------------ the points */

  restart() {
    this.redraw(this.setting.seed);
  }

  /** @param {number} seed */
  redraw(seed) {
    this.setting.seed = seed;
    this.showLabels(false);
    this.now = this.drawn(this.setting);
    this.rings = [];
    this.edited();
  }

  /** @param {boolean} labelled */
  showLabels(labelled) {
    this.labelled = labelled;
    this.named = 0; // the legend says what is shown
    this.root.classList.toggle("mw-watch-unlabelled", !labelled);
  }

  /** @param {[string, string, string][]} classes */
  entries(classes) {
    if (this.labelled) return super.entries(classes);
    const [guess] = this.look.signs;
    return /** @type {typeof classes} */ ([
      ["●", "muted", "a point, whose label you will see"],
      guess,
    ]);
  }

  /** What was trained on other points says nothing of these. */
  edited() {
    this.forget();
    const { seed, noise, width, rho } = this.setting;
    this.commit({ seed, noise, width, rho });
    this.report({});
    this.show();
  }

  moving() {
    if (this.past.length > 0 || this.busy) this.forget();
    this.later();
  }

  clicked() {
    this.ring(this.now.selected);
  }

  /** @param {number} gone */
  removed(gone) {
    this.rings = this.rings
      .filter((one) => one !== gone)
      .map((one) => (one > gone ? one - 1 : one));
  }

  /** @param {number} which */
  choose(which) {
    this.now.selected = which;
    this.show();
  }

  /** @param {number} which  rung before the training, not after */
  ring(which) {
    this.now.selected = which;
    if (this.guesses) {
      if (this.rings.includes(which))
        this.rings = this.rings.filter((one) => one !== which);
      else if (this.rings.length < RINGS) this.rings = [...this.rings, which];
    }
    this.show();
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    if (event.key !== "Enter" && event.key !== " ") return super.key(event);
    this.ring(this.now.selected);
    event.preventDefault();
  }

  /* ------------------------------------------------------------ the training */

  /** Whether points can be ringed now. */
  get guesses() {
    return this.past.length === 0 && !this.busy;
  }

  get trained() {
    return this.past.length > 0 && this.past[this.past.length - 1].epoch >= EPOCHS;
  }

  /** How many points are still to be ringed before the first training. */
  get toGuess() {
    return this.past.length > 0
      ? 0
      : Math.min(RINGS, this.now.labels.length) - this.rings.length;
  }

  /** Does what the large button says. */
  async step() {
    if (this.busy || this.toGuess > 0) return;
    const { round } = this;
    this.busy = true;
    this.failed = "";
    if (!this.labelled) this.showLabels(true);
    this.show();
    try {
      if (!this.trained) await this.train(round);
      else if (this.asked === null) await this.askOthers(round);
      else this.redraw((this.setting.seed + 1) % 1_000_000);
    } catch (error) {
      this.failed = error instanceof Error ? error.message : String(error);
    }
    if (round === this.round) this.busy = false;
    this.show();
  }

  /** @param {number} round */
  async train(round) {
    const {
      now: { points, labels },
      setting,
    } = this;
    const data = { points, labels };
    const n = labels.length;
    const x = this.cloud.width / 2 / this.unit;
    const grid = {
      x,
      y: this.reach,
      columns: Math.round((48 * x) / this.reach),
      rows: 48,
    };
    const still = isStill();
    const rows = Uint16Array.from({ length: n }, (_, i) => i);
    const seed = setting.seed * 1000 + 1;
    if (this.past.length === 0) {
      const first = await this.workshop.ask(0, {
        kind: "begin",
        width: setting.width,
        classes: setting.classes,
        seed,
        data,
        rows,
        grid,
      });
      if (round !== this.round) return;
      this.past.push(first);
    }
    while (!this.trained) {
      const found = await this.workshop.ask(0, { kind: "advance", epochs: 1, grid });
      if (round !== this.round) return;
      this.past.push(found);
      const drop = 1 - median(found.losses) / median(this.past[0].losses);
      const goesOn = (this.stopped !== null || drop < setting.rho) && !this.trained;
      if (!still || !goesOn || found.epoch % STILL === 0) {
        this.paint(found, grid);
        this.later();
        // slower before ρ, which comes early, so that it can be watched
        for (let i = this.stopped === null ? 4 : 1; i > 0; i--)
          await new Promise((shown) => requestAnimationFrame(shown));
        if (round !== this.round) return;
      }
      if (goesOn || this.stopped !== null) continue;
      const psmi = await this.psmiOf(found.states);
      if (round !== this.round) return;
      this.stopped = { ...found, psmi, drop };
      return;
    }
  }

  /**
   * In slices, so that no frame waits for it.
   * @param {Float64Array} states
   */
  async psmiOf(states) {
    const { labels } = this.now;
    const directions = directionsFor(this.setting.width, DIRECTIONS);
    const psmi = new Float64Array(labels.length);
    const slices = 16;
    for (let i = 0; i < slices; i++) {
      const part = directions.subarray(
        (i * directions.length) / slices,
        ((i + 1) * directions.length) / slices,
      );
      psmiOfRows(states, labels, this.setting.classes, part).forEach(
        (value, k) => (psmi[k] += value / slices),
      );
      await new Promise((wait) => setTimeout(wait));
    }
    return psmi;
  }

  /** PSMI's five and the loss's five. */
  get fives() {
    if (this.stopped === null) return { psmi: [], loss: [] };
    return {
      psmi: lowest(this.stopped.psmi, RINGS),
      loss: lowest(
        this.stopped.losses.map((x) => -x),
        RINGS,
      ),
    };
  }

  /** @param {number} round */
  async askOthers(round) {
    const {
      now: { points, labels },
      setting,
    } = this;
    const data = { points, labels };
    const n = labels.length;
    const { psmi, loss } = this.fives;
    const judged = [...new Set([...this.rings, ...psmi, ...loss])];
    const members = membersOf(n, judged, setting.seed);
    /** @type {Asked} */
    const asked = { judged, members, gaps: [], models: [] };
    this.asked = asked;
    if (!judged.includes(this.now.selected)) this.now.selected = psmi[0];
    this.show();
    let waiting = 0;
    const work = async (/** @type {number} */ which) => {
      while (waiting < MODELS && round === this.round) {
        const model = waiting++;
        const rows = Uint16Array.from({ length: n }, (_, i) => i).filter(
          (i) => members[model][i] === 1,
        );
        const found = await this.workshop.ask(which, {
          kind: "shadow",
          width: setting.width,
          classes: setting.classes,
          seed: setting.seed * 1000 + 10 + 2 * model,
          data,
          rows,
          epochs: EPOCHS,
        });
        if (round !== this.round) return;
        asked.gaps.push(found.gaps);
        asked.models.push(model);
        if (!isStill() || asked.models.length % (MODELS / 4) === 0) this.show();
      }
    };
    await Promise.all(
      Array.from({ length: this.workshop.count }, (_, which) => work(which)),
    );
    if (round === this.round) this.finish(judged);
  }

  /**
   * Tells Python who was guessed, and the scores of all points.
   * @param {number[]} judged
   */
  finish(judged) {
    if (this.stopped === null) return;
    const { psmi, losses } = this.stopped;
    const truth = new Float64Array(psmi.length).fill(NaN);
    for (const i of judged) truth[i] = this.judge(i)?.logLira ?? NaN;
    this.report({
      guess: this.rings,
      psmi: packed(psmi),
      losses: packed(losses),
      log_lira: packed(truth),
    });
  }

  /**
   * Both sides of a judged point's gaps, and its log-LiRA.
   * @param {number} sample
   */
  judge(sample) {
    const { asked, past } = this;
    if (asked === null || !asked.judged.includes(sample)) return null;
    const side = (/** @type {number} */ is) =>
      asked.gaps
        .filter((_, k) => asked.members[asked.models[k]][sample] === is)
        .map((row) => row[sample]);
    const [inside, outside] = [side(1), side(0)];
    if (inside.length < LEAST || outside.length < LEAST) return null;
    const fitted = [inside, outside].map((gaps) => {
      const { mean, squares, count } = sideOf(gaps);
      return { mean, variance: Math.max(squares / count, 1e-9) };
    });
    const gap = past[past.length - 1].gaps[sample];
    return {
      inside,
      outside,
      fitted,
      gap,
      logLira: logRatio(gap, fitted[0], fitted[1]),
    };
  }

  /* ------------------------------------------------------------ what is shown */

  show() {
    const { next, phase, ring, slides } = this.parts;
    this.nameClasses();
    const epoch = this.past.length > 0 ? this.past[this.past.length - 1].epoch : 0;
    const done = this.asked !== null && this.asked.gaps.length === MODELS;
    const name = !this.trained
      ? this.stopped === null
        ? "Train until ρ"
        : "Train to the end"
      : done
        ? "Another round"
        : "Ask 32 other networks";
    const left = this.toGuess;
    const label =
      left === 0 ? name : left === RINGS ? `Ring ${RINGS} points` : `Ring ${left} more`;
    if (next.textContent !== label) next.textContent = label;
    next.setAttribute("aria-disabled", String(this.busy || left > 0));
    const rung = this.rings.length;
    const { fives } = this;
    const right = (/** @type {number[]} */ samples) =>
      samples.filter((sample) => (this.judge(sample)?.logLira ?? -Infinity) >= ETA)
        .length;
    let words = `Ring the five points that it will memorise: ${rung} of ${RINGS}.`;
    if (!this.labelled)
      words += " You see where they are. Their labels appear when it trains.";
    if (done)
      words = `Memorised are ${right(this.rings)} of your five, ${right(fives.psmi)} of PSMI’s, ${right(fives.loss)} of the loss’s. ${WHY}`;
    else if (this.asked !== null)
      words = `${this.asked.gaps.length} of ${MODELS} networks are trained.`;
    else if (this.trained)
      words =
        "Trained to the end. Other networks, with and without these points, say what it memorised.";
    else if (this.stopped !== null)
      words = `ρ at epoch ${this.stopped.epoch}: the median loss has dropped by ${shareText(this.stopped.drop)}. P and L mark what PSMI and the loss expect.`;
    else if (this.busy)
      words =
        this.workshop.workers.length > 0
          ? "It trains …"
          : "It trains on the page, because no worker can be started here …";
    if (this.stopped !== null && this.stopped.drop < this.setting.rho)
      words = `The loss never fell by ρ = ${fixedText(this.setting.rho, 2)}, so PSMI is that of the last epoch. ${words}`;
    if (phase.textContent !== words) phase.textContent = words;
    this.label.show(String(this.own));
    this.removing.disabled = !this.canLeave();
    ring.textContent = this.rings.includes(this.now.selected) ? "Unring it" : "Ring it";
    ring.disabled = !this.guesses;
    slides.show(this.setting);
    if (this.failed)
      this.hint.textContent = `The training stopped: ${this.failed}. Press Start again.`;
    Object.assign(this.root.dataset, {
      epoch: String(epoch),
      rings: String(rung),
      models: String(this.asked?.gaps.length ?? 0),
      done: String(done),
    });
    this.say(words);
    this.later();
  }

  /** @param {string} words */
  say(words) {
    const i = this.now.selected;
    const score =
      this.stopped === null ? "" : ` PSMI ${fixedText(this.stopped.psmi[i], 2)}.`;
    const judged = this.judge(i);
    const ratio = judged === null ? "" : ` Log-LiRA ${fixedText(judged.logLira, 1)}.`;
    const point = `Point ${i + 1} of ${this.now.labels.length} at ${fixedText(this.x, 1)}, ${fixedText(this.y, 1)}, ${this.labelled ? `label ${NAMES[this.own]}` : "its label is hidden"}${this.rings.includes(i) ? ", ringed" : ""}.${score}${ratio}`;
    this.cloud.canvas.setAttribute(
      "aria-label",
      `Points and the network’s decision. ${point}`,
    );
    this.curves.canvas.setAttribute(
      "aria-label",
      "Probability of each point’s label by epoch.",
    );
    this.gaps.canvas.setAttribute(
      "aria-label",
      `Logit gaps under other networks.${ratio}`,
    );
    this.speak(`${words} ${point}`);
  }

  /**
   * Paints the network's decision as a small picture, which the plot stretches.
   * @param {Found} found
   * @param {{columns: number, rows: number}} grid
   */
  paint(found, { columns, rows }) {
    const image = this.image ?? html("canvas");
    this.image = image;
    [image.width, image.height] = [columns, rows];
    const context = /** @type {CanvasRenderingContext2D} */ (image.getContext("2d"));
    const pixels = context.createImageData(columns, rows);
    const colours = NAMES.slice(0, this.now.count).map((_, c) =>
      (this.palette[`c${c}`].match(/[\da-f]{2}/gi) ?? ["80", "80", "80"]).map((two) =>
        parseInt(two, 16),
      ),
    );
    found.cells.forEach((cell, i) => {
      const own = Math.floor(cell);
      pixels.data.set([...colours[own], 150 * Math.max(0, cell - own - 0.3)], 4 * i);
    });
    context.putImageData(pixels, 0, 0);
  }

  draw() {
    this.drawCloud();
    this.drawCurves();
    this.drawGaps();
  }

  drawCloud() {
    const plot = this.cloud;
    const context = plot.begin(this.palette);
    const { width, height } = plot;
    if (this.image) context.drawImage(this.image, 0, 0, width, height);
    const [full] = this.signsOf(4.4);
    this.now.labels.forEach((label, i) => {
      if (this.labelled) full[label](...this.pixelOf(i));
      else plot.dot(...this.pixelOf(i), 4.4, "muted", "bg", 1);
    });
    for (const i of this.rings) plot.dot(...this.pixelOf(i), 9, "", "fg", 2);
    context.setLineDash([3, 3]);
    plot.dot(...this.pixelOf(this.now.selected), 13, "", "fg", 2);
    context.setLineDash([]);
    this.drawMarks(plot);
  }

  /**
   * Who named a point, and whether it was memorised.
   * @param {Plot} plot
   */
  drawMarks(plot) {
    const { psmi, loss } = this.fives;
    const named = [...new Set([...psmi, ...loss, ...this.rings])];
    const texts = named.map((i) =>
      [
        psmi.includes(i) ? "P" : "",
        loss.includes(i) ? "L" : "",
        (this.judge(i)?.logLira ?? -Infinity) >= ETA ? "★" : "",
      ]
        .filter(Boolean)
        .join(" "),
    );
    const marked = named.filter((_, k) => texts[k] !== "");
    const words = texts.filter(Boolean);
    const places = marked.map((i) => this.pixelOf(i));
    const widths = words.map((word) => plot.widthOf(word) + 6);
    const middles = beside(places, widths, plot.width, plot.height);
    middles.forEach((middle, k) => {
      plot.line([places[k], middle], "fg", 1);
      plot.dot(...places[k], 6.5, "", "fg", 1.2);
    });
    middles.forEach(([x, y], k) =>
      plot.text(words[k], x, y + 4, {
        colour: "fg",
        align: "center",
        bold: true,
        halo: true,
      }),
    );
  }

  /** @param {Plot} plot */
  epochAxis(plot) {
    return linear(0, EPOCHS, plot.frame.left, plot.frame.right);
  }

  drawCurves() {
    const plot = this.curves;
    const context = plot.begin(this.palette);
    const { top, bottom } = plot.frame;
    const x = this.epochAxis(plot);
    const y = linear(0, 1, bottom, top);
    plot.levels(y, 4);
    const { labels } = this.now;
    const every = Math.max(1, Math.floor(this.past.length / 75)); // as fine as the eye sees
    const steps = this.past.filter(
      (_, k) => k % every === 0 || k === this.past.length - 1,
    );
    for (let c = 0; c < this.setting.classes; c++) {
      context.beginPath();
      for (let i = 0; i < labels.length; i++) {
        if (labels[i] !== c) continue;
        steps.forEach((one, k) => {
          const [px, py] = [x.at(one.epoch), y.at(Math.exp(-one.losses[i]))];
          if (k === 0) context.moveTo(px, py);
          else context.lineTo(px, py);
        });
      }
      context.globalAlpha = 0.22;
      context.strokeStyle = plot.colour(`c${c}`);
      context.lineWidth = 1;
      context.stroke();
      context.globalAlpha = 1;
    }
    for (const i of new Set([...this.rings, this.now.selected])) {
      const line = this.past.map(
        (one) =>
          /** @type {[number, number]} */ ([
            x.at(one.epoch),
            y.at(Math.exp(-one.losses[i])),
          ]),
      );
      plot.line(line, i === this.now.selected ? "fg" : `c${labels[i]}`, 2.2);
    }
    this.drawStop(plot, x);
    plot.lowerAxis(x, "epoch");
  }

  /**
   * @param {Plot} plot
   * @param {import("./kit.js").Scale} x
   */
  drawStop(plot, x) {
    if (this.stopped === null) return;
    const at = x.at(this.stopped.epoch);
    plot.line(
      [
        [at, plot.frame.top],
        [at, plot.frame.bottom],
      ],
      "accent",
      1.6,
      [5, 4],
    );
    plot.text("ρ", at + 5, plot.frame.top + 10, {
      colour: "fg",
      bold: true,
      halo: true,
    });
  }

  drawGaps() {
    const plot = this.gaps;
    plot.begin(this.palette);
    const { left, right, top, bottom } = plot.frame;
    const judged = this.judge(this.now.selected);
    if (judged === null) {
      const judging = this.asked?.judged.includes(this.now.selected);
      plot.text(
        this.asked === null
          ? "After the training."
          : judging
            ? `After ${LEAST} networks a side.`
            : "Nobody named this point.",
        (left + right) / 2,
        (top + bottom) / 2,
        { align: "center" },
      );
      return;
    }
    const { inside, outside, fitted, gap, logLira } = judged;
    const all = [...inside, ...outside, gap];
    const spare = 0.08 * (Math.max(...all) - Math.min(...all)) + 0.5;
    const x = linear(Math.min(...all) - spare, Math.max(...all) + spare, left, right);
    fitted.forEach((gaussian, side) => {
      const tall = density(gaussian.mean, gaussian);
      const line = plot.curve(
        (px) => bottom - ((bottom - top) * density(x.back(px), gaussian)) / tall,
      );
      plot.area(
        [[left, bottom], ...line, [right, bottom]],
        side === 0 ? "in" : "out",
        0.18,
      );
      plot.line(line, side === 0 ? "in" : "out", 2);
    });
    drawSides(plot, x, inside, outside);
    plot.line(
      [
        [x.at(gap), 8],
        [x.at(gap), bottom + 44],
      ],
      "fg",
      2,
    );
    const said = `log-LiRA ${besideText(logLira, ETA)[0]}, ${logLira >= ETA ? "memorised" : "not memorised"}`;
    plot.text(said, left + 4, top - 10, { colour: "fg", bold: true, halo: true });
  }

  destroy() {
    this.round += 1;
    this.workshop.stop();
    super.destroy();
  }
}

export default shown(WatchView);
