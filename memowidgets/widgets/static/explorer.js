/** The τ explorer: dots along the score, ROC and sentences that follow τ and η without the kernel. */

import { readAsked, tauAsked, waysToAsk } from "./asked.js";
import {
  Answers,
  EtaRow,
  Look,
  neighbourTau,
  Rates,
  ROC_SCALES,
  SCORE_SCALES,
} from "./controls.js";
import {
  arrowStep,
  emptied,
  hideStandIn,
  html,
  listeners,
  onWidth,
  root,
  segments,
  setAttributes,
  write,
} from "./dom.js";
import { setLayer } from "./layers.js";
import { onLack, tell, whyLate, whyUnheard } from "./kernel.js";
import {
  aucOf,
  clopperPearson,
  countsAt,
  countUpTo,
  isSkewed,
  judgedAt,
  kneeFor,
  LINEAR,
  symmetricLog,
  undecidedAt,
} from "./maths.js";
import { intervalText, rateText, scoreText, tickText, whole } from "./numbers.js";
import { HistogramPlot, RocPlot } from "./plots.js";
import { Steps } from "./steps.js";
import { asSentence, floats, NOTHING, unpack, unpackTruth } from "./wire.js";
import { NO_ROC } from "./words.js";
import { throttle } from "./pace.js";

/** @typedef {import("./dom.js").Model} Model */
/** @typedef {import("./maths.js").Scores} Scores */
/** @typedef {import("./maths.js").Auc} Auc */
/** @typedef {import("./maths.js").Counts} Counts */
/** @typedef {import("./maths.js").Axis} Axis */
/** @typedef {import("./messages.js").Asked} Asked */
/** @typedef {import("./messages.js").Late} Late */

/** One view of the explorer. */
export class Explorer {
  /**
   * @param {Model} model
   * @param {HTMLElement} el
   * @param {(tau: number, counts: Counts | null) => void} [moved]  hears where τ is at every frame
   */
  constructor(model, el, moved = () => {}) {
    this.model = model;
    this.onMoved = moved;
    this.ears = listeners(model);
    this.tau = /** @type {number} */ (model.get("tau"));
    this.asked = /** @type {Asked} */ (model.get("asked") ?? {});
    this.eta = /** @type {number} */ (model.get("eta"));
    this.data = unpack(NOTHING);
    this.scores = this.data.scores; // with the truth at judgedEta
    this.judgedEta = this.eta;
    /** @type {Float32Array | Float64Array | null} */
    this.logLira = null;
    this.asksLogLira = false;
    /** @type {Auc | null} */
    this.auc = null;
    /** @type {Late | null} */
    this.late = null;
    /** @type {Axis} */
    this.axis = LINEAR;
    this.scoreScale = "";
    /** Scores that have room on an axis that stays. @type {[number, number] | null} */
    this.reach = null;
    this.rocScale = "linear";
    this.dragging = false;
    this.telling = false;
    /** The field that is typed in. @type {HTMLInputElement | null} */
    this.typing = null;
    this.heard = true;
    this.frame = 0;
    this.redraw = false;
    /** @type {Set<"tau" | "asked" | "eta">} */
    this.unsent = new Set();
    this.sync = throttle(() => {
      this.setTraits();
      if (whyUnheard(model) === "") model.save_changes();
    }, 80);

    this.root = root(el, "explorer", "Threshold explorer", this.ears);
    this.histogram = new HistogramPlot();
    this.roc = new RocPlot();
    this.noRoc = html("p", { class: "mw-no-roc", hidden: true });
    this.steps = new Steps((type) => {
      this.heard = tell(this.model, { type });
      this.showHint();
    });
    this.rocBox = html(
      "div",
      { class: "mw-roc-box" },
      this.roc.element,
      this.noRoc,
      this.steps.element,
    );
    this.answers = new Answers();
    this.rates = new Rates();
    this.look = new Look((way) => this.take(way));
    this.etaRow = new EtaRow();
    this.hint = html("p", { class: "mw-hint", role: "status" });
    this.cautions = html("ul", { class: "mw-cautions", "aria-label": "Cautions" });
    this.device = html("p", { class: "mw-device" });
    const about = {
      "aria-label": "i, about these numbers",
      title: "η, scales, intervals",
    };
    this.toggle = html(
      "button",
      { type: "button", class: "mw-button mw-toggle", ...about },
      "i",
    );
    this.more = html("div", {
      class: "mw-more",
      role: "group",
      "aria-label": "About these numbers",
    });
    this.scoreScales = segments("Scale of the scores", SCORE_SCALES, (value) =>
      this.rescale({ scoreScale: value }),
    );
    this.rocScales = segments("Scale of the ROC", ROC_SCALES, (value) =>
      this.rescale({ rocScale: value }),
    );
    this.rocScalesBox = html(
      "span",
      { class: "mw-labelled" },
      "ROC",
      this.rocScales.group,
    );
    /** What a dashboard has in its bar. */
    this.tools = html("div", { class: "mw-row mw-tools" }, this.toggle);
    this.compose();

    this.ears.later(onWidth(this.histogram.element, () => this.draw()));
    this.listen();
    this.load();
    this.dim();
  }

