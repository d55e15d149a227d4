/** How a sample looks: a row or a picture of the list, and in full. Shared by the inspector's parts. */

import { html, setAttributes } from "./dom.js";
import { percent, whole } from "./numbers.js";

/** @typedef {import("./messages.js").Item} Item */
/** @typedef {import("./messages.js").ValueShown} Value */

const CONTROLS = /[\0-\x08\x0b-\x1f\x7f-\x9f]/g;
const UNSEEN = /[\u00ad\u200b\u2060\ufeff]/g; // but not the joiners, which emoji and scripts need
const OVERRIDES = /[\u202d\u202e]/g;
const BIDI = /[\u200e\u200f\u061c\u202a-\u202e\u2066-\u2069]/g;

/** The sign and the word of each decision. */
export const MADE = /** @type {Record<string, string>} */ ({
  keep: "✓ keep",
  anonymise: "✎ anonymise",
  remove: "✕ remove",
  relabel: "⇄ relabel",
});

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
  return text
    .replace(/[\n\t]/g, codePoint)
    .replace(CONTROLS, codePoint)
    .replace(BIDI, codePoint)
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
 * Makes an image in its frame.
 * @param {{label: string, guess?: string}} item
 * @param {HTMLElement} image
 */
export function picture({ label, guess }, image) {
  const said = guess ? `, the model says ${nameText(guess)}` : "";
  setAttributes(image, {
    role: "img",
    "aria-label": `image labelled ${nameText(label)}${said}`,
  });
  return html("div", { class: "mw-picture" }, image);
}

/** @param {string} text */
export function strong(text) {
  return plain("bdi", text, "mw-strong");
}

/**
 * @template {keyof HTMLElementTagNameMap} K
 * @param {K} tag
 * @param {string} text
 * @param {string} [kind]
 */
export function plain(tag, text, kind = "") {
  const element = html(tag, { dir: "auto", class: kind === "" ? null : kind });
  element.textContent = nameText(text);
  return element;
}

/* ------------------------------------------------------------ in the list */

/**
 * A sample of the list: a dot for the truth, what it shows in one line, its classes, its decision.
 * @param {Item} item
 * @param {number | null} eta  log-LiRA from which on a sample is memorised
 * @param {HTMLElement} [image]
 */
export function card(item, eta, image) {
  const element = html("li", {
    class: item.label === "" ? "mw-card mw-unlabelled" : "mw-card",
    role: "option",
    tabindex: -1,
    "aria-selected": "false",
  });
  element.dataset.position = String(item.position);
  element.title = `id ${nameText(item.id)}`;
  if (eta !== null && item.logLira !== null) {
    const memorized = item.logLira >= eta;
    const said = memorized ? "memorised" : "not memorised";
    element.append(
      html("span", {
        class: `mw-dot ${memorized ? "mw-dot-full" : "mw-dot-hollow"}`,
        role: "img",
        "aria-label": said,
        title: said,
      }),
    );
  }
  element.append(image ? picture(item, image) : line(item), classes(item));
  if (item.decision in MADE || item.note !== "") element.append(decided(item));
  element.append(
    html("span", {
      class: "mw-mark",
      "aria-hidden": "true",
      title: "X, or Shift and a click: select several",
    }),
  );
  return element;
}

/** @param {Item} item */
function line(item) {
  const text = item.values ? valuesText(item.values) : proseText(item.text ?? "");
  const element = html("span", {
    class: text === "" ? "mw-prose mw-id" : "mw-prose",
    dir: "auto",
  });
  element.textContent = text === "" ? nameText(item.id) : text;
  return element;
}

/**
 * The label, and the model's class where it is another one.
 * @param {Item} item
 */
function classes(item) {
  const element = html("span", { class: "mw-labels" });
  if (item.label !== "") element.append(strong(item.label));
  if (item.guess !== "" && item.suggested !== null)
    element.append(
      " ",
      plain("bdi", `≠ ${item.image ? "" : "model: "}${item.guess}`, "mw-model"),
    );
  return element;
}

/**
 * The word of a decision, with its class and note where the pointer rests.
 * @param {Item} item
 */
function decided({ decision, note, to }) {
  const title = [decision === "relabel" ? `as ${nameText(to)}` : "", nameText(note)]
    .filter(Boolean)
    .join(": ");
  return html(
    "span",
    { class: `mw-made mw-made-${decision}`, title: title || null },
    MADE[decision] ?? "note",
  );
}

/**
 * A table's row in one line.
 * @param {Value[]} found
 */
export function valuesText(found) {
  return nameText(
    found
      .map(({ name, value }) => `${name} ${value === "" ? "missing" : value}`)
      .join(", "),
  );
}

