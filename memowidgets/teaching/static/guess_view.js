/** Six notes before the end of training: the reader picks three, then time runs to its end and back. */

import {
  html,
  listeners,
  onWidth,
  root,
  setAttributes,
  svg,
  write,
} from "../../widgets/static/dom.js";
import { EDGE, fixedParts, HIGH, LINE } from "../../widgets/static/timeline.js";
import {
  along,
  epochText,
  keyLeadsTo,
  nearestTo,
  placesOf,
  spokenMoment,
} from "../../widgets/static/times.js";
import { whole } from "../../widgets/static/numbers.js";
import { Field } from "./field.js";

/** @typedef {import("../../widgets/static/messages.js").MomentShown} Moment */
/**
 * @typedef {object} Guess  samples are called by their places
 * @property {number[][]} sixes
 * @property {string[]} kinds
 * @property {number} found  memorised ones among PSMI's three, in the mean of all sixes
 * @property {number} models
 */
/**
 * @typedef {object} Story
 * @property {Guess} guess
 * @property {{text?: string, label?: string}[]} items
 * @property {Moment[]} moments
 * @property {Float32Array[]} scores  of all samples, at each moment
 * @property {boolean[]} memorized
 * @property {string} truly  how many of the memorised ones truly are
 */
/** @typedef {{letter: string, position: number, element: HTMLElement}} Card */

const PICKS = 3;
const SECONDS = 6.2; // that the training takes on the page
const LETTERS = "ABCDEF";
const HIDDEN =
  "Where they will stand, and your six among them, is hidden until you have picked.";
const DRIFTS =
  "Each dot moves as the model learns. Left of the line, what it has learned so far speaks against the label.";

/**
 * The three with the lowest score.
 * @template {{score: number}} Note
 * @param {Note[]} notes
 */
export const lowest = (notes) =>
  [...notes].sort((a, b) => a.score - b.score).slice(0, PICKS);

/** A share between 0 and 1. @param {number} value */
const share = (value) => Math.max(0, Math.min(1, value));

/**
 * Where time and dots are after a share of the whole: from the beginning to the star, where they
 * stand still; on to the end, where what was memorised rises; and back to the star.
 * @param {number} passed
 * @param {number} star
 * @param {number} end
 */
export function momentAfter(passed, star, end) {
  const onward = share((passed - 0.5) / 0.24);
  const back = share((passed - 0.88) / 0.07);
  const rests = share((passed - 0.34) / 0.05) * share((0.5 - passed) / 0.03);
  return {
    head:
      passed < 0.5
        ? star * share(passed / 0.34)
        : star + (end - star) * (onward - back),
    seen: share(passed / 0.07),
    settled: passed < 0.5 ? rests : share((passed - 0.95) / 0.05),
    truth: share((passed - 0.75) / 0.06),
  };
}

/** One view of the guess. */
export class GuessView {
  /**
   * @param {Story} story
   * @param {HTMLElement} el
   * @param {HTMLElement} onward  leads to all notes; shown after the first guess
   * @param {boolean} hands  whether a class guesses: three with the most hands are picked
   */
  constructor(story, el, onward, hands) {
    this.story = story;
    this.onward = onward;
    this.hands = hands;
    this.guesser = hands ? "the class" : "you";
    this.ears = listeners(/** @type {any} */ (null)); // a page of its own, without a kernel
    this.star = story.moments.findIndex(({ star }) => star);
    this.end = story.moments.length - 1;
    this.places = placesOf(story.moments);
    this.round = 0;
    this.all = { guesser: 0, rounds: 0 };
    /** @type {"pick" | "run" | "done"} */
    this.state = "pick";
    /** @type {Card[]} */
    this.cards = [];
    this.drawn = 0; // width of the picture of time
    this.section = root(el, "guess", "Which three will the model memorise?", this.ears);
    this.field = new Field(this.section, story.scores, story.memorized, this.ears);
    this.grid = html("div", {
      class: "mw-guess-notes",
      role: "group",
      "aria-label": "six notes",
    });
    this.go = html("button", { class: "mw-button mw-guess-go", type: "button" });
    this.picture = svg("svg", { "aria-hidden": "true" });
    this.gone = svg("line", { class: "mw-gone" });
    this.knob = svg("circle", { class: "mw-knob", r: 7, cy: LINE });
    this.slider = html("div", {
      class: "mw-times",
      role: "slider",
      "aria-label": "checkpoint",
      title: "Arrow keys move it",
    });
    this.slider.append(/** @type {any} */ (this.picture));
    this.epoch = html("b", { class: "mw-epoch" });
    this.why = html("span", { class: "mw-why" });
    this.result = html("div", { class: "mw-guess-result", role: "status" });
    this.stage = html(
      "div",
      { class: "mw-guess-stage" },
      html(
        "div",
        { class: "mw-guess-time" },
        this.slider,
        html("div", { class: "mw-guess-now" }, this.epoch, this.why),
      ),
      this.field.element,
      this.result,
    );
    this.section.append(this.lead(), this.grid, this.go, this.stage);
    this.listen();
    this.deal();
  }

