/** The moving parts of a report: both widgets on stand-in models that follow each other. */

import { html, listeners, root } from "../../widgets/static/dom.js";
import { Explorer } from "../../widgets/static/explorer.js";
import inspector from "../../widgets/static/inspector.js";
import { whole } from "../../widgets/static/numbers.js";
import { Timeline } from "../../widgets/static/timeline.js";
import { epochText } from "../../widgets/static/times.js";
import { Answers } from "./answers.js";
import { StandIn } from "./model.js";
import { Moments } from "./moments.js";
import { fromLogLira, unpack } from "./unpack.js";

const PAGE_SIZE = 24;
const FOLLOWED = /** @type {const} */ (["tau", "eta"]);

/** The upper part: the timeline, where the page has one, and the explorer. */
class Upper {
  /**
   * @param {any} content  what `wire` of page.py sends
   * @param {HTMLElement} el
   */
  constructor(content, el) {
    const { tau, eta, view, asked, explorer } = content;
    const traits = {
      more: false,
      ...view,
      asked,
      tau,
      tau_committed: tau,
      eta,
      eta_committed: eta,
      _dimmed: false,
      _data: explorer.data,
      _truth: explorer.truth,
      _late: explorer.late,
    };
    this.logLira = explorer.log_lira;
    this.model = new StandIn(traits, (asked) => this.answer(asked));
    this.moments = content.time === null ? null : new Moments(content, this.model);
    const row = html("div", {});
    const ears = listeners(this.model);
    if (this.moments !== null) root(el, "player", "The training", ears).append(row);
    const shown = new Explorer(this.model, el);
    if (this.moments === null) return;
    /** @param {string} name @param {string} value */
    const choose = (name, value) => this.model.set(name, value);
    new Timeline(this.model, document.body, { row, choose }, shown);
  }

  /** @param {any} asked */
  answer(asked) {
    const { logLira, moments } = this;
    if (asked.type === "moments" && moments !== null)
      queueMicrotask(() => moments.send(asked.checkpoints));
    if (asked.type !== "log_lira" || logLira === null) return null;
    const values = moments?.rising ?? fromLogLira(logLira);
    return { content: { ...asked, wide: true }, buffers: [values.slice().buffer] };
  }
}

/**
 * @param {any} content
 * @param {Upper} upper
 */
function inspectorModel({ tau, eta, view, inspector }, { model: beside, moments }) {
  const traits = {
    page: 0,
    filter: "flagged",
    sort: "risk",
    decision: "any",
    ...view,
    page_size: PAGE_SIZE,
    selected: null,
    tau,
    eta,
    _version: 0,
    _decided: 0,
    _dimmed: false,
  };
  let answers = new Answers(inspector, () => traits);
  const model = new StandIn(traits, (asked) => answers.answer(asked));
  const askAgain = () => model.set("_version", model.get("_version") + 1);
  for (const name of FOLLOWED)
    beside.on(`change:${name}`, () => model.set(name, beside.get(name)));
  beside.on("change:eta", askAgain);
  beside.on("change:_data", () => {
    answers = new Answers(moments?.listed(inspector) ?? inspector, () => traits);
    askAgain();
  });
  return model;
}

/**
 * Has page one say what is so where time, τ and η stand, and go back to where the report was written.
 * @param {any} content
 * @param {Upper} upper
 * @param {HTMLElement} explored  where the explorer is
 */
function followOnPageOne(content, { model, moments }, explored) {
  const root = explored.querySelector("[data-counts]");
  const title = document.querySelector("h1");
  if (!(root instanceof HTMLElement) || title === null) return;
  const isKnown = content.explorer.truth.bits !== null;
  const follow = () => {
    const { tau, eta } = content;
    const isElsewhere = moments !== null && !moments.isFirst;
    const isMoved = isElsewhere || model.get("tau") !== tau || model.get("eta") !== eta;
    // what is under the pointer stays there
    title.style.minHeight ||= `${title.offsetHeight}px`;
    document.body.toggleAttribute("data-moved", isMoved);
    const counts = JSON.parse(root.dataset.counts ?? "{}");
    const said = wordsOf(counts, content.noun, isKnown, whenOf(moments));
    for (const place of document.querySelectorAll("[data-says]"))
      if (place instanceof HTMLElement)
        place.textContent = said[place.dataset.says ?? ""] ?? "…";
  };
  new MutationObserver(follow).observe(root, { attributeFilter: ["data-counts"] });
  document.getElementById("mr-back")?.addEventListener("click", () => {
    if (moments !== null) model.set("checkpoint", moments.time.first);
    model.set("asked", content.asked);
    for (const name of FOLLOWED) {
      model.set(name, content[name]);
      model.set(`${name}_committed`, content[name]);
    }
  });
}

/**
 * When the scores on show are of; "" where time stands still.
 * @param {Moments | null} moments
 */
function whenOf(moments) {
  const found = moments?.time.moments.find(({ value }) => value === moments.checkpoint);
  return found === undefined ? "" : ` at epoch ${epochText(found.epoch)}`;
}

/**
 * @param {Partial<import("../../widgets/static/maths.js").Counts> & {flagged: number}} counts
 * @param {string} noun
 * @param {boolean} isKnown  whether ground truth says who is memorised
 * @param {string} when
 * @returns {Record<string, string>}  what page one says, by its place
 */
function wordsOf({ flagged, found, missed, leftAlone }, noun, isKnown, when) {
  // the truth of another η is on its way
  if (found === undefined || missed === undefined || leftAlone === undefined)
    return {
      count: whole(flagged),
      headline: `${whole(flagged)} ${noun} flagged${when}.`,
    };
  const n = flagged + missed + leftAlone;
  const of = `${whole(flagged)} of ${whole(n)} ${noun} flagged${when}`;
  const among = `${whole(found)} of ${whole(found + missed)} memorised among them`;
  return {
    count: whole(flagged),
    left: whole(n - flagged),
    found: whole(found),
    missed: whole(missed),
    headline: isKnown ? `${of}, ${among}.` : `${of}.`,
  };
}

async function show() {
  const [upper, lower] = ["mr-explorer", "mr-inspector"].map((id) =>
    document.getElementById(id),
  );
  if (upper !== null && lower !== null) {
    const content = await unpack(document.getElementById("mr-data")?.textContent ?? "");
    const shown = new Upper(content, upper);
    followOnPageOne(content, shown, upper);
    inspector.render({ model: inspectorModel(content, shown), el: lower });
  }
  document.body.dataset.ready = "true";
}

show().catch((error) => {
  const problem = document.getElementById("mr-problem");
  if (problem === null) throw error;
  problem.textContent = `The threshold can't be moved in this browser (${error}). The numbers above stand.`;
  problem.hidden = false;
});