  compose() {
    const dots = html(
      "div",
      { class: "mw-histogram-box" },
      this.histogram.element,
      this.look.text,
    );
    const plots = html(
      "div",
      { class: "mw-plots" },
      dots,
      this.look.element,
      this.rocBox,
      this.answers.element,
    );
    const scores = html(
      "span",
      { class: "mw-labelled" },
      "scores",
      this.scoreScales.group,
    );
    const scales = html(
      "div",
      { class: "mw-row mw-scales" },
      scores,
      this.rocScalesBox,
    );
    this.more.append(this.etaRow.element, scales, this.rates.element, this.device);
    this.rocScales.show(this.rocScale);
    this.root.append(this.tools, plots, this.cautions, this.hint, this.more);
    this.showMore();
  }

  listen() {
    const { look, etaRow, toggle } = this;
    this.ears.onModel("change:more", () => {
      this.showMore();
      if (!this.root.hidden) this.moved();
    });
    this.ears.on(toggle, "click", () => {
      this.model.set("more", !this.model.get("more"));
      this.heard = tell(this.model);
      this.showHint();
    });
    for (const name of ["_steps", "_work", "_early"])
      this.ears.onModel(`change:${name}`, () => this.showParts());
    this.ears.onModel("change:_data", () => this.load());
    this.ears.onModel("change:_truth", () => this.hearTruth());
    this.ears.onModel("change:_late", () => this.hearLate());
    this.ears.onModel("change:_dimmed", () => this.dim());
    this.ears.onModel("change:tau", () => this.hearTau());
    this.ears.onModel("change:asked", () => this.hearTau());
    this.ears.onModel("change:eta", () => this.hearEta());
    this.ears.onModel("msg:custom", (content, buffers) =>
      this.receive(content, buffers),
    );
    for (const name of ["_warnings", "_notes", "_status", "_early"])
      this.ears.onModel(`change:${name}`, () => this.showCautions());
    this.dragOn(this.histogram.element, (x) => this.histogram.tauAt(x));
    this.dragOn(this.roc.element, (x, y) => this.roc.tauAt(x, y));
    this.ears.on(this.histogram.element, "keydown", (event) => this.key(event));
    this.listenToField(look.count, (text) => this.ask(readAsked(text)));
    this.listenToField(look.tau, (text) => {
      const value =
        text === "" ? NaN : Number(text.replace("−", "-").replace(",", "."));
      if (Number.isFinite(value)) this.choose(value);
    });
    this.ears.on(look.tau, "keydown", (event) => {
      if (event.key === "ArrowUp" || event.key === "ArrowDown") this.key(event);
    });
    this.ears.on(etaRow.slider, "input", () =>
      this.moveEta(Number(etaRow.slider.value)),
    );
    this.ears.on(etaRow.slider, "change", () => this.commit("eta"));
  }