  lead() {
    const { moments } = this.story;
    const done = Math.round((100 * moments[this.star].epoch) / moments[this.end].epoch);
    return html(
      "p",
      { class: "mw-guess-lead" },
      `A hospital trains a model that sends patients to a ward. Training is ${done} % done. ` +
        "Whoever holds a note that it memorises can tell that the patient was in its data. ",
      html("b", {}, "Pick the three that you would take out."),
    );
  }

  listen() {
    const { ears, slider } = this;
    ears.on(this.go, "click", () => this.act());
    ears.later(onWidth(slider, () => this.drawTime()));
    const follow = (/** @type {PointerEvent} */ event) => {
      const { left, width } = slider.getBoundingClientRect();
      const place = (event.clientX - left - EDGE) / (width - 2 * EDGE);
      this.stand(nearestTo(this.places, place));
    };
    ears.on(slider, "pointerdown", (event) => {
      if (this.state !== "done" || event.button !== 0) return;
      slider.setPointerCapture(event.pointerId);
      follow(event);
    });
    ears.on(slider, "pointermove", (event) => {
      if (slider.hasPointerCapture(event.pointerId)) follow(event);
    });
    ears.on(slider, "keydown", (event) => {
      const to = keyLeadsTo(event.key, Math.round(this.field.head), this.end + 1);
      if (to === null || this.state !== "done") return;
      event.preventDefault();
      this.stand(to);
    });
  }

  /* ------------------------------------------------------------ a round */

  /** Deals the next six. */
  deal() {
    const { sixes } = this.story.guess;
    const six = sixes[this.round % sixes.length];
    this.cards = six.map((position, i) => {
      const letter = LETTERS[i];
      const item = this.story.items[position];
      const element = this.hands ? countedCard(letter, item) : cardOf(letter, item);
      const pick = () => (this.hands ? this.grow() : this.pick(element));
      element.addEventListener(this.hands ? "input" : "click", pick);
      return { letter, position, element };
    });
    this.grid.replaceChildren(...this.cards.map(({ element }) => element));
    this.field.hide();
    this.field.head = this.star;
    this.be("pick");
  }

  /** @param {"pick" | "run" | "done"} state */
  be(state) {
    this.state = state;
    this.section.classList.toggle("mw-guess-picking", state === "pick");
    const isDone = state === "done";
    setAttributes(this.slider, {
      tabindex: isDone ? 0 : -1,
      "aria-disabled": isDone ? null : "true",
    });
    if (!isDone) {
      const said = html(
        "p",
        { class: "mw-guess-said" },
        state === "pick" ? HIDDEN : DRIFTS,
      );
      this.result.replaceChildren(said);
    }
    this.count();
    this.drawn = 0;
    this.draw();
  }

  get picked() {
    return this.hands ? mostHands(this.cards) : pressed(this.cards);
  }

