// PSMI of the first point of each cloud, as the PSMI playground computes it. One line of JSON in, one out.
import { readFileSync } from "node:fs";

import { load } from "../tests/house/js/load.mjs";

const { FAN, classesOf, fan, psmiOfAll } = await load(
  "memowidgets/teaching/static/psmi_plane.js",
);
const { labels, clouds } = JSON.parse(readFileSync(0, "utf-8"));
const own = Uint8Array.from(labels);
const found = clouds.map((cloud) => {
  const points = Float64Array.from(cloud.flat());
  const classes = classesOf(points, own, Math.max(...labels) + 1);
  const psmi = new Float64Array(labels.length);
  psmiOfAll(points, own, classes, fan(classes, FAN), psmi);
  return psmi[0];
});
console.log(JSON.stringify(found));
