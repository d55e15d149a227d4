/** The first page: a guess on six notes, and then the dots, the samples, and one of them open. */

import { showGuess } from "../../memowidgets/teaching/static/guess_view.js";
import { html } from "../../memowidgets/widgets/static/dom.js";
import { Explorer } from "../../memowidgets/widgets/static/explorer.js";
import { Inspector } from "../../memowidgets/widgets/static/inspector.js";
import { Recorded } from "./audit.js";
import { start } from "./start.js";

const NARROW = 600; // pixels, below which the open sample follows the others

start((content, el) => {
  const onward = html(
    "button",
    { class: "mw-guess-onward", type: "button" },
    `Now do it for all ${content.guess.samples} notes →`,
  );
  const box = html("div", { class: "mw-dashboard" });
  showGuess(content.guess, el, onward);
  onward.addEventListener("click", () => {
    if (box.parentElement === null) {
      el.append(box);
      showAll(content, box);
    }
    box.scrollIntoView();
  });
});

/**
 * @param {any} content
 * @param {HTMLElement} box
 */
function showAll(content, box) {
  const { model } = new Recorded(content, box.clientWidth < NARROW ? 3 : 6);
  /** @type {Inspector | null} */
  let inspector = null;
  new Explorer(model, box, (tau, counts) => inspector?.follow(tau, counts));
  model.set("selected", content.opened ?? null);
  inspector = new Inspector(model, box, true);
}
