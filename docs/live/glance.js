/** A recorded audit for the front page: dots and three sentences, the samples, and one of them open. */

import { html } from "../../memowidgets/widgets/static/dom.js";
import { Explorer } from "../../memowidgets/widgets/static/explorer.js";
import { Inspector } from "../../memowidgets/widgets/static/inspector.js";
import { Recorded } from "./audit.js";
import { start } from "./start.js";

const NARROW = 600; // pixels, below which the open sample follows the others

start((content, el) => {
  const { model } = new Recorded(content, el.clientWidth < NARROW ? 3 : 6);
  const box = html("div", { class: "mw-dashboard" });
  el.append(box);
  /** @type {Inspector | null} */
  let inspector = null;
  new Explorer(
    model, box, (tau, counts) => inspector?.follow(tau, counts), (what) => inspector?.showBetween(what),
  );
  model.set("selected", content.opened ?? null);
  inspector = new Inspector(model, box, true);
});
