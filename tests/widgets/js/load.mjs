// The front-end modules as they lie in the package. They end in .js, which Node takes for an ES
// module only beside a package.json that says so, so they are copied to a folder that has one.
import { cpSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";

const answers = fileURLToPath(
  new URL("../../../memowidgets/report/static/answers.js", import.meta.url),
);
const source = fileURLToPath(
  new URL("../../../memowidgets/widgets/static", import.meta.url),
);
const folder = mkdtempSync(join(tmpdir(), "memowidgets-js-"));
cpSync(source, folder, { recursive: true });
cpSync(answers, join(folder, "answers.js"));
writeFileSync(join(folder, "package.json"), '{"type": "module"}');
process.on("exit", () => rmSync(folder, { recursive: true, force: true }));

export function load(name) {
  return import(pathToFileURL(join(folder, `${name}.js`)).href);
}
