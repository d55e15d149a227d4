/** Two scores, or three, at one budget: rank against rank, whom each flags and finds, and their ROCs over each other. */

import { PICKS } from "./bar.js";
import { bytesOf, html, listeners, onTheme, onWidth, root, setAttributes, svg, tell, write } from "./dom.js";
import { countsAt, countUpTo, makeScores, tauAtRank } from "./maths.js";
import { estimateText, whole } from "./numbers.js";
import { RocPlot } from "./plots.js";
import { unpackBits } from "./wire.js";
import { TIED } from "./words.js";

/** @typedef {import("./messages.js").Pick} Pick */
/** @typedef {import("./maths.js").Scores} Scores */

const PARTS = [[true, true], [true, false], [false, true], [false, false]];
const MANY = 5000; // samples of which each is a few pixels
const MOST_MARKS = 40;
const [LEFT, TOP, BELOW] = [22, 18, 34]; // pixels around the ranks

/** The panel that takes the place of plots and list. */
export class Compare {
  /**
   * @param {import("./dom.js").Model} model
   * @param {HTMLElement} el
   * @param {import("./bar.js").Bar} bar
   * @param {import("./explorer.js").Explorer} explorer
   * @param {(part: import("./messages.js").Part, name: string) => void} list  shows the samples of a part
   */
  constructor(model, el, bar, explorer, list) {
    this.model = model;
    this.box = el;
    this.bar = bar;
    this.explorer = explorer;
    this.onList = list;
    this.ears = listeners(model);
    this.budget = 0;
    /** Ranks of each score, sample by sample. @type {Uint32Array[]} */
    this.ranks = [];
    /** @type {Uint32Array | null} */
    this.memorized = null;
    /** @type {Scores[]} */
    this.scores = [];
    /** @type {string[]} */
    this.names = [];
    /** @type {Pick[]} */
    this.last = [];
    this.button = html("button", { type: "button", class: "mw-button mw-compare-button" }, "Compare");
    this.root = root(el, "compare", "Compare scores", this.ears);
    this.first = html("b");
    this.selects = ["second score", "third score"].map((name) => html("select", { class: "mw-select", "aria-label": name }));
    const [swap, close] = [["Swap", "swap"], ["✕", "close"]].map(([text, label]) => html("button", { type: "button", class: "mw-button", "aria-label": label }, text));
    this.slider = html("input", { type: "range", class: "mw-slider", min: 1, step: 1, "aria-label": "how many samples to look at" });
    this.says = html("span", { class: "mw-budget" });
    this.canvas = html("canvas", { role: "img" });
    this.over = svg("svg", { class: "mw-ranks-over", "aria-hidden": "true" });
    this.parts = html("table", { class: "mw-parts" });
    this.said = html("p", { role: "status" });
    this.roc = new RocPlot();
    this.curves = svg("g");
    this.roc.element.append(this.curves);
    this.areas = html("table", { class: "mw-areas" });
    const head = html("div", { class: "mw-row" }, this.first, "or", this.selects[0], this.selects[1], html("span", { class: "mw-gap" }), swap, close);
    const budget = html("label", { class: "mw-row mw-budget-row" }, "look at", this.slider, this.says);
    this.plot = html("div", { class: "mw-ranks" }, this.canvas, this.over);
    const beside = html("div", {}, this.parts, this.said, this.roc.element);
    this.root.append(head, budget, html("div", { class: "mw-compare-body" }, html("div", {}, this.plot, this.areas), beside));
    this.ears.on(this.button, "click", () => this.compare(this.isOpen ? [] : this.last.length > 0 ? this.last : [model.get("_beside")]));
    this.ears.on(close, "click", () => this.compare([]));
    this.ears.on(swap, "click", () => {
      const [other] = model.get("comparing");
      for (const name of PICKS) if (other[name] !== model.get(name)) bar.choose(name, other[name]);
    });
    this.ears.on(this.root, "keydown", (event) => {
      if (event.key === "Escape") this.compare([]);
    });
    for (const select of this.selects) {
      this.ears.on(select, "change", () => this.compare(this.selects.flatMap(({ value }) => value && JSON.parse(value) || [])));
    }
    this.ears.on(this.slider, "input", () => {
      this.budget = Number(this.slider.value);
      this.move();
    });
    this.ears.on(this.slider, "change", () => {
      const { scores } = explorer;
      explorer.choose(tauAtRank(scores, countUpTo(scores.flaggedUpTo, this.budget)), false);
    });
    for (const name of ["comparing", "_compared", "_data", "_truth", "_beside", "_choices"]) this.ears.onModel(`change:${name}`, () => this.show());
    this.size = onWidth(this.root, () => this.draw());
    this.ears.later(this.size.stop);
    onTheme(this.ears, () => requestAnimationFrame(() => this.draw()));
    this.show();
  }

