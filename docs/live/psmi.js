import view from "../../memowidgets/teaching/static/psmi_view.js";
import { play } from "./play.js";

play(view);
