/** The τ explorer: histogram, ROC, sliders and tiles that follow τ and η without the kernel. */

import {
  COUNT_SCALES, Controls, curveEntry, neighbourTau, presets, ROC_SCALES, SCORE_SCALES, Tiles,
} from "./controls.js";
import {
  arrowStep, html, KERNEL_GONE, listeners, onWidth, root, segments, setAttributes, tell, throttle,
} from "./dom.js";
import {
  aucOf, countsAt, isSkewed, judgedAt, kneeFor, LINEAR, neighbourEta, rankShareAtMost,
  symmetricLog, tauAtRank, undecidedAt, withMemorized,
} from "./maths.js";
import { rateText, scoreText, tickText, tidy, whole } from "./numbers.js";
import { HistogramPlot, RocPlot } from "./plots.js";
import { Strip } from "./strip.js";
import { floats, NOTHING, unpack, unpackCurve, unpackLate, unpackTruth } from "./wire.js";

/** @typedef {import("./dom.js").Model} Model */
/** @typedef {import("./maths.js").Scores} Scores */
/** @typedef {import("./maths.js").Auc} Auc */
/** @typedef {import("./maths.js").Counts} Counts */
/** @typedef {import("./maths.js").Axis} Axis */
/** @typedef {import("./wire.js").Late} Late */

const OPTIMISTIC = "This τ was chosen on the samples it is measured on: its rates are optimistic.";

const NEAR_LINE = 9; // pixels from τ's line within which a press drags it
const STILL = 4; // pixels that a click may move

const WAITING = "Counting anew: log-LiRA is on its way from the kernel.";

/** One view of the explorer. */
export class Explorer {
  /**
   * @param {Model} model
   * @param {HTMLElement} el
   * @param {(tau: number, counts: Counts | null) => void} [moved]  hears where τ is at every frame
   * @param {((low: number, high: number) => void) | null} [picked]  hears which bar is clicked: its scores
   */
  constructor(model, el, moved = () => {}, picked = null) {
    this.model = model;
    this.onMoved = moved;
    this.onPicked = picked;
    /** The bar that the pointer or the keyboard is at. @type {number | null} */
    this.bar = null;
    this.ears = listeners(model);
    this.tau = /** @type {number} */ (model.get("tau"));
    this.eta = /** @type {number} */ (model.get("eta"));
    this.data = unpack(NOTHING);
    this.scores = this.data.scores; // with the truth at judgedEta
    this.judgedEta = this.eta;
    /** @type {Float32Array | Float64Array | null} */
    this.logLira = null;
    /** Memorised samples that the rule by class flags, as `memorizedUpTo`. @type {Float64Array | null} */
    this.foundUpTo = null;
    /** @type {(() => void) | null} */
    this.whenLogLira = null;
    /** @type {Auc | null} */
    this.auc = null;
    /** @type {Late | null} */
    this.late = null;
    /** A curve that stays while others are chosen: of this page's scores, or as the kernel sends it. @type {{title: string, eta: number | null, auc: Auc, scores?: Scores, points?: {fpr: number, tpr: number}[]} | null} */
    this.pinned = null;
    /** @type {Axis} */
    this.axis = LINEAR;
    this.scoreScale = "";
    this.countScale = "sqrt";
    this.rocScale = "linear";
    this.dragging = false;
    this.typing = false;
    this.fitted = false;
    this.ways = "";
    /** @type {HTMLElement | null} */
    this.classButton = null;
    this.heard = true;
    this.frame = 0;
    this.redraw = false;
    /** @type {Set<"tau" | "eta">} */
    this.unsent = new Set();
    this.sync = throttle(() => {
      this.setTraits();
      model.save_changes();
    }, 80);

    this.root = root(el, "explorer", "Threshold explorer", this.ears);
    /** In a dashboard, where samples scroll below. */
    this.strip = picked === null ? null : new Strip(el, this.root, this.ears);
    this.histogram = new HistogramPlot();
    this.roc = new RocPlot();
    this.noRoc = html("p", { class: "mw-empty", hidden: true });
    this.curves = html("ul", { class: "mw-curves", "aria-label": "Curves", hidden: true });
    this.pin = html("button", { type: "button", class: "mw-button mw-pin" });
    this.rocBox = html("div", { class: "mw-roc-box" }, this.roc.element, this.pin, this.noRoc);
    this.legend = html("div", { class: "mw-legend" });
    this.says = html("div", { class: "mw-bar-text", hidden: true });
    this.tiles = new Tiles();
    this.controls = new Controls();
    this.spoken = html("p", { class: "mw-spoken", role: "status" });
    this.scoreScales = segments("Scale of the scores", SCORE_SCALES, (value) => this.rescale({ scoreScale: value }));
    this.countScales = segments("Scale of the counts", COUNT_SCALES, (value) => this.rescale({ countScale: value }));
    this.rocScales = segments("Scale of the ROC", ROC_SCALES, (value) => this.rescale({ rocScale: value }));
    this.rocScalesBox = html("span", { class: "mw-labelled" }, "ROC", this.rocScales.group);
    this.compose();

    this.size = onWidth(this.root, (width) => this.layout(width));
    this.ears.later(this.size.stop);
    this.listen();
    this.load();
    this.hearPinned();
    this.dim();
  }

