/** A recorded audit as the model of a front end: it answers from the page, as a kernel would. */

import { Answers } from "../../report/static/answers.js";
import { StandIn } from "../../report/static/model.js";
import { bitsOf, truthOf } from "../../report/static/rising.js";
import { tauAsked } from "../../widgets/static/asked.js";
import { unpack } from "../../widgets/static/wire.js";
import { isFlag, isNear, isNumber, isWhole, usable } from "./address.js";
import { csvOf, Decisions } from "./decisions.js";
import { detailOf } from "./details.js";
import { guessOf, itemsAt, nearestOf, probabilitiesOf } from "./samples.js";
import {
  areaOf,
  comparedOf,
  errorsOf,
  judgedOf,
  logLiraOf,
  scoresOf,
  wireOf,
} from "./views.js";

/** @typedef {import("./views.js").View} View */
/** @typedef {import("../../widgets/static/messages.js").Picked} Choice */
/** @typedef {import("../../widgets/static/messages.js").MomentShown} Moment */
/** @typedef {"metric" | "layer" | "checkpoint"} Pick */
/** @typedef {import("../../widgets/static/messages.js").Pick} PickOf */

/**
 * @typedef {object} More  what a whole audit has beside its views
 * @property {string} name
 * @property {{checkpoints: Choice[], layers: Choice[], metrics: Choice[]}} choices
 * @property {Moment[]} [moments]  checkpoints in the order of training, of which there are two or more
 * @property {import("./samples.js").Samples | null} samples  null where the package only has numbers
 * @property {string[]} remarks  on the truth
 * @property {string} truly  how many of the memorised members truly are
 */

/** @typedef {import("./views.js").Content & More} Content */

const PICKS = /** @type {const} */ (["metric", "layer", "checkpoint"]);
const AFTER_PAINT = 60; // milliseconds in which the new view gets to the screen
const FILTERS = [
  "flagged",
  "found",
  "flagged only",
  "missed",
  "left alone",
  "label looks wrong",
  "on the line",
  "all",
];
/** @type {[string, string][]} */
const SORTS = [
  ["risk", "most at risk first"],
  ["safe", "least at risk first"],
  ["log-lira", "highest log-LiRA first"],
  ["disagreement", "least probable label first"],
  ["label", "by label"],
  ["order", "as in the dataset"],
];
/** What changes the view that the address names. */
/** @param {unknown} value  from an address */
function isAsked(value) {
  if (value === null || typeof value !== "object") return false;
  const [[part, many] = ["", 1], ...rest] = Object.entries(value);
  const isKnown = part === "" || part === "count" || part === "share";
  return isKnown && rest.length === 0 && isNumber(many) && many > 0;
}

const PUBLISHED = [
  ...PICKS,
  "tau_committed",
  "asked",
  "eta_committed",
  "comparing",
  "more",
  "filter",
  "sort",
  "decision",
  "page",
  "selected",
];
const AREA = "AUC given these labels"; // that for the true ones takes a kernel
const PAIRED = "In a notebook, the dashboard also says whether these AUCs differ.";
/** Answers that can be narrowed to what two compared scores flag, and that know what was decided. */
class Parts extends Answers {
  /**
   * @param {() => ReturnType<typeof comparedOf> | null} compared
   * @param {Decisions} decisions
   * @param {ConstructorParameters<typeof Answers>} rest
   */
  constructor(compared, decisions, ...rest) {
    super(...rest);
    this.compared = compared;
    this.made = decisions;
  }

  get decisions() {
    return this.made.status;
  }

  /** @param {number} row */
  decisionOf(row) {
    return this.made.of(row).decision;
  }

  /** @param {number} row */
  item(row) {
    const { to, note } = this.made.of(row);
    return { ...super.item(row), to, note };
  }

  /** @param {import("../../widgets/static/messages.js").Shown} asked */
  narrowed(asked) {
    const rows = super.narrowed(asked);
    const { part } = asked;
    const compared = this.compared();
    if (!part || compared === null) return rows;
    return rows.filter((row) =>
      part.flagged.every(
        (flagged, i) => compared.ranks[i][row] <= part.budget === flagged,
      ),
    );
  }
}

