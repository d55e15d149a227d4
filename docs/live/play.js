/** A playground on a page of the site: it computes everything itself, so there is nothing to answer. */

import { StandIn } from "../../memowidgets/report/static/model.js";
import { start } from "../../memowidgets/audit/static/start.js";

/** @typedef {import("../../memowidgets/widgets/static/dom.js").Model} Model */

/** @param {{render: (context: {model: Model, el: HTMLElement}) => unknown}} view */
export function play(view) {
  start((state, el) => view.render({ model: new StandIn(state, () => null), el }));
}
