/** The playground of a network that memorises: the page computes everything, so nothing is left to answer. */

import view from "../../memowidgets/teaching/static/watch_view.js";
import { play } from "./play.js";

play(view, () => () => {});
