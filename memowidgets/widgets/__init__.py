"""Front ends that move without the kernel, and their Python side."""

from memowidgets.widgets.dashboard import Dashboard
from memowidgets.widgets.explorer import ThresholdExplorer
from memowidgets.widgets.inspector import SampleInspector
from memowidgets.widgets.messages import Choice, Missing, SampleDetail, ShadowGaps

__all__ = [
    "Choice",
    "Dashboard",
    "Missing",
    "SampleDetail",
    "SampleInspector",
    "ShadowGaps",
    "ThresholdExplorer",
]
