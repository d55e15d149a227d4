"""Where a model of transformers begins: files of the hub or a folder, or a model in memory."""

from __future__ import annotations

import copy
import hashlib
import json
import os
from collections.abc import Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from memowidgets.files import digest, state_of
from memowidgets.models.heads import (
    CLASSES,
    check_config,
    draw_again,
    head_names,
    note_drawn,
    plain,
)
from memowidgets.models.lora import check_adapters
from memowidgets.models.quantized import (
    check_method,
    check_packed,
    forget_states,
    is_packed,
    put_together,
    quantization_config,
    state_arrays,
    states_of,
    warn_of_repacked,
)
from memowidgets.network import check_revision, failure, hub_errors
from memowidgets.vocabulary import first_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor, nn


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
    found = {}
    for name, patterns in (("weights", _WEIGHTS), ("recipe", _RECIPE)):
        files = sorted({file for pattern in patterns for file in folder.glob(pattern)})
        found[name] = digest([(file.name, file_digest(file)) for file in files])
    return found


def file_digest(file: Path) -> str:
    """Return a file's SHA-256, remembered as long as its size, times and inode stay the same."""
    path = file.resolve()
    state = state_of(path.stat())
    if _known.get(path, ((), ""))[0] != state:
        with path.open("rb") as opened:
            _known[path] = state, hashlib.file_digest(opened, "sha256").hexdigest()
    return _known[path][1]


def reader_digest(reader: Any) -> str:
    """Return a digest of what a tokenizer or an image processor does.

    A tokenizer's padding and truncation, which users change, are no part of it.
    """
    if not hasattr(reader, "get_vocab"):
        named = ("image_processor_type", "processor_class")  # whatever is installed
        stated = reader.to_dict()
        rules = {k: v for k, v in stated.items() if k not in named and v is not None}
        return digest(json.loads(json.dumps(rules, sort_keys=True, default=str)))
    backend = getattr(reader, "backend_tokenizer", None)
    if backend is None:
        return digest([type(reader).__name__, sorted(reader.get_vocab().items())])
    rules = json.loads(backend.to_str())
    return digest({**rules, "padding": None, "truncation": None})


def random_weights(config: Any, kind: str, **changes: Any) -> nn.Module:
    """Return a model with random weights, of a configuration with some changes."""
    import transformers

    config = copy.deepcopy(config)
    for name, value in changes.items():
        setattr(config, name, value)
    return cast("nn.Module", getattr(transformers, kind).from_config(config))


class Pretrained:
    """Loader of the weights behind a name, which loads them anew into main memory on each call.

    On the hub they are of one commit: a repository that changes meanwhile cannot mix its states.

    Parameters
    ----------
    name_or_path : str or path-like
        Name on the hub, or a folder.
    revision : str or None
        Branch, tag or commit on the hub. None is the newest.
    kind : str
        Class of transformers that loads the model, of `CLASSES`.
    dtype : str
        Type of the weights in main memory, ``"float32"`` or ``"auto"``, the type in the files.
    quantization : str or None
        Into what the frozen weights are quantised when they are loaded, of `QUANTIZATIONS`.

    Raises
    ------
    ValueError
        If there is no such revision, or a folder is given one.
    """

    def __init__(
        self,
        name_or_path: str | os.PathLike[str],
        revision: str | None,
        kind: str,
        dtype: str = "float32",
        quantization: str | None = None,
    ) -> None:
        from huggingface_hub import hf_hub_download

        self.name = name = str(name_or_path)
        self.kind = kind
        self.dtype = dtype
        self.quantization = quantization
        self.commit: str | None = None
        self._origin: dict[str, str] | None = None
        check_revision(revision)
        if not Path(name).is_dir():
            file = _explain(
                name,
                kind,
                lambda: hf_hub_download(name, "config.json", revision=revision),
            )
            self.commit = Path(file).parent.name
        elif revision is not None:
            raise ValueError(
                f"{name} is a folder, which has no revisions; leave revision out"
            )

    @property
    def identity(self) -> dict[str, str]:
        """What names the model among a recipe's settings: the last part of its name."""
        named = {"pretrained": self.name.rstrip("/").rsplit("/", 1)[-1]}
        if self.quantization is not None:
            named["quantization"] = self.quantization
        return named

    @property
    def arguments(self) -> dict[str, str]:
        """Arguments by which `from_pretrained` loads the same files again."""
        found = {"name_or_path": self.name}
        if self.commit is not None:
            found["revision"] = self.commit
        if self.quantization is not None:
            found["quantization"] = self.quantization
        return found

    def config(self) -> Any:
        """Return the configuration of the model; code that comes with it is never run."""
        from transformers import AutoConfig

        config = self._loaded(AutoConfig.from_pretrained)
        check_method(self.name, getattr(config, "quantization_config", None))
        if self.kind.endswith("Classification"):
            check_config(config, self.name, self.kind)
        return config

    def reader(self, kind: str) -> Any:
        """Return the tokenizer or image processor that a class of transformers loads."""
        import transformers

        return self._loaded(getattr(transformers, kind).from_pretrained)

    def origin(self) -> dict[str, str]:
        """Return digests of the folder's weights and other files, or the hub's commit.

        Raises
        ------
        ValueError
            If the files have changed since the first call.
        """
        folder = Path(self.name)
        found = (
            folder_origin(folder)
            if folder.is_dir()
            else {"weights": f"commit {self.commit}"}
        )
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
        return cast(
            "nn.Module", _explain(self.name, self.kind, lambda: self._load(**changes))
        )

    def _load(self, **changes: Any) -> Any:
        """Return the model, of which only the head of a classifier may be new.

        Raises
        ------
        ValueError
            If the files lack other weights, which would be random.
        """
        import transformers

        options = {"use_safetensors": True, "dtype": self.dtype, **self._options()}
        config = self.config()
        is_quantized = bool(getattr(config, "quantization_config", None))
        if self.quantization is not None and not is_quantized:
            options["quantization_config"] = self._quantization_config(config, changes)
            is_quantized = True
        if is_quantized:  # transformers would put them on a GPU
            options["device_map"] = {"": "cpu"}
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
        lacking = sorted(
            key for key in found["missing_keys"] if not key.startswith(head)
        )
        if lacking:
            raise ValueError(
                f"{self.name} lacks {len(lacking)} weights of {type(model).__name__} that are not "
                f"in its head, the first is {lacking[0]}; the folder is not of this model"
            )
        note_drawn(
            model,
            [*found["missing_keys"], *(key for key, *_ in found["mismatched_keys"])],
        )
        return model

    def _quantization_config(self, config: Any, changes: dict[str, Any]) -> Any:
        """Return how the weights are quantised: all but the head, which is trained or exact."""
        import torch

        if not changes:
            return quantization_config(None)
        with torch.device("meta"):
            classifier = random_weights(config, self.kind, **changes)
        return quantization_config(head_names(classifier))

    def _loaded(self, load: Callable[..., Any]) -> Any:
        return _explain(self.name, self.kind, lambda: load(**self._options()))

    def _options(self) -> dict[str, Any]:
        """Return what names the files for transformers."""
        which = {"revision": self.commit} if self.commit else {"local_files_only": True}
        return {
            "pretrained_model_name_or_path": self.name,
            "trust_remote_code": False,
            **which,
        }


