"""Classifiers of images: models of transformers with an image classification head."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

import numpy as np
from numpy.typing import NDArray

from memowidgets.data import Dataset
from memowidgets.models.base import restore_modes, unwrap
from memowidgets.models.device import sent
from memowidgets.models.heads import check_classifier, head_of, positions_read
from memowidgets.models.pretrained import Given, Pretrained
from memowidgets.models.quantized import check_full
from memowidgets.models.transformer import CLASSIFIER, TransformerModel
from memowidgets.models.vision import ImageModel, images_of
from memowidgets.vocabulary import first_line

if TYPE_CHECKING:
    import os

    import torch
    from torch import Tensor, nn


_MOST_KEPT = 1 << 30  # bytes of processed images that are kept in memory
_AT_ONCE = 64  # images that the processor gets in one call


class ImageClassifier(TransformerModel, ImageModel):
    """Classifier of images: a model of transformers with an image classification head.

    Created by `from_pretrained` or `from_model`. It takes any model that transformers loads with
    ``AutoModelForImageClassification``. The model's image processor brings the pixels of an
    `ImageDataset` to the model's size and normalisation. All weights are trained. The logits are
    computed in float32 in any precision.

    Notes
    -----
    Layer k is ``hidden_states[k]``. Tokens, (batch, tokens, width), are read at the first one if
    the head reads only this one, as in ViT, and averaged otherwise. Maps, (batch, channels,
    height, width), are averaged over rows and columns, as in ResNet.

    Processed images are kept in memory if they take less than 1 GiB. Otherwise the processor runs
    for every batch.

    Examples
    --------
    >>> import torch
    >>> from transformers import ViTConfig, ViTForImageClassification, ViTImageProcessorPil
    >>> from memowidgets.data import load_digits
    >>> config = ViTConfig(
    ...     image_size=8, patch_size=4, num_channels=1, hidden_size=16, num_hidden_layers=2,
    ...     num_attention_heads=2, intermediate_size=32, num_labels=10,
    ... )
    >>> _ = torch.manual_seed(0)
    >>> processor = ViTImageProcessorPil(do_resize=False, image_mean=[0.5], image_std=[0.5])
    >>> model = ImageClassifier.from_model(ViTForImageClassification(config), processor)
    >>> model.layer_names(model.build(load_digits()))
    ('1', '2')
    """

    kind: ClassVar[str] = "AutoModelForImageClassification"

    @classmethod
    def from_pretrained(
        cls,
        name_or_path: str | os.PathLike[str],
        *,
        device: str | None = None,
        revision: str | None = None,
    ) -> Self:
        """Create a model from the hub or from a folder, to be fine-tuned.

        Its head has as many logits as the data have classes. A head in the files is kept if it has
        that width, else a new one is initialised from the audit's seed.

        Parameters
        ----------
        name_or_path : str or path-like
            Name or folder, as for transformers. Code that comes with a model is never run, and only
            weights in safetensors are read.
        device : str, optional
            Default device of an audit, as torch names it.
        revision : str, optional
            Branch, tag or commit on the hub. By default the newest. Its commit is recorded, so that
            a run loads the same files again after the repository has changed.

        Returns
        -------
        ImageClassifier

        Raises
        ------
        ConnectionError
            If the name is not a folder and the hub cannot provide it.
        PermissionError
            If the hub requires that you first accept the model's licence.
        ValueError
            If transformers has no classifier of this kind, the folder has no image processor, or
            the head is for several labels at once or for regression.
        """
        load = Pretrained(name_or_path, revision, cls.kind)
        config = load.config()
        model = cls(
            load, config, load.reader("AutoImageProcessor"), load.identity, CLASSIFIER
        )
        model.device = device
        model.source = {
            "model": "ImageClassifier.from_pretrained",
            "arguments": load.arguments,
        }
        return model

    @classmethod
    def from_model(cls, model: Any, processor: Any) -> Self:
        """Create a model from one in memory; training uses copies of it.

        Parameters
        ----------
        model : transformers.PreTrainedModel
            Any ``…ForImageClassification`` with one logit for each class of the data. All weights
            that require a gradient are trained.
        processor : transformers.BaseImageProcessor
            Image processor of the model.

        Returns
        -------
        ImageClassifier

        Raises
        ------
        TypeError
            If it is not an image classifier of transformers, or the processor is not one.
        ValueError
            If its head is for several labels at once or for regression, or its weights are
            quantised, offloaded or spread over devices.
        """
        model = unwrap(model)
        check_classifier(model, cls.kind)
        if not callable(processor) or not hasattr(processor, "to_dict"):
            raise TypeError(
                f"processor must be the model's image processor, not {type(processor).__name__}; "
                "load it with AutoImageProcessor.from_pretrained"
            )
        check_full(model)
        load = Given(model, in_full=True)
        return cls(load, load.config, processor, load.identity, CLASSIFIER)

    def check_data(self, data: Dataset) -> None:
        """Raise for a dataset without images, or with others than the model reads.

        Raises
        ------
        TypeError
            If the data are not images.
        ValueError
            If the head's width is not the number of classes, its configuration has their names in
            another order, or the model cannot take the images.
        """
        images_of(data)
        self._check_classes(data)
        self.skeleton(data)

    def skeleton(self, data: Dataset) -> nn.Module:
        """Return the module without weights, after a check that it takes the images."""
        import torch

        with torch.device("meta"):
            module = self._from_config(data)
        return self._try_one_image(module, data)

    def build(self, data: Dataset) -> nn.Module:
        """Return the model with its head, which torch's generator initialises if it is new."""
        return self._try_one_image(self._fresh(data), data)

    def feeder(
        self,
        data: Dataset,
        device: torch.device,
        precision: str = "auto",  # noqa: ARG002 - nothing is kept
    ) -> Callable[[NDArray[Any]], Tensor]:
        """Return a function from positions to images as the model reads them, (batch, …)."""
        import torch

        images = images_of(data)
        pixels = self._all_processed(data)

        def feed(positions: NDArray[Any]) -> Tensor:
            chosen = np.asarray(positions)
            rows = (
                self._process(images[chosen])
                if pixels is None
                else pixels[torch.from_numpy(chosen)]
            )
            return sent(rows, device)

        return feed

    def logits(self, module: nn.Module, inputs: Tensor) -> Tensor:
        """Return logits of shape (batch, classes)."""
        from memowidgets.models.networks import head_in_float32

        with head_in_float32(head_of(module)):
            return cast(
                "Tensor",
                module(pixel_values=inputs, output_hidden_states=False).logits,
            )

    def layer_names(self, module: nn.Module) -> tuple[str, ...]:
        """Return ``"1"`` to ``"K"``, one per block or stage."""
        return tuple(str(k) for k in range(1, self._reading(module)[0] + 1))

    def _representation(
        self, module: nn.Module
    ) -> Callable[[Tensor, dict[str, Any]], Tensor]:
        _, first = self._reading(module)

        def read(hidden: Tensor, _batch: dict[str, Any]) -> Tensor:
            if hidden.ndim == 3:
                return hidden[:, 0].float() if first else hidden.float().mean(dim=1)
            if hidden.ndim == 4:
                return hidden.float().mean(dim=(2, 3))
            return hidden.float().flatten(1)

        return read

    def _origin(self) -> dict[str, str]:
        """Return digests of the files that the model is made of, and of what its processor does."""
        files = self._load.origin() if isinstance(self._load, Pretrained) else {}
        return {**files, "processor": self._reader_digest}

    def _process(self, images: NDArray[np.uint8]) -> Tensor:
        """Return images as the model reads them, (n, channels, height, width), float32."""
        batch = self._unchanged_reader()(
            images=list(images), return_tensors="pt", input_data_format="channels_last"
        )
        return cast("Tensor", batch["pixel_values"]).float()

    def _all_processed(self, data: Dataset) -> Tensor | None:
        """Return all processed images; None if they take too much memory."""
        import torch

        if data in self._seen.data:
            return cast("Tensor", self._seen.data[data])
        images = images_of(data)
        one = self._process(images[:1])[0]
        if len(images) * one.nbytes > _MOST_KEPT:
            return None
        pixels = torch.empty(len(images), *one.shape)
        for start in range(0, len(images), _AT_ONCE):
            pixels[start : start + _AT_ONCE] = self._process(
                images[start : start + _AT_ONCE]
            )
        self._seen.data[data] = pixels
        return pixels

    def _try_one_image(self, module: nn.Module, data: Dataset) -> nn.Module:
        """Return the module after one image of the data has run through it.

        Raises
        ------
        ValueError
            If the images have other channels than the model reads, or another size.
        """
        images = images_of(data)
        try:
            self._seen.modules[module] = _reading_of(module, self._process(images[:1]))
        except (ValueError, RuntimeError, TypeError) as error:
            raise ValueError(
                f"the model cannot take images of shape {images.shape[1:]} as its processor makes "
                f"them: {first_line(error)}. Bring them to its size and channels, such as grey "
                "ones by images.repeat(3, axis=-1)"
            ) from error
        return module

    def _reading(self, module: nn.Module) -> tuple[int, bool]:
        """Return how a module's hidden states are read, also of one that was not built here."""
        if module not in self._seen.modules:
            side = getattr(self._config, "image_size", None) or 224
            sides = (side, side) if isinstance(side, int) else tuple(side)
            blank = np.zeros(
                (1, *sides, getattr(self._config, "num_channels", 3)), np.uint8
            )
            self._seen.modules[module] = _reading_of(module, self._process(blank))
        return cast("tuple[int, bool]", self._seen.modules[module])


def _reading_of(module: nn.Module, pixels: Tensor) -> tuple[int, bool]:
    """Return the number of hidden states after the embedding, and if the head reads only the first.

    That is known by the gradient of the logits for one image.

    The module's mode and all random states stay unchanged. Without weights there is no gradient,
    and only the number of layers is right.
    """
    import torch

    device = next(module.parameters()).device
    with restore_modes(module), torch.enable_grad():
        module.eval()
        inputs = pixels.to(device).requires_grad_()
        answer = module(pixel_values=inputs, output_hidden_states=True)
        last = answer.hidden_states[-1]
        first = (
            last.ndim == 3 and device.type != "meta" and positions_read(answer) == [0]
        )
    return len(answer.hidden_states) - 1, first