/* ------------------------------------------------------------ in full */

/**
 * Makes a sample that is no image: its content.
 * @param {Item} item
 */
export function body(item) {
  const shown = [];
  if (item.text) shown.push(prose(item.text, item.hidden));
  if (item.values) shown.push(values(item));
  return shown;
}

/**
 * @param {string} content
 * @param {number} [hidden]  characters that were not sent
 */
function prose(content, hidden) {
  const text = html("p", { class: "mw-prose", dir: "auto" });
  text.textContent = proseText(content);
  if (hidden) text.append(cut(hidden));
  return text;
}

/** @param {number} hidden  characters that were not sent */
function cut(hidden) {
  return html("span", { class: "mw-cut" }, ` … ${whole(hidden)} more characters`);
}

/** @param {Item} item */
function values(item) {
  const list = html("ul", { class: "mw-values", "aria-label": "values" });
  for (const { name, value, usual } of item.values ?? []) {
    const shown =
      value === "" ? html("span", { class: "mw-cut" }, "missing") : plain("bdi", value);
    const usually = html(
      "span",
      { class: "mw-usual" },
      " (usually ",
      plain("bdi", usual),
      ")",
    );
    const label = html("span", { class: "mw-value-name" }, plain("bdi", name));
    list.append(html("li", {}, label, html("span", {}, shown, usually)));
  }
  if (item.hiddenValues)
    list.append(html("li", { class: "mw-cut" }, `… ${whole(item.hiddenValues)} more`));
  return list;
}

/**
 * The options of a question, one line each: the label and what the model says are marked, and in view.
 * @param {Item} item
 */
export function answers(item) {
  const list = html("ul", { class: "mw-answer-list", "aria-label": "options" });
  const said = item.guess === "" ? -1 : (item.suggested ?? item.answer);
  for (const [i, { text, label, probability }] of (item.options ?? []).entries()) {
    const name = html("span", { class: "mw-option-text", dir: "auto" });
    name.textContent = name.title = proseText(text);
    const who = [label ? "label" : "", i === said ? "model" : ""].filter(Boolean);
    if (who.length > 0 && probability !== null) who.push(percent(probability));
    const kinds = [label ? "mw-is-label" : "", i === said ? "mw-is-model" : ""];
    list.append(
      html(
        "li",
        { class: kinds.filter(Boolean).join(" ") || null },
        html("b", {}, letterOf(i)),
        name,
        html("em", {}, who.join(" ")),
      ),
    );
  }
  return list;
}

/**
 * The options of a question in full, with what the model gives each.
 * @param {Item} item
 */
export function options(item) {
  const found = item.options ?? [];
  const best = Math.max(...found.map(({ probability }) => probability ?? 0));
  return gauges(
    "mw-options",
    found.map(({ text, label, probability, hidden }, i) => {
      const name = html("span", { class: "mw-option-text", dir: "auto" });
      name.textContent = proseText(text);
      if (hidden) name.append(cut(hidden));
      return {
        letter: letterOf(i),
        name,
        label,
        probability,
        best: best > 0 && probability === best,
      };
    }),
  );
}

/**
 * The classes that the model finds most probable, and the label.
 * @param {NonNullable<Item["likeliest"]>} found
 */
export function likeliest(found) {
  return gauges(
    "mw-options mw-likeliest",
    found.map(({ name, label, probability }, i) => ({
      letter: "",
      name: plain("span", name, "mw-option-text"),
      label,
      probability,
      best: i === 0,
    })),
  );
}

/**
 * Classes with bars of their probabilities: the label and what the model says are marked.
 * @param {string} kind
 * @param {{letter: string, name: HTMLElement, label: boolean, probability: number | null, best: boolean}[]} found
 */
function gauges(kind, found) {
  const list = html("ul", { class: kind, "aria-label": "classes" });
  for (const { letter, name, label, probability, best } of found) {
    const row = html("li", { class: best ? "mw-option mw-option-best" : "mw-option" });
    const mark = html(
      "span",
      { class: label ? "mw-letter mw-letter-label" : "mw-letter" },
      letter,
    );
    if (label) setAttributes(mark, { title: "the label" });
    if (label)
      mark.append(
        letter === "" ? "label" : html("span", { class: "mw-spoken" }, " (label)"),
      );
    row.append(mark, name);
    if (probability !== null) {
      row.append(html("span", { class: "mw-probability" }, percent(probability)));
      row.style.setProperty("--mw-share", probability.toFixed(3));
    }
    list.append(row);
  }
  return list;
}
