/** What opens over a view, or unfolds in it, and closes again. */

import { html } from "./dom.js";

/**
 * What is open over or in a view, in the order of opening: what closes it, and the button that opens
 * it.
 * @typedef {{close: () => void, by: HTMLElement, unfolds?: boolean}} Layer
 */

/** @type {Map<Element, Layer>} */
const layers = new Map();

/**
 * Says whether something is open. Escape closes what was opened last. A menu closes the others, so
 * that none lies over another; what `unfolds` in its place does not.
 * @param {Element} element
 * @param {boolean} isOpen
 * @param {Layer} layer
 */
export function setLayer(element, isOpen, layer) {
  layers.delete(element);
  if (!isOpen) return;
  // before what is inside hears it; a listener that is there already is not added again
  viewOf(element)?.addEventListener("keydown", closeLast, true);
  if (!layer.unfolds)
    for (const other of layersBeside(element)) if (!other.unfolds) other.close();
  layers.set(element, layer);
}

/**
 * The dashboard, or else the view, that an element is in.
 * @param {Element} element
 * @returns {HTMLElement | null}
 */
function viewOf(element) {
  return element.closest(".mw-dashboard") ?? element.closest(".mw");
}

/**
 * The open layers beside an element.
 * @param {Element} element
 */
function layersBeside(element) {
  const view = viewOf(element);
  return [...layers].filter(([one]) => view?.contains(one)).map(([, layer]) => layer);
}

/** @param {KeyboardEvent} event */
function closeLast(event) {
  if (event.key !== "Escape" || !(event.target instanceof Element)) return;
  const last = layersBeside(event.target).at(-1);
  if (last === undefined) return;
  event.preventDefault();
  event.stopPropagation();
  last.close();
  last.by.focus({ preventScroll: true });
}

/**
 * Makes a button that opens a menu below it.
 * @param {string} label
 * @param {...(Node | string)} children  what is in the menu
 */
export function menu(label, ...children) {
  const button = html("summary", { class: "mw-button" }, label);
  const element = html(
    "details",
    { class: "mw-has-menu" },
    button,
    html("div", { class: "mw-menu" }, ...children),
  );
  const close = () => {
    element.open = false;
  };
  element.addEventListener("toggle", () =>
    setLayer(element, element.open, { close, by: button }),
  );
  return element;
}
