"""What a source may know of a sample, made up: scores everywhere, shadow gaps, neighbours."""

from __future__ import annotations

import numpy as np

from memowidgets.decisions import DecisionLog
from memowidgets.widgets import Choice, SampleDetail, ShadowGaps
from tests.widgets.fake_source import FakeSource


def detail_of(position: int, n: int, layers: int = 12, checkpoints: int = 5) -> SampleDetail:
    """A sample's detail; a third of its scores is not computed."""
    rng = np.random.default_rng(position)
    computed = rng.random((checkpoints, layers)) > 0.33
    scores = np.where(computed, rng.normal(0.3, 0.3, computed.shape), np.nan)
    inside, outside = rng.normal(5, 1.1, 48), rng.normal(1.5, 1.4, 52)
    return SampleDetail(
        title="PSMI",
        checkpoints=[
            Choice(f"epoch-{i}", f"epoch {i} · drop {99 - 30 / i:.1f} %", marked=i == 2)
            for i in range(1, checkpoints + 1)
        ],
        layers=[Choice(str(i), f"layer {i}", marked=i == layers) for i in range(1, layers + 1)],
        scores=scores,
        computed=computed,
        shadows=ShadowGaps(
            inside, outside, 4.4, (5.02, 1.08), (1.47, 1.39), 3.2 + position / 100, "epoch 5"
        ),
        neighbours=[((position + 7 * k) % n, 1.2 + 0.4 * k) for k in range(1, 7)],
        notes=["The hidden states of layer 3 were not kept."],
    )


class DetailSource(FakeSource):
    """An audit of images that also knows each sample, and keeps decisions."""

    def __init__(self, n: int = 600, **options: object) -> None:
        super().__init__(n, **options)
        self.decision_log = DecisionLog()

    def detail(self, position: int, score: str, layer: str, checkpoint: str) -> SampleDetail:
        """All that is known of one sample."""
        self.asked = (position, score, layer, checkpoint)
        return detail_of(position, len(self.data), layers=3, checkpoints=4)