  compose() {
    const left = html("div", { class: "mw-histogram-box" }, this.legend, this.says, this.histogram.element);
    const answers = html("div", { class: "mw-answer-box" }, this.tiles.answers, this.controls.toggle);
    const plots = html("div", { class: "mw-plots" }, left, this.rocBox, this.curves, answers);
    this.controls.more.prepend(this.tiles.rates);
    this.controls.scales.append(
      this.rocScalesBox,
      html("span", { class: "mw-labelled" }, "scores", this.scoreScales.group),
      html("span", { class: "mw-labelled" }, "counts", this.countScales.group),
    );
    this.countScales.show(this.countScale);
    this.rocScales.show(this.rocScale);
    this.root.append(plots, this.tiles.why, this.controls.element, this.controls.more, this.spoken);
    this.showMore();
  }

  listen() {
    const { tau, eta, etaReset, flag, share, compare, toggle } = this.controls;
    this.ears.onModel("change:more", () => this.showMore());
    this.ears.on(toggle, "click", () => {
      this.model.set("more", !this.model.get("more"));
      this.heard = tell(this.model);
      this.showHint();
    });
    this.ears.on(this.pin, "click", () => this.pinOrNot());
    this.ears.onModel("change:_data", () => this.load());
    this.ears.onModel("change:_truth", () => this.hearTruth());
    this.ears.onModel("change:_late", () => this.hearLate());
    this.ears.onModel("change:_dimmed", () => this.dim());
    this.ears.onModel("change:_comparable", () => this.hearLate());
    this.ears.onModel("change:comparing", () => this.hearLate());
    this.ears.onModel("change:_pinned", () => this.hearPinned());
    this.ears.onModel("change:tau", () => this.hearTau());
    this.ears.onModel("change:rule", () => this.hearRule());
    this.ears.onModel("change:eta", () => this.hearEta());
    this.ears.onModel("msg:custom", (content, buffers) => this.receive(content, buffers));
    if (this.strip !== null) {
      const { slider } = this.strip;
      this.ears.on(slider, "input", () => this.move(this.axis.from(Number(slider.value))));
      this.ears.on(slider, "change", () => this.commit("tau"));
      this.ears.on(slider, "keydown", (event) => this.key(event));
    }
    this.dragOn(this.histogram.element, (x) => this.histogram.tauAt(x));
    this.listenToBars();
    this.dragOn(this.roc.element, (x, y) => this.roc.tauAt(x, y));
    this.listenToRow(tau, {
      slide: (place) => this.move(this.axis.from(place)),
      commit: () => this.commit("tau"),
      key: (event) => this.key(event),
      text: () => this.tauText(),
      choose: (value) => this.choose(value, false),
    });
    this.listenToRow(eta, {
      slide: (place) => this.moveEta(place),
      commit: () => this.commit("eta"),
      key: (event) => this.etaKey(event),
      text: () => this.etaText(),
      choose: (value) => this.chooseEta(value),
    });
    this.ears.on(etaReset, "click", () => this.chooseEta(4));
    this.ears.on(flag, "click", () => this.flagShare());
    this.ears.on(share, "keydown", (event) => {
      if (event.key === "Enter") this.flagShare();
    });
    this.ears.on(compare, "change", () => {
      this.model.set("comparing", compare.checked);
      this.heard = tell(this.model);
      this.hearLate();
    });
  }

  /**
   * @param {{slider: HTMLInputElement, field: HTMLInputElement}} row
   * @param {{slide: (place: number) => void, commit: () => void, key: (event: KeyboardEvent) => void, text: () => string, choose: (value: number) => void}} acts
   */
  listenToRow({ slider, field }, acts) {
    const typed = () => {
      if (!this.typing) return;
      this.typing = false;
      const text = field.value.trim().replace("−", "-").replace(",", ".");
      const value = text === "" ? NaN : Number(text);
      if (Number.isFinite(value)) acts.choose(value); // what it shows may be rounded
      else field.value = acts.text();
    };
    this.ears.on(slider, "pointerdown", () => (this.dragging = true));
    this.ears.on(slider, "input", () => acts.slide(Number(slider.value)));
    this.ears.on(slider, "change", () => {
      this.dragging = false;
      acts.commit();
    });
    for (const name of ["pointerup", "pointercancel", "blur"]) {
      this.ears.on(slider, name, () => (this.dragging = false));
    }
    this.ears.on(slider, "keydown", acts.key);
    this.ears.on(field, "input", () => (this.typing = true));
    this.ears.on(field, "change", typed);
    this.ears.on(field, "blur", typed);
    this.ears.on(field, "keydown", (event) => {
      if (event.key === "Enter") typed();
      if (event.key === "Escape") {
        this.typing = false;
        field.value = acts.text();
      }
      if (event.key === "ArrowUp" || event.key === "ArrowDown") acts.key(event);
    });
  }

