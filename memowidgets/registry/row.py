"""One row of the registry: a score with its names, its function and what that needs."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import Any

from memowidgets.vocabulary import visible

# What a score's function may ask for, and the shape in which it comes. A parameter of another name
# must have a default.
PARAMETERS: Mapping[str, str] = {
    "representations": "(n, d)",
    "logits": "(n, k)",
    "labels": "(n,)",
    "loss": "(n,)",
    "logit_gap": "(n,)",
    "losses": "(checkpoints, n)",
    "reference_gaps": "(m, n)",
    "shadow_gaps": "(m, n)",
    "shadow_members": "(m, n)",
    "target_gaps": "(n,)",
    "random_state": "int",
}


@dataclass(frozen=True, eq=False)
class Score:
    """A score: one row of the registry. A low value means risk, for every score.

    It has a function, or it is made of other rows: the mean of their ranks, or the mean of one row
    over the checkpoints so far.

    Attributes
    ----------
    name : str
        What users call it in code.
    spoken : str
        What a reader calls it, in pages, figures and reports.
    function : callable, optional
        Its parameters are what it needs, by the names in `PARAMETERS`. It returns one number for
        each member, NaN for one without a score; or a tuple of these numbers and their standard
        errors; or a tuple of both and a list of sentences that a reader must know. The errors may
        be None.
    definition : str
        What it is, in a sentence for a page.
    tau : float, optional
        Threshold that means the same for every model; None if there is none.
    version : str, optional
        Version of the function. With one, its values are kept in the run directory, and computed
        again for another version.
    mean_rank : tuple of str
        Names of the rows whose ranks are averaged. One that is given twice counts twice.
    mean_over_checkpoints : str
        Name of the row that is averaged over the checkpoints so far.
    at_once : bool
        Whether it takes so little time that it is computed wherever it is shown.
    on_device : bool
        Whether the function also takes representations as a tensor, which stays on the GPU of the
        audit. It must not write to them.
    fits_classes : bool
        Whether it fits each class, so that it is inaccurate for small classes.
    """

    name: str
    spoken: str
    function: Callable[..., Any] | None = None
    _: KW_ONLY
    definition: str = ""
    tau: float | None = None
    version: str | None = None
    mean_rank: tuple[str, ...] = ()
    mean_over_checkpoints: str = ""
    at_once: bool = False
    on_device: bool = False
    fits_classes: bool = False

    @property
    def parts(self) -> tuple[str, ...]:
        """Names of the rows that it is made of; empty for one that has a function."""
        if self.mean_over_checkpoints:
            return (self.mean_over_checkpoints,)
        return self.mean_rank

    @cached_property
    def parameters(self) -> tuple[str, ...]:
        """What the function asks for, by the names in `PARAMETERS`.

        Raises
        ------
        TypeError
            If it has another parameter without a default, or none of these.
        """
        if self.function is None:
            return ()
        valid = ", ".join(PARAMETERS)
        try:
            signature = inspect.signature(self.function)
        except (TypeError, ValueError):
            raise TypeError(
                f"the parameters of {self.name} cannot be read: write a function whose parameters "
                f"are among {valid}"
            ) from None
        asked = [
            each
            for each in signature.parameters.values()
            if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
        ]
        for each in asked:
            if each.name not in PARAMETERS and each.default is each.empty:
                raise TypeError(
                    f"{self.name} has the parameter {each.name!r}, which is not one of {valid}"
                )
        found = tuple(each.name for each in asked if each.name in PARAMETERS)
        if not found:
            raise TypeError(
                f"{self.name} has no parameter that says what it needs; valid: {valid}"
            )
        return found

    @property
    def is_gone(self) -> bool:
        """Whether its values were kept, and its function is not here."""
        return isinstance(self.function, _Gone)

    def call(self, arrays: Mapping[str, object]) -> Any:
        """Return what the function returns for these arrays, given by name."""
        function: Any = self.function
        bound = inspect.BoundArguments(inspect.signature(function), dict(arrays))
        return function(*bound.args, **bound.kwargs)


class _Gone:
    """In place of a function that is not here."""

    def __init__(self, parameters: list[str]) -> None:
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        each = [inspect.Parameter(name, kind) for name in parameters]
        self.__signature__ = inspect.Signature(each)

    def __call__(self, *_: object) -> None:
        raise ValueError(
            "its function is not here. Run the cell, or install the package, that adds it"
        )


def kept_row(name: str, about: Mapping[str, str]) -> Score:
    """Return a row without its function, from what was kept beside its values."""
    parameters = [one for one in about["needs"].split() if one in PARAMETERS]
    return Score(
        name,
        visible(about["spoken"]),
        _Gone(parameters),
        definition=visible(about.get("definition", "")),
        tau=float(about["tau"]) if "tau" in about else None,
        version=about["version"],
    )
