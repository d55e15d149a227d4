/** Two scores, or three, at one budget: rank against rank, whom each flags and finds, and their ROCs over each other. */

import { PICKS } from "./bar.js";
import {
  bytesOf,
  html,
  listeners,
  onTheme,
  onWidth,
  root,
  setAttributes,
  svg,
  write,
} from "./dom.js";
import { setLayer } from "./layers.js";
import { countsAt, makeScores } from "./maths.js";
import { estimateText, whole } from "./numbers.js";
import { fitName, RocPlot } from "./plots.js";
import { unpackBits } from "./wire.js";
import { NO_OTHERS, TIED } from "./words.js";

/** @typedef {import("./messages.js").Pick} Pick */
/** @typedef {import("./messages.js").ComparedShown} Wire */
/** @typedef {import("./maths.js").Counts} Counts */
/** @typedef {import("./maths.js").Scores} Scores */

const MANY = 2000; // samples, of which each is a few pixels
const MOST_MARKS = 40; // memorised samples that are shown one by one
const LARGEST = 300; // pixels of a side of the ranks
const [LEFT, TOP, BELOW] = [22, 18, 34]; // and around it

/** The panel that takes the place of plots and list. */
export class Compare {
  /**
   * @param {import("./dom.js").Model} model
   * @param {HTMLElement} el
   * @param {import("./bar.js").Bar} bar
   * @param {import("./explorer.js").Explorer} explorer
   * @param {((part: import("./messages.js").Part, name: string) => void) | null} list  shows the samples of a part; null where there are none
   */
  constructor(model, el, bar, explorer, list) {
    this.model = model;
    this.box = el;
    this.bar = bar;
    this.explorer = explorer;
    this.onList = list;
    this.ears = listeners(model);
    this.budget = 0;
    this.side = 0;
    /** @type {Wire | null} */
    this.wire = null;
    /** Ranks of each score, sample by sample. @type {Uint32Array[]} */
    this.ranks = [];
    /** @type {Uint32Array | null} */
    this.memorized = null;
    /** @type {Scores[]} */
    this.scores = [];
    /** Of each ROC. @type {import("./maths.js").RocPoint[][]} */
    this.points = [];
    const button = (/** @type {string} */ text, label = text) =>
      html("button", { type: "button", class: "mw-button", "aria-label": label }, text);
    this.button = button("Compare");
    this.close = button("✕", "close");
    this.root = root(el, "compare", "Compare scores", this.ears);
    this.first = html("b");
    this.selects = ["second score", "third score"].map((name) =>
      html("select", { class: "mw-select", "aria-label": name }),
    );
    this.slider = html("input", {
      type: "range",
      class: "mw-slider",
      min: 1,
      step: 1,
      "aria-label": "how many samples to look at",
    });
    this.says = html("span", { class: "mw-budget" });
    this.canvas = html("canvas", { role: "img" });
    this.over = svg("svg", { "aria-hidden": "true" });
    this.plot = html("div", { class: "mw-ranks" }, this.canvas, this.over);
    this.parts = html("table", { class: "mw-parts" });
    this.said = html("p", { role: "status" });
    this.roc = new RocPlot();
    this.curves = svg("g");
    setAttributes(this.roc.element, {
      class: "mw-rocs",
      "aria-label": "ROC curves, with the budget on each",
    });
    this.roc.element.replaceChildren(
      this.roc.lines,
      this.roc.chance,
      this.curves,
      this.roc.fpr,
      this.roc.tpr,
    );
    this.areas = html("table", { class: "mw-areas" });
    const head = html(
      "div",
      { class: "mw-row" },
      this.first,
      "or",
      ...this.selects,
      html("span", { class: "mw-gap" }),
      this.close,
    );
    const budget = html(
      "label",
      { class: "mw-row mw-budget-row" },
      "look at",
      this.slider,
      this.says,
    );
    const columns = [
      [this.plot, this.roc.element],
      [this.parts, this.said, this.areas],
    ].map((parts) => html("div", { class: "mw-column" }, ...parts));
    this.root.append(
      head,
      budget,
      html("div", { class: "mw-compare-body" }, ...columns),
    );
    this.ears.later(onWidth(this.root, () => this.draw()));
    this.root.hidden = true; // so that a page that opens with it takes its budget from τ
    this.listen();
    this.show();
  }