  /** Whether each class has a threshold of its own, in place of τ. */
  get byClass() {
    return this.data.below !== null && this.model.get("rule") === "class";
  }

  /**
   * The scores with what the rule by class flags in place of memorised samples; then with the memorised ones of those.
   * @returns {[Scores, Scores]}
   */
  flaggedByClass() {
    const { data, logLira } = this;
    if (this.foundUpTo === null && logLira !== null) {
      const within = logLira.map((value, i) => (data.below?.[i] ? value : -Infinity));
      this.foundUpTo = judgedAt(data.scores, within, this.judgedEta).memorizedUpTo;
    }
    return [withMemorized(data.scores, data.belowUpTo), withMemorized(data.scores, this.foundUpTo)];
  }

  /**
   * The counts at τ, or by class.
   * @returns {Counts}
   */
  counted() {
    if (!this.byClass) return countsAt(this.scores, this.tau);
    const [flagged, found] = this.flaggedByClass().map(({ memorized }) => memorized);
    const { n, memorized } = this.scores;
    const missed = memorized - found;
    return { flagged, found, flaggedOnly: flagged - found, missed, leftAlone: n - flagged - missed };
  }

  get known() {
    return this.scores.memorizedUpTo !== null;
  }

  get hasRoc() {
    const { memorized, n } = this.scores;
    return this.known && memorized > 0 && memorized < n;
  }

  /** Whether the truth is the one at the current η, not at the last one. */
  get settled() {
    return this.data.etaRange === null || this.judgedEta === this.eta;
  }

  /* ------------------------------------------------------------ what the kernel sends */

  load() {
    const wire = this.model.get("_data");
    const truth = this.model.get("_truth");
    this.root.hidden = !wire.values;
    if (!wire.values || truth.version !== wire.version) return;
    this.data = unpack(wire);
    this.logLira = this.whenLogLira = null;
    this.late = null;
    if (!this.dragging) {
      this.tau = this.model.get("tau");
      this.eta = this.model.get("eta");
    }
    this.fitted = false;
    this.takeTruth(truth);
    if (!this.settled) this.withLogLira(() => this.judge());
  }

  /** Takes a truth for the current η or for new scores. One for an earlier η is of no use. */
  hearTruth() {
    const truth = this.model.get("_truth");
    if (truth.version !== this.data.version) this.load();
    else if (truth.eta === this.eta && !this.settled) this.takeTruth(truth);
  }

  /** Shows the counts at τ or by class, whoever chose the rule. */
  hearRule() {
    if (this.root.hidden) return;
    this.moved();
    this.speak();
  }

  /** @param {import("./messages.js").TruthShown} truth */
  takeTruth(truth) {
    this.judgedEta = truth.eta ?? this.eta;
    const [bits, ofShared] = truth.found ?? [null, null];
    this.foundUpTo = unpackTruth(this.data, { bits, of_shared: ofShared }).memorizedUpTo;
    this.showTruth(unpackTruth(this.data, truth));
  }

  /** Counts again which samples are memorised. */
  judge() {
    if (this.logLira === null || this.settled) return;
    this.judgedEta = this.eta;
    this.foundUpTo = null;
    this.showTruth(judgedAt(this.data.scores, this.logLira, this.eta));
  }

  /** @param {Scores} scores */
  showTruth(scores) {
    this.scores = scores;
    this.auc = aucOf(scores);
    this.takeLate();
    this.showParts();
    this.showPresets();
    this.chooseAxis();
    this.draw();
  }

  hearLate() {
    this.takeLate();
    this.draw();
  }

  /** Takes the band and the other scores, if they belong to what is shown. */
  takeLate() {
    const late = this.model.get("_late");
    const fits =
      late?.version === this.data.version && (late.eta === null || late.eta === this.judgedEta);
    this.late = fits ? unpackLate(late) : null;
    this.showCompared();
  }

