/** Samples on their way between two checkpoints, each at its ranks by two compared scores. */

import { ranksOf } from "./times.js";

/** @typedef {import("./compare.js").Compare} Compare */
/** @typedef {import("./film.js").Film} Film */

/** What is drawn in the film's place while scores are compared. */
export class Pairs {
  /**
   * @param {Compare} compare
   * @param {Film} film  which has the scores
   */
  constructor(compare, film) {
    this.compare = compare;
    this.film = film;
    this.isShown = false;
    /** The ranks of the first two scores at a checkpoint. @type {Map<string, Float32Array[]>} */
    this.ranks = new Map();
  }

  get isOpen() {
    return !this.compare.root.hidden && this.compare.scores.length > 0;
  }

  begin() {
    this.isShown = true;
    this.ranks.clear();
  }

  hide() {
    this.isShown = false;
    this.compare.standStill();
  }

  /** @param {string} checkpoint */
  ranksAt(checkpoint) {
    const known = this.ranks.get(checkpoint);
    if (known !== undefined) return known;
    const { scores, others } = this.film;
    const first = scores.get(checkpoint) ?? new Float32Array(0);
    const [second = first] = others.get(checkpoint) ?? [];
    const hasBoth = first.map((score, i) => (Number.isNaN(second[i]) ? NaN : score));
    const beside = second.map((score, i) => (Number.isNaN(first[i]) ? NaN : score));
    const found = [ranksOf(hasBoth), ranksOf(beside)];
    this.ranks.set(checkpoint, found);
    return found;
  }

  /**
   * @param {string} from
   * @param {string} to
   * @param {number} share  of the way
   */
  draw(from, to, share) {
    const [before, after] = [this.ranksAt(from), this.ranksAt(to)];
    const between = before.map((ranks, i) =>
      ranks.map((rank, j) => rank + (after[i][j] - rank) * share),
    );
    const { known, kinds } = this.film;
    this.compare.drawRanks(between, known ? kinds : null);
  }
}
