"""The scores: one row for each, those of this package and those that users bring.

Pickers, numbers, figures, reports and commands ask this room which scores there are, what each one
needs, and what a reader calls it. `table` has the package's own rows, `registered` all of them.
"""

from memowidgets.registry.registered import (
    all_rows,
    find_row,
    is_name,
    own_names,
    row_of_function,
    score,
    spoken,
)
from memowidgets.registry.row import PARAMETERS, Score, kept_row

__all__ = [
    "PARAMETERS",
    "Score",
    "all_rows",
    "find_row",
    "is_name",
    "kept_row",
    "own_names",
    "row_of_function",
    "score",
    "spoken",
]