  /**
   * Calls an action with log-LiRA, which is sent when it is first needed.
   * @param {() => void} action  the last one counts
   */
  withLogLira(action) {
    if (this.logLira !== null) {
      action();
      return;
    }
    const asked = this.whenLogLira !== null;
    this.whenLogLira = action;
    if (asked) return;
    this.heard = tell(this.model, { type: "log_lira", version: this.data.version });
    if (this.heard) return;
    this.whenLogLira = null;
    this.eta = this.judgedEta;
    this.draw();
  }

  /**
   * @param {import("./messages.js").FromKernel} content
   * @param {DataView[]} buffers
   */
  receive(content, buffers) {
    if (content.type !== "log_lira" || content.version !== this.data.version) return;
    this.logLira = /** @type {Float32Array | Float64Array} */ (floats(buffers[0], content.wide));
    const action = this.whenLogLira;
    this.whenLogLira = null;
    action?.();
  }

  /** Takes a τ that Python set, unless the user is dragging. */
  hearTau() {
    const tau = this.model.get("tau");
    if (this.dragging || tau === this.tau) return;
    this.fitted = false;
    this.tau = tau;
    this.moved();
  }

  /** Takes an η that Python set. Its truth is sent with it, or counted here. */
  hearEta() {
    const eta = this.model.get("eta");
    if (this.dragging || eta === this.eta) return;
    this.eta = eta;
    this.fitted = false;
    const truth = this.model.get("_truth");
    if (truth.version === this.data.version && truth.eta === eta) this.takeTruth(truth);
    else if (this.logLira !== null) this.judge();
    else this.draw();
  }

  /* ------------------------------------------------------------ what is there to see */

  /** Hides what needs ground truth if there is none. */
  showParts() {
    const { known, hasRoc } = this;
    this.root.classList.toggle("mw-without-truth", !known);
    this.rocBox.hidden = !known;
    setAttributes(this.roc.element, { hidden: !hasRoc });
    this.rocScalesBox.hidden = !hasRoc;
    this.noRoc.hidden = hasRoc;
    const none = this.scores.memorized === 0;
    const { truth } = this.data;
    const which = truth === "" ? "memorised" : `among the ${truth}`;
    this.noRoc.textContent = `${none ? "None of these samples is" : "All of these samples are"} ${which}: there is no ROC to draw.`;
    this.tiles.nameTruth(truth === "" ? "memorised samples" : truth);
    this.tiles.explain();
    this.tiles.showParts(known, hasRoc);
    const range = this.data.etaRange;
    this.controls.eta.row.hidden = range === null;
    if (range === null) return;
    const ends = { min: Math.min(range[0], this.eta), max: Math.max(range[1], this.eta) };
    setAttributes(this.controls.eta.slider, ends);
  }

  showMore() {
    this.controls.showMore(this.model.get("more"));
  }

  /** Keeps the curve on show, or lets the kept one go. */
  pinOrNot() {
    const { data, auc } = this;
    if (this.pinned !== null) this.pinned = null;
    else if (auc !== null && this.settled) {
      const eta = data.etaRange && this.judgedEta;
      this.pinned = { title: data.title, eta, scores: this.scores, auc };
    }
    if (data.pick !== null) {
      this.model.set("pinned", this.pinned && { ...data.pick, eta: this.pinned.eta });
      this.heard = tell(this.model);
    }
    this.showCompared();
    this.draw();
  }

  /** Takes the pinned curve of a state that was restored. */
  hearPinned() {
    const { title, eta, auc, points } = this.model.get("_pinned") ?? {};
    if (points === undefined) this.pinned = null;
    else this.pinned = { title, eta, auc: { area: auc[0], interval: [auc[1], auc[2]] }, points: unpackCurve(points) };
    this.hearLate();
  }

  /** The pinned curve, if it is another than the one on show. */
  get beside() {
    const { pinned, scores } = this;
    if (!this.hasRoc || pinned === null) return null;
    const same = pinned.title === this.data.title && pinned.eta === (this.data.etaRange && this.judgedEta);
    return same && (pinned.scores?.values ?? scores.values) === scores.values ? null : pinned;
  }

  /** Names the curve on show and the pinned one, with η where they differ in it. */
  showPinned() {
    this.pin.hidden = !this.hasRoc;
    this.pin.textContent = this.pinned === null ? "Pin curve" : "Unpin";
    this.pin.setAttribute("aria-pressed", String(this.pinned !== null));
    this.pin.title = this.pinned === null
      ? "keep this curve while you choose another score, layer or checkpoint"
      : `let the curve of ${this.pinned.title} go`;
    const { beside } = this;
    if (beside === null) return [];
    const eta = beside.eta === null || beside.eta === this.judgedEta ? "" : `, η = ${beside.eta}`;
    const { area, interval } = beside.auc;
    return [curveEntry("mw-pinned-curve", `${beside.title}${eta} (pinned)`, area, interval, null)];
  }

