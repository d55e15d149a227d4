// Plays rounds of "Watch it memorise" as the page does, without a guess. Prints one line of JSON for
// each seed: how many of PSMI's five and of the loss's five the network has memorised.
import { load } from "../tests/teaching/js/load.mjs";

const watch = await load("watch_maths");
const psmi = await load("psmi_maths");
const lira = await load("lira_maths");
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

function played(seed) {
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
  };
  const judged = [...new Set([...fives.psmi, ...fives.loss])];
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
  return Object.fromEntries(
    Object.entries(fives).map(([name, five]) => [name, five.filter(memorised).length]),
  );
}

for (let seed = 0; seed < Number(process.argv[2]); seed++)
  console.log(JSON.stringify({ seed, ...played(seed) }));
