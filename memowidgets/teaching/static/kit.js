/** Shared parts of the playgrounds: plots on a canvas, sliders, numbers and words. */

import {
  hideStandIn,
  html,
  listeners,
  onTheme,
  onWidth,
  root,
  setAttributes,
} from "../../widgets/static/dom.js";
import { tell } from "../../widgets/static/kernel.js";
import { fixed, ticks, tickText } from "../../widgets/static/numbers.js";

/** @typedef {import("../../widgets/static/dom.js").Model} Model */

/* ---------------------------------------------------------------- numbers */

/**
 * @param {number} x
 * @param {number} digits
 */
export function fixedText(x, digits) {
  if (Number.isFinite(x)) return fixed(x, digits);
  return Number.isNaN(x) ? "–" : x > 0 ? "∞" : "−∞";
}

/** @param {number} share */
export function shareText(share) {
  return Number.isFinite(share) ? `${fixed(100 * share, 1)} %` : "–";
}

/**
 * A linear scale from numbers to pixels.
 * @param {number} low
 * @param {number} high
 * @param {number} from  pixel of `low`
 * @param {number} to
 */
export function linear(low, high, from, to) {
  const slope = (to - from) / (high - low);
  return {
    low,
    high,
    at: (/** @type {number} */ x) => from + (x - low) * slope,
    back: (/** @type {number} */ pixel) => low + (pixel - from) / slope,
    clip: (/** @type {number} */ x) =>
      from + (Math.min(high, Math.max(low, x)) - low) * slope,
  };
}

/** @typedef {ReturnType<typeof linear>} Scale */

/* ---------------------------------------------------------------- colours */

const COLOURS = [
  "bg",
  "fg",
  "muted",
  "line",
  "soft",
  "accent",
  "risk",
  "risk-text",
  "other",
  "in",
  "out",
  "c0",
  "c1",
  "c2",
  "c3",
];

/** @typedef {Record<string, string>} Palette */

/**
 * Returns the current colours of the theme.
 * @param {Element} element
 * @returns {Palette}
 */
function paletteOf(element) {
  const style = getComputedStyle(element);
  return Object.fromEntries(
    COLOURS.map((name) => [name, style.getPropertyValue(`--mw-${name}`).trim()]),
  );
}

/* ---------------------------------------------------------------- plots */

/**
 * @typedef {{left: number, right: number, top: number, bottom: number}} Frame
 */

/** A canvas with an inner frame, sharp on every screen. */
export class Plot {
  /**
   * @param {string} name
   * @param {number} height
   * @param {Frame} margin
   */
  constructor(name, height, margin) {
    this.canvas = html("canvas", { class: `mw-plot mw-plot-${name}`, role: "img" });
    this.canvas.style.height = `${height}px`;
    this.element = this.canvas;
    this.height = height;
    this.margin = margin;
    this.width = 0;
    this.context = /** @type {CanvasRenderingContext2D} */ (
      this.canvas.getContext("2d")
    );
    /** @type {Frame} */
    this.frame = { left: 0, right: 1, top: 0, bottom: 1 };
  }

  /** Takes the size that the page gives it. Afterwards the canvas is empty. */
  fit() {
    const ratio = window.devicePixelRatio || 1;
    this.width = this.canvas.clientWidth;
    this.height = this.canvas.clientHeight;
    this.canvas.width = Math.round(this.width * ratio);
    this.canvas.height = Math.round(this.height * ratio);
    this.context.setTransform(ratio, 0, 0, ratio, 0, 0);
    const { left, right, top, bottom } = this.margin;
    this.frame = { left, top, right: this.width - right, bottom: this.height - bottom };
  }

  /** @param {Palette} palette */
  begin(palette) {
    const { context } = this;
    this.palette = palette;
    context.clearRect(0, 0, this.width, this.height);
    context.font = `12px ${this.font ?? (this.font = getComputedStyle(this.canvas).fontFamily)}`;
    context.lineJoin = "round";
    context.lineCap = "butt";
    context.setLineDash([]);
    context.globalAlpha = 1;
    return context;
  }

