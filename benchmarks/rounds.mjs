// Plays rounds of "Watch it memorise" as the page does: `node rounds.mjs SEEDS [far]`. Nobody guesses;
// with `far` the five points that lie farthest from the middle are ringed. Prints one line of JSON for
// each seed: how many of PSMI's five, of the loss's five and of the ringed ones the network has
// memorised, and of all these points how many it has memorised, and how many of those have a wrong
// label.
import { load } from "../tests/house/js/load.mjs";

const watch = await load("memowidgets/teaching/static/watch_maths.js");
const psmi = await load("memowidgets/teaching/static/psmi_maths.js");
const lira = await load("memowidgets/teaching/static/lira_maths.js");
const [WIDTH, CLASSES, N, NOISE, RHO, FIVE, ETA] = [24, 3, 150, 0.06, 0.95, 5, 4]; // as the page opens

function trained(seed, data, rows, stop = () => false) {
  const network = watch.begin(WIDTH, CLASSES, seed);
  while (network.epoch < watch.EPOCHS) {
    watch.trainEpoch(network, data, rows);
    if (stop(network)) break;
  }
  return network;
}

function fitted(gaps) {
  const { mean, squares, count } = lira.sideOf(gaps);
  return { mean, variance: Math.max(squares / count, 1e-9) };
}

function farthest({ points, labels }) {
  const away = Array.from(labels, (_, i) =>
    Math.hypot(points[2 * i], points[2 * i + 1]),
  );
  return watch.lowest(
    away.map((distance) => -distance),
    FIVE,
  );
}

function played(seed, far) {
  const data = watch.makeData(N, CLASSES, NOISE, seed);
  const all = Uint16Array.from({ length: N }, (_, i) => i);
  const median = (network) => watch.median(watch.look(network, data).losses);
  const own = seed * 1000 + 1;
  const first = median(watch.begin(WIDTH, CLASSES, own));
  const early = watch.look(
    trained(own, data, all, (network) => 1 - median(network) / first >= RHO),
    data,
  );
  const scores = psmi.psmiOfRows(
    early.states,
    data.labels,
    CLASSES,
    psmi.directionsFor(WIDTH, watch.DIRECTIONS),
  );
  const fives = {
    psmi: watch.lowest(scores, FIVE),
    loss: watch.lowest(
      early.losses.map((x) => -x),
      FIVE,
    ),
    ringed: far ? farthest(data) : [],
  };
  const judged = [...new Set([...fives.ringed, ...fives.psmi, ...fives.loss])];
  const members = watch.membersOf(N, judged, seed);
  const others = members.map((row, model) => {
    const network = trained(
      seed * 1000 + 10 + 2 * model,
      data,
      all.filter((i) => row[i] === 1),
    );
    return watch.look(network, data).gaps;
  });
  const { gaps } = watch.look(trained(own, data, all), data);
  const memorised = (sample) => {
    const side = (is) =>
      fitted(
        others
          .filter((_, model) => members[model][sample] === is)
          .map((row) => row[sample]),
      );
    return lira.logRatio(gaps[sample], side(1), side(0)) >= ETA;
  };
  const found = judged.filter(memorised);
  const counts = Object.entries(fives).map(([name, five]) => [
    name,
    five.filter((sample) => found.includes(sample)).length,
  ]);
  return {
    ...Object.fromEntries(counts),
    memorised: found.length,
    wrong: found.filter((sample) => data.wrong[sample]).length,
  };
}

const [seeds, how] = process.argv.slice(2);
for (let seed = 0; seed < Number(seeds); seed++)
  console.log(JSON.stringify({ seed, ...played(seed, how === "far") }));
