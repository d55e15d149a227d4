/** The timeline of a dashboard: two losses, a tick for each checkpoint, and a slider that plays. */

import {
  bytesOf,
  focused,
  html,
  listeners,
  onWidth,
  setAttributes,
  svg,
  write,
} from "./dom.js";
import { Film } from "./film.js";
import { tell, whyUnheard } from "./kernel.js";
import {
  along,
  epochText,
  keyLeadsTo,
  nearestTo,
  nextPlayable,
  placesOf,
  speedOf,
  spokenMoment,
} from "./times.js";
import { BEST } from "./words.js";

/** @typedef {import("./dom.js").Model} Model */
/** @typedef {import("./messages.js").MomentShown} Moment */

export const EDGE = 9; // pixels between the ends of the line and those of its picture
const AHEAD = 8; // checkpoints whose scores are asked for at once
const REST = 160; // milliseconds after a key until it stands still
const PAUSE = 900; // milliseconds after a digit until an epoch is complete
const SETTLING = 220; // milliseconds in which moving samples form columns
const APART = 13; // pixels between two lines of text
export const HIGH = 48; // pixels, as in the style sheet
export const LINE = HIGH - 16; // where the ticks stand
const TOP = 10; // where the highest text stands

/** One view of the timeline. */
export class Timeline {
  /**
   * @param {Model} model
   * @param {HTMLElement} box  of all that waits while time moves
   * @param {Pick<import("./bar.js").Bar, "row" | "choose">} bar
   * @param {import("./explorer.js").Explorer} explorer
   */
  constructor(model, box, bar, explorer) {
    this.model = model;
    this.box = box;
    this.bar = bar;
    this.explorer = explorer;
    this.ears = listeners(model);
    this.film = new Film(explorer);
    /** What moves in the film's place where scores are compared. @type {import("./pairs.js").Pairs | null} */
    this.pairs = null;
    /** Hears where time is, from 0 to 1. @type {(place: number) => void} */
    this.onTime = () => {};
    /** @type {Moment[]} */
    this.moments = [];
    /** @type {number[]} */
    this.places = [];
    this.series = "";
    this.head = 0;
    this.playing = this.dragging = false;
    this.settled = 1;
    this.last = this.frame = 0;
    /** Where what is on the move comes from and goes to. */
    this.leg = { from: 0, to: 0, share: 0 };
    /** Checkpoints whose scores were asked for, and came or will not. @type {Set<string>} */
    this.asked = new Set();
    /** @type {Set<string>} */
    this.refused = new Set();
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    this.rest = undefined;
    /** Digits of an epoch so far. */
    this.typed = "";
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    this.pause = undefined;
    this.stopsAt = 0;
    this.ended = false;
    this.drawn = { moments: this.moments, width: 0 };
    this.gone = svg("line", { class: "mw-gone" });
    this.knob = svg("circle", { class: "mw-knob", r: 7 });

    this.root = html("section", { class: "mw-timeline", "aria-label": "Time" });
    bar.row.after(this.root); // what the bar says below it moves no tick
    /** For a hand; a keyboard has Space. */
    this.play = html("span", { class: "mw-plays", "aria-hidden": "true" });
    this.picture = svg("svg", { "aria-hidden": "true" });
    this.slider = html("div", {
      class: "mw-times",
      role: "slider",
      tabindex: 0,
      "aria-label": "checkpoint",
      "aria-keyshortcuts": "Space",
      "aria-description": "Space plays the training, and digits are an epoch to go to",
      title: "Arrow keys move it, Space plays; type an epoch",
    });
    this.slider.append(/** @type {any} */ (this.picture));
    this.epoch = html("b", { class: "mw-epoch" });
    this.why = html("span", { class: "mw-why" });
    const now = html("div", { class: "mw-now" }, this.epoch, this.why);
    this.root.append(this.play, this.slider, now);
    this.listen();
    this.load();
  }

