"""What is imported late: names when they are used, and libraries that the plain install lacks."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

PURPOSES = {
    "train": "training and auditing models",
    "llm": "language models and for models and data of the hub",
    "figures": "figures",
    "vision": "pictures in files",
    "quantized": "weights in 4 bits",
    "lab": "notebooks and dashboards in the browser",
    "dask": "Dask clusters",
}
LIBRARIES = {
    "torch": "train",
    "loky": "train",
    "transformers": "llm",
    "peft": "llm",
    "huggingface_hub": "llm",
    "pyarrow": "llm",
    "bitsandbytes": "quantized",
    "altair": "figures",
    "vl_convert": "figures",
    "PIL": "vision",
    "dask": "dask",
    "distributed": "dask",
}


def pip_install(extra: str) -> str:
    """Return the command that installs an extra.

    Examples
    --------
    >>> pip_install("train")
    "pip install 'memowidgets[train]'"
    """
    return f"pip install 'memowidgets[{extra}]'"


def later(package: str, places: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a package that imports its names when they are first used.

    Parameters
    ----------
    package : str
        Name of the package.
    places : mapping
        Module in which each name is, or the module that it is.
    """

    def found(name: str) -> Any:
        if name not in places:
            raise AttributeError(
                f"{package} has no {name!r}; it has {', '.join(places)}"
            )
        module = import_module(places[name])
        return module if places[name].endswith(f".{name}") else getattr(module, name)

    return found


def installed(packages: Iterable[str]) -> dict[str, str]:
    """Return the versions of those packages that are installed.

    Examples
    --------
    >>> list(installed(["numpy", "no-such-package"]))
    ['numpy']
    """
    # not needed by `import memowidgets`, which stays fast
    from importlib import (
        metadata,
    )

    versions = {}
    for name in packages:
        with suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return versions


class _MissingExtras:
    """Finder of modules that stands last, so that it is asked only for what is not installed."""

    @staticmethod
    def find_spec(
        name: str, _path: Sequence[str] | None = None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Raise for a library of an extra that our own code imports; all others go on as ever."""
        extra = LIBRARIES.get(name)
        if extra is None:
            return None
        frame = sys._getframe(1)  # noqa: SLF001 - who imports is told to nobody
        while frame.f_back and frame.f_code.co_filename.startswith(
            "<frozen importlib._bootstrap"
        ):
            frame = frame.f_back
        if not str(frame.f_globals.get("__name__")).startswith(f"{__package__}."):
            return None
        raise ModuleNotFoundError(
            f"{name} is not installed, which is needed for {PURPOSES[extra]}: {pip_install(extra)}",
            name=name,
        )


def name_missing_extras() -> None:
    """Let an import in this package, anywhere, say which extra has a library that is missing."""
    if not any(finder is _MissingExtras for finder in sys.meta_path):
        sys.meta_path.append(_MissingExtras)