  /**
   * @param {HTMLInputElement} field
   * @param {(text: string) => void} take  what was typed; without a meaning it changes nothing
   */
  listenToField(field, take) {
    const leave = () => {
      this.typing = null;
      this.showFields();
    };
    const typed = () => {
      if (this.typing !== field) return; // what it shows may be rounded
      this.typing = null;
      take(field.value.trim());
      this.showFields();
    };
    this.ears.on(field, "input", () => (this.typing = field));
    this.ears.on(field, "change", typed);
    this.ears.on(field, "keydown", (event) => {
      if (event.key === "Enter") typed();
      if (event.key === "Escape") leave();
    });
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
    this.logLira = null;
    this.asksLogLira = false;
    this.late = null;
    if (!this.dragging) {
      this.tau = this.model.get("tau");
      this.asked = this.model.get("asked") ?? {};
      this.eta = this.model.get("eta");
    }
    this.dim();
    this.takeTruth(truth);
    if (!this.settled) this.askLogLira();
  }

  /** Takes a truth for the current η or for new scores. One for an earlier η is of no use. */
  hearTruth() {
    const truth = this.model.get("_truth");
    if (truth.version !== this.data.version) this.load();
    else if (truth.eta === this.eta && !this.settled) this.takeTruth(truth);
  }

  /** @param {import("./messages.js").TruthShown} truth */
  takeTruth(truth) {
    this.judgedEta = truth.eta ?? this.eta;
    this.showTruth(unpackTruth(this.data, truth));
  }

  /** Counts again which samples are memorised. */
  judge() {
    if (this.logLira === null || this.settled) return;
    this.judgedEta = this.eta;
    this.showTruth(judgedAt(this.data.scores, this.logLira, this.eta));
  }

  /** @param {Scores} scores */
  showTruth(scores) {
    this.scores = scores;
    this.auc = aucOf(scores);
    this.takeLate();
    this.showParts();
    this.look.offer(waysToAsk(this.data.axes, this.data.natural));
    this.showCautions();
    this.chooseAxis();
    this.draw();
  }

  hearLate() {
    this.takeLate();
    this.showCautions();
    this.moved();
  }

  /** Takes the remarks, if they belong to what is shown. */
  takeLate() {
    const late = this.model.get("_late");
    const fits =
      late?.version === this.data.version &&
      (late.eta === null || late.eta === this.judgedEta);
    this.late = fits ? late : null;
  }

  /** Asks for log-LiRA when it is first needed. */
  askLogLira() {
    if (this.logLira !== null || this.asksLogLira) return;
    this.heard = this.asksLogLira = tell(this.model, {
      type: "log_lira",
      version: this.data.version,
    });
    if (this.heard) return;
    this.eta = this.judgedEta;
    this.draw();
  }

  /**
   * @param {import("./messages.js").FromKernel} content
   * @param {DataView[]} buffers
   */
  receive(content, buffers) {
    if (content.type !== "log_lira" || content.version !== this.data.version) return;
    this.logLira = /** @type {Float32Array | Float64Array} */ (
      floats(buffers[0], content.wide)
    );
    this.nextFrame();
  }

  /** Takes a τ and what was asked for as Python set them, unless the user is dragging. */
  hearTau() {
    if (this.dragging || this.telling) return;
    this.tau = this.model.get("tau");
    this.asked = this.model.get("asked") ?? {};
    this.moved();
  }

  /** Takes an η that Python set. Its truth is sent with it, or counted here. */
  hearEta() {
    const eta = this.model.get("eta");
    if (this.dragging || eta === this.eta) return;
    this.eta = eta;
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
    setAttributes(this.roc.element, { hidden: !hasRoc });
    this.rocScalesBox.hidden = this.rates.element.hidden = !hasRoc;
    const next = this.model.get("_steps") ?? {};
    const steps = !known && "know" in next;
    this.noRoc.hidden = hasRoc || steps;
    this.root.classList.toggle("mw-with-steps", steps);
    this.steps.element.hidden = !steps;
    if (steps) {
      const busy = this.model.get("_work")?.busy === true;
      const early = (this.model.get("_early") ?? "") !== "";
      this.steps.show(next, busy, early);
    }
    const none = this.scores.memorized === 0;
    const which = this.data.truth === "" ? "memorised" : `among the ${this.data.truth}`;
    write(
      this.noRoc,
      known
        ? `${none ? "None of these samples is" : "All of these samples are"} ${which}: there is no ROC to draw.`
        : NO_ROC,
    );
    const range = this.data.etaRange;
    this.etaRow.element.hidden = range === null;
    if (range === null) return;
    const ends = {
      min: Math.min(range[0], this.eta),
      max: Math.max(range[1], this.eta),
    };
    setAttributes(this.etaRow.slider, ends);
  }

