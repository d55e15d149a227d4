import view from "../../memowidgets/teaching/static/theorem_view.js";
import { play } from "./play.js";

play(view);
