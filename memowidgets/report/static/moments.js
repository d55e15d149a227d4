/** The time of a training on a report's page, which holds the score at each checkpoint. */

import { tauAsked } from "../../widgets/static/asked.js";
import { unpack } from "../../widgets/static/wire.js";
import { bitsOf, packedScores, truthOf } from "./rising.js";
import { fromLogLira } from "./unpack.js";

/** @typedef {import("./model.js").StandIn} StandIn */
/** @typedef {import("./answers.js").Wire} Listed */

/**
 * @typedef {object} Time  what `_in_time` of page.py sends
 * @property {string} first  the checkpoint that the report is of
 * @property {import("../../widgets/static/messages.js").MomentShown[]} moments
 * @property {string[]} titles
 * @property {Uint8Array[]} scores  of each sample, at each of them
 * @property {Uint8Array | null} log_lira
 * @property {number[]} listed  rows of the samples in the list
 */

const SERIES = "scores"; // there are no others on this page

/** The checkpoints, and the view of each. */
export class Moments {
  /**
   * @param {any} content  what `wire` of page.py sends
   * @param {StandIn} model  the explorer's
   */
  constructor(content, model) {
    /** @type {Time} */
    const time = content.time;
    this.content = content;
    this.model = model;
    this.time = time;
    this.logLira = time.log_lira === null ? null : fromLogLira(time.log_lira);
    /** @type {Map<string, Float32Array>} */
    this.scores = new Map(
      time.moments.map(({ value }, i) => [
        value,
        new Float32Array(time.scores[i].slice().buffer),
      ]),
    );
    /** Log-LiRA in the order of the scores on show; null where these are the report's own. @type {Float64Array | null} */
    this.rising = null;
    model.set("checkpoint", time.first);
    model.set("_timeline", { series: SERIES, ended: true, moments: time.moments });
    model.on("change:checkpoint", () => this.show());
  }

  get checkpoint() {
    return this.model.get("checkpoint");
  }

  /** Whether the view is of the checkpoint that the report is of. */
  get isFirst() {
    return this.checkpoint === this.time.first;
  }

  /**
   * Sends the scores at some checkpoints, one message for each, and who is memorised.
   * @param {string[]} checkpoints
   */
  send(checkpoints) {
    const { logLira, model } = this;
    const truth =
      logLira === null ? [] : [bitsOf(logLira, model.get("eta_committed")).buffer];
    model.emit("msg:custom", { type: "memorized" }, truth);
    for (const checkpoint of checkpoints) {
      const content = { type: "moment", series: SERIES, checkpoint, problem: "" };
      model.emit("msg:custom", content, [this.scores.get(checkpoint)?.buffer]);
    }
  }

  /** Shows the picked checkpoint as a kernel would: what was asked for stays. */
  show() {
    const { model } = this;
    const { data, truth, late } = this.isFirst ? this.atFirst() : this.elsewhere();
    const tau = tauAsked(model.get("asked"), unpack(data).scores) ?? model.get("tau");
    for (const name of ["tau", "tau_committed"]) model.set(name, tau);
    model.set("_truth", truth);
    model.set("_late", late);
    model.set("_data", data);
  }

  get version() {
    return this.model.get("_data").version + 1;
  }

  atFirst() {
    const { data, truth, late } = this.content.explorer;
    const { version } = this;
    this.rising = null;
    return {
      data: { ...data, version },
      truth: { ...truth, version },
      late: { ...late, version },
    };
  }

  elsewhere() {
    const { checkpoint, content, logLira, model, time, version } = this;
    const scores = this.scores.get(checkpoint) ?? new Float32Array(0);
    const { order, counts, shared, packed } = packedScores(scores, false);
    const at = time.moments.findIndex(({ value }) => value === checkpoint);
    const of = { version, title: time.titles[at], levels: null, codes: null };
    const data = { ...content.explorer.data, ...of, ...packed };
    const late = { ...content.explorer.late, version, remarks: [] };
    if (logLira === null)
      return { data, truth: { ...content.explorer.truth, version }, late };
    this.rising = Float64Array.from(order, (i) => logLira[i]);
    const rising = this.rising;
    const eta = model.get("eta");
    return { data, truth: truthOf({ data, counts, shared, rising }, eta), late };
  }

  /**
   * The list as it is at the picked checkpoint. What the model said at the report's own is left out.
   * @param {Listed} wire
   * @returns {Listed}
   */
  listed(wire) {
    if (this.isFirst) return wire;
    const scores = this.scores.get(this.checkpoint) ?? new Float32Array(0);
    const there = this.time.listed.map((row) => scores[row]);
    const columns = { ...wire.columns, scores: there, errors: undefined };
    const items = wire.items?.map(withoutModel) ?? null;
    const filters = wire.filters.filter((name) => !OF_MODEL.has(name));
    return { ...wire, columns, items, filters };
  }
}

const OF_MODEL = new Set(["label looks wrong", "on the line"]);

/** @param {Partial<import("../../widgets/static/messages.js").Item>} item */
function withoutModel(item) {
  const unknown = { guess: "", guessProbability: null, labelProbability: null };
  const options = item.options?.map((option) => ({ ...option, probability: null }));
  return {
    ...item,
    ...unknown,
    options,
    looksWrong: false,
    suggested: null,
  };
}