  /** Opens or closes what stands behind "i". */
  showMore() {
    const isOpen = this.model.get("more") === true;
    this.more.hidden = !isOpen;
    this.toggle.setAttribute("aria-expanded", String(isOpen));
    setLayer(this.more, isOpen, { close: () => this.toggle.click(), by: this.toggle });
  }

  /** All that a reader should know of these numbers. */
  showCautions() {
    const of = (/** @type {string} */ name) =>
      /** @type {string[]} */ (this.model.get(name) ?? []);
    const remarks = [this.data.note, ...(this.late?.remarks ?? [])].filter(Boolean);
    const said = [...of("_warnings"), ...remarks, ...of("_notes")];
    const texts = [...new Set(said.map(asSentence))];
    this.cautions.hidden = texts.length === 0;
    this.cautions.replaceChildren(...texts.map((text) => html("li", {}, text)));
    const device = this.model.get("_status") ?? "";
    write(this.device, device === "" ? "" : `Computed on ${device}.`);
  }

  dim() {
    this.root.classList.toggle("mw-dimmed", this.model.get("_dimmed"));
  }

  /* ------------------------------------------------------------ drawing */

  /** @param {{scoreScale?: string, rocScale?: string}} scales */
  rescale(scales) {
    Object.assign(this, scales);
    const { reach } = this;
    this.hold(null);
    this.hold(reach);
  }

  /**
   * Keeps the axis on show, with room for some scores, until others are looked at.
   * @param {[number, number] | null} reach
   */
  hold(reach) {
    this.reach = reach;
    this.chooseAxis();
    this.draw();
  }

  /** Takes the scale of scores that the user chose, or the one that shows most of them. */
  chooseAxis() {
    const { scores } = this;
    if (this.reach !== null) return;
    const scale = this.scoreScale || (isSkewed(scores) ? "log" : "linear");
    this.axis = scale === "log" ? symmetricLog(kneeFor(scores)) : LINEAR;
    this.scoreScales.show(scale);
  }

  draw() {
    if (this.histogram.element.clientWidth === 0) return; // hidden for now, as in a tab behind another
    const { scores, settled } = this;
    this.root.classList.toggle("mw-pending", !settled);
    this.histogram.draw(scores, this.axis, this.data.title, this.positives, this.reach);
    if (this.hasRoc) this.roc.draw(scores, this.rocScale === "log");
    setAttributes(this.histogram.element, {
      "aria-valuemin": this.axis.from(this.histogram.low),
      "aria-valuemax": this.axis.from(this.histogram.high),
    });
    this.showEta();
    if (this.auc !== null) {
      write(this.roc.area, `AUC ${settled ? rateText(this.auc.area) : "…"}`);
      write(
        this.roc.areaInterval,
        settled ? `(${intervalText(this.auc.interval)})` : "",
      );
    }
    this.moved();
    this.describe();
  }

  showEta() {
    if (this.data.etaRange === null) return;
    const { slider, text } = this.etaRow;
    if (Number(slider.value) !== this.eta) slider.value = String(this.eta);
    const many = this.settled
      ? `, ${whole(this.scores.memorized)} samples memorised`
      : "";
    slider.setAttribute("aria-valuetext", `${this.etaText()}${many}`);
    write(text, `η = ${this.etaText()}`);
    this.root.dataset.eta = String(this.eta);
  }

  /**
   * Names what stays while samples move, beside τ.
   * @param {number} place  of τ on the axis
   */
  nameFixed(place) {
    const { histogram, look } = this;
    const fixed = look.fixed.textContent ?? "";
    look.name([fixed], histogram.x(place), histogram.element.clientWidth);
  }

