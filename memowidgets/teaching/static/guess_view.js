/** Six notes before the end of training: the reader picks three, and then time goes on. */

import { html, listeners, root } from "../../widgets/static/dom.js";

/** @typedef {{text: string, label: string, kind: string, score: number, memorised: boolean}} Note */
/**
 * @typedef {object} Guess
 * @property {Note[]} notes
 * @property {number[][]} sixes  places among the notes
 * @property {number} found  memorised ones among PSMI's three, in the mean of all sixes
 * @property {[number, number]} epochs  now, and the last one
 * @property {number} models
 * @property {number} samples
 */

const PICKS = 3;
const INVENTED = "The patients are invented. Nothing you do here leaves this page.";

/**
 * The three with the lowest score.
 * @param {Note[]} notes
 */
export const lowest = (notes) =>
  [...notes].sort((a, b) => a.score - b.score).slice(0, PICKS);

/** @param {Note[]} notes */
export const memorisedIn = (notes) => notes.filter((note) => note.memorised).length;

/**
 * Shows the sixes one after the other.
 * @param {Guess} content
 * @param {HTMLElement} el
 * @param {HTMLElement} onward  leads to all notes; shown after the first guess
 * @param {boolean} [hands]  whether a class guesses: three with the most hands are picked
 */
export function showGuess(content, el, onward, hands = false) {
  const ears = listeners(/** @type {any} */ (null)); // a page of its own, without a kernel
  const section = root(el, "guess", "Which three will the model memorise?", ears);
  const [now, last] = content.epochs;
  const here = html("span", {}, "you are here");
  const grid = html("div", { class: "mw-guess-notes" });
  const go = html("button", { class: "mw-button mw-guess-go", type: "button" });
  const said = html("p", { class: "mw-guess-said" });
  const result = html("div", { class: "mw-guess-result", role: "status" });
  const all = { you: 0, rounds: 0 };
  let round = 0;
  const guesser = hands ? "the class" : "you";
  /** @type {Map<HTMLElement, Note>} */
  let cards = new Map();

  const picked = () =>
    (hands ? mostHands([...cards]) : pressed([...cards])).map(([, note]) => note);

  const count = () => {
    const left = PICKS - picked().length;
    go.disabled = left > 0;
    go.textContent =
      left === 0
        ? "Finish the training"
        : left === PICKS
          ? `${hands ? "Count" : "Pick"} 3 notes`
          : `${left} more`;
  };

  const deal = () => {
    const notes = content.sixes[round % content.sixes.length].map(
      (place) => content.notes[place],
    );
    cards = new Map(
      notes.map((note) => [hands ? countedCard(note) : cardOf(note), note]),
    );
    for (const card of cards.keys())
      card.addEventListener(hands ? "input" : "click", () =>
        hands ? grow() : pick(card),
      );
    grid.replaceChildren(...cards.keys());
    section.classList.remove("mw-guess-over");
    here.textContent = "you are here";
    said.textContent = INVENTED;
    result.replaceChildren();
    count();
  };

  const grow = () => {
    const most = Math.max(1, ...[...cards.keys()].map(handsOf));
    for (const card of cards.keys())
      card.style.setProperty("--mw-share", `${(100 * handsOf(card)) / most}%`);
    count();
  };

  const pick = (/** @type {HTMLElement} */ card) => {
    if (card.ariaPressed !== "true" && picked().length === PICKS) return;
    card.ariaPressed = String(card.ariaPressed !== "true");
    count();
  };

  const finish = () => {
    const [yours, psmi] = [picked(), lowest([...cards.values()])];
    for (const [card, note] of cards)
      reveal(
        card,
        note,
        yours.includes(note) ? guesser : "",
        psmi.includes(note) ? "PSMI" : "",
      );
    section.classList.add("mw-guess-over");
    here.textContent = `${guesser} and PSMI chose here`;
    go.textContent = "Six other notes";
    said.textContent = `${content.models} other models, trained with and without each note, say which were memorised.`;
    all.you += memorisedIn(yours);
    all.rounds += 1;
    result.replaceChildren(
      score(
        guesser,
        memorisedIn(yours),
        all.rounds > 1 ? `${all.you} of ${PICKS * all.rounds} so far` : "",
      ),
      score(`PSMI, our score, at epoch ${now}`, memorisedIn(psmi), ""),
      html(
        "p",
        {},
        html("b", {}, "Nobody had to wait for the end. "),
        "PSMI picked its three when you did: it asks whether a note agrees with its label. Over " +
          `${content.sixes.length} such sixes it finds ${content.found.toFixed(1)} of 3, and chance 1.5. `,
        onward,
      ),
    );
    result.scrollIntoView({ block: "nearest" }); // on a phone it is below the screen
  };

  go.addEventListener("click", () => {
    if (!section.classList.contains("mw-guess-over")) return finish();
    round += 1;
    deal();
    (grid.querySelector("input") ?? [...cards.keys()][0]).focus();
  });
  section.append(
    html(
      "p",
      { class: "mw-guess-lead" },
      `A hospital is training a model to send patients to a ward. It is ${Math.round((100 * now) / last)} % through. ` +
        "Whoever holds a note that it memorises can find out that this patient was in the data. ",
      html("b", {}, "Which three would you take out now?"),
    ),
    timeline(now, last, here),
    grid,
    html("div", { class: "mw-guess-act" }, go, said),
    result,
  );
  deal();
}

