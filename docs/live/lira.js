/** The LiRA playground without a kernel: the prior of "shrunk", and the jackknife error. */

import {
  drawsOf, estimatesFor, logRatio, OTHERS, othersSquares, OUT_MEAN, SIDE, sideOf, varianceOf,
} from "../../memowidgets/teaching/static/lira_maths.js";
import view from "../../memowidgets/teaching/static/lira_view.js";
import { play } from "./play.js";
import { shrunkOf } from "./prior.js";

/** @typedef {import("../../memowidgets/teaching/static/lira_maths.js").Side} Side */
/** @typedef {import("../../memowidgets/teaching/static/lira_maths.js").Variance} Variance */

const FEWEST = 8; // models on a side that a variance of the sample's own needs

/**
 * A side without one of its models.
 * @param {Side} side
 * @param {number} gap
 * @returns {Side}
 */
function without({ count, mean, squares }, gap) {
  const away = gap - mean;
  return {
    count: count - 1,
    mean: mean - away / (count - 1),
    squares: count > 2 ? Math.max(0, squares - (away ** 2 * count) / (count - 1)) : 0,
  };
}

/**
 * Variance of a value by the jackknife.
 * @param {number[]} values  with one model left out each
 */
function jackknife(values) {
  const n = values.length;
  const mean = values.reduce((sum, value) => sum + value / n, 0);
  return (values.reduce((sum, value) => sum + (value - mean) ** 2, 0) * (n - 1)) / n;
}

play(view, (model, { few }) => () => {
  const [count, gap, effect, spread, variance] = [
    model.get("n_shadows") / 2, model.get("target_gap"), model.get("effect"), model.get("spread"),
    /** @type {Variance} */ (model.get("variance")),
  ];
  const draws = drawsOf(model.get("seed"));
  const gaps = [draws.inside, draws.outside].map((unit, side) =>
    Array.from(unit.subarray(0, count), (z) => OUT_MEAN + (side === 0 ? effect : 0) + spread * z));
  const sides = gaps.map((side) => sideOf(side));
  const fitted = sides.map((own, side) => {
    const others = Array.from({ length: OTHERS }, (_, i) => sideOf(draws.others, (side * OTHERS + i) * SIDE, count).squares);
    return shrunkOf([own.squares, ...others], count);
  });
  const estimates = estimatesFor(sides[0], sides[1], othersSquares(draws, count, count), { shrunk: { in: fitted[0], out: fitted[1] } });
  const of = estimates[variance];
  /** @type {(inside: Side, outside: Side) => number} */
  const ratio = (inside, outside) =>
    logRatio(
      gap,
      { mean: inside.mean, variance: varianceOf(of.in, inside, estimates.least) },
      { mean: outside.mean, variance: varianceOf(of.out, outside, estimates.least) },
    );
  const spreads = [
    gaps[0].map((one) => ratio(without(sides[0], one), sides[1])),
    gaps[1].map((one) => ratio(sides[0], without(sides[1], one))),
  ];
  const enough = count > (variance === "per-sample" ? 2 : 1);
  model.set("_fit", {
    log_lira: ratio(sides[0], sides[1]),
    std: enough ? Math.sqrt(jackknife(spreads[0]) + jackknife(spreads[1])) : null,
    estimates,
    remark: variance === "per-sample" && count < FEWEST ? few : "",
  });
});
