"""Models: recipes that build modules, feed them with samples, and name their layers.

========================= =====================================================================
``base``                  what every recipe can do, and how activations are captured
``transformer``           models of transformers: weights, adapters, tokens, hidden states
``causal_lm``, …          its three heads, each in its file; ``heads`` says what they read
``pretrained``            loading from the hub, a folder or memory, and digests of the files
``prefix``                the output of frozen blocks, kept on disk
``vision``, ``networks``  image models, the small networks that are built in, heads in float32
``torch_classifier``      anyone's own module
``device``                what a device holds, and in which precision it multiplies
========================= =====================================================================
"""

from memowidgets.models.base import Model
from memowidgets.models.causal_lm import CausalLM
from memowidgets.models.image_classifier import ImageClassifier
from memowidgets.models.lora import LoRA
from memowidgets.models.sequence_classifier import SequenceClassifier
from memowidgets.models.torch_classifier import TorchClassifier
from memowidgets.models.vision import ConvNet, WideResNet

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
