/** The playground of Theorem 1 without a kernel: rates with intervals, and means at every separation. */

import {
  directionsFor, psmiOf, ratesAt, roomFor, sample, worldOf,
} from "../../memowidgets/teaching/static/theorem_maths.js";
import view from "../../memowidgets/teaching/static/theorem_view.js";
import { clopperPearson } from "../../memowidgets/widgets/static/maths.js";
import { play } from "./play.js";

const PLACES = [0, 0.5, 1, 1.5, 2, 3, 4, 5, 6];
const NAMES = ["epsilon", "separation", "dimension", "imbalance", "overlap", "heavy_tails"];

/** @param {number} x */
function known(x) {
  return Number.isFinite(x) ? x : null;
}

play(view, (model) => {
  const { n, seed } = model.get("_size");
  const world = worldOf(n, seed);
  const room = roomFor(n);
  const psmi = new Float64Array(n);
  let swept = "";

  /** @param {Record<string, any>} settings */
  const scored = (settings) => {
    const mixture = /** @type {import("../../memowidgets/teaching/static/theorem_maths.js").Mixture} */ (settings);
    sample(world, mixture, room);
    psmiOf(room, mixture.dimension, directionsFor(mixture.dimension), psmi);
  };

  return () => {
    const settings = Object.fromEntries(NAMES.map((name) => [name, model.get(name)]));
    const tau = model.get("tau");
    scored(settings);
    const found = ratesAt(psmi, room.kinds, tau);
    const wrong = room.kinds.filter((kind) => kind === 2).length;
    const part = (/** @type {number} */ rate, /** @type {number} */ of) => clopperPearson(Math.round(rate * of), of) ?? undefined;
    model.set("_official", {
      of: settings, tau, n, flagged: found.flagged,
      tpr: known(found.tpr), tpr_interval: part(found.tpr, found.outliers),
      fpr: known(found.fpr), fpr_interval: part(found.fpr, n - found.outliers),
      tpr_wrong: known(found.tprWrong), tpr_wrong_interval: part(found.tprWrong, wrong),
    });
    const key = JSON.stringify({ ...settings, separation: 0 });
    if (key === swept) return;
    swept = key;
    const means = PLACES.map((separation) => {
      scored({ ...settings, separation });
      const { meanOthers, meanOutliers, meanWrong, meanRight } = ratesAt(psmi, room.kinds, tau);
      return { separation, others: known(meanOthers), outliers: known(meanOutliers), wrong: known(meanWrong), right: known(meanRight) };
    });
    model.set("_by_separation", { of: { ...settings, separation: 0 }, means });
  };
});
