// The playgrounds' modules as they lie in the package, in a folder where Node takes them for ES
// modules; the widgets' shared ones lie beside them.
import { cpSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";

const rooms = fileURLToPath(new URL("../../../memowidgets", import.meta.url));
const folder = mkdtempSync(join(tmpdir(), "memowidgets-teaching-"));
for (const room of ["teaching", "widgets"]) {
  cpSync(join(rooms, room, "static"), join(folder, room, "static"), { recursive: true });
}
writeFileSync(join(folder, "package.json"), '{"type": "module"}');
process.on("exit", () => rmSync(folder, { recursive: true, force: true }));

export function load(name) {
  return import(pathToFileURL(join(folder, "teaching", "static", `${name}.js`)).href);
}
