// Answers Python, one line of JSON for each: counts, thresholds and intervals of the front end.
import { createInterface } from "node:readline";

import { load } from "./load.mjs";

const maths = await load("maths");
const explorer = await load("explorer");

function unpack(wire) {
  const raw = { ...wire };
  for (const name of ["values", "bits", "ties"]) {
    if (typeof raw[name] !== "string") continue;
    const bytes = new Uint8Array(Buffer.from(raw[name], "base64"));
    raw[name] = new DataView(bytes.buffer);
  }
  return explorer.unpack(raw).scores;
}

const answers = {
  counts: ({ wire, taus }) => {
    const scores = unpack(wire);
    return taus.map((tau) => maths.countsAt(scores, tau));
  },
  thresholds: ({ wire }) => {
    const scores = unpack(wire);
    const rank = {
      youden: maths.rankYouden(scores),
      "tpr>=0.75": maths.rankTprAtLeast(scores, 0.75),
      "fpr<=0.01": maths.rankFprAtMost(scores, 0.01),
      "flagged<=0.05": maths.rankShareAtMost(scores, 0.05),
    };
    return Object.fromEntries(
      Object.entries(rank).map(([rule, r]) => [rule, r === 0 ? null : maths.tauAtRank(scores, r)]),
    );
  },
  intervals: ({ cases }) => cases.map(([k, n]) => maths.clopperPearson(k, n)),
};

for await (const line of createInterface({ input: process.stdin })) {
  const asked = JSON.parse(line);
  process.stdout.write(`${JSON.stringify(answers[asked.what](asked))}\n`);
}
