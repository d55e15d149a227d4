/** Answers the inspector as Python would, from the samples that the page holds. */

/** @typedef {import("../../widgets/static/messages.js").Item} Item */

/**
 * @typedef {object} Columns  one entry for each sample, the most at risk first
 * @property {number[]} positions
 * @property {number[]} scores
 * @property {number[]} decisions  places in `choices`
 * @property {number[]} [errors]
 * @property {(number | null)[]} [log_lira]
 * @property {number[]} [canaries]
 * @property {number[]} [right]  1 where the finished model gives the label
 * @property {([number, number] | null)[]} [support]  models that memorised it at `eta`, of those that trained on it
 */

/**
 * @typedef {object} Wire
 * @property {Columns} columns
 * @property {string} kind  "image", "text", "mcq", or "number" where no sample is shown
 * @property {string} [notice]
 * @property {Partial<Item>[] | null} items
 * @property {Uint8Array} [pixels]  of all items
 * @property {(number | null)[]} [labels]
 * @property {number} [eta]  at which `support` was counted
 * @property {string} score_name
 * @property {number} digits
 * @property {string[]} choices  decisions
 * @property {string[]} filters  that make sense here
 * @property {[string, string][]} sorts  that make sense here, with their labels
 */

/** @typedef {import("../../widgets/static/messages.js").FromPage} FromPage */
/** @typedef {import("../../widgets/static/messages.js").Shown} Shown */
/** @typedef {import("../../widgets/static/messages.js").FromKernel} FromKernel */
/** @typedef {import("../../widgets/static/messages.js").Page} Page */
/** @typedef {{content: FromKernel, buffers: ArrayBuffer[]}} Answer */

/** Nothing is decided here. */
const NO_DECISIONS = {
  choices: [],
  refused: {},
  classes: [],
  undo: 0,
  decided: 0,
  problem: "",
};
const REFUSED = "A report can't be changed: decide in the audit's own dashboard.";

export class Answers {
  /**
   * @param {Wire} wire
   * @param {() => {tau: number, eta: number, page_size: number}} standing  where τ and η are
   */
  constructor(wire, standing) {
    this.wire = wire;
    this.columns = wire.columns;
    this.pixels = wire.pixels ?? new Uint8Array(0);
    this.standing = standing;
    this.rows = this.columns.scores.map((_, row) => row);
    /** @type {Map<number, number>} */
    this.rowOf = new Map(
      this.columns.positions.map((position, row) => [position, row]),
    );
  }

  /**
   * @param {FromPage} asked
   * @returns {Answer | null}
   */
  answer(asked) {
    if (asked.type === "page") return this.page(asked);
    if (asked.type === "detail") return this.opened(asked);
    if (asked.type !== "decide" && asked.type !== "undo" && asked.type !== "export")
      return null;
    return {
      content: {
        type: "said",
        request: asked.request ?? null,
        done: false,
        text: REFUSED,
      },
      buffers: [],
    };
  }

  /** What can be decided here. @returns {import("../../widgets/static/messages.js").DecisionStatus} */
  get decisions() {
    return NO_DECISIONS;
  }

  /** Log-LiRA from which on a sample is memorised; null without ground truth. */
  eta() {
    return this.columns.log_lira ? this.standing().eta : null;
  }

  /**
   * Whether a sample is flagged at τ.
   * @param {number} row
   */
  flagged(row) {
    return this.columns.scores[row] <= this.standing().tau;
  }

  /**
   * Returns what a sample is at τ and η, in the words of the filters.
   * @param {number} row
   */
  status(row) {
    const { eta } = this.standing();
    const flagged = this.flagged(row);
    const logLira = this.columns.log_lira?.[row] ?? null;
    if (logLira === null) return flagged ? "flagged" : "left alone";
    if (logLira >= eta) return flagged ? "found" : "missed";
    return flagged ? "flagged only" : "left alone";
  }

  /**
   * Whether a score and τ are less than two standard errors apart.
   * @param {number} row
   */
  isClose(row) {
    const error = this.columns.errors?.[row] ?? 0;
    return Math.abs(this.columns.scores[row] - this.standing().tau) < 2 * error;
  }

  /**
   * @param {number} row
   * @param {string} filter
   */
  isIn(row, filter) {
    if (filter === "all") return true;
    if (filter === "flagged") return this.flagged(row);
    if (filter === "label looks wrong")
      return this.wire.items?.[row].looksWrong === true;
    if (filter === "on the line") return this.isClose(row);
    return this.status(row) === filter;
  }

  /**
   * Returns the rows whose text or class contains what is searched.
   * @param {Shown} asked
   */
  narrowed(asked) {
    const wanted = (asked.search ?? "").trim().toLowerCase();
    return this.rows.filter((row) => this.textOf(row).includes(wanted));
  }

  /** @param {number} row */
  textOf(row) {
    const item = this.wire.items?.[row];
    if (!item) return this.nameOf(row);
    const options = (item.options ?? []).map(({ text }) => text);
    const values = (item.values ?? []).map(({ name, value }) => `${name}: ${value}`);
    const words = [
      item.id ?? "",
      item.label ?? "",
      item.text ?? "",
      ...options,
      ...values,
    ];
    return words.join("\n").toLowerCase();
  }

  /** @param {number} row */
  nameOf(row) {
    return `member ${this.columns.positions[row]}`;
  }