  /** @param {string} name */
  colour(name) {
    return /** @type {Palette} */ (this.palette)[name];
  }

  /**
   * @param {string} words
   * @param {number} x
   * @param {number} y
   * @param {{colour?: string, align?: CanvasTextAlign, bold?: boolean, halo?: boolean}} [how]
   */
  text(
    words,
    x,
    y,
    { colour = "muted", align = "left", bold = false, halo = false } = {},
  ) {
    const { context } = this;
    const font = context.font;
    if (bold) context.font = `600 ${font}`;
    context.textAlign = align;
    if (halo) {
      context.strokeStyle = this.colour("bg");
      context.lineWidth = 4;
      context.strokeText(words, x, y);
    }
    context.fillStyle = this.colour(colour);
    context.fillText(words, x, y);
    context.font = font;
  }

  /**
   * @param {[number, number][]} points
   * @param {string} colour
   * @param {number} [width]
   * @param {number[]} [dash]
   */
  line(points, colour, width = 1, dash = []) {
    this.trace(points);
    this.context.setLineDash(dash);
    this.ink("", colour, width);
    this.context.setLineDash([]);
  }

  /**
   * @param {[number, number][]} outline
   * @param {string} colour
   * @param {number} alpha
   */
  area(outline, colour, alpha) {
    this.context.globalAlpha = alpha;
    this.polygon(outline, colour);
    this.context.globalAlpha = 1;
  }

  /** @param {[number, number][]} points */
  trace(points) {
    const { context } = this;
    context.beginPath();
    points.forEach(([x, y], i) =>
      i === 0 ? context.moveTo(x, y) : context.lineTo(x, y),
    );
  }

  /**
   * Fills and strokes what was traced last. A colour without a name is left out.
   * @param {string} fill
   * @param {string} [edge]
   * @param {number} [width]
   */
  ink(fill, edge = "", width = 1.5) {
    const { context } = this;
    context.fillStyle = this.colour(fill);
    if (fill) context.fill();
    context.strokeStyle = this.colour(edge);
    context.lineWidth = width;
    if (edge) context.stroke();
  }

  /**
   * @param {[number, number][]} outline
   * @param {string} fill
   * @param {string} [edge]
   * @param {number} [width]
   */
  polygon(outline, fill, edge, width) {
    this.trace(outline);
    this.context.closePath();
    this.ink(fill, edge, width);
  }

  /**
   * @param {number} x
   * @param {number} y
   * @param {number} r
   * @param {string} fill
   * @param {string} [edge]
   * @param {number} [width]
   */
  dot(x, y, r, fill, edge, width) {
    this.context.beginPath();
    this.context.arc(x, y, r, 0, 2 * Math.PI);
    this.ink(fill, edge, width);
  }

  /**
   * Points of a curve over the width of the frame.
   * @param {(pixel: number) => number} at  pixels from the top for pixels from the left
   * @returns {[number, number][]}
   */
  curve(at) {
    const { left, right } = this.frame;
    return Array.from({ length: Math.floor((right - left) / 2) + 1 }, (_, i) => [
      left + 2 * i,
      at(left + 2 * i),
    ]);
  }

  /**
   * Draws the lower axis with its ticks and name.
   * @param {Scale} x
   * @param {string} name
   * @param {{ticks?: number[], say?: (tick: number) => string}} [how]
   */
  lowerAxis(x, name, { ticks: given, say = tickText } = {}) {
    const { left, right, bottom } = this.frame;
    this.line(
      [
        [left, bottom + 0.5],
        [right, bottom + 0.5],
      ],
      "muted",
    );
    let free = -Infinity; // where the next number may begin
    for (const tick of given ??
      ticks(x.low, x.high, Math.max(2, (right - left) / 80))) {
      const at = Math.round(x.at(tick)) + 0.5;
      this.line(
        [
          [at, bottom],
          [at, bottom + 4],
        ],
        "muted",
      );
      const half = this.widthOf(say(tick)) / 2;
      if (at - half < free) continue;
      this.text(say(tick), at, bottom + 16, { align: "center" });
      free = at + half + 4;
    }
    if (name) this.nameBelow(name, (left + right) / 2, bottom + 32);
  }

