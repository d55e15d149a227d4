// Answers Python, one line of JSON for each: what the playgrounds' front ends compute.
import { createInterface } from "node:readline";

import { load } from "../../house/js/load.mjs";

const names = [
  "beside",
  "chance",
  "psmi_maths",
  "psmi_plane",
  "lira_maths",
  "lira_fit",
  "theorem_maths",
  "watch_maths",
];
const modules = names.map((name) => load(`memowidgets/teaching/static/${name}.js`));
const [{ beside }, chance, maths, plane, lira, fit, theorem, watch] =
  await Promise.all(modules);
const psmi = { ...maths, ...plane };

function cloud({ points, labels }) {
  const flat = Float64Array.from(points.flat());
  const classes = Uint8Array.from(labels);
  return {
    flat,
    classes,
    fitted: psmi.classesOf(flat, classes, Math.max(...labels) + 1),
  };
}

const answers = {
  beside: ({ points, widths, width, height }) => beside(points, widths, width, height),
  uniforms: ({ seed, start, count }) => [...chance.uniforms(seed, start, count)],
  normals: ({ seed, count }) => [...chance.normals(seed, 0, count)],
  along: ({ angle, ...given }) => {
    const { classes, fitted } = cloud(given);
    const turn = (angle * Math.PI) / 180;
    const line = psmi.along(fitted, Math.cos(turn), Math.sin(turn));
    return given.points.map(([x, y], i) =>
      psmi.pointwise(line, fitted.prior, line.x * x + line.y * y, classes[i]),
    );
  },
  psmi: ({ count, ...given }) => {
    const { flat, classes, fitted } = cloud(given);
    const found = new Float64Array(classes.length);
    psmi.psmiOfAll(flat, classes, fitted, psmi.fan(fitted, count), found);
    return [...found];
  },
  deep: ({ selected, dimension, ...given }) => {
    const { flat, classes, fitted } = cloud(given);
    const work = psmi.inDimensions(
      { points: flat, labels: classes, selected },
      fitted,
      dimension,
    );
    let step = work.next();
    while (!step.done) step = work.next();
    return { ...step.value, rows: [...psmi.lifted(flat, fitted, dimension)] };
  },
  lira: ({ seed, counts, effect, spread, gap }) => {
    const draws = lira.drawsOf(seed);
    const laws = [lira.OUT_MEAN + effect, lira.OUT_MEAN];
    const units = [draws.inside, draws.outside];
    const redraw = (k) =>
      units.map((unit, side) =>
        lira.stretched(
          lira.sideOf(unit, k * lira.SIDE, counts[side]),
          laws[side],
          spread,
        ),
      );
    const sides = redraw(0);
    const own = fit.estimatesFor(sides, lira.othersSquares(draws, counts));
    const ratio = (variance, pair) =>
      lira.logRatio(
        gap,
        ...["in", "out"].map((side, i) => ({
          mean: pair[i].mean,
          variance: lira.varianceOf(own[variance][side], pair[i], own.least),
        })),
      );
    const gaps = (k) =>
      units.map((unit, side) =>
        [...unit.subarray(k * lira.SIDE, k * lira.SIDE + counts[side])].map(
          (z) => laws[side] + spread * z,
        ),
      );
    const others = counts.map((count, side) =>
      Array.from({ length: lira.OTHERS }, (_, i) => [
        ...draws.others
          .subarray((side * lira.OTHERS + i) * lira.SIDE)
          .subarray(0, count),
      ]),
    );
    const redraws = Array.from({ length: lira.REDRAWS }, (_, k) => k + 1);
    return {
      others,
      gaps: [0, ...redraws].map(gaps),
      found: Object.fromEntries(
        lira.VARIANCES.map((name) => {
          const value = ratio(name, sides);
          const error = fit.errorOf(gap, sides, own[name], own.least, value);
          return [
            name,
            {
              ratio: value,
              error,
              redraws: redraws.map((k) => ratio(name, redraw(k))),
            },
          ];
        }),
      ),
    };
  },
  watch: ({ n, width, epochs, seed }) => {
    const data = watch.makeData(n, 3, 0.06, seed);
    const rows = Uint16Array.from({ length: n }, (_, i) => i);
    const self = { postMessage: (found) => (self.found = found) };
    new Function("self", watch.workerText())(self); // what the worker runs needs nothing else
    self.onmessage({ data: { kind: "begin", width, classes: 3, seed, data, rows } });
    self.onmessage({ data: { kind: "advance", epochs } });
    const { gaps, losses, states } = self.found;
    const directions = psmi.directionsFor(width, watch.DIRECTIONS);
    return {
      points: [...data.points],
      labels: [...data.labels],
      wrong: [...data.wrong],
      weights: [...watch.begin(width, 3, seed).weights],
      gaps: [...gaps],
      losses: [...losses],
      states: [...states],
      directions: [...directions],
      psmi: [...psmi.psmiOfRows(states, data.labels, 3, directions)],
      members: watch.membersOf(n, [0, 3, 4], seed).map((row) => [...row]),
    };
  },
  theorem: ({ n, seed, tau, mixture }) => {
    const samples = theorem.roomFor(n);
    theorem.sample(theorem.worldOf(n, seed), mixture, samples);
    const found = new Float64Array(n);
    theorem.psmiOf(
      samples,
      mixture.dimension,
      theorem.directionsFor(mixture.dimension),
      found,
    );
    return {
      psmi: [...found],
      labels: [...samples.labels],
      kinds: [...samples.kinds],
      t: [...samples.t],
      r: [...samples.r],
      rates: theorem.ratesAt(found, samples.kinds, tau),
    };
  },
};

for await (const line of createInterface({ input: process.stdin })) {
  const asked = JSON.parse(line);
  process.stdout.write(`${JSON.stringify(answers[asked.what](asked))}\n`);
}