  /** The checkbox, and the list of curves with their AUCs. */
  showCompared() {
    const pinned = this.showPinned();
    const comparing = this.model.get("comparing");
    this.controls.compareBox.hidden = !(this.model.get("_comparable") && this.hasRoc);
    this.controls.compare.checked = comparing;
    const shown = comparing && !this.controls.compareBox.hidden;
    const names = shown || this.pinned !== null; // a pinned curve names the one on show, too
    this.curves.hidden = !names;
    this.root.classList.toggle("mw-named", names);
    if (!names) {
      this.curves.replaceChildren();
      this.root.style.removeProperty("--mw-curves");
      return;
    }
    if (shown && this.late === null) {
      this.curves.classList.add("mw-waiting");
      for (const number of this.curves.querySelectorAll(".mw-curve-auc")) number.textContent = "…";
      if (!this.curves.hasChildNodes()) this.curves.append(html("li", {}, "comparing …"));
      return;
    }
    this.curves.classList.remove("mw-waiting");
    const others = (shown && this.late !== null ? this.late.others : []).map((other, i) => {
      const [area, low, high] = other.auc;
      return curveEntry(`mw-other-curve mw-other-${i + 1}`, other.name, area, [low, high], other.difference);
    });
    const { auc } = this;
    const own = auc === null ? [] : [curveEntry("mw-curve", this.data.title, auc.area, auc.interval, null)];
    this.curves.replaceChildren(...own, ...pinned, ...others);
    this.root.style.setProperty("--mw-curves", String(this.curves.children.length));
  }

  showLegend() {
    const { scores, settled } = this;
    /** @type {(kind: string, text: string) => HTMLElement} */
    const entry = (kind, text) => {
      const swatch = html("span", { class: `mw-swatch mw-swatch-${kind}`, "aria-hidden": "true" });
      return html("span", { class: "mw-legend-entry" }, swatch, text);
    };
    const { etaRange, truth } = this.data;
    const reason = etaRange === null ? "" : ` (log-LiRA ≥ ${this.etaText()})`;
    const positives = truth === "" ? `memorised${reason}` : truth;
    const truly = this.late?.truly ? `, ${this.late.truly}` : "";
    const many = (/** @type {number} */ count) => (settled ? whole(count) : "…");
    const entries = this.known
      ? [
          entry("memorized", `↑ ${positives} · ${many(scores.memorized)}${truly}`),
          entry("other", `↓ others · ${many(scores.n - scores.memorized)}`),
        ]
      : [entry("other", `samples · ${whole(scores.n)}`)];
    this.legend.replaceChildren(...entries);
  }

  /** Offers the ways to choose τ; the buttons stay while the ways do. */
  showPresets() {
    const { hasRoc, data } = this;
    const byClass = data.below !== null;
    const ways = JSON.stringify([hasRoc, data.natural, data.canaryTau, byClass]);
    if (ways === this.ways) return;
    this.ways = ways;
    const groups = [this.controls.presets, this.controls.morePresets];
    for (const group of groups) group.replaceChildren();
    this.classButton = null;
    for (const preset of presets(hasRoc, data.natural, data.canaryTau, byClass)) {
      const button = html("button", { type: "button", class: "mw-button", title: preset.title }, preset.label);
      button.addEventListener("click", () => {
        if (preset.rule) this.chooseRule(preset.rule);
        else if (this.settled || !preset.fitted) this.choose(preset.tau(this.scores), preset.fitted);
      });
      if (preset.rule) this.classButton = button;
      groups[preset.more ? 1 : 0].append(button);
    }
  }

  dim() {
    this.root.classList.toggle("mw-dimmed", this.model.get("_dimmed"));
  }

  /* ------------------------------------------------------------ drawing */

  /** @param {{scoreScale?: string, countScale?: string, rocScale?: string}} scales */
  rescale(scales) {
    Object.assign(this, scales);
    this.chooseAxis();
    this.draw();
  }

  /** Takes the scale of scores that the user chose, or the one that shows most of them. */
  chooseAxis() {
    const { scores } = this;
    const scale = this.scoreScale || (isSkewed(scores) ? "log" : "linear");
    this.axis = scale === "log" ? symmetricLog(kneeFor(scores)) : LINEAR;
    this.scoreScales.show(scale);
  }

  /** @param {number} width */
  layout(width) {
    this.root.classList.toggle("mw-narrow", width < 640);
    this.root.classList.toggle("mw-wide", width >= 690);
    this.root.classList.toggle("mw-roomy", width >= 860);
    this.draw();
  }

