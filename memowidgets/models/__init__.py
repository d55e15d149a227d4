"""What is trained: recipes that build modules, feed them and know where representations are."""

from memowidgets.models.base import Model
from memowidgets.models.images import ConvNet

__all__ = ["ConvNet", "Model"]
