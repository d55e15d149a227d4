"""The scores: one row for each, those of this package and those that users bring.

Pickers, numbers, figures, reports and commands ask this room which scores there are, what each one
needs, and what a reader calls it. `table` has the package's own rows, `registered` all of them.
"""

from memowidgets.registry.registered import (
    about_row,
    all_rows,
    definitions_of,
    find_row,
    is_name,
    own_names,
    parameters_of,
    row_of_function,
    score,
    spoken,
    version_of,
)
from memowidgets.registry.row import PARAMETERS, Score, kept_row

__all__ = [
    "PARAMETERS",
    "Score",
    "about_row",
    "all_rows",
    "definitions_of",
    "find_row",
    "is_name",
    "kept_row",
    "own_names",
    "parameters_of",
    "row_of_function",
    "score",
    "spoken",
    "version_of",
]