  count() {
    const left = PICKS - this.picked.length;
    const many = left === PICKS ? "3 notes" : `${left} more`;
    const asks =
      left === 0 ? "▶ Run the training" : `${this.hands ? "Count" : "Pick"} ${many}`;
    const says = { pick: asks, run: "Training …", done: "Six other notes" };
    this.go.disabled = this.state === "run" || (this.state === "pick" && left > 0);
    write(this.go, says[this.state]);
  }

  grow() {
    const most = Math.max(1, ...this.cards.map(handsOf));
    for (const card of this.cards)
      card.element.style.setProperty("--mw-share", `${(100 * handsOf(card)) / most}%`);
    this.count();
  }

  /** @param {HTMLElement} card */
  pick(card) {
    if (this.state !== "pick") return;
    if (card.ariaPressed !== "true" && this.picked.length === PICKS) return;
    card.ariaPressed = String(card.ariaPressed !== "true");
    this.count();
  }

  act() {
    if (this.state === "pick") this.run();
    else {
      this.round += 1;
      this.deal();
      (this.grid.querySelector("input") ?? this.cards[0].element).focus();
    }
  }

  /** Runs the training before the reader's eyes. */
  run() {
    for (const { element } of this.cards)
      for (const one of [element, ...element.querySelectorAll("input")])
        one.toggleAttribute("disabled", true);
    const picked = this.picked;
    this.field.marks = this.cards.map((card) => ({
      position: card.position,
      letter: card.letter,
      picked: picked.includes(card),
    }));
    if (matchMedia("(prefers-reduced-motion: reduce)").matches) {
      this.finish();
      return;
    }
    this.be("run");
    this.stage.scrollIntoView({ block: "nearest" });
    const began = performance.now();
    const frame = () => {
      const passed = (performance.now() - began) / 1000 / SECONDS;
      if (passed >= 1) {
        this.finish();
        return;
      }
      const { head, ...shown } = momentAfter(passed, this.star, this.end);
      Object.assign(this.field, { head, shown });
      this.draw();
      requestAnimationFrame(frame);
    };
    requestAnimationFrame(frame);
  }

  /** Shows what is true, at the time of the guess. */
  finish() {
    const { head, ...shown } = momentAfter(1, this.star, this.end);
    Object.assign(this.field, { head, shown });
    const yours = this.picked;
    const psmi = lowest(
      this.cards.map((card) => ({
        card,
        score: this.story.scores[this.star][card.position],
      })),
    ).map(({ card }) => card);
    for (const card of this.cards)
      this.reveal(card, [
        yours.includes(card) ? this.guesser : "",
        psmi.includes(card) ? "PSMI" : "",
      ]);
    this.tell(this.memorisedIn(yours), this.memorisedIn(psmi));
    this.be("done");
    this.stage.scrollIntoView({ block: "nearest" }); // on a phone it is below the screen
  }

  /** @param {Card[]} cards */
  memorisedIn(cards) {
    return cards.filter(({ position }) => this.story.memorized[position]).length;
  }

  /**
   * @param {Card} card
   * @param {string[]} named  who picked it, or an empty text
   */
  reveal({ element, position }, named) {
    const isMemorised = this.story.memorized[position];
    element.classList.toggle("mw-guess-memorised", isMemorised);
    const verdict = html("b", {}, isMemorised ? "memorised" : "not memorised");
    const kind = ` · ${this.story.guess.kinds[position]}`;
    element.querySelector(".mw-guess-truth")?.append(verdict, kind);
    const who = named.filter(Boolean).join(" · ");
    if (who) element.append(html("span", { class: "mw-guess-who" }, who));
  }

  /**
   * @param {number} yours
   * @param {number} psmis
   */
  tell(yours, psmis) {
    const { all, field, star, story } = this;
    const { found, models, sixes } = story.guess;
    all.guesser += yours;
    all.rounds += 1;
    const so = all.rounds > 1 ? `${all.guesser} of ${PICKS * all.rounds} so far` : "";
    const n = whole(story.memorized.length);
    const memorized = story.memorized.filter(Boolean).length;
    const epoch = epochText(story.moments[star].epoch);
    this.result.replaceChildren(
      score(this.guesser, yours, so),
      score("PSMI", psmis, ""),
      html(
        "p",
        {},
        html("b", {}, "Nobody had to wait for the end. "),
        `At epoch ${epoch}, ${field.left(star)} of the ${n} notes stood left of the line, ` +
          `${field.found(star)} of the ${memorized} memorised among them. `,
        this.onward,
        html(
          "span",
          {},
          `Over ${sixes.length} such sixes: PSMI ${found.toFixed(1)} of 3, chance 1.5. ` +
            `By ${models} other models; ${story.truly}.`,
        ),
      ),
    );
  }

