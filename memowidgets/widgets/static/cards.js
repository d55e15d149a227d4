/** How a sample looks as a card, as a tile and opened. Shared by the inspector's parts. */

import { html, setAttributes } from "./dom.js";
import { besideText, errorText, fixed, whole } from "./numbers.js";

/** @typedef {import("./messages.js").Item} Item */
/** @typedef {import("./messages.js").Image} Image */
/** @typedef {import("./messages.js").ValueShown} Value */
/**
 * @typedef {object} ScoreFormat
 * @property {string} scoreName
 * @property {number} digits
 * @property {number | null} eta  log-LiRA from which on a sample is memorised
 */

const CONTROLS = /[\0-\x08\x0b-\x1f\x7f-\x9f]/g;
const UNSEEN = /[\u00ad\u200b\u2060\ufeff]/g; // but not the joiners, which emoji and scripts need
const OVERRIDES = /[\u202d\u202e]/g;
const BIDI = /[\u200e\u200f\u061c\u202a-\u202e\u2066-\u2069]/g;
const SHORT = 17; // characters of a name that fits beside another

/**
 * Returns a text that shows control characters as their numbers. The same holds for characters that
 * change the direction of writing, because they make a text look like another one.
 * @param {string} text
 */
export function proseText(text) {
  return text.replace(CONTROLS, codePoint).replace(OVERRIDES, codePoint);
}

/**
 * Does what `proseText` does, for names, and also shows all characters of direction and all
 * invisible ones.
 * @param {string} text
 */
export function nameText(text) {
  return text.replace(/[\n\t]/g, codePoint).replace(CONTROLS, codePoint).replace(BIDI, codePoint)
    .replace(UNSEEN, codePoint);
}

/** @param {string} character */
function codePoint(character) {
  return `⟨U+${character.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`;
}

/**
 * The letter of an option.
 * @param {number} i
 */
export function letterOf(i) {
  return i < 26 ? String.fromCharCode(65 + i) : String(i + 1);
}

/**
 * How many screen pixels an image's pixel is wide: a whole number for small images, so that
 * all are alike.
 * @param {number} side  the longer side of the image
 * @param {number} room
 */
export function zoomFor(side, room) {
  return side > room ? room / side : Math.max(1, Math.floor(room / side));
}

/** @param {string} status */
export function chip(status) {
  const kind = status.replace(" ", "-");
  return html("span", { class: `mw-status mw-status-${kind}` }, status);
}

/**
 * @param {Item} item
 * @param {ScoreFormat} reply
 */
export function scoreLine(item, reply) {
  const score = fixed(/** @type {number} */ (item.score), reply.digits);
  const error = item.error === null ? "" : ` ± ${errorText(item.error, reply.digits)}`;
  const text = html("span", {}, `${reply.scoreName} ${score}${error}`);
  if (item.uncertain) {
    const title = "the score and τ are less than two standard errors apart";
    text.append(html("span", { class: "mw-uncertain", title }, " · uncertain"));
  }
  return text;
}

/**
 * The score of a sample, and what its log-LiRA says.
 * @param {Item} item
 * @param {ScoreFormat} reply
 */
export function facts(item, reply) {
  const lines = html("div", { class: "mw-facts" });
  if (item.score !== null) lines.append(scoreLine(item, reply));
  if (item.logLira !== null) {
    const title = "log-LiRA, and η, from which on a sample is memorised";
    lines.append(html("span", { class: "mw-verdict", title }, verdictText(item.logLira, reply.eta, item.canary)));
  }
  return lines;
}

/**
 * Whether the finished model answers rightly; nothing where that is not known. Probabilities beside
 * it are those of the checkpoint on show, so what this one says is named apart.
 * @param {Item} item
 */
