/** A playground on a model that answers as Python would, once the hand rests. */

import { StandIn } from "../../memowidgets/report/static/model.js";
import { start } from "./start.js";

/** @typedef {import("../../memowidgets/widgets/static/dom.js").Model} Model */

/**
 * @param {{render: (context: {model: Model, el: HTMLElement}) => unknown}} view
 * @param {(model: StandIn, content: any) => () => void} official  returns what computes the official numbers
 */
export function play(view, official) {
  start((content, el) => {
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    let soon;
    let settle = () => {};
    const model = new StandIn(content.state, () => {
      clearTimeout(soon);
      soon = setTimeout(() => settle(), 0); // after the frame that the hand waits for
      return null;
    });
    settle = official(model, content);
    view.render({ model, el });
  });
}