  /**
   * Draws the name of an axis: moved, or without its brackets, where it is too wide.
   * @param {string} name
   * @param {number} x
   * @param {number} y
   */
  nameBelow(name, x, y) {
    const words = this.widthOf(name) > this.width ? name.replace(/ \(.*\)$/, "") : name;
    const half = this.widthOf(words) / 2;
    const at = Math.max(half, Math.min(this.width - half, x));
    this.text(words, at, y, { align: "center", colour: "fg" });
  }

  /** @param {string} words */
  widthOf(words) {
    return this.context.measureText(words).width;
  }

  /**
   * Draws level lines with their numbers.
   * @param {Scale} y
   * @param {number} about
   */
  levels(y, about) {
    const { left, right } = this.frame;
    for (const tick of ticks(y.low, y.high, about)) {
      const at = Math.round(y.at(tick)) + 0.5;
      this.line(
        [
          [left, at],
          [right, at],
        ],
        tick === 0 ? "muted" : "line",
        1,
      );
      this.text(tickText(tick), left - 6, at + 4, { align: "right" });
    }
  }

  /**
   * Makes a small picture to put in many places. That is much faster than drawing as many outlines.
   * @param {number} r  half of its side, in pixels
   * @param {(context: CanvasRenderingContext2D) => void} draw  around the origin
   */
  stamp(r, draw) {
    const ratio = window.devicePixelRatio || 1;
    const side = Math.ceil(2 * r * ratio);
    const canvas = html("canvas");
    canvas.width = canvas.height = side;
    const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
    context.setTransform(ratio, 0, 0, ratio, side / 2, side / 2);
    draw(context);
    const size = side / ratio;
    return (/** @type {number} */ x, /** @type {number} */ y) =>
      this.context.drawImage(canvas, x - size / 2, y - size / 2, size, size);
  }

  /** Keeps what follows inside the frame, until `free`. */
  clip() {
    const { left, right, top, bottom } = this.frame;
    this.context.save();
    this.context.beginPath();
    this.context.rect(left, top, right - left, bottom - top);
    this.context.clip();
  }

  free() {
    this.context.restore();
  }
}

/**
 * Adds the outline of a class's sign: circle, square, triangle, diamond.
 * @param {CanvasRenderingContext2D | Path2D} path
 * @param {number} kind
 * @param {number} x
 * @param {number} y
 * @param {number} r
 */
export function sign(path, kind, x, y, r) {
  if (kind === 0) {
    path.moveTo(x + r, y);
    path.arc(x, y, r, 0, 2 * Math.PI);
  } else if (kind === 1) {
    path.rect(x - 0.88 * r, y - 0.88 * r, 1.76 * r, 1.76 * r);
  } else {
    const [wide, up, down] =
      kind === 2 ? [1.15 * r, 1.2 * r, 0.85 * r] : [1.05 * r, 1.35 * r, 1.35 * r];
    path.moveTo(x, y - up);
    path.lineTo(x + wide, kind === 2 ? y + down : y);
    if (kind === 3) path.lineTo(x, y + down);
    path.lineTo(x - wide, kind === 2 ? y + down : y);
    path.closePath();
  }
}

/**
 * Draws the logit gaps of models in two rows below a plot, and the axis under them.
 * @param {Plot} plot
 * @param {Scale} x
 * @param {ArrayLike<number>} inside  of models that trained on the sample
 * @param {ArrayLike<number>} outside
 */
export function drawSides(plot, x, inside, outside) {
  const { context, frame } = plot;
  const { left, right, bottom } = frame;
  context.globalAlpha = inside.length > 40 ? 0.55 : 0.9;
  for (const gap of Array.from(inside)) plot.dot(x.clip(gap), bottom + 15, 4, "in");
  context.strokeStyle = plot.colour("out");
  context.lineWidth = 1.7;
  for (const gap of Array.from(outside))
    context.strokeRect(x.clip(gap) - 3.2, bottom + 28.8, 6.4, 6.4);
  context.globalAlpha = 1;
  plot.text("in", left - 10, bottom + 19, { colour: "in", align: "right", bold: true });
  plot.text("out", left - 10, bottom + 36, {
    colour: "out",
    align: "right",
    bold: true,
  });
  plot.line(
    [
      [left, bottom + 0.5],
      [right, bottom + 0.5],
    ],
    "line",
  );
  plot.frame = { ...frame, bottom: bottom + 44 };
  plot.lowerAxis(x, "logit gap");
  plot.frame = frame;
}

