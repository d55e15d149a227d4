"""Where data and model of a run came from, and how far its manifest is followed to them.

A manifest may be anybody's. What it names is made again only where that is bounded work which
reads nothing but the package itself and the hub's local copies. A path is read only when the
caller of `Audit.open` names it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from memowidgets.store import StoreError
from memowidgets.visible import visible

__all__ = ["Origin", "PathLike"]

PathLike = str | os.PathLike[str]

_HUB_NAME = re.compile(r"[\w-][\w.-]*(/[\w-][\w.-]*)?")
_PATHS = {  # the argument of a loader or model that may name a path
    "from_folder": "path",
    "MCQDataset.from_csv": "path",
    "MCQDataset.from_jsonl": "path",
    "TableDataset.from_csv": "path",
    "TableDataset.from_jsonl": "path",
    "TextDataset.from_csv": "path",
    "TextDataset.from_jsonl": "path",
    "fetch_mcq": "source",
    "fetch_cifar10": "source",
    "CausalLM.from_pretrained": "name_or_path",
    "SequenceClassifier.from_pretrained": "name_or_path",
    "ImageClassifier.from_pretrained": "name_or_path",
}


class Origin:
    """What made the data, or the model, of a run.

    Parameters
    ----------
    recipe : dict or None
        As a manifest holds it: who made it (`key`), with which arguments; None where that is
        not known.
    key : {"loader", "model"}
        Of the data or of the model.
    manifest : str
        The file that it is from.

    Raises
    ------
    StoreError
        If it is neither None nor a recipe.
    """

    def __init__(self, recipe: Any, key: str, manifest: str) -> None:
        self._what = {"loader": "data", "model": "model"}[key]
        self.maker, self.arguments = "", {}
        if recipe is None:
            return
        shaped = isinstance(recipe, dict) and isinstance(recipe.get("arguments"), dict)
        if not shaped or not isinstance(recipe.get(key), str):
            raise StoreError(f"{manifest} is broken: it does not say how its {self._what} was made")
        self.maker, self.arguments = recipe[key], dict(recipe["arguments"])

    @property
    def path(self) -> str | None:
        """The path on this machine that it was made from; None where it was made from none."""
        named = self.arguments.get(_PATHS.get(self.maker, ""))
        if named is None:
            return None
        return None if self._is_on_hub(str(named)) else str(named)

    @property
    def hint(self) -> str:
        """What to pass to `Audit.open`, so that it is there."""
        return f"{self._what}=" + ("…" if self.path is None else f"'{visible(self.path, 300)}'")

    def at(self, path: PathLike) -> Mapping[str, Any]:
        """The arguments with a path that the caller names.

        Raises
        ------
        ValueError
            If this was not made from a path.
        """
        if self.maker not in _PATHS:
            raise ValueError(
                f"{self._what} is a path, but the {self._what} of this run was not made from one: "
                f"pass the {'dataset' if self._what == 'data' else 'model'} itself"
            )
        kept = {name: value for name, value in self.arguments.items() if name != "revision"}
        return {**kept, _PATHS[self.maker]: str(Path(path).expanduser())}

    def _is_on_hub(self, name: str) -> bool:
        if self._what == "data":
            return name == "hub"
        return _HUB_NAME.fullmatch(name) is not None and not Path(name).exists()
