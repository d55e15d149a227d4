/** The guess of a whole class: the teacher types how many hands went up for each note. */

import { showGuess } from "../../memowidgets/teaching/static/guess_view.js";
import { html } from "../../memowidgets/widgets/static/dom.js";
import { start } from "./start.js";

start((content, el) => {
  const onward = html(
    "a",
    { href: "../index.html" },
    `Now do it for all ${content.guess.samples} notes →`,
  );
  showGuess(content.guess, el, onward, true);
});
