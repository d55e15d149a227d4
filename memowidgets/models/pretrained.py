"""Models of transformers from the hub or a folder: how they load, and which files these are."""

from __future__ import annotations

import copy
import hashlib
import json
import os
from collections.abc import Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, cast

from memowidgets.files import state_of
from memowidgets.models.heads import CLASSES, head_names, note_drawn
from memowidgets.network import check_revision, failure, hub_errors
from memowidgets.stamps import digest
from memowidgets.visible import first_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import nn


_WEIGHTS = ("*.safetensors", "*.safetensors.index.json")
_RECIPE = (  # other files that determine a model's answers
    "config.json",
    "adapter_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.*",
    "merges.txt",
    "*.model",
)

_known: dict[Path, tuple[tuple[int, ...], str]] = {}
DTYPES = ("auto", "float32", "bfloat16")
_BYTES = {"float32": 4, "bfloat16": 2}
_GB = 1e9


def cache_folder() -> Path:
    """Return the cache's folder: ``$MEMOWIDGETS_CACHE``, or one in the user's cache folder."""
    named = os.environ.get("MEMOWIDGETS_CACHE")
    base = os.environ.get("XDG_CACHE_HOME", "~/.cache")
    return Path(named) if named else Path(base).expanduser() / "memowidgets"


def folder_origin(folder: Path) -> dict[str, str]:
    """Return digests of a model's weights, and of its configuration and tokenizer.

    Raises
    ------
    OSError
        If a file cannot be read.
    """
    return {"weights": _files_digest(folder, _WEIGHTS), "recipe": _files_digest(folder, _RECIPE)}


def file_digest(file: Path) -> str:
    """Return a file's SHA-256, remembered as long as its size, times and inode stay the same."""
    path = file.resolve()
    state = state_of(path.stat())
    if _known.get(path, ((), ""))[0] != state:
        with path.open("rb") as opened:
            _known[path] = state, hashlib.file_digest(opened, "sha256").hexdigest()
    return _known[path][1]