  listen() {
    const { ears, model, explorer } = this;
    ears.on(this.button, "click", () =>
      this.compare(model.get("comparing").length > 0 ? [] : [model.get("_beside")]),
    );
    ears.on(this.close, "click", () => this.compare([]));
    for (const select of this.selects) {
      ears.on(select, "change", () =>
        this.compare(
          this.selects
            .filter(({ value }) => value !== "")
            .map(({ value }) => JSON.parse(value)),
        ),
      );
    }
    ears.on(this.slider, "input", () => {
      this.budget = Number(this.slider.value);
      this.move();
    });
    ears.on(this.slider, "change", () => explorer.ask({ count: this.budget }));
    for (const name of ["comparing", "_compared", "_data", "_beside", "_choices"])
      ears.onModel(`change:${name}`, () => this.show());
    onTheme(ears, () => requestAnimationFrame(() => this.draw()));
  }

  /** @param {Pick[]} picks  none closes the panel */
  compare(picks) {
    this.model.set("comparing", picks);
    this.bar.tell();
    if (picks.length === 0) this.button.focus();
  }

  show() {
    const { model, root: panel } = this;
    const picks = /** @type {Pick[]} */ (model.get("comparing"));
    const isOpen = picks.length > 0;
    this.button.hidden = model.get("_beside").metric === undefined;
    this.button.setAttribute("aria-expanded", String(isOpen));
    if (isOpen && panel.hidden)
      this.budget = Math.max(
        1,
        countsAt(this.explorer.scores, this.explorer.tau).flagged,
      );
    panel.hidden = !isOpen;
    this.box.classList.toggle("mw-comparing", isOpen);
    const close = () => this.compare([]);
    setLayer(panel, isOpen, { close, by: this.button, unfolds: true });
    if (!isOpen) return;
    this.selects.forEach((select, i) => this.offer(select, picks[i]));
    const wire = /** @type {Wire} */ (model.get("_compared"));
    const fits =
      wire.version === model.get("_data").version &&
      (wire.eta ?? model.get("eta_committed")) === model.get("eta_committed") &&
      wire.names.length === picks.length + 1;
    panel.classList.toggle("mw-unanswered", !fits);
    if (fits && wire !== this.wire) this.take(wire);
  }

  /**
   * Offers what differs from the score on show in one thing.
   * @param {HTMLSelectElement} select
   * @param {Pick | undefined} chosen
   */
  offer(select, chosen) {
    const here = Object.fromEntries(PICKS.map((name) => [name, this.model.get(name)]));
    const options = [...PICKS].reverse().flatMap((name) => {
      const choices = /** @type {import("./messages.js").Picked[]} */ (
        this.model.get("_choices")[`${name}s`]
      );
      const others = choices.filter(
        ({ value }) =>
          value !== here[name] &&
          (name !== "layer" || this.bar.byLayer.has(here.metric)),
      );
      return others.map(
        ({ value, label }) =>
          new Option(label, JSON.stringify({ ...here, [name]: value })),
      );
    });
    const none = select === this.selects[0] ? [] : [new Option("a third …", "")];
    select.replaceChildren(...none, ...options);
    select.value = chosen === undefined ? "" : JSON.stringify(chosen);
  }

  /** @param {Wire} wire */
  take(wire) {
    this.wire = wire;
    this.ranks = wire.ranks.map((bytes) => new Uint32Array(bytesOf(bytes)));
    this.memorized =
      wire.bits === null
        ? null
        : unpackBits(new Uint8Array(bytesOf(wire.bits)), wire.n);
    this.scores = this.ranks.map((ranks) => scoresOf(ranks, this.memorized));
    this.budget = Math.min(this.budget, wire.n);
    this.slider.max = String(wire.n);
    write(this.first, wire.names[0]);
    write(this.said, wire.said || NO_OTHERS);
    this.areas.replaceChildren(
      html("caption", {}, `All scores by ${wire.area}, with the 95 % interval`),
      ...wire.areas.map(areaRow),
    );
    this.areas.hidden = wire.areas.length === 0;
    setAttributes(this.roc.element, { hidden: wire.areas.length === 0 });
    this.draw();
  }

  /** Shows what stands still again, unless that is on its way. */
  standStill() {
    if (!this.root.classList.contains("mw-unanswered")) this.draw();
  }

  draw() {
    if (this.wire === null || this.plot.clientWidth === 0) return;
    this.side = Math.min(this.plot.clientWidth - LEFT - 8, LARGEST);
    this.drawRanks(this.ranks, this.memorized);
    if (this.wire.areas.length > 0) {
      this.roc.draw(this.scores[0], false);
      this.points = this.scores.map((scores) => this.roc.pointsOf(scores));
    }
    this.move();
  }

  /** @param {number} rank  pixels from the corner of the most at risk */
  place(rank) {
    return Math.sqrt(rank / this.scores[0].n) * this.side;
  }