/** One recorded audit. */
export class Recorded {
  /**
   * @param {Content} content
   * @param {number} size  samples on a page
   */
  constructor(content, size) {
    this.content = content;
    this.size = size;
    this.logLira = logLiraOf(content);
    const [metric, layer, checkpoint] = content.first;
    /** @type {StandIn} */
    this.model = new StandIn(
      {
        metric,
        layer,
        checkpoint,
        _choices: content.choices,
        _name: content.name,
        computed: true,
        outdated: false,
        _work: { busy: false },
        _status: "",
        _message: { kind: "", text: "" },
        _warnings: [],
        _notes: [],
        tau: content.tau,
        tau_committed: content.tau,
        asked: content.asked,
        eta: content.eta,
        eta_committed: content.eta,
        comparing: [],
        _beside: {},
        _compared: {},
        more: false,
        _dimmed: false,
        page: 0,
        page_size: size,
        filter: "flagged",
        sort: "risk",
        decision: "any",
        _version: 0,
        _decided: 0,
        selected: null,
        _has_address: true,
      },
      (asked) => this.hear(asked),
    );
    this.version = 0;
    this.picking = false;
    /** Whether the page's address follows the view. */
    this.followed = false;
    /** Where τ is by the explorer, which is ahead of the trait. @type {number | undefined} */
    this.asked = undefined;
    const { choices = [], classes = [], items = [] } = content.samples ?? {};
    this.decisions = new Decisions(choices, classes, (position) => items[position]);
    this.view = this.found(metric, layer, checkpoint) ?? content.views[0];
    /** @type {import("./views.js").Wire} */
    this.wire;
    /** @type {Answers} */
    this.answers;
    /** @type {ReturnType<typeof comparedOf> | null} */
    this.compared = null;
    this.show(this.view);
    for (const name of PICKS) this.model.on(`change:${name}`, () => this.pick(name));
    this.model.on("change:eta_committed", () => this.tellLate());
    this.model.on("change:comparing", () => {
      if (!this.picking) this.model.set("_timeline", this.timeline);
      this.compare();
    });
    this.model.on("change:eta_committed", () =>
      this.model.set("_version", this.model.get("_version") + 1),
    );
    for (const name of PUBLISHED) this.model.on(`change:${name}`, () => this.publish());
  }

  /**
   * @param {string} metric
   * @param {string} layer
   * @param {string} checkpoint
   */
  found(metric, layer, checkpoint) {
    return this.content.views.find(
      (view) =>
        view.metric === metric &&
        view.checkpoint === checkpoint &&
        (view.layer === "" || view.layer === layer),
    );
  }

  /**
   * Shows what was picked, or the nearest view that is on the page, and says so.
   * @param {Pick} changed
   */
  pick(changed) {
    if (this.picking) return;
    const wanted = {
      metric: this.model.get("metric"),
      layer: this.model.get("layer"),
      checkpoint: this.model.get("checkpoint"),
    };
    const exact = this.found(wanted.metric, wanted.layer, wanted.checkpoint);
    const view = exact ?? this.nearest(wanted, changed);
    const byLayer = this.content.choices.metrics.find(
      ({ value }) => value === wanted.metric,
    )?.usesLayer;
    const named = byLayer
      ? [wanted.metric, wanted.layer, wanted.checkpoint]
      : [wanted.metric, wanted.checkpoint];
    const name = named.map((value) => this.labelOf(value)).join(", ");
    const text = exact
      ? ""
      : `This page does not hold ${name}. It shows ${view.title}.`;
    this.model.set("_message", { kind: "note", text });
    this.picking = true;
    for (const part of PICKS)
      if (part !== "layer" || view.layer !== "") this.model.set(part, view[part]);
    this.picking = false;
    this.show(view);
  }