/* ---------------------------------------------------------------- controls */

/**
 * What a slider shows; `places` are its values, if they are not even.
 * @typedef {{name: string, help?: string, min?: number, max?: number, step?: number, places?: readonly number[], say: (value: number) => string}} SliderLook
 */

/**
 * A slider with its name and value.
 * @param {SliderLook & {move: (value: number) => void, rest: () => void}} how
 */
export function slider(how) {
  const { places } = how;
  const spoken = how.help ? `${how.name}: ${how.help}` : how.name; // whoever speaks to it says what is written beside it
  const input = html("input", {
    type: "range",
    class: "mw-slide",
    "aria-label": spoken,
  });
  setAttributes(input, {
    min: places ? 0 : (how.min ?? 0),
    max: places ? places.length - 1 : (how.max ?? 1),
    step: places ? 1 : (how.step ?? 0.01),
  });
  const output = html("output", { class: "mw-slide-value" });
  const element = html("label", { class: "mw-slide-box", title: how.help ?? null });
  element.append(html("span", { class: "mw-slide-name" }, how.name), input, output);
  /** @param {number} value */
  const say = (value) => {
    output.textContent = how.say(value);
    input.setAttribute("aria-valuetext", how.say(value));
  };
  let moving = false;
  input.addEventListener("input", () => {
    moving = true;
    const value = places ? places[Number(input.value)] : Number(input.value);
    say(value);
    how.move(value);
  });
  const rest = () => {
    if (moving) how.rest();
    moving = false;
  };
  input.addEventListener("change", rest);
  // a slider that was dragged away and back has no change
  for (const name of ["pointerup", "pointercancel", "blur"])
    input.addEventListener(name, () => setTimeout(rest));
  return {
    element,
    input,
    /** @param {number} value */
    show(value) {
      const place = places ? nearest(places, value) : value;
      if (Number(input.value) !== place) input.value = String(place);
      say(value);
    },
  };
}

/** @typedef {ReturnType<typeof slider>} Slider */

/**
 * Sliders of several settings.
 * @template {string} Name
 * @param {Record<Name, SliderLook>} looks
 * @param {(name: Name, value: number) => void} move
 * @param {(name: Name) => void} rest
 */
export function sliders(looks, move, rest) {
  const names = /** @type {Name[]} */ (Object.keys(looks));
  const made = names.map((name) =>
    slider({
      ...looks[name],
      move: (value) => move(name, value),
      rest: () => rest(name),
    }),
  );
  return {
    element: html(
      "div",
      { class: "mw-slides mw-span" },
      ...made.map(({ element }) => element),
    ),
    /** @param {Record<Name, number>} values */
    show: (values) => names.forEach((name, i) => made[i].show(values[name])),
  };
}

/** @template {string} Name @typedef {{element: HTMLElement, show: (values: Record<Name, number>) => void}} Sliders */

/**
 * @param {readonly number[]} places
 * @param {number} value
 */
function nearest(places, value) {
  let best = 0;
  places.forEach((place, i) => {
    if (Math.abs(place - value) < Math.abs(places[best] - value)) best = i;
  });
  return best;
}

/**
 * @param {string} name
 * @param {string} help
 * @param {() => void} action
 */
export function button(name, help, action) {
  const element = html(
    "button",
    { type: "button", class: "mw-button", title: help },
    name,
  );
  element.addEventListener("click", action);
  return element;
}

/**
 * A result with a line under it.
 * @param {string} name
 * @param {string} [help]
 */