  /** Moves what depends on τ. Everything else stays as it is drawn. */
  moved() {
    const { settled, scores, histogram } = this;
    const counts = countsAt(scores, this.tau);
    const text = this.tauText();
    const rank = countUpTo(scores.values, this.tau);
    const x = histogram.move(scores, this.tau, rank);
    const beyond =
      histogram.axis.to(this.tau) > histogram.high
        ? " →"
        : histogram.axis.to(this.tau) < histogram.low
          ? " ←"
          : "";
    const many = whole(counts.flagged);
    const name = `τ = ${text}${beyond}`;
    const short = `${name} · ${many}`;
    const names = [`${short} of ${whole(scores.n)} flagged`, `${short} flagged`, name];
    this.look.name(names, x, histogram.element.clientWidth);
    const { asked, data, tau } = this;
    const plays = (this.model.get("_timeline")?.moments ?? []).length > 1;
    const of = { n: scores.n, flagged: counts.flagged };
    this.look.show({ asked, axis: data.axis, tau, plays }, text, of);
    const close = this.data.bounds ? undecidedAt(this.data.bounds, this.tau) : 0;
    this.answers.tell(
      counts,
      scores,
      close,
      this.positives,
      this.late?.truly ?? "",
      settled,
    );
    this.onMoved(this.tau, this.known && !settled ? null : counts);
    if (this.hasRoc) {
      const { n, memorized } = scores;
      const [fpr, tpr] = this.ratesAt(counts);
      const across = clopperPearson(counts.flaggedOnly, n - memorized);
      this.roc.move(fpr, tpr, across, clopperPearson(counts.found, memorized));
      if (!this.more.hidden && settled) this.rates.show(counts, scores);
    }
    setAttributes(histogram.element, {
      "aria-valuenow": this.tau,
      "aria-valuetext": `${text}, ${many} samples flagged`,
    });
    this.showFields();
    this.showHint();
    this.root.dataset.tau = String(this.tau);
    this.root.dataset.counts = JSON.stringify(
      settled ? counts : { flagged: counts.flagged },
    );
  }

  /** Writes the fields, except for the one that is typed in. */
  showFields() {
    const { count, tau } = this.look;
    const { flagged } = countsAt(this.scores, this.tau);
    if (this.typing !== count) count.value = whole(flagged);
    if (this.typing !== tau) tau.value = this.tauText();
  }

  showHint() {
    write(this.hint, this.heard ? "" : whyLate(this.model));
  }

  /** What counts as memorised, in a word. */
  get positives() {
    return this.data.truth || "memorised";
  }

  tauText() {
    const { low, high } = this.histogram;
    const beside = this.axis.from(this.axis.to(this.tau) + (high - low) / 100);
    const text = scoreText(this.tau, Math.abs(beside - this.tau));
    return Number(text.replace("−", "-")) === this.tau ? tickText(this.tau) : text;
  }

  etaText() {
    return String(Number(this.eta.toPrecision(5))).replace("-", "−");
  }

  /**
   * @param {Counts} counts
   * @returns {[number, number]}  FPR and TPR
   */
  ratesAt(counts) {
    const { n, memorized } = this.scores;
    return [counts.flaggedOnly / (n - memorized), counts.found / memorized];
  }

  /* ------------------------------------------------------------ moving τ and η */

  /**
   * @param {number} tau
   * @param {Asked} [asked]  what it follows from, if that is not τ itself
   */
  move(tau, asked = {}) {
    if (!Number.isFinite(tau)) return;
    this.tau = tau;
    this.asked = asked;
    this.unsent.add("tau").add("asked");
    this.sync();
    this.nextFrame();
  }

  /** @param {number} eta */
  moveEta(eta) {
    this.eta = eta;
    this.unsent.add("eta");
    this.sync();
    this.redraw = true;
    this.nextFrame();
    this.askLogLira();
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
    this.telling = true;
    for (const name of this.unsent) this.model.set(name, this[name]);
    this.telling = false;
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
    this.showCautions();
    this.describe();
  }