  /** @param {string} value */
  labelOf(value) {
    const all = Object.values(this.content.choices).flat();
    return (all.find((choice) => choice.value === value)?.label ?? value).split(
      " · ",
    )[0];
  }

  /**
   * The view that keeps what was picked last, and as much as possible of the rest.
   * @param {Record<Pick, string>} wanted
   * @param {Pick} changed
   */
  nearest(wanted, changed) {
    const weights = { metric: 4, checkpoint: 2, layer: 1, [changed]: 8 };
    const likeness = (/** @type {View} */ view) =>
      PICKS.reduce(
        (sum, part) => sum + (view[part] === wanted[part] ? weights[part] : 0),
        0,
      );
    return this.content.views.reduce((best, view) =>
      likeness(view) > likeness(best) ? view : best,
    );
  }

  /** What restores this view: no sample's id, and no text. */
  get state() {
    const { model } = this;
    const names = PUBLISHED.map((name) => name.replace("_committed", ""));
    return Object.fromEntries(names.map((name) => [name, model.get(name)]));
  }

  /** Tells the page what is shown, so that its address says so too. */
  publish() {
    if (this.followed && !this.picking)
      this.model.emit("msg:custom", { type: "state", state: this.state }, []);
  }

  /**
   * Shows what the page's address says, as far as it makes sense. From now on the address follows.
   * @param {string} text
   */
  restore(text) {
    const { model } = this;
    this.followed = true;
    if (text !== "") {
      const { state, problems } = usable(text, this.valid());
      this.picking = true;
      for (const name of PICKS) model.set(name, state[name] ?? model.get(name));
      for (const name of ["eta", "eta_committed"])
        model.set(name, state.eta ?? model.get("eta"));
      this.picking = false;
      this.pick("metric");
      this.picking = true;
      const { tau = model.get("tau"), checkpoint, layer, metric, eta, ...rest } = state;
      if (isNear(tau, scoresOf(this.view)))
        for (const name of ["tau", "tau_committed"]) model.set(name, tau);
      else
        problems.push(
          `τ = ${Number(tau.toPrecision(4))} is far from every score here, so it is of another audit`,
        );
      for (const [name, value] of Object.entries(rest)) model.set(name, value);
      this.picking = false;
      const said =
        `${model.get("_message").text} Not restored: ${problems.join("; ")}.`.trim();
      if (problems.length > 0) model.set("_message", { kind: "note", text: said });
    }
    this.publish();
  }

  /** @returns {import("./address.js").Valid}  of a state */
  valid() {
    const { choices } = this.content;
    const oneOf = (/** @type {string[]} */ values) => (/** @type {unknown} */ value) =>
      values.includes(/** @type {string} */ (value));
    const named = (/** @type {Choice[]} */ offered) =>
      oneOf(offered.map(({ value }) => value));
    return {
      checkpoint: named(choices.checkpoints),
      layer: named(choices.layers),
      metric: named(choices.metrics),
      tau: isNumber,
      asked: isAsked,
      eta: isNumber,
      comparing: (picks) => this.areComparable(picks),
      more: isFlag,
      page: isWhole,
      filter: oneOf(FILTERS),
      sort: oneOf(SORTS.map(([name]) => name)),
      decision: oneOf(["any", ...this.decisions.choices]),
      selected: (value) =>
        value === null || (isWhole(value) && value < this.logLira.length),
    };
  }

  /** @param {unknown} picks  of an address, so from anywhere */
  areComparable(picks) {
    const isHeld = (/** @type {any} */ pick) =>
      pick !== null &&
      typeof pick === "object" &&
      this.found(pick.metric, pick.layer, pick.checkpoint) !== undefined;
    return Array.isArray(picks) && picks.length <= 2 && picks.every(isHeld);
  }