/** @param {Note} note */
function cardOf({ text, label }) {
  return html(
    "button",
    { class: "mw-guess-note", type: "button", "aria-pressed": "false" },
    html("span", {}, text),
    html("span", { class: "mw-guess-ward" }, "sent to ", html("b", {}, label)),
  );
}

/** @param {Note} note */
function countedCard({ text, label }) {
  const field = html("input", {
    type: "number",
    min: 0,
    max: 999,
    "aria-label": `hands for: ${text}`,
  });
  return html(
    "div",
    { class: "mw-guess-note" },
    html("span", {}, text),
    html("span", { class: "mw-guess-ward" }, "sent to ", html("b", {}, label)),
    html("span", { class: "mw-guess-hands" }, field, " hands", html("i")),
  );
}

/** @param {HTMLElement} card */
const handsOf = (card) => Math.max(0, Number(card.querySelector("input")?.value) || 0);

/** @typedef {[HTMLElement, Note][]} Cards */

/** @param {Cards} cards */
const pressed = (cards) => cards.filter(([card]) => card.ariaPressed === "true");

/**
 * The three notes with the most hands; of equal ones the first.
 * @param {Cards} cards
 */
const mostHands = (cards) =>
  cards
    .filter(([card]) => handsOf(card) > 0)
    .sort(([a], [b]) => handsOf(b) - handsOf(a))
    .slice(0, PICKS);

/**
 * @param {HTMLElement} card
 * @param {Note} note
 * @param {...string} named  who picked it, or an empty text
 */
function reveal(card, { kind, memorised }, ...named) {
  for (const one of [card, ...card.querySelectorAll("input")])
    one.toggleAttribute("disabled", true);
  card.classList.toggle("mw-guess-memorised", memorised);
  card.append(
    html(
      "span",
      { class: "mw-guess-truth" },
      `${memorised ? "★ memorised" : "not memorised"} · ${kind}`,
    ),
  );
  const who = named.filter(Boolean).join(" · ");
  if (who) card.append(html("span", { class: "mw-guess-who" }, who));
}

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

/**
 * @param {number} now
 * @param {number} last
 * @param {HTMLElement} here  words at the present epoch
 */
function timeline(now, last, here) {
  const place = html(
    "span",
    { class: "mw-guess-here" },
    here,
    html("b", {}, `epoch ${now}`),
  );
  const bar = html("span", { class: "mw-guess-bar" }, html("i"));
  for (const part of [place, bar])
    part.style.setProperty("--mw-share", `${(100 * now) / last}%`);
  return html(
    "div",
    {
      class: "mw-guess-time",
      role: "img",
      "aria-label": `Training: now at epoch ${now} of ${last}`,
    },
    bar,
    place,
    html(
      "span",
      { class: "mw-guess-end" },
      "training ends",
      html("b", {}, `epoch ${last}`),
    ),
  );
}
