/** The LiRA playground without a kernel: the prior of "shrunk", and the standard error. */

import {
  drawsOf, estimatesFor, logRatio, OTHERS, othersSquares, OUT_MEAN, SIDE, sideOf, varianceOf,
} from "../../memowidgets/teaching/static/lira_maths.js";
import view from "../../memowidgets/teaching/static/lira_view.js";
import { play } from "./play.js";
import { shrunkOf } from "./prior.js";

/** @typedef {import("../../memowidgets/teaching/static/lira_maths.js").Estimate} Estimate */
/** @typedef {import("../../memowidgets/teaching/static/lira_maths.js").Side} Side */
/** @typedef {import("../../memowidgets/teaching/static/lira_maths.js").Variance} Variance */

const FEWEST = 8; // models on a side that a variance of the sample's own needs

/** Logarithmic derivatives of the gamma function: ψ(x) − log x, and ψ′(x). @param {number} x  above 0 */
function gammas(x) {
  let [first, second, at] = [-Math.log(x), 0, x];
  for (; at < 10; at++) {
    first -= 1 / at;
    second += 1 / at ** 2;
  }
  const u = 1 / at ** 2;
  first += Math.log(at) - 1 / (2 * at) - u * (1 / 12 - u * (1 / 120 - u / 252));
  second += 1 / at + u / 2 + (u / at) * (1 / 6 - u * (1 / 30 - u / 42));
  return [first, second];
}

/**
 * Mean and variance of a gap's log density, where a side's mean and variance are as its gaps say.
 * @param {number} gap
 * @param {Side} side
 * @param {Estimate} of
 * @param {number} least
 */
function known(gap, { count, mean, squares }, of, least) {
  const freedom = of.shared === null ? (of.freedom ?? 0) + count - 1 : Infinity;
  const variance = Math.max(of.shared ?? (of.squares + squares) / freedom, least);
  const square = (gap - mean) ** 2 / variance;
  const [shift, curve] = freedom === Infinity ? [0, 0] : gammas(freedom / 2);
  return {
    mean: (shift - Math.log(variance) - square - 1 / count) / 2,
    variance: curve / 4 + (square ** 2 / 2 - square) / freedom + square / count + 0.5 / count ** 2,
  };
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
  const ratio = logRatio(
    gap,
    { mean: sides[0].mean, variance: varianceOf(of.in, sides[0], estimates.least) },
    { mean: sides[1].mean, variance: varianceOf(of.out, sides[1], estimates.least) },
  );
  const [inside, outside] = [known(gap, sides[0], of.in, estimates.least), known(gap, sides[1], of.out, estimates.least)];
  const away = inside.mean - outside.mean - ratio;
  const std = Math.sqrt(inside.variance + outside.variance + away ** 2);
  model.set("_fit", {
    log_lira: ratio,
    std: Number.isFinite(std) ? std : null,
    estimates,
    remark: variance === "per-sample" && count < FEWEST ? few : "",
  });
});