export function answer(item) {
  if (item.right === null) return [];
  const word = (/** @type {boolean} */ right) => (right ? "right" : "wrong");
  const known = item.guess && item.label && !item.image; // an image's card names the guess itself
  const here = known ? `here: ${word(item.guess === item.label)} · ` : "";
  const text = `${here}finished: ${word(item.right)}`; // in few words: the line below a card must not wrap
  const title = "whether the model gives the label that the sample was trained on, at the checkpoint on show and when it is finished";
  return [html("span", { class: "mw-answer", title }, text)];
}

/**
 * What log-LiRA says of a sample. The numbers are on the side that the words say.
 * @param {number} logLira
 * @param {number | null} eta
 * @param {boolean} canary
 */
export function verdictText(logLira, eta, canary) {
  if (eta === null) return `log-LiRA ${fixed(logLira, 1)}`;
  const [value, threshold] = besideText(logLira, eta);
  const beside = `(${value} ${logLira >= eta ? "≥" : "<"} ${threshold})`.replaceAll(" ", "\u00a0"); // one piece
  const verdict = `${logLira >= eta ? "memorised" : "not memorised"} ${beside}`;
  return canary ? `planted, ${verdict}` : verdict;
}

/** @param {Item} item */
export function footer(item) {
  const id = html("bdi", { class: "mw-id", title: `id ${nameText(item.id)}` });
  id.textContent = nameText(item.id);
  return html("div", { class: "mw-footer" }, id, ...answer(item));
}

/**
 * Makes the marks with words: the decision or a note, and canaries.
 * @param {Item} item
 */
export function tags(item) {
  const found = [];
  if (item.decision !== "undecided") found.push(decided(item));
  else if (item.note) found.push(html("span", { class: "mw-tag", title: nameText(item.note) }, "note"));
  if (item.canary) found.push(html("span", { class: "mw-tag mw-canary", title: "planted by the auditor" }, "canary"));
  return found;
}

/** @param {Item} item */
export function labels(item) {
  const lines = html("div", { class: "mw-labels" });
  if (item.label !== "") lines.append(html("div", {}, "label ", strong(item.label)));
  if (item.guess === "") return lines;
  const probability = item.guessProbability === null ? "" : ` (${item.guessProbability.toFixed(2)})`;
  const guess = html("div", { class: item.guess === item.label ? "mw-agrees" : "mw-differs" });
  guess.append("model ", strong(item.guess), probability);
  lines.append(guess);
  return lines;
}

/** @param {string} text */
export function strong(text) {
  const element = html("bdi", { class: "mw-strong" });
  element.textContent = nameText(text);
  return element;
}

/**
 * Returns how many times an image is enlarged.
 * @param {Image} image
 * @param {number} room  screen pixels for its longer side
 */
export function enlargement({ height, width }, room) {
  return zoomFor(Math.max(height, width), room);
}

/**
 * Makes an image in its frame.
 * @param {{label: string}} item
 * @param {HTMLElement} image
 */
export function picture(item, image) {
  setAttributes(image, { role: "img", "aria-label": `image labelled ${nameText(item.label)}` });
  return html("div", { class: "mw-picture" }, image);
}

/** @param {{text?: string, hidden?: number}} item */
export function prose(item) {
  const text = html("p", { class: "mw-prose", dir: "auto" });
  text.textContent = proseText(item.text ?? "");
  if (item.hidden) text.append(cut(item.hidden));
  return text;
}

/** @param {number} hidden  characters that were not sent */
function cut(hidden) {
  return html("span", { class: "mw-cut" }, ` … ${whole(hidden)} more characters`);
}

/**
 * Makes the text of a sample that is not an image: its content, its label and what the model
 * predicts.
 * @param {Item} item
 */
export function body(item) {
  const shown = item.values ? [values(item)] : item.text ? [prose(item)] : [];
  if (item.options) return [...shown, options(item)];
  return [...shown, item.likeliest ? likeliest(item.likeliest) : labels(item)];
}