  /**
   * Draws each sample at its two ranks, memorised ones last and larger.
   * @param {ArrayLike<number>[]} ranks
   * @param {ArrayLike<number> | null} memorized
   */
  drawRanks([xs, ys], memorized) {
    const { canvas, side } = this;
    const [width, height, dots] = [
      LEFT + side + 8,
      TOP + side + BELOW,
      devicePixelRatio,
    ];
    setAttributes(canvas, { width: width * dots, height: height * dots });
    for (const { style } of [canvas, this.over])
      Object.assign(style, { width: `${width}px`, height: `${height}px` });
    const pen = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
    const colours = getComputedStyle(this.root);
    pen.setTransform(dots, 0, 0, dots, 0, 0);
    pen.clearRect(0, 0, width, height);
    pen.strokeStyle = colours.getPropertyValue("--mw-bg");
    for (const which of [0, 1]) {
      const size = xs.length > MANY ? 1.5 + which : 4 + 4 * which;
      pen.fillStyle = colours.getPropertyValue(
        which === 1 ? "--mw-risk" : "--mw-other",
      );
      for (let i = 0; i < xs.length; i++) {
        if ((memorized?.[i] ?? 0) !== which) continue;
        const [x, y] = [LEFT + this.place(xs[i]), TOP + side - this.place(ys[i])];
        if (xs.length > MANY) pen.fillRect(x - size / 2, y - size / 2, size, size);
        else {
          pen.beginPath();
          pen.arc(x, y, size / 2, 0, 7);
          pen.fill();
          if (which === 1) pen.stroke();
        }
      }
    }
  }

  /** Moves the budget: its lines, its point on each curve, and what is counted. */
  move() {
    if (this.wire === null) return;
    const { budget, memorized, slider } = this;
    const { names, n, truly } = this.wire;
    const counts = this.scores.map((scores) => countsAt(scores, budget));
    const parts = partsAt(budget, this.ranks, memorized, names);
    const tied = counts.some(({ flagged }) => flagged > budget) ? `. ${TIED}` : "";
    slider.value = String(budget);
    slider.setAttribute("aria-valuetext", `${whole(budget)} of ${whole(n)}`);
    write(this.says, `${whole(budget)} of ${whole(n)}${tied}`);
    const each = (/** @type {keyof Counts} */ what) =>
      counts.map((count) => whole(count[what])).join(" / ");
    const many = html(
      "span",
      {},
      `${each("found")} of ${whole(this.scores[0].memorized)}`,
      html("span", { class: "mw-truly" }, truly),
    );
    const row = (
      /** @type {"th" | "td"} */ kind,
      /** @type {(string | Node)[]} */ cells,
    ) =>
      html(
        "tr",
        {},
        ...cells
          .slice(0, memorized === null ? 2 : 3)
          .map((cell) => html(kind, {}, cell)),
      );
    this.parts.replaceChildren(
      row("th", ["flagged by", "samples", "memorised"]),
      ...parts.map((part) => {
        const list = this.onList;
        const label = `${part.name}: list ${whole(part.n)} samples`;
        const name = html(
          "button",
          { type: "button", class: "mw-link", "aria-label": label },
          part.name,
        );
        const marks =
          this.scores[0].memorized <= MOST_MARKS ? ` ${"●".repeat(part.found)}` : "";
        const line = row("td", [
          list === null ? part.name : name,
          whole(part.n),
          html("span", {}, html("b", {}, whole(part.found)), marks),
        ]);
        if (list === null) return line;
        line.addEventListener("click", () => {
          this.compare([]);
          list({ budget, flagged: part.flagged }, `${part.name}, at ${whole(budget)}`);
        });
        return line;
      }),
      row("td", [names.join(" / "), each("flagged"), many]),
    );
    this.moveLines(names, parts);
    if (this.wire.areas.length > 0) this.moveCurves(names, counts);
  }

  /**
   * @param {string[]} names
   * @param {ReturnType<typeof partsAt>} parts
   */
  moveLines(names, parts) {
    const { budget, side } = this;
    const [at, end, right] = [LEFT + this.place(budget), TOP + side, LEFT + side];
    const line = TOP + right - at;
    const text = (
      /** @type {string} */ words,
      /** @type {number} */ x,
      /** @type {number} */ y,
      anchor = "middle",
      kind = "",
    ) => svg("text", { x, y, "text-anchor": anchor, class: kind }, words);
    const upright = text("", 0, 0);
    const across = text("", LEFT + side / 2, end + 28);
    const first = text("", LEFT + 5, TOP + 14, "start", "mw-part");
    const other = text("", right - 4, end - 6, "end", "mw-part");
    upright.setAttribute("transform", `translate(12 ${TOP + side / 2}) rotate(-90)`);
    this.over.replaceChildren(
      svg("path", { class: "mw-both", d: `M${LEFT} ${line}H${at}V${end}H${LEFT}z` }),
      svg("path", {
        class: "mw-one",
        d: `M${LEFT} ${TOP}H${at}V${line}H${LEFT}zM${at} ${line}H${right}V${end}H${at}z`,
      }),
      svg("path", {
        class: "mw-budget-line",
        d: `M${at} ${TOP}V${end}M${LEFT} ${line}H${right}`,
      }),
      text(parts[0].name, LEFT + 5, end - 6, "start", "mw-part"),
      first,
      other,
      text("neither ↓", right, TOP - 5, "end"),
      text(whole(budget), at, end + 13),
      across,
      upright,
    );
    const only = (/** @type {string} */ name) => `${name} only`;
    const ranked = (/** @type {string} */ name) => `rank by ${name}`;
    fitName(first, only, names[0], side - 10);
    fitName(other, only, names[1], side - 50); // beside "both"
    fitName(across, (name) => `${ranked(name)} (1 = most at risk)`, names[0], side);
    fitName(upright, ranked, names[1], side);
    this.canvas.setAttribute(
      "aria-label",
      `each sample by its two ranks; ${parts.map(({ name, n }) => `${name}: ${whole(n)}`).join(", ")}`,
    );
  }