  draw() {
    if (this.root.hidden) return;
    if (this.histogram.element.clientWidth === 0) {
      this.size.again(); // hidden for now, as in a tab behind another
      return;
    }
    const { scores, late, settled } = this;
    this.root.classList.toggle("mw-pending", !settled);
    this.histogram.draw(scores, this.axis, this.countScale, this.data.title, this.data.truth || "memorised");
    if (this.hasRoc) {
      const others = this.model.get("comparing") && late ? late.others.map((other) => other.points) : [];
      this.roc.draw(scores, late ? late.band : null, others, this.beside, this.rocScale === "log");
    }
    setAttributes(this.controls.tau.slider, { min: this.histogram.low, max: this.histogram.high });
    this.showEta();
    this.showLegend();
    if (this.auc !== null) this.tiles.showArea(this.auc, settled);
    this.moved();
    this.describe();
  }

  showEta() {
    if (this.data.etaRange === null) return;
    const { slider, field } = this.controls.eta;
    const text = this.etaText();
    if (Number(slider.value) !== this.eta) slider.value = String(this.eta);
    const many = this.settled ? `, ${whole(this.scores.memorized)} samples memorised` : "";
    slider.setAttribute("aria-valuetext", `${text}${many}`);
    if (!this.typing) field.value = text;
    this.root.dataset.eta = String(this.eta);
  }

  /** Moves what depends on τ. Everything else stays as it is drawn. */
  moved() {
    const { slider, field, row } = this.controls.tau;
    const { byClass, settled } = this;
    const counts = this.counted();
    const text = this.tauText();
    if (byClass) this.histogram.moveByClass(...this.flaggedByClass());
    else this.histogram.move(this.tau, text);
    row.classList.toggle("mw-aside", byClass);
    this.classButton?.setAttribute("aria-pressed", String(byClass));
    const close = this.data.bounds && !byClass ? undecidedAt(this.data.bounds, this.tau) : 0;
    this.tiles.show(counts, this.scores, close, settled, byClass ? "" : text);
    this.onMoved(this.tau, this.known && !settled ? null : counts);
    if (this.hasRoc) this.roc.move(...this.rates(counts));
    const place = this.axis.to(this.tau);
    if (Math.abs(Number(slider.value) - place) > 1e-12) slider.value = String(place);
    slider.setAttribute("aria-valuetext", `${text}, ${whole(counts.flagged)} samples flagged`);
    if (!this.typing) field.value = text;
    this.strip?.show(this.answer(counts, settled), place, this.histogram.low, this.histogram.high);
    this.showHint();
    this.root.dataset.tau = String(this.tau);
    this.root.dataset.counts = JSON.stringify(settled ? counts : { flagged: counts.flagged });
  }

  showHint() {
    const hints = [this.data.note, ...(this.late ? this.late.remarks : [])].filter(Boolean);
    if (this.fitted) hints.unshift(OPTIMISTIC);
    if (!this.settled) hints.unshift(WAITING);
    if (!this.heard) hints.unshift(KERNEL_GONE);
    this.controls.hint.textContent = hints.join(" ");
  }

  tauText() {
    const { low, high } = this.histogram;
    const beside = this.axis.from(this.axis.to(this.tau) + (high - low) / 100);
    return scoreText(this.tau, Math.abs(beside - this.tau));
  }

  etaText() {
    return String(Number(this.eta.toPrecision(5))).replace("-", "−");
  }

  /**
   * @param {Counts} counts
   * @returns {[number, number]}  FPR and TPR
   */
  rates(counts) {
    const { n, memorized } = this.scores;
    return [counts.flaggedOnly / (n - memorized), counts.found / memorized];
  }

  /* ------------------------------------------------------------ moving τ and η */

  /** @param {number} tau */
  move(tau) {
    if (!Number.isFinite(tau)) return;
    if (this.byClass) this.model.set("rule", "");
    this.tau = tau;
    this.fitted = false;
    this.unsent.add("tau");
    this.sync();
    this.nextFrame();
  }

  /** @param {number} eta */
  moveEta(eta) {
    if (!Number.isFinite(eta)) return;
    this.eta = eta;
    this.fitted = false;
    this.unsent.add("eta");
    this.sync();
    this.redraw = true;
    this.nextFrame();
    this.withLogLira(() => this.nextFrame());
  }

  nextFrame() {
    cancelAnimationFrame(this.frame);
    this.frame = requestAnimationFrame(() => this.paint());
  }

  paint() {
    if (this.logLira !== null && !this.settled) this.judge();
    else if (this.redraw) this.draw();
    else this.moved();
    this.redraw = false;
  }

  setTraits() {
    for (const name of this.unsent) this.model.set(name, this[name]);
    this.unsent.clear();
  }

