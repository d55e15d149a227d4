// The modules of pages without a kernel, in a folder where Node takes them for ES modules; the
// package's, which they import, lie beside them.
import { cpSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";

const root = fileURLToPath(new URL("../../..", import.meta.url));
const folder = mkdtempSync(join(tmpdir(), "memowidgets-site-"));
const rooms = ["audit", "report", "teaching", "widgets"].map((room) =>
  join("memowidgets", room, "static"),
);
for (const place of rooms) {
  cpSync(join(root, place), join(folder, place), { recursive: true });
}
writeFileSync(join(folder, "package.json"), '{"type": "module"}');
process.on("exit", () => rmSync(folder, { recursive: true, force: true }));

export function load(path) {
  return import(pathToFileURL(join(folder, path)).href);
}
