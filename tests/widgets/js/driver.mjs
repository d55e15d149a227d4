// Answers Python, one line of JSON for each: counts, thresholds and intervals of the front end.
import { createInterface } from "node:readline";

import { load } from "./load.mjs";

const maths = { ...(await load("maths")), ...(await load("numbers")) };
const found = await load("asked");
const { partsAt, scoresOf } = await load("compare");
const { Answers } = await load("answers");
const { unpack: unpacked, unpackBits, unpackTruth } = await load("wire");

const PARTS = ["values", "shared", "ties", "levels", "codes", "bits", "of_shared"];

function decoded(base64) {
  return new DataView(new Uint8Array(Buffer.from(base64, "base64")).buffer);
}

function data(wire) {
  const raw = { ...wire };
  for (const name of PARTS)
    if (typeof raw[name] === "string") raw[name] = decoded(raw[name]);
  return [unpacked(raw), raw];
}

function unpack(wire) {
  return unpackTruth(...data(wire));
}

const answers = {
  counts: ({ wire, taus }) => {
    const scores = unpack(wire);
    return taus.map((tau) => maths.countsAt(scores, tau));
  },
  // The τ of each thing that can be asked for, and what is said to stay fixed.
  asked: ({ wire, all }) => {
    const [{ scores, axis }] = data(wire);
    return all.map((asked) => {
      const tau = found.tauAsked(asked, scores);
      const { flagged } = maths.countsAt(scores, tau);
      const counts = { n: scores.n, flagged };
      return [
        tau,
        found.fixedText({ asked, axis, tau: String(tau), plays: false }, counts),
      ];
    });
  },
  // The named ways to ask, by label, with the axis and the τ of each.
  ways: ({ wire }) => {
    const [{ natural, axes }] = data(wire);
    const ways = found.waysToAsk(axes, natural);
    return ways.map(({ label, axis, asked, tau }) => [label, axis, asked, tau]);
  },
  percents: ({ shares }) => shares.map((share) => maths.percent(share)),
  readAsked: ({ texts }) => texts.map((text) => found.readAsked(text)),
  // What is shown after η was moved there, by the log-LiRA that was sent.
  moved: ({ wire, logLira, wide, eta, taus }) => {
    const [{ scores }] = data(wire);
    const { buffer } = decoded(logLira);
    const values = wide ? new Float64Array(buffer) : new Float32Array(buffer);
    const judged = maths.judgedAt(scores, values, eta);
    return {
      counts: taus.map((tau) => maths.countsAt(judged, tau)),
      auc: maths.aucOf(judged),
    };
  },
  // What a report's page calls each sample, and whether it is flagged, wherever τ and η stand.
  statuses: ({ columns, standings }) =>
    standings.map((standing) => {
      const page = new Answers({ columns }, () => standing);
      return page.rows.map((row) => [page.status(row), page.flagged(row)]);
    }),
  // What two scores flag at a budget, by their ranks as the kernel sends them.
  compared: ({ ranks, bits, n, budget }) => {
    const each = ranks.map((bytes) => new Uint32Array(decoded(bytes).buffer));
    const memorized = unpackBits(new Uint8Array(decoded(bits).buffer), n);
    const scores = each.map((one) => scoresOf(one, memorized));
    return {
      parts: partsAt(budget, each, memorized, ["A", "B"]).map(
        ({ flagged, n, found }) => ({ flagged, n, found }),
      ),
      counts: scores.map((one) => maths.countsAt(one, budget)),
      areas: scores.map((one) => maths.aucOf(one)?.area ?? null),
    };
  },
  auc: ({ wire }) => maths.aucOf(unpack(wire)),
  undecided: ({ wire, taus }) => {
    const [{ bounds }] = data(wire);
    return taus.map((tau) => maths.undecidedAt(bounds, tau));
  },
  beside: ({ cases }) => cases.map(([value, eta]) => maths.besideText(value, eta)),
  intervals: ({ cases }) => cases.map(([k, n]) => maths.clopperPearson(k, n)),
};

for await (const line of createInterface({ input: process.stdin })) {
  const asked = JSON.parse(line);
  process.stdout.write(`${JSON.stringify(answers[asked.what](asked))}\n`);
}