  /** @param {number} row */
  decisionOf(row) {
    return this.wire.choices[this.columns.decisions[row]];
  }

  /**
   * Returns the rows of the filter, and those of them that are shown, in order.
   * @param {Shown} asked
   * @returns {{filtered: number[], found: number[]}}
   */
  found(asked) {
    const { filters, choices } = this.wire;
    const filter = filters.find((name) => name === asked.filter) ?? filters[0];
    const filtered = this.rows.filter((row) => this.isIn(row, filter));
    const decided = choices.includes(asked.decision ?? "");
    const narrowed = new Set(this.narrowed(asked));
    const found = filtered.filter(
      (row) =>
        narrowed.has(row) && (!decided || this.decisionOf(row) === asked.decision),
    );
    return { filtered, found: this.inOrder(found, asked.sort ?? "risk") };
  }

  /**
   * @param {number[]} rows
   * @param {string} sort
   */
  inOrder(rows, sort) {
    const { columns, wire } = this;
    const last = Infinity;
    /** @type {Record<string, (row: number) => number>} */
    const keys = {
      risk: (row) => columns.scores[row],
      safe: (row) => -columns.scores[row],
      "log-lira": (row) => -(columns.log_lira?.[row] ?? -last),
      disagreement: (row) => wire.items?.[row].labelProbability ?? last,
      label: (row) => wire.labels?.[row] ?? last,
      order: (row) => columns.positions[row],
    };
    const key = keys[sort] ?? keys.risk;
    return [...rows].sort((a, b) =>
      key(a) < key(b) ? -1 : key(a) > key(b) ? 1 : a - b,
    );
  }

  /**
   * @param {import("../../widgets/static/messages.js").AskPage} asked
   * @returns {Answer}
   */
  page(asked) {
    const { filtered, found } = this.found(asked);
    const size = this.standing().page_size;
    const pages = Math.max(1, Math.ceil(found.length / size));
    const page = Math.min(Math.max(0, asked.page), pages - 1);
    const chosen = found.slice(page * size, (page + 1) * size);
    const { items, buffers } = this.items(chosen);
    /** @type {Page} */
    const content = {
      type: "page",
      request: asked.request,
      page,
      pages,
      first: found.length > 0 ? page * size + 1 : 0,
      total: found.length,
      scoreName: this.wire.score_name,
      digits: this.wire.digits,
      eta: this.eta(),
      counts: Object.fromEntries(
        this.wire.filters.map((name) => [
          name,
          this.rows.filter((row) => this.isIn(row, name)).length,
        ]),
      ),
      items,
      kind: this.wire.kind,
      notice: this.wire.notice ?? "",
      sorts: this.wire.sorts,
      decisions: this.decisions,
      byDecision: Object.fromEntries(
        this.wire.choices.map((name) => [
          name,
          filtered.filter((row) => this.decisionOf(row) === name).length,
        ]),
      ),
    };
    return { content, buffers };
  }

  /**
   * @param {import("../../widgets/static/messages.js").AskDetail} asked
   * @returns {Answer}
   */
  opened(asked) {
    const row = this.rowOf.get(asked.position);
    const { request } = asked;
    if (row === undefined)
      return { content: { type: "opened", request, position: null }, buffers: [] };
    const { found } = this.found(asked);
    const at = found.indexOf(row);
    const { items, buffers } = this.items([row]);
    return {
      content: {
        type: "opened",
        request,
        position: asked.position,
        item: items[0],
        place: at < 0 ? null : { number: at + 1, total: found.length },
        more: false,
      },
      buffers,
    };
  }

  /**
   * Returns samples, with the pixels of all of them in one buffer.
   * @param {number[]} rows
   * @returns {{items: Item[], buffers: ArrayBuffer[]}}
   */
  items(rows) {
    const pieces = /** @type {Uint8Array[]} */ ([]);
    let size = 0;
    const items = rows.map((row) => {
      const item = this.item(row);
      if (!item.image) return item;
      const { offset, height, width, channels } = item.image;
      const length = height * width * channels;
      pieces.push(this.pixels.subarray(offset, offset + length));
      size += length;
      return { ...item, image: { ...item.image, offset: size - length } };
    });
    const pixels = new Uint8Array(size);
    let at = 0;
    for (const piece of pieces) {
      pixels.set(piece, at);
      at += piece.length;
    }
    return { items, buffers: size > 0 ? [pixels.buffer] : [] };
  }

  /**
   * @param {number} row
   * @returns {Item}
   */
  item(row) {
    const { columns } = this;
    const asCounted = this.standing().eta === this.wire.eta;
    const score = columns.scores[row];
    const error = columns.errors?.[row] ?? null;
    return {
      id: this.nameOf(row),
      label: "",
      to: "",
      guess: "",
      guessProbability: null,
      labelProbability: null,
      answer: -1,
      looksWrong: false,
      suggested: null,
      note: "",
      ...this.wire.items?.[row],
      position: columns.positions[row],
      status: this.status(row),
      score,
      error,
      uncertain: this.isClose(row),
      logLira: columns.log_lira?.[row] ?? null,
      right: columns.right ? columns.right[row] === 1 : null,
      support: asCounted ? (columns.support?.[row] ?? null) : null,
      decision: this.decisionOf(row),
      canary: columns.canaries?.[row] === 1,
    };
  }
}
