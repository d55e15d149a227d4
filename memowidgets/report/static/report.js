/** The moving parts of a report: both widgets on stand-in models that follow each other. */

import explorer from "../../widgets/static/explorer.js";
import inspector from "../../widgets/static/inspector.js";
import { whole } from "../../widgets/static/numbers.js";
import { Answers } from "./answers.js";
import { StandIn } from "./model.js";
import { fromLogLira, unpack } from "./unpack.js";

const PAGE_SIZE = 24;
const FOLLOWED = /** @type {const} */ (["tau", "eta"]);

/** @param {any} content  what `wire` of page.py sends */
function explorerModel({ tau, eta, view, explorer: { data, truth, late, log_lira } }) {
  const traits = {
    more: false,
    ...view,
    tau,
    tau_committed: tau,
    eta,
    eta_committed: eta,
    _dimmed: false,
    _data: data,
    _truth: truth,
    _late: late,
  };
  return new StandIn(traits, (asked) => {
    if (asked.type !== "log_lira" || log_lira === null) return null;
    return {
      content: { ...asked, wide: true },
      buffers: [fromLogLira(log_lira).buffer],
    };
  });
}

/**
 * @param {any} content
 * @param {StandIn} beside  the explorer's model
 */
function inspectorModel({ tau, eta, view, inspector }, beside) {
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
  const answers = new Answers(inspector, () => traits);
  const model = new StandIn(traits, (asked) => answers.answer(asked));
  for (const name of FOLLOWED)
    beside.on(`change:${name}`, () => model.set(name, beside.get(name)));
  beside.on("change:eta", () => model.set("_version", model.get("_version") + 1));
  return model;
}

/**
 * Has page one say what is so where τ and η stand, and go back to where the report was written.
 * @param {any} content
 * @param {StandIn} model  the explorer's
 * @param {HTMLElement} explored  where the explorer is
 */
function followOnPageOne(content, model, explored) {
  const root = explored.querySelector("[data-counts]");
  const title = document.querySelector("h1");
  if (!(root instanceof HTMLElement) || title === null) return;
  const isKnown = content.explorer.truth.bits !== null;
  const follow = () => {
    const { tau, eta } = content;
    const isMoved = model.get("tau") !== tau || model.get("eta") !== eta;
    // what is under the pointer stays there
    title.style.minHeight ||= `${title.offsetHeight}px`;
    document.body.toggleAttribute("data-moved", isMoved);
    const counts = JSON.parse(root.dataset.counts ?? "{}");
    const said = wordsOf(counts, content.noun, isKnown);
    for (const place of document.querySelectorAll("[data-says]"))
      if (place instanceof HTMLElement)
        place.textContent = said[place.dataset.says ?? ""] ?? "…";
  };
  new MutationObserver(follow).observe(root, { attributeFilter: ["data-counts"] });
  document.getElementById("mr-back")?.addEventListener("click", () => {
    for (const name of FOLLOWED) {
      model.set(name, content[name]);
      model.set(`${name}_committed`, content[name]);
    }
  });
}

/**
 * @param {Partial<import("../../widgets/static/maths.js").Counts> & {flagged: number}} counts
 * @param {string} noun
 * @param {boolean} isKnown  whether ground truth says who is memorised
 * @returns {Record<string, string>}  what page one says, by its place
 */
function wordsOf({ flagged, found, missed, leftAlone }, noun, isKnown) {
  // the truth of another η is on its way
  if (found === undefined || missed === undefined || leftAlone === undefined)
    return { count: whole(flagged), headline: `${whole(flagged)} ${noun} flagged.` };
  const n = flagged + missed + leftAlone;
  const of = `${whole(flagged)} of ${whole(n)} ${noun} flagged`;
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
    const model = explorerModel(content);
    explorer.render({ model, el: upper });
    followOnPageOne(content, model, upper);
    inspector.render({ model: inspectorModel(content, model), el: lower });
  }
  document.body.dataset.ready = "true";
}

show().catch((error) => {
  const problem = document.getElementById("mr-problem");
  if (problem === null) throw error;
  problem.textContent = `The threshold can't be moved in this browser (${error}). The numbers above stand.`;
  problem.hidden = false;
});
