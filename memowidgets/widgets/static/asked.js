/**
 * What was asked for: a count or a share of the samples with the lowest scores, or else τ itself. It
 * stays when the scores change.
 */

import { countUpTo, tauAtRank } from "./maths.js";
import { nearestWhole, percent, tickText, whole } from "./numbers.js";

/** @typedef {import("./maths.js").Scores} Scores */
/** @typedef {import("./messages.js").Asked} Asked */

/** A named way to ask. @typedef {{label: string, title: string, axis: string, asked: Asked, tau: number | null}} Way */

const TENTH = 0.1;
const BY_CLASS = -1; // robust deviations from the median of the class

/**
 * How many samples are asked for; null where τ itself is.
 * @param {Asked} asked
 * @param {number} n  samples that there are
 */
export function countAsked({ count, share }, n) {
  if (count !== undefined) return Math.min(count, n);
  if (share === undefined) return null;
  return Math.max(1, nearestWhole(share * n));
}

/**
 * The τ that flags what is asked for, and all that tie with it; null where τ itself is asked for.
 * @param {Asked} asked
 * @param {Scores} scores
 */
export function tauAsked(asked, scores) {
  const count = countAsked(asked, scores.n);
  if (count === null) return null;
  return tauAtRank(scores, countUpTo(scores.flaggedUpTo, count - 1) + 1);
}

/**
 * Reads a count, as "20", or a share, as "10 %"; null for anything else.
 * @param {string} text
 * @returns {Asked | null}
 */
export function readAsked(text) {
  const found = /^([\d\s\u202f]+(?:[.,]\d+)?)\s*(%?)$/.exec(text.trim());
  if (found === null) return null;
  const number = Number(found[1].replace(/[\s\u202f]/g, "").replace(",", "."));
  if (found[2] === "%") {
    const share = number / 100;
    return share > 0 && share <= 1 ? { share } : null;
  }
  return Number.isInteger(number) && number > 0 ? { count: number } : null;
}

/**
 * The named ways to ask, each of which says by what axis.
 * @param {string[]} axes  on which the scores can be shown
 * @param {number | null} natural  threshold of the score that means the same for every model
 * @returns {Way[]}
 */
export function waysToAsk(axes, natural) {
  const [axis] = axes;
  const lowest = "those with the lowest scores";
  /** @type {Way[]} */
  const ways = [
    { label: "20", title: lowest, axis, asked: { count: 20 }, tau: null },
    { label: "a tenth", title: lowest, axis, asked: { share: TENTH }, tau: null },
  ];
  if (axis === "score" && natural !== null)
    ways.push({
      label: `τ = ${tickText(natural)}`,
      title: "the score's own threshold",
      axis,
      asked: {},
      tau: natural,
    });
  if (axes.includes("class"))
    ways.push({
      label: "by class",
      title:
        "a score far below those of its class: by one robust deviation (1.4826 times the median absolute deviation) or more from the median",
      axis: "class",
      asked: {},
      tau: BY_CLASS,
    });
  return ways;
}

/**
 * Whether a way is what is asked for.
 * @param {Way} way
 * @param {{asked: Asked, axis: string, tau: number}} now
 */
export function isAsked(way, { asked, axis, tau }) {
  const { count, share } = way.asked;
  const same = asked.count === count && asked.share === share;
  return same && axis === way.axis && (way.tau === null || way.tau === tau);
}

/**
 * What stays when the scores change, and where ties or too few samples make it another number.
 * @param {{asked: Asked, axis: string, tau: string, plays: boolean}} now
 * @param {{n: number, flagged: number}} counts
 */
export function fixedText({ asked, axis, tau, plays }, { n, flagged }) {
  const many = countAsked(asked, n);
  const of = `${axis === "class" ? ", by class" : ""}${plays ? ", any time" : ""}`;
  if (many === null) return `fixed: τ = ${tau}${of}`;
  const share = asked.share === TENTH ? "a tenth" : percent(asked.share ?? 0);
  const fixed =
    asked.share === undefined ? `${whole(asked.count ?? 0)} samples` : share;
  let but = "";
  if ((asked.count ?? 0) > n) but = `; there are ${whole(n)}`;
  else if (flagged > many) but = `; ${whole(flagged - many)} more tie`;
  return `fixed: ${fixed}${of}${but}`;
}