export function tile(name, help) {
  const value = html("div", { class: "mw-fact-value" });
  const detail = html("div", { class: "mw-fact-detail" });
  const element = html("div", { class: "mw-fact", title: help ?? null });
  element.append(html("div", { class: "mw-fact-name" }, name), value, detail);
  return {
    element,
    /**
     * @param {string} text
     * @param {string} [under]
     */
    show(text, under) {
      if (value.textContent !== text) value.textContent = text;
      if (under !== undefined && detail.textContent !== under)
        detail.textContent = under;
    },
  };
}

/** @typedef {ReturnType<typeof tile>} Tile */

/**
 * @param {string} name
 * @param {Tile[]} tiles
 * @param {string} [kind]  more classes
 */
export function facts(name, tiles, kind = "") {
  return html(
    "div",
    { class: `mw-play-facts ${kind}`, role: "group", "aria-label": name },
    ...tiles.map(({ element }) => element),
  );
}

/**
 * A row of controls; of those under one name, the name comes first.
 * @param {string} name
 * @param {...HTMLElement} controls
 */
export function row(name, ...controls) {
  const [first, ...others] = controls;
  return html(
    "div",
    { class: "mw-row" },
    html("span", { class: "mw-labelled" }, name, first),
    ...others,
  );
}

/**
 * A plot with its heading.
 * @param {string} heading
 * @param {string} words
 * @param {...(Element | string)} children
 */
export function panel(heading, words, ...children) {
  const head = html(
    "div",
    { class: "mw-panel-head" },
    html("h4", { "aria-level": 3 }, heading),
  );
  if (words) head.append(html("span", { class: "mw-panel-words" }, words));
  return html("div", { class: "mw-panel" }, head, ...children);
}

/**
 * What a plot's signs mean.
 * @param {[string, string, string][]} entries  sign, colour, words
 */
export function legend(entries) {
  const element = html("div", { class: "mw-play-key" });
  for (const [mark, colour, words] of entries) {
    const of = html(
      "span",
      { class: `mw-play-key-sign mw-ink-${colour}`, "aria-hidden": "true" },
      mark,
    );
    element.append(html("span", {}, of, ` ${words}`));
  }
  return element;
}

/* ---------------------------------------------------------------- a view */

/**
 * Numbers as Python reads them.
 * @param {ArrayLike<number>} values
 */
export function packed(values) {
  return new DataView(Float64Array.from(values).buffer);
}

/**
 * Base class of the playgrounds: words, frames, themes, traits and the live region. `State`
 * has the traits that both sides share.
 * @template {object} State
 */
export class Playground {
  /**
   * @param {Model} model
   * @param {HTMLElement} el
   * @param {{name: string, title: string, words: string, tries: string[]}} about
   */
  constructor(model, el, about) {
    this.model = model;
    this.ears = listeners(model);
    this.root = root(el, "play", about.title, this.ears);
    hideStandIn(model, this.ears);
    this.root.classList.add(`mw-play-${about.name}`);
    /** @type {Plot[]} */
    this.plots = [];
    this.frame = 0;
    this.dragging = false;
    this.palette = paletteOf(this.root);
    this.spoken = html("p", { class: "mw-spoken", role: "status" });
    this.hint = html("p", { class: "mw-play-hint" });
    this.body = html("div", { class: "mw-play-body" });
    const tries = html("ul", { class: "mw-tries" });
    tries.append(...about.tries.map((words) => html("li", {}, words)));
    const details = html(
      "details",
      { class: "mw-try" },
      html("summary", {}, "Things to try"),
      tries,
    );
    const head = html(
      "header",
      { class: "mw-play-head" },
      html("h3", { "aria-level": 2 }, about.title), // no level of the page is left out
      html("p", {}, about.words),
    );
    this.root.append(head, this.body, this.hint, details, this.spoken);
  }

  /** Begins to listen. The subclass calls it when it is built. */
  start() {
    const stop = onWidth(this.root, (width) => {
      this.root.classList.toggle("mw-play-wide", width >= 880);
      for (const plot of this.plots) plot.fit();
      this.retheme(); // a view is built before it is on the page, where no colour is known
      this.later();
    });
    this.ears.later(stop);
    const retheme = () => {
      // styles of a theme may arrive after its name
      for (const wait of [0, 60, 300]) setTimeout(() => this.retheme(), wait);
    };
    onTheme(this.ears, retheme);
  }