  /** @param {View} view */
  show(view) {
    const { model } = this;
    const [asked, tau] = this.toAsk(view);
    const before = this.view;
    this.view = view;
    this.version += 1;
    this.wire = this.wireOf(view);
    this.answers = this.answersOf(view);
    model.set("asked", asked);
    model.set("tau", tau);
    model.set("tau_committed", tau);
    model.set("_truth", truthOf(this.wire, model.get("eta")));
    this.compared = null;
    this.follow(before, view);
    this.tellLate();
    model.set("_timeline", this.timeline);
    model.set("_data", this.wire.data);
    model.set("_warnings", view.warnings);
    model.set("_notes", view.notes);
    model.set("page", 0);
    model.set("_version", model.get("_version") + 1);
  }

  /** Names what moves: the score on show, and those that are compared with it. */
  get series() {
    const places = this.placesAt("*");
    return places.map((place) => PICKS.map((name) => place[name]).join(" ")).join("; ");
  }

  /**
   * The score on show and those that are compared with it, when time is there.
   * @param {string} checkpoint
   * @returns {PickOf[]}
   */
  placesAt(checkpoint) {
    const { metric, layer, checkpoint: now } = this.view;
    const others = /** @type {PickOf[]} */ (this.model.get("comparing"));
    const moved = others.map((other) =>
      other.checkpoint === now ? { ...other, checkpoint } : other,
    );
    return [{ metric, layer, checkpoint }, ...moved];
  }

  /** @param {string} checkpoint  @returns {View[]}  fewer than places where the page does not hold all */
  viewsAt(checkpoint) {
    return this.placesAt(checkpoint).flatMap(
      (place) => this.found(place.metric, place.layer, place.checkpoint) ?? [],
    );
  }

  /** The checkpoints, and at which of them the page holds what is scored. */
  get timeline() {
    const { moments = [] } = this.content;
    const most = this.placesAt("").length;
    const held = moments.map((moment) => {
      const computed = this.viewsAt(moment.value).length === most;
      return { ...moment, computed, ready: computed };
    });
    return { series: this.series, ended: true, moments: held };
  }

  /**
   * Sends the scores at some checkpoints, one message for each, and who is memorised.
   * @param {string[]} checkpoints
   */
  tellMoments(checkpoints) {
    const eta = this.model.get("eta_committed");
    const bits = bitsOf(this.logLira, eta);
    this.model.emit("msg:custom", { type: "memorized" }, [bits]);
    for (const checkpoint of checkpoints) {
      const views = this.viewsAt(checkpoint);
      const scores = views.map((view) => Float32Array.from(scoresOf(view)));
      const problem = views.length === 0 ? "this page does not hold it" : "";
      const content = { type: "moment", series: this.series, checkpoint, problem };
      this.model.emit("msg:custom", content, scores);
    }
  }

  /** @param {View} view */
  wireOf(view) {
    return wireOf(view, this.logLira, this.content.eta_range, this.version);
  }

  /**
   * What is asked for of another score, and its τ: a τ that means something else there becomes as many samples.
   * @param {View} view
   * @returns {[import("../../widgets/static/messages.js").Asked, number]}
   */
  toAsk(view) {
    const before = this.view;
    const tau = this.model.get("tau");
    let asked = this.model.get("asked");
    const { scores } = unpack(this.wireOf(view).data);
    const fixed = tauAsked(asked, scores);
    if (fixed !== null) return [asked, fixed];
    const isNatural = tau === before.natural && tau === view.natural;
    if (before.metric === view.metric || isNatural) return [asked, tau];
    const count = Array.from(scoresOf(before)).filter((score) => score <= tau).length;
    asked = { count: Math.max(1, count) };
    return [asked, tauAsked(asked, scores) ?? tau];
  }

  /** Sends what is known at η. */
  tellLate() {
    const { model, content } = this;
    const eta = model.get("eta_committed");
    const asRecorded = eta === content.eta;
    model.set("_late", {
      version: this.version,
      eta,
      remarks: asRecorded ? content.remarks : [],
      truly: asRecorded ? content.truly : "",
    });
    this.compare();
  }

