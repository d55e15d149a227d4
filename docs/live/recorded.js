/** A recorded audit that moves as the dashboard does. */

import dashboard from "../../memowidgets/widgets/static/dashboard.js";
import { Recorded } from "../../memowidgets/audit/static/audit.js";
import { start } from "../../memowidgets/audit/static/start.js";

const PAGE_SIZE = 24;

start((content, el) => {
  const { model } = new Recorded(content, PAGE_SIZE);
  dashboard.render({ model, el, lists: content.samples !== null });
});