@contextmanager
def _quiet() -> Iterator[None]:
    """Hide progress bars and reports of loading, which every shadow model would show."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    level = logging.get_verbosity()
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if shown:
            logging.enable_progress_bar()  # type: ignore[no-untyped-call]


def _explain(name: str, kind: str, load: Callable[[], Any]) -> Any:
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
            missing = (
                f"{name} is neither a folder with a model nor available on the hub"
            )
            raise failure(error, name, missing) from error
        raise


class Given:
    """Loader that returns copies of a model in memory.

    Parameters
    ----------
    model : torch.nn.Module
        The model. Its values are copied to main memory, one tensor at a time.
    lora : LoRA, optional
        Adapters to add.
    in_full : bool
        Whether the values become float32.

    Attributes
    ----------
    config : transformers.PretrainedConfig
        Configuration of the model.
    identity : dict of str
        Digests of the values, and of which are not trained.
    is_partly_fixed : bool
        Whether some weights are not trained although no adapters are added.
    lacks_adapters : bool
        Whether weights are in 4 bits and have no adapters, which a Trainer may add. An audit cannot
        train such a model itself.

    Raises
    ------
    TypeError
        If the model cannot be copied.
    ValueError
        If weights are quantised in another way than 4 bits of bitsandbytes, offloaded, or spread
        over devices, or an adapter adds tokens or is merged.

    Warns
    -----
    UserWarning
        If an evaluation has repacked weights in 4 bits.
    """

    def __init__(
        self, model: nn.Module, lora: object = None, *, in_full: bool = False
    ) -> None:
        import torch

        _check_whole(model)
        warn_of_repacked(model)
        check_packed(model)
        check_adapters(model)
        self.identity = _identity_of(model, lora)
        self.is_partly_fixed = "fixed" in self.identity
        has_adapters = lora is not None or hasattr(model, "get_base_model")
        self.lacks_adapters = not has_adapters and any(
            map(is_packed, model.parameters())
        )

        def copied(tensor: Tensor) -> Tensor:
            wanted = (
                torch.float32
                if in_full and tensor.is_floating_point()
                else tensor.dtype
            )
            return tensor.detach().to("cpu", wanted, copy=True)

        # as arrays, which all processes of a machine map from one file
        found = [copied(p.data).contiguous() for p in model.parameters()]
        self._values = [
            (v.reshape(-1).view(torch.uint8).numpy(), v.dtype, v.shape) for v in found
        ]
        self._states = [
            state_arrays(p) if is_packed(p) else None for p in model.parameters()
        ]
        bare = {id(p): _parameter(p.data.new_empty(0), p) for p in model.parameters()}
        buffers = {id(b): copied(b) for b in model.buffers()}
        self._model = _copied(model, {**bare, **buffers})
        forget_states(self._model)
        self.config = cast("Any", self._model.config)
        self.config.return_dict = True  # answers are read by name
        if not self.config.architectures:  # transformers may choose a class by it
            self.config.architectures = [type(plain(self._model)).__name__]

    def __call__(self, **_changes: Any) -> nn.Module:
        """Return a copy of the model."""
        import torch

        made = copy.deepcopy(self._model)
        packed: dict[int, tuple[Tensor, dict[str, Any]]] = {}
        for p, (values, dtype, shape), state in zip(
            made.parameters(), self._values, self._states, strict=True
        ):
            content = torch.from_numpy(values.copy()).view(dtype).view(shape)
            if state is None:
                p.data = content
            else:
                packed[id(p)] = content, state
        for part in made.modules():
            own = part._parameters  # noqa: SLF001 - the registered ones
            for name, bare in own.items():
                if id(bare) in packed:
                    own[name] = put_together(*packed[id(bare)], part)
        return made

    def parts(self) -> Iterator[nn.Module]:
        """Return the parts of the model."""
        return self._model.modules()


def _copied(model: nn.Module, known: dict[int, Any]) -> nn.Module:
    """Return a copy of a model, with what is known in place of its tensors."""
    try:
        return copy.deepcopy(model, known)
    except (TypeError, RuntimeError) as error:
        raise TypeError(
            f"{type(model).__name__} cannot be copied ({first_line(error)}), and an audit trains "
            "copies of it. Take off what holds that, such as a lock or an open file"
        ) from error


class Base:
    """A model before any training, whose frozen weights all of its copies share.

    Only the weights are shared. A copy has its own head, buffers and attributes, so that training
    one copy changes no other.

    Parameters
    ----------
    model : torch.nn.Module
        The model as it was loaded.
    trained : iterable of torch.nn.Parameter
        Weights that are not frozen, such as those of a head.
    place : callable
        Function that returns the values of a frozen weight in the type and on the device of
        training.
    """

    def __init__(
        self,
        model: nn.Module,
        trained: Iterable[nn.Parameter],
        place: Callable[[Tensor], Tensor],
    ) -> None:
        from torch import nn

        own = {id(p) for p in trained}
        self._model = model
        self._loaded = {id(p): p for p in model.parameters() if id(p) not in own}
        self._placed: dict[int, nn.Parameter] = {}
        for key, p in self._loaded.items():
            if is_packed(p):
                packed = place(p)  # of its own class, with its state
                self._placed[key] = cast("nn.Parameter", packed)
            else:
                values = place(p.detach())
                self._placed[key] = nn.Parameter(values, requires_grad=False)

    def copy(self) -> nn.Module:
        """Return a copy with the frozen weights as they were loaded.

        Adapters are rounded to the type of the weight that they are added to, so they are added
        before `fill`. A head that is not in the model's files is drawn from torch's generator.
        """
        states = {id(state): state for state in states_of(self._model)}
        made = copy.deepcopy(self._model, {**self._loaded, **states})
        draw_again(made)
        return made

    def fill(self, module: nn.Module) -> None:
        """Give a copy the frozen weights of training, also where they are tied."""
        for part in module.modules():
            own = part._parameters  # noqa: SLF001 - the registered ones
            own.update({name: self._placed.get(id(p), p) for name, p in own.items()})


def _parameter(values: Tensor, like: nn.Parameter) -> nn.Parameter:
    from torch import nn

    return nn.Parameter(values, requires_grad=like.requires_grad)


def _check_whole(model: Any) -> None:
    """Raise for a model whose weights are not all there, on one device."""
    places = {str(p.device) for p in model.parameters()}
    if "meta" in places or len(places) > 1:
        raise ValueError(
            f"from_model needs all weights on one device, but those of {type(model).__name__} are "
            f'on {", ".join(sorted(places))}; load it with device_map={{"": "cpu"}}, and with '
            'dtype="bfloat16" or in 4 bits if memory is short'
        )


def _identity_of(model: Any, lora: object) -> dict[str, str]:
    """Return digests of a model in memory: of all its values, and of which are not trained.

    With adapters, no other weight is trained, whatever requires a gradient. Of weights in 4 bits,
    the state is among the lasting values.
    """
    import torch

    found = hashlib.sha256(json.dumps(model.config.to_dict(), default=str).encode())
    trained = dict(model.named_parameters(remove_duplicate=False))
    buffers = [
        value for name, value in model.state_dict().items() if name not in trained
    ]
    for values in (*model.parameters(), *buffers):  # buffers such as running means
        content = values.detach().cpu()
        exact = content.view(torch.uint8) if is_packed(values) else content.float()
        found.update(memoryview(exact.contiguous().numpy()))
    fixed = [
        name for name, value in model.named_parameters() if not value.requires_grad
    ]
    named = {"fixed": digest(fixed)} if fixed and lora is None else {}
    return {"weights": found.hexdigest()[:16], **named}
