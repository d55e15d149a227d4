/** Decisions on a page without a kernel: they last as long as the page is open. No DOM. */

/** @typedef {import("../../widgets/static/messages.js").Decide} Decide */
/** @typedef {import("../../widgets/static/messages.js").DecisionStatus} DecisionStatus */
/** @typedef {{decision: string, to: string, note: string}} Made */

const UNDECIDED = { decision: "undecided", to: "", note: "" };
const LASTS =
  "Nothing is sent or stored: your decisions last until this page is closed.";
const NO_TEXT = "Only texts can be anonymised: keep, relabel or remove this sample.";
const DONE = /** @type {Record<string, string>} */ ({
  keep: "kept",
  anonymise: "to be anonymised",
  remove: "to be removed",
  undecided: "undecided",
});

/** What was decided on samples, by their positions. */
export class Decisions {
  /**
   * @param {string[]} choices  decisions that make sense here
   * @param {string[]} classes
   * @param {(position: number) => {id?: string, label?: string}} sampleAt
   */
  constructor(choices, classes, sampleAt) {
    this.choices = choices;
    this.classes = classes;
    this.sampleAt = sampleAt;
    /** @type {Map<number, Made>} */
    this.made = new Map();
    /** What each step replaced. @type {[number, Made][][]} */
    this.steps = [];
  }

  /** @param {number} position */
  of(position) {
    return this.made.get(position) ?? UNDECIDED;
  }

  /** @returns {DecisionStatus} */
  get status() {
    const decided = [...this.made.values()].filter(
      ({ decision }) => decision !== "undecided",
    );
    return {
      choices: this.choices,
      refused: this.choices.includes("anonymise") ? {} : { anonymise: NO_TEXT },
      classes: this.classes,
      undo: this.steps.length,
      decided: decided.length,
      problem: LASTS,
    };
  }

  /**
   * Decides, or writes a note, and says what was done.
   * @param {Decide} asked
   */
  decide({ positions, decision, note, to }) {
    const before = positions.map(
      (position) => /** @type {[number, Made]} */ ([position, this.of(position)]),
    );
    const name = to === undefined ? "" : this.classes[to];
    for (const [position, made] of before)
      this.made.set(position, {
        decision: decision ?? made.decision,
        to: decision === undefined ? made.to : name,
        note: note ?? made.note,
      });
    this.steps.push(before);
    if (decision === undefined) return "Note saved.";
    const done = DONE[decision] ?? `to be relabelled as ${name}`;
    if (positions.length > 1)
      return `${positions.length} samples changed: now ${done}.`;
    const { id, label } = this.sampleAt(positions[0]);
    return decision === "relabel" ? `${id}: ${label} → ${name}.` : `${id} is ${done}.`;
  }

  /** Takes the last step back, and says so. */
  undo() {
    const last = this.steps.pop();
    if (last === undefined) return "There is nothing to undo.";
    for (const [position, made] of last) this.made.set(position, made);
    return `Undone: ${last.length} ${last.length === 1 ? "sample" : "samples"}.`;
  }
}

/**
 * Lines of a CSV file.
 * @param {(string | number)[][]} rows
 */
export function csvOf(rows) {
  const cell = (/** @type {string | number} */ value) => {
    const text = String(value);
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return rows.map((row) => `${row.map(cell).join(",")}\n`).join("");
}
