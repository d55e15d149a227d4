/** The moving parts of a report: both widgets on stand-in models that follow each other. */

import explorer from "../../widgets/static/explorer.js";
import inspector from "../../widgets/static/inspector.js";
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

async function show() {
  const [upper, lower] = ["mr-explorer", "mr-inspector"].map((id) =>
    document.getElementById(id),
  );
  if (upper !== null && lower !== null) {
    const content = await unpack(document.getElementById("mr-data")?.textContent ?? "");
    const model = explorerModel(content);
    explorer.render({ model, el: upper });
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