  listen() {
    const { ears, slider, play } = this;
    ears.later(onWidth(slider, () => this.show()));
    ears.onModel("change:_timeline", () => this.load());
    ears.onModel("change:checkpoint", () => this.hear());
    ears.onModel("change:_data", () => this.arrive());
    for (const name of ["_truth", "eta_committed"])
      ears.onModel(`change:${name}`, () => this.askTruth());
    ears.onModel("msg:custom", (content, buffers) => this.receive(content, buffers));
    ears.on(play, "click", () => {
      slider.focus({ preventScroll: true });
      this.toggle();
    });
    ears.on(slider, "keydown", (event) => this.key(event));
    ears.on(slider, "pointerdown", (event) => this.grab(event));
    ears.on(slider, "pointermove", (event) => this.drag(event));
    for (const name of ["pointerup", "pointercancel"])
      ears.on(slider, name, () => this.drop());
    for (const part of [this.root, this.explorer.histogram.element])
      ears.on(part, "keydown", (event) => this.space(event));
  }

  /* ------------------------------------------------------------ what the kernel sends */

  load() {
    const { series, moments, ended } = this.model.get("_timeline") ?? {};
    const before = new Map(this.moments.map((moment) => [moment.value, moment.of]));
    this.moments = moments ?? [];
    this.ended = ended === true;
    this.places = placesOf(this.moments);
    const overwritten = this.moments.some(
      ({ value, of }) => before.has(value) && before.get(value) !== of,
    );
    if (series !== this.series || overwritten) this.forget();
    this.series = series ?? "";
    for (const { value, ready } of this.moments) if (!ready) this.asked.delete(value);
    this.root.hidden = this.moments.length < 2;
    if (this.leg.to >= this.moments.length) this.stop();
    if (!this.isHeld) this.head = this.chosen;
    this.show();
  }

  /** Forgets the scores, which are of something else now. */
  forget() {
    this.stop();
    this.asked.clear();
    this.refused.clear();
    this.film.clear();
    this.leave();
  }

  /**
   * @param {import("./messages.js").FromKernel} content
   * @param {DataView[]} buffers
   */
  receive(content, buffers) {
    if (content.type === "memorized") {
      const bits = buffers.length > 0 ? new Uint8Array(bytesOf(buffers[0])) : null;
      this.film.takeTruth(bits);
    }
    if (content.type !== "moment" || content.series !== this.series) return;
    if (content.problem !== "") this.refused.add(content.checkpoint);
    else {
      const all = buffers.map((one) => new Float32Array(bytesOf(one)));
      this.film.take(content.checkpoint, all);
    }
    if (this.dragging) this.draw();
  }

  /** The checkpoint is another one, because Python or the page has set it. */
  hear() {
    if (this.isHeld) return;
    this.head = this.chosen;
    this.show();
  }

  /** Other scores are on show: those of where the slider stands. */
  arrive() {
    if (this.playing || this.dragging || this.settled < 1) return;
    this.leave();
  }

  /** Whether time is where a hand or the play has put it, and not yet where the model is. */
  get isHeld() {
    return this.playing || this.dragging || this.rest !== undefined;
  }

  endRest() {
    clearTimeout(this.rest);
    this.rest = undefined;
  }

  get chosen() {
    const value = this.model.get("checkpoint");
    return Math.max(
      0,
      this.moments.findIndex((moment) => moment.value === value),
    );
  }

  /* ------------------------------------------------------------ scores that move */

  /** Where there are scores to play. */
  get playable() {
    return this.moments.map(({ value, ready }) => ready && !this.refused.has(value));
  }

  /**
   * Asks for the scores at the next checkpoints that are not there.
   * @param {number} from
   */
  ask(from) {
    const wanted = this.moments
      .slice(from, from + AHEAD)
      .filter(({ value, ready }) => ready && !this.asked.has(value))
      .map(({ value }) => value);
    if (wanted.length === 0) return;
    if (!tell(this.model, { type: "moments", checkpoints: wanted })) return;
    for (const value of wanted) this.asked.add(value);
  }

  /** Asks again who is memorised, because η was moved. */
  askTruth() {
    if (this.film.scores.size > 0)
      tell(this.model, { type: "moments", checkpoints: [] });
  }

  /** @param {number} i */
  has(i) {
    return this.film.scores.has(this.moments[i]?.value ?? "");
  }

  draw() {
    const { from, to, share } = this.leg;
    if (!this.has(from) || !this.has(to)) return;
    this.beginFilm();
    const [a, b] = [this.moments[from].value, this.moments[to].value];
    this.screen.draw(a, b, share, this.settled);
  }

