/** τ with its counts and a slider, in a strip that stays in view while the samples below the plots scroll. */

import { html, onScroll, root } from "./dom.js";

export const HEIGHT = 60;

/** One strip, at the top of a dashboard. */
export class Strip {
  /**
   * @param {HTMLElement} box  the dashboard
   * @param {HTMLElement} plots  what it stands in for once that is out of view
   * @param {ReturnType<typeof import("./dom.js").listeners>} ears
   */
  constructor(box, plots, ears) {
    this.box = box;
    this.plots = plots;
    this.root = root(box, "strip", "τ and what it flags", ears);
    this.root.hidden = true;
    this.text = html("span", { class: "mw-strip-text" });
    this.slider = html("input", { type: "range", class: "mw-slider", step: "any", "aria-label": "move τ" });
    this.up = html("button", { type: "button", class: "mw-button" }, "↑ plots");
    this.up.addEventListener("click", () => plots.scrollIntoView({ block: "center" }));
    this.root.append(this.text, this.slider, this.up);
    onScroll(box, ears, (top) => this.follow(top));
  }

  /** @param {number} top  where the visible part of the page begins */
  follow(top) {
    const box = this.box.getBoundingClientRect();
    const gone = this.plots.getBoundingClientRect().bottom < top + HEIGHT && box.bottom > top + 3 * HEIGHT;
    this.root.hidden = !gone;
    if (gone) this.root.style.transform = `translateY(${(top - box.top).toFixed(1)}px)`;
  }

  /**
   * @param {string} text
   * @param {number} place  of τ on the axis
   * @param {number} low  where the axis begins
   * @param {number} high
   */
  show(text, place, low, high) {
    this.text.textContent = text;
    this.slider.min = String(low);
    this.slider.max = String(high);
    if (Math.abs(Number(this.slider.value) - place) > 1e-12) this.slider.value = String(place);
  }
}
