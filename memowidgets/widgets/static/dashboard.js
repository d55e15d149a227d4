/** The dashboard: bar, explorer and inspector as one view of one model. */

import { Bar } from "./bar.js";
import { Compare } from "./compare.js";
import { emptied, hideStandIn, html } from "./dom.js";
import { Explorer } from "./explorer.js";
import { Inspector } from "./inspector.js";
import { Pairs } from "./pairs.js";
import { Timeline } from "./timeline.js";

/** @typedef {import("./dom.js").Model} Model */

export default {
  initialize: emptied,
  /** @param {{model: Model, el: HTMLElement, lists?: boolean}} context  without `lists` where there are no samples to list */
  render({ model, el, lists = true }) {
    const box = html("div", { class: "mw-dashboard" });
    const frame = html("div", { class: "mw-frame" }, box); // whose width says whether the dashboard has a height
    el.append(frame);
    /** @type {Inspector | null} */
    let inspector = null;
    const bar = new Bar(model, box);
    hideStandIn(model, bar.ears);
    const explorer = new Explorer(model, box, (tau, counts) =>
      inspector?.follow(tau, counts),
    );
    const timeline = new Timeline(model, box, bar, explorer);
    /** @type {(part: import("./messages.js").Part, name: string) => void} */
    const list = (part, name) => inspector?.showPart(part, name);
    const compare = new Compare(model, box, bar, explorer, lists ? list : null);
    timeline.pairs = new Pairs(compare, timeline.film);
    timeline.onTime = (place) => inspector?.opened.moveTo(place);
    bar.tools.prepend(compare.button);
    bar.tools.append(explorer.toggle);
    const blank = html("div", { class: "mw-blank", "aria-hidden": "true" });
    const places = ["dots", "steps", "list", "sample"];
    blank.append(...places.map((part) => html("i", { class: `mw-blank-${part}` })));
    bar.root.append(blank);
    const inspect = () => {
      if (!lists || inspector !== null || !model.get("_data").values) return;
      blank.remove();
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
      for (const part of [bar, timeline, explorer, compare, inspector]) part?.destroy();
      frame.remove();
    };
  },
};
