"""The threshold that explorer and inspector share. In the dashboard it is one trait."""

from __future__ import annotations

from typing import Any

import traitlets

from memowidgets.widgets.arrays import checked_tau
from memowidgets.widgets.guarded import Guarded, validate

__all__ = ["AtThreshold"]


class AtThreshold(Guarded):
    """A widget, or a part of one, that shows samples at a threshold."""

    tau = traitlets.Float(0.0).tag(sync=True)
    _dimmed = traitlets.Bool(default_value=False).tag(sync=True)

    @validate("tau")
    def _check_tau(self, proposal: Any) -> float:
        return checked_tau(proposal["value"])