  /** What samples move on. */
  get screen() {
    return this.pairs?.isOpen ? this.pairs : this.film;
  }

  beginFilm() {
    if (!this.screen.isShown) this.screen.begin();
  }

  toggle() {
    if (this.playing) {
      this.stop();
      return;
    }
    if (this.moments.some(({ ready }) => !ready)) tell(this.model, { type: "play" });
    if (this.canPlay) this.start();
  }

  start() {
    const { playable } = this;
    this.endRest();
    const star = this.moments.findIndex(({ star }) => star);
    const last = playable.lastIndexOf(true);
    const first = playable.indexOf(true);
    let from = Math.round(this.head);
    if (from >= last) from = first;
    if (matchMedia("(prefers-reduced-motion: reduce)").matches) {
      this.choose(from < star ? star : last);
      return;
    }
    if (!playable[from]) from = first;
    this.playing = true;
    this.settled = 0;
    this.stopsAt = from < star && playable[star] ? star : last;
    this.leg = { from, to: nextPlayable(playable, from), share: 0 };
    this.last = performance.now();
    this.box.classList.add("mw-moving");
    this.ask(0);
    this.ask(from);
    this.nextFrame();
  }

  nextFrame() {
    cancelAnimationFrame(this.frame);
    this.frame = requestAnimationFrame((now) => this.tick(now));
  }

  /** @param {number} now */
  tick(now) {
    const passed = Math.min(50, now - this.last) / 1000;
    this.last = now;
    if (this.playing) this.advance(passed);
    else this.settled = Math.min(1, this.settled + (1000 * passed) / SETTLING);
    this.draw();
    this.show();
    if (this.playing || this.settled < 1) this.nextFrame();
    else this.commit();
  }

  /** @param {number} seconds */
  advance(seconds) {
    const { leg, playable } = this;
    this.ask(leg.from);
    if (leg.to < 0 || this.refused.has(this.moments[leg.to].value))
      leg.to = nextPlayable(playable, leg.from);
    if (leg.to < 0) {
      this.stop();
      return;
    }
    if (!this.has(leg.from) || !this.has(leg.to)) return; // they are on their way
    this.beginFilm();
    leg.share += seconds * speedOf(playable.filter(Boolean).length);
    while (leg.share >= 1) {
      if (leg.to === this.stopsAt) {
        leg.share = 1;
        this.stop();
        break;
      }
      const next = nextPlayable(playable, leg.to);
      if (next < 0 || !this.has(next)) {
        leg.share = 1;
        break;
      }
      this.leg = { from: leg.to, to: next, share: leg.share - 1 };
      break;
    }
    const { from, to, share } = this.leg;
    this.head = from + (to - from) * share;
  }

  /** Stands still at the nearest checkpoint. */
  stop() {
    if (!this.playing) return;
    this.playing = false;
    const { from, to, share } = this.leg;
    const at = to >= 0 && share >= 0.5 ? to : from;
    this.head = Math.min(at, this.moments.length - 1);
    this.leg = { from: at, to: at, share: 0 };
    this.nextFrame();
  }

  /**
   * @param {number} i
   */
  choose(i) {
    this.playing = false;
    this.settled = 1;
    this.head = i;
    this.leg = { from: i, to: i, share: 0 };
    this.ask(i);
    this.box.classList.add("mw-moving");
    this.draw();
    this.show();
    this.endRest();
    if (!this.dragging) this.rest = setTimeout(() => this.commit(), REST);
  }

  /** Asks for all that is to be seen of where the slider stands. */
  commit() {
    this.endRest();
    this.settled = 1;
    const moment = this.moments[Math.round(this.head)];
    const here = this.model.get("checkpoint");
    const stays = moment === undefined || moment.value === here;
    if (stays || !this.has(this.moments.indexOf(moment))) this.leave(); // nothing moved there
    if (!stays) this.bar.choose("checkpoint", moment.value);
  }

  /** Shows what stands still. */
  leave() {
    this.box.classList.remove("mw-moving");
    for (const screen of [this.film, this.pairs]) if (screen?.isShown) screen.hide();
  }

