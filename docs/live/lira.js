import view from "../../memowidgets/teaching/static/lira_view.js";
import { play } from "./play.js";

play(view);
