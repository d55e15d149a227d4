/** The dashboard: bar, explorer and inspector as one view of one model. */

import { Bar } from "./bar.js";
import { Compare } from "./compare.js";
import { emptied, html } from "./dom.js";
import { Explorer } from "./explorer.js";
import { Inspector } from "./inspector.js";

/** @typedef {import("./dom.js").Model} Model */

const ADVICE =
  "What to do: look at flagged() where training stops; where it matters, run_references(2) and look again; shadow models only to judge, 32 of " +
  "them. The tenth of your samples with the lowest PSMI holds about half of what will be memorised; after two short trainings " +
  "a tenth holds two thirds.";

export default {
  initialize: emptied,
  /** @param {{model: Model, el: HTMLElement}} context */
  render({ model, el }) {
    const box = html("div", { class: "mw-dashboard" });
    const frame = html("div", { class: "mw-frame" }, box); // whose width says whether the dashboard has a height
    el.append(frame);
    /** @type {Inspector | null} */
    let inspector = null;
    const bar = new Bar(model, box);
    const explorer = new Explorer(
      model,
      box,
      (tau, counts) => inspector?.follow(tau, counts),
      () => inspector?.showFilter("on the line"),
    );
    const compare = new Compare(model, box, bar, explorer, (part, name) =>
      inspector?.showPart(part, name),
    );
    bar.tools.prepend(compare.button);
    bar.tools.append(explorer.toggle);
    explorer.more.prepend(html("p", { class: "mw-advice" }, ADVICE));
    const inspect = () => {
      if (inspector !== null || !model.get("_data").values) return;
      inspector = new Inspector(model, box, true);
      bar.exporting.hidden = false;
      bar.exporting.addEventListener("click", () =>
        inspector?.request({ type: "export" }),
      );
    };
    model.on("change:_data", inspect);
    inspect();
    return () => {
      model.off("change:_data", inspect);
      for (const part of [bar, explorer, compare, inspector]) part?.destroy();
      frame.remove();
    };
  },
};
