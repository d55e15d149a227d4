/** Numbers as text, and round numbers for axes. */

/**
 * The next 1, 2 or 5 times a power of ten.
 * @param {number} step
 */
export function roundStep(step) {
  const power = 10 ** Math.floor(Math.log10(step));
  const lead = step / power;
  const rounded = lead <= 1.0000001 ? 1 : lead <= 2 ? 2 : lead <= 5 ? 5 : 10;
  return rounded * power;
}

/**
 * Round numbers between two ends.
 * @param {number} low
 * @param {number} high
 * @param {number} about  how many
 */
export function ticks(low, high, about) {
  if (!(high > low)) return [low];
  const step = roundStep((high - low) / Math.max(1, about));
  const found = [];
  const first = Math.ceil(low / step - 1e-9);
  for (let i = first; i * step <= high + step * 1e-9; i++) found.push(tidy(i * step));
  return found;
}

/** @param {number} x */
export function tidy(x) {
  return Number(x.toPrecision(12)) + 0;
}

/**
 * @param {number} x
 * @param {number} digits
 */
export function fixed(x, digits) {
  const text = x.toFixed(digits);
  return (Number(text) === 0 ? text.replace("-", "") : text).replace("-", "−");
}

/**
 * A standard error with the digits of its score, or with more where it would be 0.
 * @param {number} error
 * @param {number} digits
 */
export function errorText(error, digits) {
  let shown = digits;
  while (error > 0 && shown < 8 && Number(error.toFixed(shown)) === 0) shown += 1;
  return fixed(error, shown);
}

/**
 * A value and a threshold, with enough digits that the texts are on the same sides as the numbers.
 * @param {number} value
 * @param {number} threshold
 * @param {number} [digits]  of the value at least
 * @returns {[string, string]}
 */
export function besideText(value, threshold, digits = 1) {
  for (let shown = digits; ; shown++) {
    const texts = [
      value.toFixed(shown),
      String(Number(threshold.toPrecision(4 + shown))),
    ];
    const told = Number(texts[0]) >= Number(texts[1]) === value >= threshold;
    if (told || shown === 20) return [fixed(value, shown), texts[1].replace("-", "−")];
  }
}

/** @param {number} x */
export function whole(x) {
  return Math.round(x)
    .toString()
    .replace(/\B(?=(\d{3})+(?!\d))/g, "\u202f");
}

/**
 * A rate with two digits, or one that counts where two would make it 0 or 1.
 * @param {number | null} rate
 */
export function rateText(rate) {
  if (rate === null || Number.isNaN(rate)) return "–";
  const rest = 1 - rate;
  if (rate > 0 && rate < 0.01)
    return rate < 0.0001 ? "< 0.0001" : String(Number(rate.toPrecision(1)));
  if (rest > 0 && rest < 0.005) {
    return rest < 0.0001
      ? "> 0.9999"
      : String(1 - Number(rest.toPrecision(1))).slice(0, 6);
  }
  return rate.toFixed(2);
}

/**
 * An interval of rates.
 * @param {import("./maths.js").Interval | null} interval
 */
export function intervalText(interval) {
  return interval?.map(rateText).join(" to ") ?? "";
}

/**
 * A rate with its interval.
 * @param {[number, number, number]} estimate
 */
export function estimateText([rate, ...interval]) {
  return `${rateText(rate)} (${intervalText(interval)})`;
}

/**
 * The nearest whole number, of two as near the even one, as in Python.
 * @param {number} x
 */
export function nearestWhole(x) {
  const below = Math.floor(x);
  const isHalf = x - below === 0.5;
  return isHalf ? below + (below % 2) : Math.round(x);
}

const LEAST = 0.001; // a smaller share that is not 0 is written as "< 0.1 %"
const ROUND = 0.1; // a share at least so far from 0 and 1 has no decimals

/**
 * A share as Python writes it, which no line break parts from its sign.
 * @param {number} share
 */
export function percent(share) {
  const near = share < ROUND || share > 1 - ROUND;
  let many = String(near ? nearestWhole(1000 * share) / 10 : nearestWhole(100 * share));
  if (share > 0 && share < LEAST) many = "< 0.1";
  if (share > 1 - LEAST && share < 1) many = "> 99.9";
  return `${many} %`.replaceAll(" ", "\u00a0");
}

/**
 * A score with enough digits to tell it apart from others `step` away.
 * @param {number} score
 * @param {number} step
 */
export function scoreText(score, step) {
  const size = Math.max(Math.abs(score), step);
  const digits = Math.max(0, 1 - Math.floor(Math.log10(step || 1)));
  if (digits <= 7 && size < 1e6) return fixed(score, digits);
  if (score === 0) return "0";
  return score
    .toExponential(3)
    .replace(/\.?0*e\+?/, "e")
    .replaceAll("-", "−");
}

/** @param {number} tick */
export function tickText(tick) {
  const size = Math.abs(tick);
  const short = tick === 0 || (size >= 1e-4 && size < 1e6);
  const text = short ? String(tick) : tick.toExponential().replace("e+", "e");
  return text.replaceAll("-", "−");
}

/** @param {number | null} seconds */
export function durationText(seconds) {
  if (seconds === null) return "";
  const rounded = Math.max(1, Math.round(seconds));
  const minutes = Math.floor(rounded / 60);
  if (minutes >= 60) return `${Math.floor(minutes / 60)} h ${minutes % 60} min left`;
  return `${minutes}:${String(rounded % 60).padStart(2, "0")} left`;
}