def tokenizer_digest(tokenizer: Any) -> str:
    """Return a digest of a tokenizer without its padding and truncation, which users change."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return digest([type(tokenizer).__name__, sorted(tokenizer.get_vocab().items())])
    rules = json.loads(backend.to_str())
    return digest({**rules, "padding": None, "truncation": None})


def _files_digest(folder: Path, patterns: Iterable[str]) -> str:
    files = sorted({file for pattern in patterns for file in folder.glob(pattern)})
    return digest([(file.name, file_digest(file)) for file in files])


def random_weights(config: Any, kind: str, **changes: Any) -> nn.Module:
    """Return a model with random weights, of a configuration with some changes."""
    import transformers

    config = copy.deepcopy(config)
    for name, value in changes.items():
        setattr(config, name, value)
    return cast("nn.Module", getattr(transformers, kind).from_config(config))


class Pretrained:
    """Loader of the weights behind a name, which loads them anew into main memory on each call.

    Parameters
    ----------
    name : str
        Name on the hub, or path of a folder.
    kind : str
        Class of transformers that loads the model, of `CLASSES`.
    commit : str, optional
        Commit of the hub's repository that everything is loaded from.
    dtype : str
        One of `DTYPES`. ``"auto"`` is the type in the files.
    """

    def __init__(
        self, name: str, kind: str, commit: str | None = None, dtype: str = "float32"
    ) -> None:
        self.name, self.kind, self.commit, self.dtype = name, kind, commit, dtype
        self._origin: dict[str, str] | None = None

    @classmethod
    def at(
        cls,
        name_or_path: str | os.PathLike[str],
        revision: str | None,
        kind: str,
        dtype: str = "float32",
    ) -> Self:
        """Return the loader of a revision; on the hub, of the commit that it is at.

        Whatever is loaded after it is loaded from this commit, so that a repository that changes
        meanwhile cannot mix its states.

        Raises
        ------
        ValueError
            If there is no such revision, or a folder is given one.
        """
        from huggingface_hub import hf_hub_download

        name = str(name_or_path)
        check_revision(revision)
        if Path(name).is_dir():
            if revision is not None:
                raise ValueError(f"{name} is a folder, which has no revisions; leave revision out")
            return cls(name, kind, None, dtype)

        at = _explained(name, kind, lambda: hf_hub_download(name, "config.json", revision=revision))
        return cls(name, kind, Path(at).parent.name, dtype)

    @property
    def identity(self) -> dict[str, str]:
        """What names the model among a recipe's settings: the last part of its name."""
        return {"pretrained": self.name.rstrip("/").rsplit("/", 1)[-1]}

    @property
    def arguments(self) -> dict[str, str]:
        """Arguments by which `from_pretrained` loads the same files again."""
        pinned = {} if self.commit is None else {"revision": self.commit}
        return {"name_or_path": self.name, **pinned}

    def config(self) -> Any:
        """Return the configuration of the model; code that comes with it is never run."""
        from transformers import AutoConfig

        config = self._loaded(AutoConfig.from_pretrained)
        if getattr(config, "quantization_config", None):
            raise ValueError(
                f"the weights of {self.name} are quantised, and an audit needs them in full; "
                'choose the model that they were made from, with dtype="bfloat16" if memory is '
                "short"
            )
        return config

    def tokenizer(self) -> Any:
        """Return the tokenizer of the model."""
        from transformers import AutoTokenizer

        return self._loaded(AutoTokenizer.from_pretrained)

    def processor(self) -> Any:
        """Return the image processor of the model."""
        from transformers import AutoImageProcessor

        return self._loaded(AutoImageProcessor.from_pretrained)

    def origin(self) -> dict[str, str]:
        """Return digests of the folder's weights and other files, or the hub's commit.

        Raises
        ------
        ValueError
            If the files have changed since the first call.
        """
        folder = Path(self.name)
        found = folder_origin(folder) if folder.is_dir() else {"weights": f"commit {self.commit}"}
        if self._origin is None:
            self._origin = found
        if found != self._origin:
            raise ValueError(
                f"the files of {self.name} have changed since this model was created from them, so "
                "the base weights differ. Restore them, or create the model and the audit again"
            )
        return found

    def __call__(self, **changes: Any) -> nn.Module:
        """Return the model in main memory, after checking that its files have not changed.

        Its weights are mapped from the files, so that they take memory where they are used.

        The hub is asked only for files of the commit that this machine lacks, so shadow models that
        load the same weights send no request.

        Parameters
        ----------
        **changes
            Changes of the configuration, such as ``num_labels``.
        """
        self.origin()
        return cast("nn.Module", _explained(self.name, self.kind, lambda: self._load(**changes)))

    def _load(self, **changes: Any) -> Any:
        """Return the model, of which only the head of a classifier may be new.

        Raises
        ------
        ValueError
            If the files lack other weights, which would be random.
        """
        import torch
        import transformers

        options = {"use_safetensors": True, "dtype": self.dtype, **self._options()}
        with torch.device("meta"):
            self._check_memory(random_weights(self.config(), self.kind, **changes))
        kind = getattr(transformers, self.kind)
        with _quiet():
            model, found = kind.from_pretrained(
                output_loading_info=True,
                ignore_mismatched_sizes=bool(changes),
                **options,
                **changes,
            )
        model.name_or_path = self.name  # which an adapter names as its base
        if not changes:
            return model
        head = tuple(f"{part}." for part in head_names(model))
        lacking = sorted(key for key in found["missing_keys"] if not key.startswith(head))
        if lacking:
            raise ValueError(
                f"{self.name} lacks {len(lacking)} weights of {type(model).__name__} that are not "
                f"in its head, the first is {lacking[0]}; the folder is not of this model"
            )
        note_drawn(model, [*found["missing_keys"], *(key for key, *_ in found["mismatched_keys"])])
        return model

    def _check_memory(self, skeleton: Any) -> None:
        """Raise if the weights of a skeleton do not fit in main memory, before it is full."""
        import psutil

        dtype = skeleton.config.get_text_config().dtype
        stored = "float32" if dtype is None else str(dtype).removeprefix("torch.")
        kept_as = self.dtype if self.dtype != "auto" else stored
        n_parameters = sum(parameter.numel() for parameter in skeleton.parameters())
        needed, free = n_parameters * _BYTES.get(kept_as, 2), psutil.virtual_memory().available
        if needed > free:
            raise MemoryError(
                f"{self.name} needs {needed / _GB:.1f} GB of main memory in {kept_as}, and "
                f"{free / _GB:.1f} GB are free beside all other processes; use fewer of them, or a "
                "smaller model" + (', or dtype="bfloat16"' if kept_as == "float32" else "")
            )

    def _loaded(self, load: Callable[..., Any]) -> Any:
        return _explained(self.name, self.kind, lambda: load(**self._options()))

    def _options(self) -> dict[str, Any]:
        """Return what names the files for transformers."""
        which = {"revision": self.commit} if self.commit else {"local_files_only": True}
        return {"pretrained_model_name_or_path": self.name, "trust_remote_code": False, **which}


@contextmanager
def _quiet() -> Iterator[None]:
    """Hide progress bars and reports of loading, which every shadow model would show."""
    from transformers.utils import logging

    shown, level = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if shown:
            logging.enable_progress_bar()  # type: ignore[no-untyped-call]


def _explained(name: str, kind: str, load: Callable[[], Any]) -> Any:
    """Return the result of `load`, or raise one clear sentence about the hub or the folder."""
    from safetensors import SafetensorError

    failures: tuple[type[Exception], ...] = (ValueError, RuntimeError, *hub_errors())
    try:
        return load()
    except SafetensorError as error:
        raise ValueError(
            f"the weights of {name} are not whole ({first_line(error)}); get the files again"
        ) from error
    except failures as error:
        if "custom code" in str(error) or "trust_remote_code" in str(error):
            raise ValueError(
                f"{name} comes with its own code, which is never run; load it yourself and "
                f"pass it to {CLASSES[kind]}.from_model"
            ) from error
        if isinstance(error, OSError) and ".safetensors" in str(error):
            raise ValueError(
                f"{name} has no weights in safetensors, and pickles are never read because they "
                "can run code. If you trust it, convert it (load it, then save_pretrained), or "
                f"load it yourself and pass it to {CLASSES[kind]}.from_model"
            ) from error
        if isinstance(error, hub_errors()) and not Path(name).is_dir():
            missing = f"{name} is neither a folder with a model nor available on the hub"
            raise failure(error, name, missing) from error
        raise