  /** Compares the score on show with the others that are wanted. */
  compare() {
    const { model, logLira } = this;
    const eta = model.get("eta_committed");
    const picks = /** @type {PickOf[]} */ ([this.view, ...model.get("comparing")]);
    const views = picks.flatMap(
      (pick) => this.found(pick.metric, pick.layer, pick.checkpoint) ?? [],
    );
    if (views.length < picks.length) {
      model.set("_message", {
        kind: "note",
        text: "This page does not hold that score.",
      });
      model.set("comparing", []);
    }
    if (views.length < 2 || views.length < picks.length) return;
    const differ = PICKS.filter(
      (name) => new Set(views.map((view) => this.pickOf(view)[name])).size > 1,
    );
    const names = views.map(
      (view) =>
        differ
          .map((name) => view[name])
          .filter(Boolean)
          .map((value) => this.labelOf(value))
          .join(", ") || view.title,
    );
    const { checkpoint } = this.view;
    const beside = this.content.choices.metrics.flatMap(
      ({ value }) => this.found(value, model.get("layer"), checkpoint) ?? [],
    );
    const areas = [...new Set([...views, ...beside])]
      .map((view) => ({
        name: names[views.indexOf(view)] ?? this.labelOf(view.metric),
        auc: areaOf(view, logLira, eta),
        marked: views.includes(view),
      }))
      .filter(({ auc }) => auc !== null)
      .sort((a, b) => (b.auc?.[0] ?? 0) - (a.auc?.[0] ?? 0));
    const [first, second] = views.map((view) => areaOf(view, logLira, eta));
    const said = first === null || second === null ? "" : PAIRED;
    this.compared = comparedOf(views, logLira, eta);
    model.set("_beside", picks[1]);
    const truly = eta === this.content.eta ? this.content.truly : "";
    model.set("_compared", {
      version: this.version,
      eta,
      names,
      ...this.compared,
      truly,
      said,
      area: AREA,
      areas,
    });
  }

  /**
   * Another score is compared with the same ones; one of these changes places with the old.
   * @param {View} before
   * @param {View} view  the one to show
   */
  follow(before, view) {
    const moved = /** @type {PickOf[]} */ (this.model.get("comparing")).map((other) => {
      const there = { ...other };
      for (const name of PICKS)
        if (other[name] === before[name]) there[name] = view[name];
      const same = this.found(there.metric, there.layer, there.checkpoint) === view;
      return same ? this.pickOf(before) : there;
    });
    this.model.set("comparing", moved);
    const layer = this.model.get("layer");
    const other = this.content.views.find(
      (one) =>
        one.checkpoint === view.checkpoint &&
        one.metric !== view.metric &&
        (one.layer === "" || one.layer === layer),
    );
    this.model.set("_beside", other === undefined ? {} : this.pickOf(other));
  }

  /**
   * @param {View} view
   * @returns {PickOf}
   */
  pickOf({ checkpoint, layer, metric }) {
    return { checkpoint, layer: layer || this.model.get("layer"), metric };
  }

  /**
   * @param {View} view
   * @returns {Answers}
   */
  answersOf(view) {
    const { content, model } = this;
    const { samples } = content;
    const scores = Array.from(scoresOf(view));
    const items =
      samples && itemsAt(samples, view.layer || model.get("layer"), view.checkpoint);
    const isKnown = samples !== null && view.checkpoint in samples.probabilities;
    const lacks = [
      isKnown ? "" : "label looks wrong",
      view.errors === null ? "on the line" : "",
    ];
    return new Parts(
      () => this.compared,
      this.decisions,
      {
        columns: {
          positions: scores.map((_, i) => i),
          scores,
          decisions: [],
          errors: errorsOf(view),
          log_lira: Array.from(this.logLira),
          canaries: items?.map(({ canary }) => Number(canary)),
          right: samples?.right ? Array.from(samples.right) : undefined,
        },
        kind: samples?.kind ?? "number",
        items,
        pixels: samples?.pixels,
        labels: items?.map(({ answer }) => answer ?? null),
        score_name: this.labelOf(view.metric),
        digits: view.digits,
        choices: this.decisions.choices,
        filters: FILTERS.filter((name) => !lacks.includes(name)),
        sorts: SORTS.filter(([name]) => isKnown || name !== "disagreement"),
      },
      () => ({
        tau: this.asked ?? model.get("tau"),
        eta: model.get("eta"),
        page_size: this.size,
      }),
    );
  }