  /** @param {"tau" | "eta"} name  what came to rest */
  commit(name) {
    this.sync.cancel();
    cancelAnimationFrame(this.frame);
    this.paint();
    this.setTraits();
    this.model.set(name, this[name]);
    this.model.set(`${name}_committed`, this[name]);
    this.heard = tell(this.model);
    this.showHint();
    this.speak();
  }

  /**
   * @param {number} tau
   * @param {boolean} fitted  whether the ground truth chose it
   */
  choose(tau, fitted) {
    this.move(tau);
    this.fitted = fitted;
    this.commit("tau");
  }

  /** @param {string} rule */
  chooseRule(rule) {
    this.fitted = false;
    this.model.set("rule", rule);
    this.heard = tell(this.model);
    this.showHint();
  }

  /** @param {number} eta */
  chooseEta(eta) {
    this.moveEta(eta);
    this.commit("eta");
  }

  flagShare() {
    const { share } = this.controls;
    const most = share.value === "" ? NaN : Number(share.value) / 100;
    if (!(most >= 0 && most <= 1)) return;
    this.choose(tauAtRank(this.scores, rankShareAtMost(this.scores, most)), false);
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const step = arrowStep(event.key);
    /** @type {(share: number) => number} */
    const along = (share) => {
      const place = this.axis.to(this.tau) + share * (this.histogram.high - this.histogram.low);
      return this.axis.from(Math.min(this.histogram.high, Math.max(this.histogram.low, place)));
    };
    /** @type {number | null} */
    let tau = null;
    if (step !== 0 && event.shiftKey) tau = neighbourTau(this.scores, this.tau, step);
    else if (step !== 0) tau = along(step / 200);
    else if (event.key === "PageUp") tau = along(1 / 20);
    else if (event.key === "PageDown") tau = along(-1 / 20);
    else if (event.key === "Home") tau = this.axis.from(this.histogram.low);
    else if (event.key === "End") tau = this.axis.from(this.histogram.high);
    if (tau === null) return;
    event.preventDefault();
    this.move(tau);
    this.commit("tau");
  }

  /** @param {KeyboardEvent} event */
  etaKey(event) {
    const { slider } = this.controls.eta;
    const step = arrowStep(event.key);
    const pages = { PageUp: 1, PageDown: -1 }[event.key];
    /** @type {number | null} */
    let eta = null;
    if (step !== 0 && !event.shiftKey) eta = Math.round(10 * this.eta + step) / 10;
    else if (pages) eta = this.eta + pages;
    else if (event.key === "Home") eta = Number(slider.min);
    else if (event.key === "End") eta = Number(slider.max);
    if (eta === null && step === 0) return;
    event.preventDefault();
    if (eta !== null) {
      this.chooseEta(eta);
      return;
    }
    this.withLogLira(() => {
      if (this.logLira !== null) this.chooseEta(neighbourEta(this.logLira, this.eta, step));
    });
  }

  /** Bars say what they hold, to the pointer and to the keyboard; a click or Enter shows their samples. */
  listenToBars() {
    const plot = this.histogram.element;
    this.ears.on(plot, "pointermove", (event) => {
      const { left } = plot.getBoundingClientRect();
      this.showBar(this.dragging ? null : this.histogram.barAt(event.clientX - left));
    });
    this.ears.on(plot, "pointerleave", () => this.showBar(null));
    this.ears.on(plot, "blur", () => this.showBar(null));
    this.ears.on(plot, "keydown", (event) => {
      const { bins } = this.histogram;
      const step = arrowStep(event.key);
      if (event.key === "Escape" && this.bar !== null) this.showBar(null);
      else if (event.key === "Enter" && this.bar !== null) this.pickBar();
      else if (step !== 0 && bins !== null) {
        let bar = this.bar ?? (step > 0 ? -1 : bins.others.length);
        do bar += step;
        while (bar >= 0 && bar < bins.others.length && bins.others[bar] + bins.memorized[bar] === 0);
        if (bar < 0 || bar >= bins.others.length) return;
        this.showBar(bar);
        this.spoken.textContent = this.barText(bar);
      } else return;
      event.preventDefault();
    });
  }

  /** @param {number | null} bar */
  showBar(bar) {
    this.bar = bar;
    this.histogram.showBar(bar);
    this.says.textContent = bar === null ? "" : this.barText(bar);
    this.says.hidden = bar === null;
  }

  /** @param {number} bar */
  barText(bar) {
    const { bins, axis } = this.histogram;
    if (bins === null) return "";
    const [from, to] = [bar, bar + 1].map((i) => tickText(tidy(axis.from(tidy(bins.start + i * bins.width)))));
    const others = whole(bins.others[bar]);
    const held = this.known ? `${whole(bins.memorized[bar])} ${this.data.truth || "memorised"}, ${others} others` : `${others} samples`;
    const flagged = this.byClass ? `; ${whole(this.histogram.flaggedIn(bar))} flagged` : "";
    return `${from} to ${to}: ${held}${flagged}`;
  }

