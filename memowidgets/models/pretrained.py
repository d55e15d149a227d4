"""Loading of models of transformers from the hub or a folder, with checks of their size."""

from __future__ import annotations

from contextlib import contextmanager, nullcontext, suppress
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from memowidgets.models.digests import folder_origin
from memowidgets.network import (
    check_revision,
    hub_errors,
    hub_may_be_asked,
    is_of_download,
    reason_of,
    refusal,
    without_the_hub,
    without_the_hub_for,
)
from memowidgets.visible import first_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import torch
    from torch import nn


DTYPES = ("auto", "float32", "bfloat16")
_BYTES = {"float32": 4, "bfloat16": 2}
_GB = 1e9
_CAUSAL = "AutoModelForCausalLM"
CLASSES = {  # classes of this package by the class of transformers that loads their models
    _CAUSAL: "CausalLM",
    "AutoModelForSequenceClassification": "SequenceClassifier",
    "AutoModelForImageClassification": "ImageClassifier",
}
_PROCESSORS = ("preprocessor_config.json", "processor_config.json")


def commit_at(name: str, revision: str | None, kind: str) -> str | None:
    """Return the commit of the hub's repository that a revision is at; None for a folder.

    Whatever is loaded after it is loaded from this commit, so that a repository that changes
    meanwhile cannot mix its states.

    Raises
    ------
    ValueError
        If there is no such revision, or a folder is given one.
    """
    from huggingface_hub import hf_hub_download

    check_revision(revision)
    if Path(name).is_dir():
        if revision is not None:
            raise ValueError(f"{name} is a folder, which has no revisions; leave revision out")
        return None

    def ask() -> str:
        local = not hub_may_be_asked()
        return hf_hub_download(name, "config.json", revision=revision, local_files_only=local)

    return Path(_explained(name, ask, kind)).parent.name


def load_config(name: str, kind: str = _CAUSAL, revision: str | None = None) -> Any:
    """Return the configuration of a model; code that comes with it is never run."""
    from transformers import AutoConfig

    load = partial(AutoConfig.from_pretrained, name, **_options(revision))
    config = _explained(name, load, kind)
    if getattr(config, "quantization_config", None):
        raise ValueError(
            f"the weights of {name} are quantised, and an audit needs them in full; choose the "
            'model that they were made from, with dtype="bfloat16" if memory is short'
        )
    return config


def pinned(commit: str | None) -> dict[str, str]:
    """Return the argument by which `from_pretrained` loads the same files again."""
    return {} if commit is None else {"revision": commit}


def load_tokenizer(name: str, kind: str = _CAUSAL, revision: str | None = None) -> Any:
    """Return the tokenizer of a model."""
    from transformers import AutoTokenizer

    load = partial(AutoTokenizer.from_pretrained, name, **_options(revision))
    return _explained(name, load, kind)


def load_processor(name: str, kind: str, revision: str | None = None) -> Any:
    """Return the image processor of a model.

    Raises
    ------
    ValueError
        If a folder has none.
    """
    from transformers import AutoImageProcessor

    folder = Path(name)
    if folder.is_dir() and not any((folder / file).is_file() for file in _PROCESSORS):
        raise ValueError(
            f"{name} has no {_PROCESSORS[0]}, which states the size and normalisation of its "
            "images; save the model's image processor there with save_pretrained"
        )
    load: Callable[..., Any] = AutoImageProcessor.from_pretrained
    return _explained(name, partial(load, name, **_options(revision)), kind)


def _options(revision: str | None = None) -> dict[str, Any]:
    local = not hub_may_be_asked()
    return {"trust_remote_code": False, "local_files_only": local, **pinned(revision)}


class Pretrained:
    """Loader of the weights behind a name, which loads them anew into main memory on each call.

    Parameters
    ----------
    name : str
        Name on the hub, or path of a folder.
    dtype : str
        One of `DTYPES`. ``"auto"`` is the type in the files.
    commit : str, optional
        Commit of the hub's repository that the configuration was read from.
    kind : str
        Class of transformers that loads the model.
    """

    def __init__(
        self, name: str, dtype: str, commit: str | None = None, kind: str = _CAUSAL
    ) -> None:
        self._name, self._dtype, self._local = name, dtype, not hub_may_be_asked()
        self._commit, self._kind = commit, kind
        self._origin: dict[str, str] | None = None

    def origin(self) -> dict[str, str]:
        """Return digests of the folder's weights and other files, or the hub's commit.

        Raises
        ------
        ValueError
            If the files have changed since the first call.
        """
        folder = Path(self._name)
        found = folder_origin(folder) if folder.is_dir() else {"weights": f"commit {self._commit}"}
        if self._origin is None:
            self._origin = found
        if found != self._origin:
            raise ValueError(
                f"the files of {self._name} have changed since this model was created from them, "
                "so the "
                "base weights differ. Restore them, or create the model and the audit again"
            )
        return found

    def __call__(self, **changes: Any) -> nn.Module:
        """Return the model in main memory, after checking that its files have not changed.

        The hub is asked only for files of the commit that this machine lacks, so shadow models that
        load the same weights send no request.

        Parameters
        ----------
        **changes
            Changes of the configuration, such as ``num_labels``.
        """
        self.origin()
        with without_the_hub() if self._local else nullcontext():
            work = partial(self._here_or_there, **changes)
            return cast("nn.Module", _explained(self._name, work, self._kind))

    def _here_or_there(self, **changes: Any) -> Any:
        if self._commit is not None and not self._local:
            with suppress(OSError, ValueError), without_the_hub():
                return self._load(**changes)
        return self._load(**changes)

    def _load(self, **changes: Any) -> Any:
        import transformers

        check_memory(self._name, self._dtype, self._kind, self._commit)
        load = partial(
            getattr(transformers, self._kind).from_pretrained,
            self._name,
            use_safetensors=True,
            dtype=self._dtype,
            **_options(self._commit),
        )
        with _quiet():
            return load() if self._kind == _CAUSAL else _with_head(load, self._name, **changes)


