/** The explorer alone over a recorded audit, for the front page. */

import { StandIn } from "../../memowidgets/report/static/model.js";
import explorer from "../../memowidgets/widgets/static/explorer.js";
import { start } from "./start.js";
import { logLiraOf, truthOf, wireOf } from "./views.js";

/** @typedef {import("./views.js").Content} Content */

/** @param {Content} content */
function modelOf(content) {
  const { tau, eta, views: [view] } = content;
  const wire = wireOf(view, logLiraOf(content), content.eta_range, 1);
  return new StandIn(
    {
      tau, tau_committed: tau, eta, eta_committed: eta,
      comparing: false, _comparable: false, _dimmed: false,
      _data: wire.data,
      _truth: truthOf(wire, eta),
      _late: { version: 1, eta, band: view.band, remarks: view.remarks, others: [], failed: "" },
    },
    ({ type, version }) =>
      type === "log_lira" ? { content: { type, version, wide: true }, buffers: [wire.rising.slice().buffer] } : null,
  );
}

start((content, el) => explorer.render({ model: modelOf(content), el }));