  /** Shows the samples of the bar at hand; τ stays. */
  pickBar() {
    const { bins } = this.histogram;
    if (this.bar === null || bins === null || this.onPicked === null) return;
    const [from, to] = [bins.ranks[this.bar], bins.ranks[this.bar + 1]];
    if (to > from) this.onPicked(this.scores.values[from], this.scores.values[to - 1]);
  }

  /**
   * @param {SVGSVGElement} plot
   * @param {(x: number, y: number) => number} tauAt
   */
  dragOn(plot, tauAt) {
    /** @type {number | null} */
    let pressed = null;
    /** @param {PointerEvent} event */
    const follow = (event) => {
      const corner = plot.getBoundingClientRect();
      this.move(tauAt(event.clientX - corner.left, event.clientY - corner.top));
    };
    /** @param {PointerEvent} event */
    const begin = (event) => {
      this.dragging = true;
      this.showBar(null);
      this.root.classList.add("mw-dragging");
      follow(event);
    };
    this.ears.on(plot, "pointerdown", (event) => {
      if (event.button !== 0) return;
      event.preventDefault();
      plot.setPointerCapture(event.pointerId);
      this.controls.tau.slider.focus({ preventScroll: true }); // the other slider's blur ends a drag
      pressed = event.clientX;
      const { left } = plot.getBoundingClientRect();
      const onLine = Math.abs(event.clientX - left - this.histogram.x(this.axis.to(this.tau))) <= NEAR_LINE;
      if (plot !== this.histogram.element || this.onPicked === null || onLine) begin(event);
    });
    this.ears.on(plot, "pointermove", (event) => {
      if (!plot.hasPointerCapture(event.pointerId)) return;
      if (this.dragging) follow(event);
      else if (pressed !== null && Math.abs(event.clientX - pressed) > STILL) begin(event);
    });
    const stop = () => {
      if (pressed !== null && !this.dragging) { // a click on a bar: its samples are shown, and τ stays
        this.showBar(this.histogram.barAt(pressed - plot.getBoundingClientRect().left));
        this.pickBar();
      }
      pressed = null;
      if (!this.dragging) return;
      this.dragging = false;
      this.root.classList.remove("mw-dragging");
      this.commit("tau");
    };
    this.ears.on(plot, "pointerup", stop);
    this.ears.on(plot, "pointercancel", stop);
  }

  /** Speaks the result to screen readers when τ or η rests. */
  speak() {
    if (!this.settled) return;
    this.spoken.textContent = this.result();
    this.describe();
  }

  /** Describes the plots for screen readers. */
  describe() {
    if (!this.settled) return;
    const text = this.result();
    const sides = this.known ? `, ${this.data.truth || "memorised"} samples upwards and others downwards` : "";
    this.histogram.element.setAttribute("aria-label", `Histogram of ${this.data.title}${sides}; ${text}`);
    this.roc.element.setAttribute("aria-label", `ROC curve; ${text}`);
  }

  /**
   * The three counts in one line.
   * @param {Counts} counts
   * @param {boolean} settled
   */
  answer(counts, settled) {
    const flagged = `${this.byClass ? "by class" : `τ ${this.tauText()}`} · flagged ${whole(counts.flagged)}`;
    if (!this.known || !settled) return flagged;
    const truly = this.late?.truly ? ` (${this.late.truly})` : "";
    return `${flagged} · finds ${whole(counts.found)} of ${whole(this.scores.memorized)}${truly} · ${whole(counts.flaggedOnly)} flagged only`;
  }

  /** The result at τ and η in words. */
  result() {
    const counts = this.counted();
    let text = `${this.byClass ? "by class" : `τ ${this.tauText()}`}: ${whole(counts.flagged)} of ${whole(this.scores.n)} flagged`;
    if (this.hasRoc) {
      const [fpr, tpr] = this.rates(counts);
      text += `, TPR ${rateText(tpr)}, FPR ${rateText(fpr)}`;
    }
    if (this.data.etaRange !== null) text += `; η ${this.etaText()}: ${whole(this.scores.memorized)} memorised`;
    if (this.late?.truly) text += `, ${this.late.truly}`;
    return text;
  }

  destroy() {
    cancelAnimationFrame(this.frame);
    this.sync.cancel();
    this.ears.clear();
    this.strip?.root.remove();
    this.root.remove();
  }
}

export default {
  /** @param {{model: Model, el: HTMLElement}} context */
  render({ model, el }) {
    const view = new Explorer(model, el);
    return () => view.destroy();
  },
};
