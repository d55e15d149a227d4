/** The PSMI playground without a kernel: what metrics.PSMI says, and PSMI in more dimensions. */

import { normals } from "../../memowidgets/teaching/static/chance.js";
import { classesOf } from "../../memowidgets/teaching/static/psmi_maths.js";
import view from "../../memowidgets/teaching/static/psmi_view.js";
import { runningMeans } from "../../memowidgets/teaching/static/running_means.js";
import { bytesOf } from "../../memowidgets/widgets/static/dom.js";
import { inDimensions } from "./lifted.js";
import { play } from "./play.js";

play(view, (model) => {
  const first = model.get("_cloud");
  const directions = new Float32Array(bytesOf(model.get("_directions")));
  let resets = model.get("_reset");
  let [cloud, selected] = [first, model.get("selected")];
  return () => {
    if (model.get("_reset") !== resets) {
      resets = model.get("_reset");
      model.set("_cloud", { ...first });
    }
    if (model.get("_cloud") === cloud && model.get("selected") === selected) {
      // the view waits for these also after it came back to the same point
      for (const name of ["_official", "_dimensions"]) model.set(name, structuredClone(model.get(name)));
      return;
    }
    cloud = model.get("_cloud");
    const points = new Float64Array(bytesOf(cloud.points));
    const labels = new Uint8Array(bytesOf(cloud.labels));
    selected = Math.min(model.get("selected"), labels.length - 1);
    model.set("selected", selected);
    const classes = classesOf(points, labels, Math.max(...labels) + 1);
    const [x, y, label] = [points[2 * selected], points[2 * selected + 1], labels[selected]];
    const { corrected } = runningMeans(classes, directions, x, y, label, directions.length / 2);
    model.set("_official", { point: selected, psmi: corrected.mean[0], std: corrected.error[0] });
    model.set("_dimensions", inDimensions(points, labels, selected, model.get("_every_dimension"), normals));
  };
});