  /**
   * Draws each curve with its name and the point of the budget.
   * @param {string[]} names
   * @param {Counts[]} counts
   */
  moveCurves(names, counts) {
    const { roc } = this;
    const { n, memorized } = this.scores[0];
    write(roc.fpr, "FPR");
    write(roc.tpr, "TPR");
    this.curves.replaceChildren(
      ...counts.flatMap(({ found, flaggedOnly }, i) => {
        const points = this.points[i];
        const height = 0.7 - 0.22 * i; // where its name stands
        const [x, y] = [
          roc.x(points.find(({ tpr }) => tpr >= height)?.fpr ?? 0),
          roc.y(height),
        ];
        const kind = `mw-curve-${i + 1}`;
        return [
          svg("path", { class: kind, d: roc.path(points) }),
          svg("circle", {
            class: kind,
            r: 5,
            cx: roc.x(flaggedOnly / (n - memorized)),
            cy: roc.y(found / memorized),
          }),
          svg("path", { class: `mw-leader ${kind}`, d: `M${x} ${y}h14` }),
          svg(
            "text",
            { class: `mw-curve-name ${kind}`, x: x + 17, y: y + 4 },
            names[i],
          ),
        ];
      }),
    );
    const written = /** @type {NodeListOf<SVGTextElement>} */ (
      this.curves.querySelectorAll(".mw-curve-name")
    );
    written.forEach((element, i) => {
      const most = roc.x(1) - Number(element.getAttribute("x"));
      fitName(element, (name) => name, names[i], most);
    });
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
  const [counts, found] = [
    new Uint32Array(ranks.length),
    new Uint32Array(ranks.length),
  ];
  ranks.forEach((rank, i) => {
    counts[rank - 1] += 1;
    found[rank - 1] += memorized?.[i] ?? 0;
  });
  return makeScores(
    Float64Array.from(ranks, (_, i) => i + 1),
    counts,
    memorized && found,
  );
}

/**
 * What both scores flag at a budget, one of them, or neither: how many samples, and how many memorised ones.
 * @param {number} budget
 * @param {Uint32Array[]} ranks
 * @param {Uint32Array | null} memorized
 * @param {string[]} names
 */
export function partsAt(budget, [xs, ys], memorized, names) {
  const parts = [
    { flagged: [true, true], name: "both", n: 0, found: 0 },
    { flagged: [true, false], name: `${names[0]} only`, n: 0, found: 0 },
    { flagged: [false, true], name: `${names[1]} only`, n: 0, found: 0 },
    { flagged: [false, false], name: "neither", n: 0, found: 0 },
  ];
  for (let i = 0; i < xs.length; i++) {
    const part = parts[(xs[i] > budget ? 2 : 0) + (ys[i] > budget ? 1 : 0)];
    part.n += 1;
    part.found += memorized?.[i] ?? 0;
  }
  return parts;
}

/** @param {import("./messages.js").Area} area  of one score */
function areaRow({ name, auc, marked }) {
  const bar = html("span", { class: "mw-interval" }, html("i"), html("i"));
  if (auc !== null) {
    const [at, low, high] = auc.map((area) => 100 * Math.max(0, (area - 0.4) / 0.6));
    const [reach, point] = /** @type {HTMLElement[]} */ ([...bar.children]);
    Object.assign(reach.style, { left: `${low}%`, width: `${high - low}%` });
    point.style.left = `${at}%`;
  }
  const cells = auc === null ? ["", "not scored yet"] : [bar, estimateText(auc)];
  return html(
    "tr",
    { class: marked ? "mw-marked" : "" },
    ...[marked ? `● ${name}` : name, ...cells].map((cell) => html("td", {}, cell)),
  );
}