  retheme() {
    const palette = paletteOf(this.root);
    if (JSON.stringify(palette) === JSON.stringify(this.palette)) return;
    this.palette = palette;
    this.later();
  }

  /** Draws once before the next frame, however often it is called. */
  later() {
    if (this.frame !== 0) return;
    this.frame = requestAnimationFrame(() => {
      // what is worked out while drawing is drawn at once, not in a second picture
      if (this.plots.every((plot) => plot.width > 0)) this.draw();
      this.frame = 0;
    });
  }

  draw() {}

  /**
   * Returns the model's value of a trait.
   * @template {keyof State & string} Name
   * @param {Name} name
   * @returns {State[Name]}
   */
  trait(name) {
    return this.model.get(name);
  }

  /**
   * Returns the model's values of traits.
   * @template {keyof State & string} Name
   * @param {readonly Name[]} names
   * @returns {Pick<State, Name>}
   */
  traits(names) {
    return /** @type {Pick<State, Name>} */ (
      Object.fromEntries(names.map((name) => [name, this.trait(name)]))
    );
  }

  /**
   * Listens to a trait.
   * @param {keyof State & string} name
   * @param {() => void} action
   */
  onTrait(name, action) {
    this.ears.onModel(`change:${name}`, action);
  }

  /**
   * Tells Python what was changed. A page without a kernel works all the same.
   * @param {Partial<State>} traits
   */
  commit(traits) {
    for (const [name, value] of Object.entries(traits)) this.model.set(name, value);
    tell(this.model);
    this.hint.textContent = "";
  }

  /**
   * Tells Python what the page computed.
   * @param {Record<string, unknown>} found
   */
  report(found) {
    this.model.set("_results", { ...found, at: performance.now() }); // equal results are sent again too
    tell(this.model);
  }

  /**
   * Follows the pointer on a plot from press to release.
   * @param {Plot} plot
   * @param {{press: (x: number, y: number, event: PointerEvent) => boolean, move: (x: number, y: number) => void, release: () => void}} how
   */
  drag(plot, how) {
    const { canvas } = plot;
    let mine = false;
    /** @type {(event: PointerEvent) => [number, number]} */
    const place = (event) => {
      const corner = canvas.getBoundingClientRect();
      return [event.clientX - corner.left, event.clientY - corner.top];
    };
    this.ears.on(canvas, "pointerdown", (event) => {
      if (event.button !== 0 || !how.press(...place(event), event)) return;
      event.preventDefault();
      canvas.focus({ preventScroll: true });
      canvas.setPointerCapture(event.pointerId);
      mine = this.dragging = true;
    });
    this.ears.on(canvas, "pointermove", (event) => {
      if (mine) how.move(...place(event));
    });
    const stop = () => {
      if (!mine) return;
      mine = this.dragging = false;
      how.release();
    };
    this.ears.on(canvas, "pointerup", stop);
    this.ears.on(canvas, "pointercancel", stop);
  }

  /** @param {string} words */
  speak(words) {
    if (this.spoken.textContent !== words) this.spoken.textContent = words;
  }

  destroy() {
    cancelAnimationFrame(this.frame);
    this.ears.clear();
    this.root.remove();
  }
}

/** Whether the reader asked the system for less motion. */
export function isStill() {
  return window.matchMedia("(prefers-reduced-motion: reduce)").matches;
}

/**
 * What a widget's module exports.
 * @param {new (model: Model, el: HTMLElement) => Playground<any>} View
 */
export function shown(View) {
  /** @param {{model: Model, el: HTMLElement}} context */
  const render = ({ model, el }) => {
    if (!html("canvas").getContext?.("2d")) {
      el.replaceChildren(
        html(
          "p",
          { role: "alert" },
          "This browser has no canvas, which draws the pictures of this playground. Open it in a current Firefox, Chrome, Edge or Safari.",
        ),
      );
      return () => el.replaceChildren();
    }
    const view = new View(model, el);
    return () => view.destroy();
  };
  return { render };
}
