import view from "../../memowidgets/teaching/static/watch_view.js";
import { play } from "./play.js";

play(view);
