"""Models: recipes that build modules, feed them with samples, and name their layers."""

from memowidgets.models.base import Model
from memowidgets.models.causal_lm import CausalLM
from memowidgets.models.image_classifier import ImageClassifier
from memowidgets.models.images import ConvNet, WideResNet
from memowidgets.models.lora import LoRA
from memowidgets.models.sequence_classifier import SequenceClassifier
from memowidgets.models.torch_classifier import TorchClassifier

__all__ = [
    "CausalLM",
    "ConvNet",
    "ImageClassifier",
    "LoRA",
    "Model",
    "SequenceClassifier",
    "TorchClassifier",
    "WideResNet",
]
