/** The picture of LiRA: gaps of models that trained on a sample and of others, and the target's. */

import { html, svg } from "./dom.js";
import { besideText, fixed, tickText, ticks } from "./numbers.js";

/** @typedef {import("./messages.js").ShadowsShown} Shadows */

const WIDTH = 560;
const EDGE = 14;
const BASE = 112;
const HIGH = 12;

/**
 * Points of a Gaussian density.
 * @param {number} mean
 * @param {number} deviation
 * @param {number} low
 * @param {number} high
 * @param {number} n
 * @returns {[number, number][]}
 */
export function gaussian(mean, deviation, low, high, n) {
  const peak = 1 / (deviation * Math.sqrt(2 * Math.PI));
  // one point stands on the mean, so that a narrow peak is not missed
  const xs = Array.from({ length: n }, (_, i) => low + ((high - low) * i) / (n - 1));
  for (let step = -4; step <= 4; step += 0.25) {
    const x = mean + step * deviation;
    if (x > low && x < high) xs.push(x);
  }
  xs.sort((a, b) => a - b);
  return xs.map((x) => [x, peak * Math.exp(-0.5 * ((x - mean) / deviation) ** 2)]);
}

/**
 * What the picture must hold: all gaps, three deviations of each side, the target.
 * @param {Shadows} shadows
 * @returns {[number, number]}
 */
export function liraRange(shadows) {
  const { fitIn, fitOut, inside, outside, target } = shadows;
  const ends = [target, ...inside, ...outside];
  for (const [mean, deviation] of [fitIn, fitOut])
    ends.push(mean - 3 * deviation, mean + 3 * deviation);
  const low = Math.min(...ends);
  const high = Math.max(...ends);
  return high > low ? [low, high] : [low - 1, high + 1];
}

/**
 * @param {Shadows} shadows
 * @param {number | null} eta  log-LiRA from which on a sample is memorised
 */
export function liraPicture(shadows, eta) {
  const [low, high] = liraRange(shadows);
  /** @param {number} gap */
  const place = (gap) => EDGE + ((gap - low) / (high - low)) * (WIDTH - 2 * EDGE);
  const picture = svg("svg", {
    viewBox: `0 0 ${WIDTH} 136`,
    class: "mw-lira",
    role: "img",
  });
  picture.setAttribute("aria-label", spoken(shadows));
  const curves = /** @type {const} */ ([
    ["in", shadows.fitIn],
    ["out", shadows.fitOut],
  ]);
  const points = curves.map(([, [mean, sd]]) => gaussian(mean, sd, low, high, 160));
  const top = Math.max(...points.flat().map(([, density]) => density));
  curves.forEach(([side], i) => {
    const path = points[i].map(
      ([x, y]) =>
        `${place(x).toFixed(1)},${(BASE - (y / top) * (BASE - HIGH)).toFixed(1)}`,
    );
    picture.append(
      svg("polyline", { class: `mw-curve mw-curve-${side}`, points: path.join(" ") }),
    );
  });
  picture.append(
    svg("line", { class: "mw-axis", x1: EDGE, x2: WIDTH - EDGE, y1: BASE, y2: BASE }),
  );
  for (const tick of ticks(low, high, 7)) {
    const x = place(tick);
    picture.append(
      svg("line", { class: "mw-axis", x1: x, x2: x, y1: BASE, y2: BASE + 4 }),
    );
    picture.append(
      svg(
        "text",
        { class: "mw-tick", x, y: BASE + 18, "text-anchor": "middle" },
        tickText(tick),
      ),
    );
  }
  const x = place(shadows.target);
  picture.append(svg("line", { class: "mw-target", x1: x, x2: x, y1: 4, y2: BASE }));
  picture.append(svg("path", { class: "mw-target-mark", d: `M${x} 0l5 6-5 6-5-6z` }));
  return html("figure", { class: "mw-lira-figure" }, picture, legend(shadows, eta));
}

/**
 * @param {Shadows} shadows
 * @param {number | null} eta
 */
function legend(shadows, eta) {
  const caption = html("figcaption", { class: "mw-lira-legend" });
  const [nIn, nOut] = shadows.models;
  caption.append(
    entry("mw-sign-in", "●", `${models(nIn)} trained on it: ${fit(shadows.fitIn)}`),
    entry("mw-sign-out", "□", `${models(nOut)} did not: ${fit(shadows.fitOut)}`),
    entry("mw-sign-target", "◆", `this model: ${fixed(shadows.target, 2)}`),
  );
  const { logLira } = shadows;
  const ratio =
    logLira === null
      ? "none"
      : eta === null
        ? fixed(logLira, 2)
        : besideText(logLira, eta, 2)[0];
  caption.append(
    html("span", { class: "mw-ratio" }, "log-LiRA ", html("strong", {}, ratio)),
  );
  return caption;
}

/**
 * @param {string} kind
 * @param {string} sign
 * @param {string} text
 */
function entry(kind, sign, text) {
  return html(
    "span",
    {},
    html("span", { class: `mw-sign ${kind}`, "aria-hidden": "true" }, sign),
    " ",
    text,
  );
}

/** @param {number} n */
function models(n) {
  return `${n} ${n === 1 ? "model" : "models"}`;
}

/** @param {[number, number]} gaussian */
function fit([mean, deviation]) {
  return `${fixed(mean, 2)} ± ${fixed(deviation, 2)}`;
}

/** @param {Shadows} shadows */
export function spoken(shadows) {
  const [nIn, nOut] = shadows.models;
  return (
    `Logit gaps of ${models(nIn)} trained on this sample, ${fit(shadows.fitIn)}, and of ${nOut} that ` +
    `were not, ${fit(shadows.fitOut)}; this model's gap is ${fixed(shadows.target, 2)}.`
  );
}