  /**
   * @param {number} tau
   * @param {Asked} [asked]  what it follows from, if that is not τ itself
   */
  choose(tau, asked) {
    this.move(tau, asked);
    this.commit("tau");
  }

  /** Flags a count or a share. @param {Asked | null} asked */
  ask(asked) {
    const tau = asked && tauAsked(asked, this.scores);
    if (asked !== null && tau !== null) this.choose(tau, asked);
  }

  /** @param {import("./asked.js").Way} way */
  take({ axis, asked, tau }) {
    if (axis !== this.data.axis) this.turn(axis, asked);
    else if (tau === null) this.ask(asked);
    else this.choose(tau);
  }

  /**
   * Asks for the scores on another axis; those on show are dimmed until they come.
   * @param {string} axis
   * @param {Asked} asked  what is to be flagged there
   */
  turn(axis, asked) {
    this.model.set("asked", asked);
    this.model.set("axis", axis);
    this.heard = tell(this.model);
    this.root.classList.toggle("mw-dimmed", this.heard);
    this.showHint();
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const step = arrowStep(event.key);
    /** @type {(share: number) => number} */
    const along = (share) => {
      const place =
        this.axis.to(this.tau) + share * (this.histogram.high - this.histogram.low);
      return this.axis.from(
        Math.min(this.histogram.high, Math.max(this.histogram.low, place)),
      );
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

  /**
   * @param {SVGSVGElement} plot
   * @param {(x: number, y: number) => number} tauAt
   */
  dragOn(plot, tauAt) {
    /** @param {PointerEvent} event */
    const follow = (event) => {
      const { left, top } = plot.getBoundingClientRect();
      this.move(tauAt(event.clientX - left, event.clientY - top));
    };
    this.ears.on(plot, "pointerdown", (event) => {
      if (event.button !== 0) return;
      event.preventDefault();
      plot.setPointerCapture(event.pointerId);
      this.histogram.element.focus({ preventScroll: true });
      this.dragging = true;
      this.root.classList.add("mw-dragging");
      follow(event);
    });
    this.ears.on(plot, "pointermove", (event) => {
      if (this.dragging && plot.hasPointerCapture(event.pointerId)) follow(event);
    });
    const stop = () => {
      if (!this.dragging) return;
      this.dragging = false;
      this.root.classList.remove("mw-dragging");
      this.commit("tau");
    };
    this.ears.on(plot, "pointerup", stop);
    this.ears.on(plot, "pointercancel", stop);
  }

  /** Describes the plots for screen readers, with the result at τ and η in words. */
  describe() {
    if (!this.settled) return;
    const { scores, data, known } = this;
    const counts = countsAt(scores, this.tau);
    const sides = known
      ? `, ${this.positives} samples upwards and others downwards`
      : "";
    this.histogram.element.setAttribute(
      "aria-label",
      `threshold τ on ${data.title}${sides}`,
    );
    let text = `τ ${this.tauText()}: ${whole(counts.flagged)} of ${whole(scores.n)} flagged`;
    if (this.hasRoc) {
      const [fpr, tpr] = this.ratesAt(counts).map(rateText);
      text += `, TPR ${tpr}, FPR ${fpr}`;
    }
    if (data.etaRange !== null)
      text += `; η ${this.etaText()}: ${whole(scores.memorized)} memorised`;
    if (this.late?.truly) text += `, ${this.late.truly}`;
    this.roc.element.setAttribute("aria-label", `ROC curve; ${text}`);
  }

  destroy() {
    cancelAnimationFrame(this.frame);
    this.sync.cancel();
    this.ears.clear();
    this.root.remove();
  }
}

export default {
  initialize: emptied,
  /** @param {{model: Model, el: HTMLElement}} context */
  render({ model, el }) {
    const view = new Explorer(model, el);
    hideStandIn(model, view.ears);
    onLack(model, view.ears, (lack) => {
      view.heard = lack === "";
      view.showHint();
    });
    return () => view.destroy();
  },
};