def _with_head(load: Callable[..., Any], name: str, **changes: Any) -> Any:
    """Return a classifier, of which only the head may be new.

    Raises
    ------
    ValueError
        If the files lack other weights, which would be random.
    """
    from memowidgets.models.pooling import head_names

    model, found = load(output_loading_info=True, ignore_mismatched_sizes=True, **changes)
    head = tuple(f"{part}." for part in head_names(model))
    lacking = sorted(key for key in found["missing_keys"] if not key.startswith(head))
    if lacking:
        raise ValueError(
            f"{name} lacks {len(lacking)} weights of {type(model).__name__} that are not in its "
            f"head, the first is {lacking[0]}; the folder is not of this model"
        )
    return model


def check_memory(name: str, dtype: str, kind: str = _CAUSAL, revision: str | None = None) -> None:
    """Raise if the weights do not fit in main memory, before it is full.

    Raises
    ------
    MemoryError
        With the needed and the free size.
    """
    import psutil

    kept_as = dtype if dtype != "auto" else _stored_dtype(name, revision)
    needed = _n_parameters(name, kind, revision) * _BYTES.get(kept_as, 2)
    free = psutil.virtual_memory().available
    if needed > free:
        raise MemoryError(
            f"{name} needs {needed / _GB:.1f} GB of main memory in {kept_as}, and "
            f"{free / _GB:.1f} GB are free; choose a smaller model"
            + (', or dtype="bfloat16"' if kept_as == "float32" else "")
        )


def placed(module: nn.Module, device: torch.device, *, bfloat16: bool) -> nn.Module:
    """Return a module on a device: frozen weights in bfloat16 or float32, others float32."""
    import torch

    for parameter in module.parameters():
        if parameter.is_floating_point():
            frozen = torch.bfloat16 if bfloat16 else torch.float32
            dtype = torch.float32 if parameter.requires_grad else frozen
            parameter.data = parameter.data.to(dtype)
    return module.to(device)


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


@lru_cache(maxsize=8)
def _n_parameters(name: str, kind: str = _CAUSAL, revision: str | None = None) -> int:
    import torch
    import transformers

    with torch.device("meta"):
        skeleton = getattr(transformers, kind).from_config(load_config(name, kind, revision))
    return sum(parameter.numel() for parameter in skeleton.parameters())


def _stored_dtype(name: str, revision: str | None = None) -> str:
    dtype = load_config(name, revision=revision).get_text_config().dtype
    return str(dtype).removeprefix("torch.") if dtype is not None else "float32"


def _explained(name: str, load: Callable[[], Any], kind: str) -> Any:
    """Return the result of `load`, or raise one clear sentence about the hub or the folder."""
    from safetensors import SafetensorError

    failures: tuple[type[Exception], ...] = (ValueError, RuntimeError, *hub_errors())
    try:
        with without_the_hub_for(name):
            return load()
    except SafetensorError as error:
        raise ValueError(
            f"the weights of {name} are not whole ({reason_of(error)}); get the files again"
        ) from error
    except failures as error:
        known = refusal(name, error)
        if known is not None:
            raise known from error
        if "custom code" in str(error) or "trust_remote_code" in str(error):
            raise ValueError(
                f"{name} comes with its own code, which is never run; load it yourself and "
                f"pass it to {CLASSES[kind]}.from_model"
            ) from error
        if "Unrecognized model" in str(error):
            reason = first_line(error)
            raise ValueError(f"{name} has no model that transformers knows: {reason}") from error
        if isinstance(error, OSError) and ".safetensors" in str(error):
            raise ValueError(
                f"{name} has no weights in safetensors, and pickles are never read because they "
                "can "
                "run code. If you trust it, convert it (load it, then save_pretrained), or "
                f"load it yourself and pass it to {CLASSES[kind]}.from_model"
            ) from error
        if is_of_download(error):
            raise ConnectionError(
                f"{name} is neither a folder with a model nor available on the hub "
                f"({reason_of(error)})"
            ) from error
        raise
