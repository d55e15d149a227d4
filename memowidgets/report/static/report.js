/** The moving parts of a report: both widgets on stand-in models that follow each other, and the figures. */

import explorer from "../../widgets/static/explorer.js";
import inspector from "../../widgets/static/inspector.js";
import { html } from "../../widgets/static/dom.js";
import { Answers } from "./answers.js";
import { StandIn } from "./model.js";
import { fromLogLira, unpack } from "./unpack.js";

const PAGE_SIZE = 24;
const FOLLOWED = /** @type {const} */ (["tau", "eta"]);

/** @param {any} content  what `wire` of page.py sends */
function explorerModel({ tau, eta, explorer: { data, truth, late, log_lira } }) {
  const traits = {
    tau,
    tau_committed: tau,
    eta,
    eta_committed: eta,
    more: false,
    _dimmed: false,
    _data: data,
    _truth: truth,
    _late: late,
  };
  const model = new StandIn(traits, (asked) => {
    if (asked.type !== "log_lira" || log_lira === null) return null;
    const values = fromLogLira(log_lira.values, log_lira.thousandths);
    return { content: { ...asked, wide: true }, buffers: [values.buffer] };
  });
  return model;
}

/**
 * @param {any} content
 * @param {StandIn} beside  the explorer's model
 */
function inspectorModel({ tau, eta, inspector }, beside) {
  const traits = {
    page: 0,
    page_size: PAGE_SIZE,
    filter: "flagged",
    sort: "risk",
    decision: "any",
    selected: null,
    tau,
    eta,
    _version: 0,
    _decided: 0,
    _dimmed: false,
  };
  const answers = new Answers(inspector, () => traits);
  const model = new StandIn(traits, (asked) => answers.answer(asked));
  for (const name of FOLLOWED) beside.on(`change:${name}`, () => model.set(name, beside.get(name)));
  beside.on("change:eta", () => model.set("_version", model.get("_version") + 1));
  return model;
}

/**
 * @param {{caption: string, svg: string, wide: boolean}} figure
 */
function drawing({ caption, svg, wide }) {
  const letters = Array.from(new TextEncoder().encode(svg), (byte) => String.fromCharCode(byte));
  const image = html("img", { src: `data:image/svg+xml;base64,${btoa(letters.join(""))}` });
  image.alt = caption;
  const text = html("figcaption");
  text.textContent = caption;
  return html("figure", { class: wide ? "mr-figure mr-wide" : "mr-figure" }, image, text);
}

/** @param {string} id */
function place(id) {
  return document.getElementById(id);
}

async function show() {
  const content = await unpack(place("mr-data")?.textContent ?? "");
  const [upper, lower] = [place("mr-explorer"), place("mr-inspector")];
  if (upper !== null && lower !== null) {
    const model = explorerModel(content);
    explorer.render({ model, el: upper });
    inspector.render({ model: inspectorModel(content, model), el: lower });
  }
  place("mr-figures")?.append(...content.figures.map(drawing));
  document.body.dataset.ready = "true";
}

show().catch((error) => {
  const problem = place("mr-problem");
  if (problem === null) throw error;
  problem.textContent = `The threshold can't be moved in this browser (${error}). The numbers above stand.`;
  problem.hidden = false;
});
