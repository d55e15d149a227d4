"""The lesson: the notebook's code leaves the playgrounds as the student found them."""

from __future__ import annotations

from pathlib import Path

import nbformat

from memowidgets.teaching import LiRAPlayground, PSMIPlayground
from memowidgets.teaching.playground import Playground

NOTEBOOK = Path(__file__).parents[2] / "notebooks" / "05_teaching.ipynb"


def test_running_all_cells_leaves_the_playgrounds_as_they_were():
    """Else point 0 is in another class already when the hint says to move it there."""
    names, made = {}, set()
    for cell in nbformat.read(NOTEBOOK, as_version=4).cells:
        if cell.cell_type == "code":
            exec(cell.source, names)
            made |= {found for found in names.values() if isinstance(found, Playground)}
    fresh = PSMIPlayground()
    assert (names["psmi"].points == fresh.points).all()
    assert names["psmi"].psmi[0] > 0
    assert names["lira"].n_shadows == LiRAPlayground.n_shadows.default_value
    assert not any(
        getattr(names["theorem"], switch) for switch in ("imbalance", "overlap", "heavy_tails")
    )
    for playground in (*made, fresh):
        assert playground.wait(60)
        playground.close()
