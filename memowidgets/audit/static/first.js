/** The first page: a guess on six notes, and below it the dashboard of all of them. */

import { GuessView } from "../../teaching/static/guess_view.js";
import { textInAddress } from "../../widgets/static/bar.js";
import dashboard from "../../widgets/static/dashboard.js";
import { html } from "../../widgets/static/dom.js";
import { Recorded } from "./audit.js";
import { start } from "./start.js";
import { logLiraOf, scoresOf } from "./views.js";

const PAGE_SIZE = 24;

start((content, el) => {
  const story = storyOf(content);
  const star = story.moments.findIndex(
    (/** @type {{star: boolean}} */ one) => one.star,
  );
  const many = story.scores[star].filter((score) => score <= 0).length;
  const onward = html(
    "button",
    { class: "mw-guess-onward", type: "button" },
    `Decide on the ${many} notes ↓`,
  );
  new GuessView(story, el, onward, content.hands);
  const heading = html("h2", { tabindex: -1 }, "Read them, and decide");
  const below = html("section", { class: "live-below", hidden: true }, heading);
  el.append(below);
  const open = () => {
    if (below.hidden) {
      below.hidden = false;
      dashboard.render({ model: new Recorded(content, PAGE_SIZE).model, el: below });
    }
    below.scrollIntoView();
    heading.focus({ preventScroll: true });
  };
  onward.addEventListener("click", open);
  // whoever follows a link to a view of the dashboard wants to see that
  if (textInAddress(location.hash) !== "") open();
});

/**
 * What the guess shows of a recorded audit.
 * @param {any} content
 */
function storyOf(content) {
  const [metric, layer] = content.first;
  /** @type {import("./views.js").View[]} */
  const views = content.views;
  const held = views.filter((view) => view.metric === metric && view.layer === layer);
  /** @type {import("../../widgets/static/messages.js").MomentShown[]} */
  const moments = content.moments.map((/** @type {object} */ moment) => ({
    ...moment,
    computed: true,
  }));
  const scores = moments.map(({ value }) => {
    const view = held.find(({ checkpoint }) => checkpoint === value);
    return Float32Array.from(view === undefined ? [] : scoresOf(view));
  });
  const memorized = Array.from(logLiraOf(content), (value) => value >= content.eta);
  const { guess, truly } = content;
  return { guess, moments, scores, memorized, truly, items: content.samples.items };
}