  /* ------------------------------------------------------------ the slider */

  /** @param {KeyboardEvent} event */
  key(event) {
    const i = keyLeadsTo(event.key, Math.round(this.head), this.moments.length);
    if (event.ctrlKey || event.metaKey || event.altKey || !this.canChoose) return;
    if (i === null) {
      this.type(event);
      return;
    }
    event.preventDefault();
    this.choose(i);
  }

  /** @param {KeyboardEvent} event */
  space(event) {
    const { target } = event;
    if (event.key !== " " || !(target instanceof Element)) return;
    if (this.root.hidden || target.matches("button, input")) return;
    event.preventDefault();
    this.toggle();
  }

  get canPlay() {
    return this.canChoose && this.playable.filter(Boolean).length > 1;
  }

  get canChoose() {
    return whyUnheard(this.model) === "";
  }

  /** @param {PointerEvent} event */
  grab(event) {
    if (event.button !== 0 || !this.canChoose) return;
    this.slider.setPointerCapture(event.pointerId);
    this.dragging = true;
    this.follow(event);
  }

  /** @param {PointerEvent} event */
  drag(event) {
    if (this.dragging) this.follow(event);
  }

  /** @param {PointerEvent} event */
  follow(event) {
    const { left, width } = this.slider.getBoundingClientRect();
    const i = nearestTo(
      this.places,
      (event.clientX - left - EDGE) / (width - 2 * EDGE),
    );
    if (i !== this.head || this.playing) this.choose(i);
  }

  drop() {
    if (!this.dragging) return;
    this.dragging = false;
    this.commit();
  }

  /** Takes the digits of an epoch. @param {KeyboardEvent} event */
  type(event) {
    const { key } = event;
    if (key === "Enter") this.take();
    else if (key === "Escape") this.typed = "";
    else if (key === "Backspace") this.typed = this.typed.slice(0, -1);
    else if (/^[\d.,]$/.test(key)) this.typed += key.replace(",", ".");
    else return;
    event.preventDefault();
    clearTimeout(this.pause);
    if (this.typed !== "") this.pause = setTimeout(() => this.take(), PAUSE);
    this.show();
  }

  /** Goes to the checkpoint that is nearest to the epoch that was typed. */
  take() {
    clearTimeout(this.pause);
    const epoch = this.typed === "" ? NaN : Number(this.typed);
    this.typed = "";
    if (Number.isFinite(epoch)) {
      const epochs = this.moments.map((moment) => moment.epoch);
      this.choose(nearestTo(epochs, epoch));
      this.commit();
    } else this.show();
  }

  /* ------------------------------------------------------------ what there is to see */

  show() {
    const { moments, slider, play } = this;
    if (moments.length < 2 || slider.clientWidth === 0) return;
    const at = Math.min(moments.length - 1, Math.max(0, Math.round(this.head)));
    const moment = moments[at];
    const name = this.playing ? "pause" : "play the training";
    const title = this.canPlay ? `${name} (Space)` : "Two checkpoints must be scored";
    write(play, this.playing ? "❚❚" : "▶");
    setAttributes(play, { title });
    play.classList.toggle("mw-off", !this.canPlay);
    this.root.classList.toggle("mw-playing", this.playing);
    setAttributes(slider, {
      "aria-valuemin": 1,
      "aria-valuemax": moments.length,
      "aria-valuenow": at + 1,
      "aria-valuetext": spokenMoment(moments, at),
      "aria-disabled": this.canChoose ? null : "true",
    });
    write(this.epoch, `epoch ${this.typed || epochText(moment.epoch)}`);
    this.epoch.classList.toggle("mw-typed", this.typed !== "");
    write(this.why, `${moment.star ? "★ " : ""}${moment.why}`);
    this.drawLine();
  }

