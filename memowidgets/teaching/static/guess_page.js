/** The guess on a page of its own, which leads to the report beside it. */

import { html } from "../../widgets/static/dom.js";
import { showGuess } from "./guess_view.js";

const content = JSON.parse(document.getElementById("mw-guess-data")?.textContent ?? "");
const onward = html(
  "a",
  { href: content.onward },
  `Now do it for all ${content.samples} notes →`,
);
showGuess(content, /** @type {HTMLElement} */ (document.querySelector("main")), onward);
document.body.dataset.ready = "true";
