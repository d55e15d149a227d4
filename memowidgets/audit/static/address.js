/** What the address of a page says of a view. Nothing in it is trusted. No DOM. */

/** @typedef {import("../../widgets/static/messages.js").State} State */
/** Whether a part of a state may have a value. @typedef {Record<string, (value: any) => boolean>} Valid */

const LONGEST = 4000; // characters

/** @param {unknown} value */
export const isNumber = (value) => typeof value === "number" && Number.isFinite(value);

/** @param {unknown} value */
export const isWhole = (value) =>
  typeof value === "number" && Number.isSafeInteger(value) && value >= 0;

/** @param {unknown} value */
export const isFlag = (value) => typeof value === "boolean";

/**
 * The parts that make sense, and what is wrong with the others.
 * @param {string} text  JSON, from anywhere
 * @param {Valid} valid
 * @returns {{state: State, problems: string[]}}
 */
export function usable(text, valid) {
  const found = parsed(text);
  if (found === null) return { state: {}, problems: ["it is no state of a dashboard"] };
  const [good, bad] = [true, false].map((wanted) =>
    Object.entries(found).filter(
      ([name, value]) => (Object.hasOwn(valid, name) && valid[name](value)) === wanted,
    ),
  );
  return {
    state: Object.fromEntries(good),
    problems: bad.map(([name, value]) => problem(name, value, name in valid)),
  };
}

/** @param {string} text */
function parsed(text) {
  if (text.length > LONGEST) return null;
  try {
    const found = JSON.parse(text);
    return typeof found === "object" && !Array.isArray(found) ? found : null;
  } catch {
    return null;
  }
}

/**
 * @param {string} name
 * @param {unknown} value
 * @param {boolean} known  whether a state has such a part
 */
function problem(name, value, known) {
  if (!known) return `unknown part of a state: ${short(name)}`;
  if (name === "comparing")
    return "this page does not hold the scores that are compared";
  if (name === "selected" && isWhole(value))
    return `there is no sample at position ${value} here`;
  return `unknown ${name} ${short(JSON.stringify(value))}`;
}

/** @param {string} text */
function short(text) {
  return text.length > 40 ? `${text.slice(0, 40)}…` : text;
}

/**
 * Whether τ lies where the scores do, or up to their range beside them.
 * @param {number} tau
 * @param {ArrayLike<number>} scores
 */
export function isNear(tau, scores) {
  let [low, high] = [Infinity, -Infinity];
  for (let i = 0; i < scores.length; i++)
    [low, high] = [Math.min(low, scores[i]), Math.max(high, scores[i])];
  const reach = high - low || Math.max(Math.abs(low), 1);
  return low - reach <= tau && tau <= high + reach;
}
