/** Starts the moving part of a page, and says what to do where it can't move. */

import { unpack } from "../../report/static/unpack.js";

const UNSTYLED =
  "The files beside this page are missing, as they are when it is opened inside a zip archive. Unpack the whole " +
  "archive, and open index.html there.";

/** @param {string} id */
function place(id) {
  const found = document.getElementById(id);
  if (found === null) throw new Error(`the page has no #${id}`);
  return found;
}

/** @param {string} words */
function warn(words) {
  const note = place("live-problem");
  note.append(note.hidden ? words : ` ${words}`);
  note.hidden = false;
}

/** What a browser must have, and what for. @type {[string, () => boolean, string][]} */
const NEEDS = [
  ["DecompressionStream", () => "DecompressionStream" in window, "unpacks the numbers"],
  [
    "canvas",
    () => Boolean(document.createElement("canvas").getContext?.("2d")),
    "draws the pictures",
  ],
];

/** What the page holds for its part. @returns {Promise<any>} */
async function content() {
  try {
    return await unpack(place("live-data").textContent ?? "");
  } catch {
    throw new Error("the page’s data are missing or damaged, so load it again");
  }
}

/**
 * Shows the part in place of its still. No kernel and no other file is asked for anything.
 * @param {(content: any, el: HTMLElement) => void} show
 */
export async function start(show) {
  window.addEventListener("load", () => {
    const styled =
      getComputedStyle(document.documentElement).getPropertyValue("--site-styled") !==
      "";
    if (!styled && document.querySelector('link[rel="stylesheet"]') !== null)
      warn(UNSTYLED);
  });
  try {
    for (const [name, there, why] of NEEDS) {
      if (!there())
        throw new Error(
          `this browser has no ${name}, which ${why}, so open the page in a current Firefox, Chrome, Edge or Safari`,
        );
    }
    show(await content(), place("live"));
    document.body.dataset.ready = "true";
    performance.mark("live-ready");
  } catch (error) {
    place("live-still").hidden = false;
    place("live").replaceChildren();
    const reason = error instanceof Error ? error.message : String(error);
    warn(`Nothing moves: ${reason}. The numbers below are right.`);
  }
}