  get isOpen() {
    return this.model.get("comparing").length > 0;
  }

  /** @param {Pick[]} picks  none closes the panel */
  compare(picks) {
    if (picks.length === 0) this.button.focus();
    this.model.set("comparing", picks);
    tell(this.model);
  }

  show() {
    const { model, isOpen } = this;
    const picks = /** @type {Pick[]} */ (model.get("comparing"));
    this.button.hidden = model.get("_beside")?.metric === undefined;
    this.button.setAttribute("aria-expanded", String(isOpen));
    if (isOpen && this.root.hidden) this.budget = Math.max(1, this.explorer.counted().flagged);
    this.root.hidden = !isOpen;
    this.box.classList.toggle("mw-comparing", isOpen);
    if (!isOpen) return;
    this.last = picks;
    this.selects.forEach((select, i) => this.fill(select, i === 0, picks[i]));
    const wire = /** @type {import("./messages.js").Compared} */ (model.get("_compared"));
    const { version, eta } = model.get("_truth");
    const fits = wire.version === version && wire.eta === eta && wire.names.length === picks.length + 1;
    this.root.classList.toggle("mw-unanswered", !fits);
    if (fits) this.take(wire);
  }

  /**
   * Offers what differs from the score on show in one thing.
   * @param {HTMLSelectElement} select
   * @param {boolean} needed
   * @param {Pick | undefined} chosen
   */
  fill(select, needed, chosen) {
    const here = Object.fromEntries(PICKS.map((name) => [name, this.model.get(name)]));
    const spelled = (/** @type {any} */ pick) => JSON.stringify(PICKS.map((name) => [name, pick[name]]));
    const groups = [...PICKS].reverse().map((name) => {
      const group = html("optgroup", { label: `another ${name}` });
      for (const { value, label } of this.model.get("_choices")[`${name}s`]) {
        if (value !== here[name] && (name !== "layer" || this.bar.byLayer.has(here.metric))) group.append(new Option(label, JSON.stringify({ ...here, [name]: value })));
      }
      return group;
    });
    select.replaceChildren(...(needed ? [] : [new Option("a third …", "")]), ...groups.filter((group) => group.childElementCount > 0));
    const mine = [...select.options].find(({ value }) => value !== "" && chosen !== undefined && spelled(JSON.parse(value)) === spelled(chosen));
    select.value = mine?.value ?? "";
  }

  /** @param {import("./messages.js").Compared} wire */
  take(wire) {
    this.names = wire.names;
    this.ranks = wire.ranks.map((bytes) => new Uint32Array(bytesOf(bytes)));
    this.memorized = wire.bits === null ? null : unpackBits(new Uint8Array(bytesOf(wire.bits)), wire.n);
    this.scores = this.ranks.map((ranks) => scoresOf(ranks, this.memorized));
    write(this.first, wire.names[0]);
    write(this.said, wire.said || this.explorer.noRoc.textContent || "");
    this.truly = wire.truly;
    this.areas.replaceChildren(...wire.areas.map(areaRow));
    setAttributes(this.roc.element, { hidden: wire.areas.length === 0 });
    this.budget = Math.min(this.budget, wire.n);
    this.slider.max = String(wire.n);
    this.draw();
  }

  draw() {
    if (this.scores.length === 0 || this.plot.clientWidth === 0) return;
    this.side = Math.min(this.plot.clientWidth - LEFT - 8, 360);
    this.drawRanks();
    if (this.roc.element.clientWidth > 0) this.roc.draw(this.scores[0], null, false);
    this.move();
  }

  /** @param {number} rank */
  place(rank) {
    return Math.sqrt(rank / this.scores[0].n) * this.side;
  }