  /* ------------------------------------------------------------ time */

  /** Moves time to a checkpoint. @param {number} at */
  stand(at) {
    this.field.head = at;
    this.draw();
  }

  draw() {
    this.field.draw();
    this.drawTime();
  }

  drawTime() {
    const { slider, story, picture, places } = this;
    const width = slider.clientWidth;
    if (width === 0) return;
    const x = (/** @type {number} */ place) => EDGE + place * (width - 2 * EDGE);
    if (this.drawn !== width) {
      this.drawn = width;
      const star =
        this.state === "pick" ? "★ you are here" : `★ ${this.guesser} chose here`;
      const one = story.moments.map((moment) => ({ ...moment, held_out: null }));
      const { curves, ticks } = fixedParts(one, places, true, width, star);
      picture.replaceChildren(...curves, this.gone, ...ticks, this.knob);
      setAttributes(picture, { viewBox: `0 0 ${width} ${HIGH}` });
    }
    const { head } = this.field;
    const at = Math.round(head);
    const now = x(along(places, head));
    setAttributes(this.gone, { x1: x(0), x2: now, y1: LINE, y2: LINE });
    setAttributes(this.knob, { cx: now });
    setAttributes(slider, {
      "aria-valuemin": 1,
      "aria-valuemax": this.end + 1,
      "aria-valuenow": at + 1,
      "aria-valuetext": spokenMoment(story.moments, at),
    });
    write(this.epoch, `epoch ${epochText(story.moments[at].epoch)}`);
    write(this.why, story.moments[at].why);
  }
}

/**
 * @param {string} letter
 * @param {{text?: string, label?: string}} item
 */
function partsOf(letter, { text = "", label = "" }) {
  return [
    html("em", { "aria-hidden": "true" }, letter),
    html("span", {}, text),
    html("span", { class: "mw-guess-ward" }, "sent to ", html("b", {}, label)),
    html("span", { class: "mw-guess-truth" }),
  ];
}

/**
 * @param {string} letter
 * @param {{text?: string, label?: string}} item
 */
function cardOf(letter, item) {
  return html(
    "button",
    { class: "mw-guess-note", type: "button", "aria-pressed": "false" },
    ...partsOf(letter, item),
  );
}

/**
 * @param {string} letter
 * @param {{text?: string, label?: string}} item
 */
function countedCard(letter, item) {
  const field = html("input", {
    type: "number",
    min: 0,
    max: 999,
    "aria-label": `hands for: ${item.text}`,
  });
  return html(
    "div",
    { class: "mw-guess-note" },
    ...partsOf(letter, item),
    html("span", { class: "mw-guess-hands" }, field, " hands", html("i")),
  );
}

/** @param {Card} card */
const handsOf = ({ element }) =>
  Math.max(0, Number(element.querySelector("input")?.value) || 0);

/** @param {Card[]} cards */
const pressed = (cards) =>
  cards.filter(({ element }) => element.ariaPressed === "true");

/**
 * The three notes with the most hands; of equal ones the first.
 * @param {Card[]} cards
 */
const mostHands = (cards) =>
  cards
    .filter((card) => handsOf(card) > 0)
    .sort((a, b) => handsOf(b) - handsOf(a))
    .slice(0, PICKS);

/**
 * @param {string} who
 * @param {number} found
 * @param {string} so
 */
function score(who, found, so) {
  return html(
    "div",
    {},
    html("span", {}, who),
    html("b", {}, `${found} of ${PICKS}`),
    html("span", {}, so),
  );
}
