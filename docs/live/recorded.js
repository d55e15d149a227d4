/** A recorded audit that moves as the dashboard does. */

import dashboard from "../../memowidgets/widgets/static/dashboard.js";
import { Recorded } from "./audit.js";
import { start } from "./start.js";

const PAGE_SIZE = 12;

start((content, el) => {
  dashboard.render({ model: new Recorded(content, PAGE_SIZE).model, el });
  if (content.texts !== null) return;
  const search = el.querySelector(".mw-search"); // there is no text to search through
  for (const name of ["placeholder", "aria-label"])
    search?.setAttribute(name, "search ids");
});