  /** Draws each sample at its two ranks, memorised ones last and larger. */
  drawRanks() {
    const { canvas, side, memorized } = this;
    const [width, height, dots] = [LEFT + side + 8, TOP + side + BELOW, devicePixelRatio || 1];
    Object.assign(canvas, { width: width * dots, height: height * dots });
    for (const element of [canvas, this.over]) Object.assign(element.style, { width: `${width}px`, height: `${height}px` });
    const pen = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
    const colours = getComputedStyle(this.root);
    const [xs, ys] = this.ranks;
    pen.scale(dots, dots);
    for (const which of [0, 1]) {
      const size = xs.length > MANY ? 1.5 + which : 4.4 + 4 * which;
      pen.fillStyle = colours.getPropertyValue(which === 1 ? "--mw-risk" : "--mw-other");
      pen.strokeStyle = colours.getPropertyValue("--mw-bg");
      for (let i = 0; i < xs.length; i++) {
        if ((memorized?.[i] ?? 0) !== which) continue;
        const [x, y] = [LEFT + this.place(xs[i]), TOP + side - this.place(ys[i])];
        if (xs.length > MANY) {
          pen.fillRect(x - size / 2, y - size / 2, size, size);
          continue;
        }
        pen.beginPath();
        pen.arc(x, y, size / 2, 0, 7);
        pen.fill();
        if (which === 1) pen.stroke();
      }
    }
  }

  /** Moves the budget: its lines, its point on each curve, and what is counted. */
  move() {
    const { budget, names, side, slider } = this;
    const { n, memorized } = this.scores[0];
    const counts = this.scores.map((scores) => countsAt(scores, budget));
    slider.value = String(budget);
    const said = `${whole(budget)} of ${whole(n)}`;
    slider.setAttribute("aria-valuetext", said);
    const tied = names.filter((_, i) => counts[i].flagged < budget).map((name) => name);
    const parts = PARTS.map((flagged) => ({ flagged, name: partName(flagged, names), ...this.count(flagged) }));
    write(this.says, `${said}${names.length === 2 ? `; both flag ${whole(parts[0].n)}` : ""}${tied.length > 0 ? `. ${TIED}` : ""}`);
    const rows = parts.map((part) => this.partRow(part));
    const heads = ["flagged by", "samples", ...(this.memorized === null ? [] : ["memorised"])];
    const sums = [names.join(" / "), counts.map(({ flagged }) => whole(flagged)).join(" / ")];
    if (this.memorized !== null) sums.push(`${counts.map(({ found }) => whole(found)).join(" / ")} of ${whole(memorized)}${this.truly ? ` (${this.truly})` : ""}`);
    this.parts.replaceChildren(row("th", heads), ...rows, row("td", sums));
    const [at, end] = [LEFT + this.place(budget), TOP + side];
    const line = TOP + side - this.place(budget);
    const text = (/** @type {string} */ words, /** @type {number} */ x, /** @type {number} */ y, anchor = "start", more = {}) => svg("text", { x, y, "text-anchor": anchor, ...more }, words);
    this.over.replaceChildren(
      svg("rect", { class: "mw-both", x: LEFT, y: line, width: at - LEFT, height: end - line }),
      svg("rect", { class: "mw-one", x: LEFT, y: TOP, width: at - LEFT, height: line - TOP }),
      svg("rect", { class: "mw-one", x: at, y: line, width: LEFT + side - at, height: end - line }),
      svg("path", { d: `M${at} ${TOP}V${end}M${LEFT} ${line}H${LEFT + side}` }),
      text(parts[1].name, LEFT + 5, TOP + 14, "start", { class: "mw-part-name" }),
      text("both", LEFT + 5, end - 6, "start", { class: "mw-part-name" }),
      text(parts[2].name, LEFT + side - 4, end - 6, "end", { class: "mw-part-name" }),
      text("neither ↓", LEFT + side, TOP - 5, "end"),
      text(whole(budget), at, end + 14, "middle"),
      text(`rank by ${names[0]} (1 = most at risk)`, LEFT + side / 2, end + 29, "middle"),
      text(`rank by ${names[1]}`, 0, 0, "middle", { transform: `translate(12 ${TOP + side / 2}) rotate(-90)` }),
    );
    this.canvas.setAttribute("aria-label", `each sample by its ranks; ${parts.map((part) => `${part.name}: ${whole(part.n)}`).join(", ")}`);
    if (this.roc.element.clientWidth > 0) this.moveCurves(counts);
  }