  drawLine() {
    const { moments, places, picture } = this;
    const width = this.slider.clientWidth;
    const x = (/** @type {number} */ place) => EDGE + place * (width - 2 * EDGE);
    if (this.drawn.moments !== moments || this.drawn.width !== width) {
      this.drawn = { moments, width };
      const star = `★ ${BEST}`;
      const { curves, ticks } = fixedParts(moments, places, this.ended, width, star);
      picture.replaceChildren(...curves, this.gone, ...ticks, this.knob);
      setAttributes(picture, { viewBox: `0 0 ${width} ${HIGH}` });
    }
    const place = along(places, this.head);
    const now = x(place);
    setAttributes(this.gone, { x1: x(0), x2: now, y1: LINE, y2: LINE });
    setAttributes(this.knob, { cx: now, cy: LINE });
    this.onTime(place);
  }

  destroy() {
    cancelAnimationFrame(this.frame);
    clearTimeout(this.rest);
    clearTimeout(this.pause);
    this.ears.clear();
    this.root.remove();
  }
}

/**
 * Where the names of two losses stand, each near the end of its line but a line of text apart.
 * @param {number} above  where the higher one would stand
 * @param {number} below
 */
function namesAt(above, below) {
  const upper = Math.max(TOP, Math.min(above, LINE - 4 - APART));
  return [upper, Math.max(below, upper + APART)];
}

/**
 * What stands still in the picture of a timeline: losses and names, and a tick for each checkpoint.
 * @param {Moment[]} moments
 * @param {number[]} places
 * @param {boolean} ended  whether the training has ended
 * @param {number} width
 * @param {string} starText  below the best time to predict
 */
export function fixedParts(moments, places, ended, width, starText) {
  const x = (/** @type {number} */ place) => EDGE + place * (width - 2 * EDGE);
  const losses = moments.flatMap(({ loss, held_out }) => [loss ?? 0, held_out ?? 0]);
  const most = Math.max(...losses, 1e-9);
  const y = (/** @type {number} */ loss) => LINE - 6 - (loss / most) * (LINE - 9);
  const points = (/** @type {"loss" | "held_out"} */ name) =>
    moments.flatMap((moment, i) => {
      const loss = moment[name];
      return loss === null ? [] : [[x(places[i]), y(loss)]];
    });
  const [training, held] = [points("loss"), points("held_out")];
  const curve = (/** @type {number[][]} */ found, /** @type {string} */ name) =>
    svg("polyline", {
      class: `mw-loss ${name}`,
      points: found.map((point) => point.map((one) => one.toFixed(1)).join()).join(" "),
    });
  const trainingEnd = (training.at(-1)?.[1] ?? LINE) - 4;
  const heldEnd = (held.at(-1)?.[1] ?? trainingEnd) - 4;
  const [trainingY, heldY] =
    held.length === 0
      ? [Math.max(TOP, trainingEnd), 0]
      : trainingEnd < heldEnd
        ? namesAt(trainingEnd, heldEnd)
        : namesAt(heldEnd, trainingEnd).reverse();
  const text = (/** @type {number} */ y, /** @type {string} */ words, kind = "") =>
    svg("text", { class: kind, x: width - EDGE, y, "text-anchor": "end" }, words);
  const radius = Math.max(1, Math.min(2.8, (width - 2 * EDGE) / moments.length / 2.6));
  const ticks = moments.map(({ computed }, i) =>
    svg("circle", {
      class: computed ? "mw-tick" : "mw-tick mw-hollow-tick",
      cx: x(places[i]).toFixed(1),
      cy: LINE,
      r: radius,
    }),
  );
  const star = moments.findIndex((moment) => moment.star);
  const starX = star < 0 ? 0 : x(places[star]);
  const starred =
    star < 0
      ? []
      : [
          svg("line", {
            class: "mw-star-line",
            x1: starX,
            x2: starX,
            y1: 4,
            y2: LINE,
          }),
          svg(
            "text",
            {
              class: "mw-star",
              x: Math.min(width - 78, Math.max(78, starX)),
              y: HIGH - 2,
              "text-anchor": "middle",
            },
            starText,
          ),
        ];
  const end =
    ended && star < moments.length - 1 && (star < 0 || width - starX > 190)
      ? [text(HIGH - 2, "end of training")]
      : [];
  const curves = [
    curve(held, "mw-held-out"),
    curve(training, "mw-training"),
    ...(held.length > 0 ? [text(heldY, "held-out loss")] : []),
    text(trainingY, "median training loss", "mw-named"),
    ...starred,
    ...end,
  ];
  return { curves, ticks };
}