  /**
   * Answers as the kernel would.
   * @param {any} asked
   * @returns {import("../../report/static/answers.js").Answer | null}
   */
  hear(asked) {
    if (asked.type === "log_lira") {
      const { rising } = this.wire;
      return {
        content: { type: "log_lira", version: asked.version, wide: true },
        buffers: [rising.slice().buffer],
      };
    }
    if (asked.type === "knock") {
      const picked = [
        this.model.get("checkpoint"),
        this.model.get("layer"),
        this.model.get("metric"),
      ];
      return {
        content: { type: "heard", request: asked.request, picked },
        buffers: [],
      };
    }
    if (asked.type === "moments") {
      queueMicrotask(() => this.tellMoments(asked.checkpoints));
      return null;
    }
    if (asked.type === "address") {
      this.restore(asked.text);
      return null;
    }
    if (["decide", "undo", "export"].includes(asked.type)) return this.decide(asked);
    this.asked = asked.tau;
    const found = this.answers.answer(asked);
    if (found?.content.type !== "opened" || found.content.position === null)
      return found;
    found.content.more = true; // what follows, or is there already
    if (asked.known) this.tellKnown(asked.request, asked.position);
    return found;
  }

  /**
   * Decides, takes a step back, or writes down what was decided; the list follows.
   * @param {any} asked
   * @returns {import("../../report/static/answers.js").Answer}
   */
  decide(asked) {
    const { decisions, model } = this;
    /** @type {import("../../widgets/static/messages.js").Said} */
    const said = { type: "said", request: asked.request ?? null, done: true, text: "" };
    if (asked.type === "decide") said.text = decisions.decide(asked);
    if (asked.type === "undo") said.text = decisions.undo();
    if (asked.type === "export") {
      said.file = "flagged.csv";
      said.content = this.flaggedOrDecided();
    }
    setTimeout(() => model.set("_decided", model.get("_decided") + 1));
    return { content: said, buffers: [] };
  }

  /** The flagged and the decided samples as CSV. */
  flaggedOrDecided() {
    const head = [
      "id",
      "label",
      "score",
      "log_lira",
      "status",
      "decision",
      "to",
      "note",
    ];
    const rows = this.answers.rows
      .map((row) => this.answers.item(row))
      .filter(({ position, decision }) => {
        return decision !== "undecided" || this.answers.flagged(position);
      })
      .map((item) => [
        item.id,
        item.label,
        item.score ?? "",
        item.logLira ?? "",
        item.status,
        item.decision,
        item.to,
        item.note,
      ]);
    return csvOf([head, ...rows]);
  }

  /**
   * @param {string} request
   * @param {number} position
   */
  tellKnown(request, position) {
    const { content, view, model, logLira } = this;
    const { samples } = content;
    if (samples === null) return;
    const layer = model.get("layer");
    const asRecorded = model.get("eta_committed") === content.eta;
    const known = detailOf(
      content,
      view,
      layer,
      logLira[position],
      position,
      asRecorded,
    );
    const near = nearestOf(
      samples,
      `${view.layer || layer} ${view.checkpoint}`,
      position,
    );
    const { items, buffers } = this.answers.items(near.map((one) => one.position));
    known.neighbours = items.map((item, i) => ({
      ...item,
      distance: near[i].distance,
    }));
    const last = content.choices.checkpoints.at(-1)?.value ?? "";
    const final = probabilitiesOf(samples, last, position);
    known.guess = final && guessOf(final);
    setTimeout(() =>
      model.emit("msg:custom", { type: "known", request, known }, buffers),
    );
  }
}