/** @param {Item} item */
function values(item) {
  const list = html("ul", { class: "mw-values", "aria-label": "values" });
  for (const { name, value, usual } of item.values ?? []) {
    const shown = value === "" ? html("span", { class: "mw-cut" }, "missing") : plain("bdi", value);
    const usually = html("span", { class: "mw-usual" }, " (usually ", plain("bdi", usual), ")");
    const label = html("span", { class: "mw-value-name" }, plain("bdi", name));
    list.append(html("li", {}, label, html("span", {}, shown, usually)));
  }
  if (item.hiddenValues) list.append(html("li", { class: "mw-cut" }, `… ${whole(item.hiddenValues)} more`));
  return list;
}

/**
 * A table's row in one line.
 * @param {Value[]} found
 */
export function valuesText(found) {
  return nameText(found.map(({ name, value }) => `${name} ${value === "" ? "missing" : value}`).join(", "));
}

/**
 * @template {keyof HTMLElementTagNameMap} K
 * @param {K} tag
 * @param {string} text
 */
function plain(tag, text) {
  const element = html(tag, { dir: "auto" });
  element.textContent = nameText(text);
  return element;
}

/** @param {NonNullable<Item["likeliest"]>} classes */
function likeliest(classes) {
  const list = html("ul", { class: optionsClass(classes.map(({ name }) => name)), "aria-label": "likeliest classes" });
  for (const { name, label, probability } of classes) {
    const row = html("li", { class: "mw-option" });
    const text = html("span", { class: "mw-option-text" });
    text.append(...(label ? ["label ", strong(name)] : [plain("bdi", name)]));
    row.append(text, gauge(probability));
    list.append(row);
  }
  return list;
}

/**
 * Short names stand in two columns of a card.
 * @param {string[]} names
 */
function optionsClass(names) {
  return names.every((name) => name.length <= SHORT) ? "mw-options mw-short" : "mw-options";
}

/** @param {number} probability */
function gauge(probability) {
  const shown = html("span", { class: "mw-probability" }, probability.toFixed(2));
  shown.style.setProperty("--mw-share", probability.toFixed(3));
  return shown;
}

/** @param {Item} item */
export function options(item) {
  const list = html("div", { class: optionsClass((item.options ?? []).map(({ text }) => text)) });
  (item.options ?? []).forEach((option, i) => {
    const row = html("div", { class: "mw-option" });
    const letter = html("span", { class: "mw-letter" }, letterOf(i));
    if (option.label) {
      letter.classList.add("mw-letter-label");
      letter.title = "the label";
      letter.append(html("span", { class: "mw-spoken" }, " (label)"));
    }
    const text = html("span", { class: "mw-option-text", dir: "auto" });
    text.textContent = proseText(option.text);
    if (option.hidden) text.append(cut(option.hidden));
    row.append(letter, text);
    if (option.probability !== null) row.append(gauge(option.probability));
    list.append(row);
  });
  return list;
}

const MADE = /** @type {Record<string, string>} */ ({
  keep: "keep",
  anonymise: "anonymise",
  remove: "remove",
  relabel: "relabel",
  undecided: "undecided",
});

/**
 * The mark of a decision, with its note where the pointer rests.
 * @param {Item} item
 */
export function decided(item) {
  const note = item.note ? `: ${nameText(item.note)}` : "";
  const kind = MADE[item.decision] ?? "undecided";
  const mark = html("span", { class: `mw-tag mw-made mw-made-${kind}` }, kind);
  const to = kind === "relabel" ? ` as ${nameText(item.to)}` : "";
  if (to !== "") mark.append(" as ", plain("bdi", item.to));
  mark.title = `decided to ${kind}${to}${note}`;
  return mark;
}

/**
 * Returns a short digest of an image's bytes, which tells whether a card still shows the same
 * image.
 * @param {Item} item
 * @param {Uint8Array} bytes
 */
export function imageKey(item, bytes) {
  if (!item.image) return "";
  const { offset, height, width, channels } = item.image;
  let sum = 0;
  for (let i = offset; i < offset + height * width * channels; i++) sum = (sum * 31 + bytes[i]) | 0;
  return `${height}x${width}x${channels}:${sum}`;
}
