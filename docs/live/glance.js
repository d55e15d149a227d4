/** The explorer alone over a recorded audit, for the front page. */

import { StandIn } from "../../memowidgets/report/static/model.js";
import explorer from "../../memowidgets/widgets/static/explorer.js";
import { bandOf } from "./band.js";
import { start } from "./start.js";
import { judgedOf, logLiraOf, truthOf, wireOf } from "./views.js";

/** @typedef {import("./views.js").Content} Content */

const AFTER_PAINT = 60; // milliseconds in which the explorer gets to the screen

/** @param {Content} content */
function modelOf(content) {
  const { tau, eta, views: [view] } = content;
  const wire = wireOf(view, logLiraOf(content), content.eta_range, 1);
  const late = { version: 1, eta, band: null, remarks: view.remarks, others: [], failed: "" };
  const model = new StandIn(
    {
      tau, tau_committed: tau, eta, eta_committed: eta,
      comparing: false, more: false, _comparable: false, _dimmed: false,
      _data: wire.data, _truth: truthOf(wire, eta), _late: late,
    },
    (asked) =>
      asked.type === "log_lira" ? { content: { ...asked, wide: true }, buffers: [wire.rising.slice().buffer] } : null,
  );
  const tellBand = () => {
    const here = model.get("eta_committed");
    const remarks = here === eta ? view.remarks : [];
    model.set("_late", { ...late, eta: here, remarks, band: bandOf(judgedOf(wire, here)) });
  };
  model.on("change:eta_committed", tellBand);
  setTimeout(tellBand, AFTER_PAINT);
  return model;
}

start((content, el) => explorer.render({ model: modelOf(content), el }));
