/** The moving parts of a report: both widgets on stand-in models, tied to each other; figures. */

import explorer from "../../widgets/static/explorer.js";
import inspector from "../../widgets/static/inspector.js";
import { html } from "../../widgets/static/dom.js";
import { Answers } from "./answers.js";
import { StandIn } from "./model.js";
import { fromLogLira, fromRising, unpack } from "./unpack.js";

/** @typedef {import("./unpack.js").Parcel} Parcel */

const PAGE_SIZE = 24;
const FOLLOWED = /** @type {const} */ (["tau", "eta"]);

/**
 * The explorer's traits, as Python's `ThresholdExplorer` sends them.
 * @param {Parcel} parcel
 */
export function explorerTraits({ head, bytes }) {
  const { title, n_shared, note, truth, late } = head.explorer;
  const eta = truth === null ? null : head.eta;
  const known = (/** @type {string} */ name) => (head.blobs[name] ? bytes(name).buffer : null);
  return {
    tau: head.tau,
    tau_committed: head.tau,
    eta: head.eta,
    eta_committed: head.eta,
    comparing: false,
    _comparable: late.others.length > 0,
    _dimmed: false,
    _data: {
      version: 1,
      title,
      truth: "",
      note,
      has_log_lira: truth !== null,
      eta_range: truth?.eta_range ?? null,
      values: fromRising(bytes("values")).buffer,
      wide: true,
      n_shared,
      shared: bytes("shared").buffer,
      ties: bytes("ties").buffer,
      levels: known("levels"),
      codes: known("codes"),
    },
    _truth: { version: 1, eta, bits: known("bits"), hits: known("hits") },
    _late: {
      version: 1,
      eta,
      band: known("band"),
      remarks: late.remarks,
      others: late.others.map((/** @type {any} */ other, /** @type {number} */ i) => ({
        ...other,
        points: bytes(`other_${i}`).buffer,
      })),
      failed: "",
    },
  };
}

/**
 * @param {Parcel} parcel
 */
function explorerModel(parcel) {
  const { head, bytes } = parcel;
  const model = new StandIn(explorerTraits(parcel), ({ type, version }) => {
    if (type !== "log_lira" || head.explorer.truth === null) return null;
    const values = fromLogLira(bytes("log_lira"), head.explorer.truth.thousandths);
    return { content: { type, version, wide: true }, buffers: [values.buffer] };
  });
  const others = head.explorer.late.others.length > 0;
  model.on("change:eta", () => model.set("_comparable", others && model.get("eta") === head.eta));
  return model;
}

/**
 * @param {Parcel} parcel
 * @param {StandIn} beside  the explorer's model
 */
function inspectorModel({ head, bytes }, beside) {
  const traits = {
    page: 0,
    page_size: PAGE_SIZE,
    filter: "flagged",
    sort: "risk",
    decision: "any",
    tau: head.tau,
    eta: head.eta,
    _version: 0,
    _decided: 0,
    _dimmed: false,
  };
  const answers = new Answers(head.inspector, bytes("pixels"), () => traits);
  const model = new StandIn(traits, (content) => answers.answer(content));
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
  const parcel = await unpack(place("mr-data")?.textContent ?? "");
  const [upper, lower] = [place("mr-explorer"), place("mr-inspector")];
  if (upper !== null && lower !== null) {
    const model = explorerModel(parcel);
    explorer.render({ model, el: upper });
    inspector.render({ model: inspectorModel(parcel, model), el: lower });
  }
  place("mr-figures")?.append(...parcel.head.figures.map(drawing));
  document.body.dataset.ready = "true";
}

show().catch((error) => {
  const problem = place("mr-problem");
  if (problem === null) throw error;
  problem.textContent = `The threshold can't be moved in this browser (${error}). The numbers above stand.`;
  problem.hidden = false;
});