  /** @param {import("./maths.js").Counts[]} counts */
  moveCurves(counts) {
    const { roc, names } = this;
    const { n, memorized } = this.scores[0];
    roc.move(counts[0].flaggedOnly / (n - memorized), counts[0].found / memorized, null, null);
    this.curves.replaceChildren(...counts.flatMap(({ found, flaggedOnly }, i) => {
      const points = roc.pointsOf(this.scores[i]);
      const named = points.find(({ tpr }) => tpr >= 0.7 - 0.22 * i) ?? points[0];
      const [x, y] = [roc.x(named.fpr), roc.y(0.7 - 0.22 * i)];
      return [
        svg("path", { class: `mw-curve mw-curve-${i + 1}`, d: roc.path(points) }),
        svg("circle", { class: `mw-curve-${i + 1}`, r: 5, cx: roc.x(flaggedOnly / (n - memorized)), cy: roc.y(found / memorized) }),
        svg("path", { class: `mw-leader mw-curve-${i + 1}`, d: `M${x} ${y}h14` }),
        svg("text", { class: `mw-curve-name mw-curve-${i + 1}`, x: x + 17, y: y + 4 }, names[i]),
      ];
    }));
  }

  /**
   * How many samples the first two scores flag so, and how many of them are memorised.
   * @param {boolean[]} flagged
   */
  count([first, second]) {
    const { budget, memorized } = this;
    const [xs, ys] = this.ranks;
    let [n, found] = [0, 0];
    for (let i = 0; i < xs.length; i++) {
      if (xs[i] <= budget !== first || ys[i] <= budget !== second) continue;
      n += 1;
      found += memorized?.[i] ?? 0;
    }
    return { n, found };
  }

  /** @param {{flagged: boolean[], name: string, n: number, found: number}} part */
  partRow({ flagged, name, n, found }) {
    const button = html("button", { type: "button", class: "mw-link", "aria-label": `list the ${whole(n)} samples: ${name}` }, name);
    const marks = this.scores[0].memorized <= MOST_MARKS ? ` ${"●".repeat(found)}` : "";
    const line = row("td", [button, whole(n), ...(this.memorized === null ? [] : [`${whole(found)}${marks}`])]);
    line.addEventListener("click", () => {
      const { budget } = this;
      this.compare([]);
      this.onList({ budget, flagged }, `${name}, at ${whole(budget)}`);
    });
    return line;
  }

  destroy() {
    this.ears.clear();
    this.root.remove();
    this.button.remove();
  }
}

/**
 * Ranks in the form of scores: every rank once, with the samples that have it.
 * @param {Uint32Array} ranks
 * @param {Uint32Array | null} memorized
 */
export function scoresOf(ranks, memorized) {
  const [counts, found] = [new Uint32Array(ranks.length), new Uint32Array(ranks.length)];
  ranks.forEach((rank, i) => {
    counts[rank - 1] += 1;
    found[rank - 1] += memorized?.[i] ?? 0;
  });
  return makeScores(Float64Array.from(ranks, (_, i) => i + 1), counts, memorized && found);
}

/**
 * @param {boolean[]} flagged  by each of two scores
 * @param {string[]} names
 */
function partName([first, second], names) {
  if (first === second) return first ? "both" : "neither";
  return `${names[first ? 0 : 1]} only`;
}

/**
 * @param {"th" | "td"} kind
 * @param {(string | Node)[]} cells
 */
function row(kind, cells) {
  return html("tr", {}, ...cells.map((cell) => html(kind, {}, cell)));
}

/** @param {import("./messages.js").Area} area  of one score */
function areaRow({ name, auc, marked }) {
  const line = html("span", { class: "mw-interval" }, html("i"), html("i"));
  if (auc !== null) {
    const [at, low, high] = auc.map((area) => Math.max(0, (area - 0.4) / 0.6) * 100);
    const [reach, point] = /** @type {HTMLElement[]} */ ([...line.children]);
    Object.assign(reach.style, { left: `${low}%`, width: `${high - low}%` });
    point.style.left = `${at}%`;
  }
  const made = row("td", [marked ? `● ${name}` : name, auc === null ? "not scored yet" : line, auc === null ? "" : estimateText(auc)]);
  made.classList.toggle("mw-marked", marked);
  return made;
}
