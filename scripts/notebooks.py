"""Run the notebooks, and store what their cells show.

``python -m scripts.notebooks`` runs all of them, each in an empty folder, and
``python -m scripts.notebooks 05_teaching`` the ones that are named. A widget is stored as the
picture that stands in for it without a kernel, and a progress bar not at all.
"""

from __future__ import annotations

import base64
import re
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

from scripts.live import PLAYGROUNDS

ROOT = Path(__file__).parents[1]
NOTEBOOKS = ROOT / "notebooks"
STILLS = ROOT / "docs" / "_static" / "stills"
WIDGET = "application/vnd.jupyter.widget-view+json"
STATIC = ("text/plain", "text/html", "image/svg+xml")
STANDS_IN = r' class="mw-stands-in-\w+"'
LONGEST = 1200  # seconds that a cell may take
STRICT = "PSMI's τ = 0 may be strict here"


def main() -> int:
    """Store the notebooks that are named, or all of them."""
    for name in sys.argv[1:] or sorted(file.stem for file in NOTEBOOKS.glob("*.ipynb")):
        started = time.monotonic()
        file = NOTEBOOKS / f"{name}.ipynb"
        nbformat.write(executed(nbformat.read(file, as_version=4)), file)
        seconds, size = time.monotonic() - started, file.stat().st_size / 1000
        print(f"{file.name}: {seconds:.0f} s, {size:.0f} KB")
    return 0


def executed(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """Run a notebook in an empty folder, and leave what is seen without a kernel."""
    with tempfile.TemporaryDirectory() as folder:
        place = {"metadata": {"path": folder}}
        NotebookClient(
            notebook, timeout=LONGEST, resources=place, coalesce_streams=True
        ).execute()
    notebook.metadata.pop("widgets", None)
    notebook.metadata["language_info"] = {"name": "python"}
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        if cell.cell_type == "code":
            cell.outputs = [
                shown for output in cell.outputs if (shown := static(output))
            ]
    return notebook


def static(output: nbformat.NotebookNode) -> nbformat.NotebookNode | None:
    """Return what of an output is seen without a kernel; None for a widget.

    Raises
    ------
    RuntimeError
        If the output is a warning: no notebook is to show one, but that τ = 0 flags few.
    """
    if output.output_type == "stream":
        if output.name == "stderr":
            warned = re.findall(r"Warning: .*", output.text)
            if not warned or not all(STRICT in one for one in warned):
                raise RuntimeError(f"a cell warns: {output.text}")
            output.text = "".join(f"User{one}\n" for one in warned)  # without its path
        return output
    data = output.data
    if WIDGET in data:
        return None  # its still picture is an output of its own
    still = picture_of(data.get("text/plain", ""))
    if (
        "text/html" in data
    ):  # a page finds the picture by this name, another in each run
        data["text/html"] = re.sub(STANDS_IN, "", data["text/html"])
    output.data = still or {kind: data[kind] for kind in STATIC if kind in data}
    output.metadata = {}
    return output


def picture_of(text: str) -> dict[str, Any]:
    """Return the still of the playground that an output's text names."""
    for name, playground in PLAYGROUNDS.items():
        if text.startswith(playground):
            picture = (STILLS / f"{name}.png").read_bytes()
            return {
                "image/png": base64.b64encode(picture).decode(),
                "text/plain": playground,
            }
    return {}


if __name__ == "__main__":
    sys.exit(main())
