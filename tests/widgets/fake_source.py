"""A dashboard's source without any model: seeded scores of images that look like digits."""

from __future__ import annotations

import threading
import time
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from sklearn.datasets import load_digits

from memowidgets.data import ImageDataset
from memowidgets.decisions import DecisionLog
from memowidgets.evaluation.scored import Rule, Scored
from memowidgets.progress import Progress
from memowidgets.vocabulary import Note
from memowidgets.widgets import Choice, Missing, SampleDetail, ShadowGaps
from memowidgets.widgets.messages import Moment, NextStep, Steps


def digit_like(n: int = 600) -> tuple[np.ndarray, np.ndarray]:
    """Images of shape (n, 8, 8), as uint8, and their labels."""
    digits = load_digits()
    rows = np.arange(n) % len(digits.target)
    return (digits.images * 15.9).astype(np.uint8)[rows], digits.target[rows]


def scores_like_psmi(
    n: int = 600, share: float = 0.06, seed: int = 0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Scores, their errors, and log-LiRA: memorised samples tend to score below 0."""
    rng = np.random.default_rng(seed)
    memorized = rng.random(n) < share
    scores = np.where(memorized, rng.normal(-0.22, 0.22, n), rng.normal(0.42, 0.24, n))
    log_lira = np.where(
        memorized, rng.gamma(4, 2.0, n) + 4, rng.normal(0.3, 1.1, n).clip(-3, 3.9)
    )
    return scores, rng.uniform(0.008, 0.03, n), log_lira


def detail_of(
    position: int, n: int, layers: int = 12, checkpoints: int = 5
) -> SampleDetail:
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
        layers=[
            Choice(str(i), f"layer {i}", marked=i == layers)
            for i in range(1, layers + 1)
        ],
        scores=scores,
        shadows=ShadowGaps(
            *(
                inside,
                outside,
                4.4,
                (5.02, 1.08),
                (1.47, 1.39),
                3.2 + position / 100,
                "epoch 5",
            ),
            support=(41, 49),
        ),
        neighbours=[((position + 7 * k) % n, 1.2 + 0.4 * k) for k in range(1, 7)],
        notes=["The hidden states of layer 3 were not kept."],
    )


class FakeSource:
    """An audit of images; what is not computed takes `seconds` to be.

    Parameters
    ----------
    truth : bool
        Whether there is log-LiRA.
    seconds : float
        How long a computation takes.
    computed : bool
        Whether the recommended choice is there from the start.
    fail : str
        What to raise instead of an answer; empty for none.
    missing_of : mapping of str to Missing
        What is missing of scores that are not computed.
    """

    def __init__(
        self,
        n: int = 600,
        *,
        truth: bool = True,
        seconds: float = 2.0,
        computed: bool = True,
        fail: str = "",
        missing_of: Mapping[str, Missing] | None = None,
    ) -> None:
        self.missing_of = missing_of or {}
        self.weights = ""  # digest of those of each checkpoint
        self.scores_asked: list[str] = []  # to play them
        self.early: set[str] = set()  # checkpoints at which nothing is learned yet
        images, labels = digit_like(n)
        self.data = ImageDataset.from_arrays(images, labels)
        self.data = self.data.with_canaries(max(1, n // 20))
        self.truth, self.seconds, self.fail = truth, seconds, fail
        self.done = (
            {("psmi", "last", "epoch-2"), ("loss", "last", "epoch-2")}
            if computed
            else set()
        )
        self.threads: list[str] = []
        self.decision_log = DecisionLog()

    @property
    def name(self) -> str:
        return "digits-like"

    def checkpoint_choices(self) -> Sequence[Choice]:
        return [Choice(f"epoch-{i}", f"epoch {i}", marked=i == 2) for i in range(1, 5)]

    def moments(self) -> Sequence[Moment]:
        why = [
            "too early",
            "loss is down 95 %",
            "after the best time",
            "end of training",
        ]
        return [
            Moment(
                f"epoch-{i}",
                f"epoch {i}",
                i,
                self.weights,
                2 / i,
                1 + i / 9,
                why[i - 1],
                i == 2,
            )
            for i in range(1, 5)
        ]

    def has_ended(self) -> bool:
        return True

    def is_ready(self, score: str, layer: str, checkpoint: str) -> bool:
        return self.is_computed(score, layer, checkpoint)

    def scores_at(
        self, score: str, layer: str, checkpoint: str, progress: Progress | None = None
    ) -> Scored:
        self.scores_asked.append(checkpoint)
        return self.view(score, layer, checkpoint, progress)

    def cost(self, places: Sequence[tuple[str, str, str]]) -> str:
        return f"Scoring {len(self.data)} samples at {len(places)} checkpoints."

    def layer_choices(self) -> Sequence[Choice]:
        return [
            Choice("1", "layer 1"),
            Choice("2", "layer 2"),
            Choice("last", "layer 3", marked=True),
        ]

    def score_choices(self) -> Sequence[Choice]:
        return [
            Choice("psmi", "PSMI", marked=True),
            Choice("loss", "Loss"),
            Choice("logit_gap", "Logit gap"),
            Choice("mahalanobis", "Mahalanobis"),
        ]

    def is_computed(self, score: str, layer: str, checkpoint: str) -> bool:
        return (score, layer, checkpoint) in self.done

    def missing(self, score: str, *_: str) -> Missing:
        return self.missing_of.get(score, Missing())

    def steps(self) -> Steps:
        made_up = Missing(why_not="these samples are made up")
        more = NextStep("", self.missing_of.get("reference", made_up))
        return Steps(more, NextStep("", self.missing_of.get("truth", made_up)))

    def check(self, progress: Progress) -> None:
        progress.report(0, 2, "Training shadow models")
        time.sleep(self.seconds / 20)
        progress.report(1, 2, "Training shadow models")
        self.truth = True

    def revision(self) -> object:
        return self.weights or None

    def export_text(
        self, score: str, layer: str, checkpoint: str, rule: Rule, eta: float
    ) -> str:
        del layer, checkpoint, eta
        if self.fail:
            raise RuntimeError(self.fail)
        return f"{score},{rule}\n"

    def report_page(self, state: Mapping[str, Any]) -> bytes:
        if self.fail:
            raise RuntimeError(self.fail)
        return f"<!doctype html><p>{state}</p>".encode()

    def opened_by(self) -> str:
        return "mw.Audit.open('/runs/a')"

    def let_go(self) -> None:
        pass

    def detail(
        self, position: int, score: str, layer: str, checkpoint: str, eta: float = 4.0
    ) -> SampleDetail:
        """All that is known of one sample."""
        return detail_of(position, len(self.data), layers=3, checkpoints=4)

    def view(
        self, score: str, layer: str, checkpoint: str, progress: Progress | None = None
    ) -> Scored:
        self.threads.append(threading.current_thread().name)
        if self.fail and not self.is_computed(score, layer, checkpoint):
            raise RuntimeError(self.fail)
        if not self.is_computed(score, layer, checkpoint):
            for step in range(20):
                if progress is not None:
                    progress.report(step, 20, f"Scoring {score}, layer {layer}, batch")
                time.sleep(self.seconds / 20)
            self.done.add((score, layer, checkpoint))
        seed = zlib.crc32(f"{layer}{checkpoint}".encode()) % 1000
        scores, errors, log_lira = scores_like_psmi(len(self.data), seed=seed)
        if score == "loss":
            scores, errors = -np.exp(-6 * scores + 0.5), None
        rng = np.random.default_rng(seed)
        logits = rng.normal(0, 1, (len(scores), 10))
        logits[np.arange(len(scores)), self.data.labels] += (
            5 * np.clip(scores, -0.3, 1) + 1
        )
        probabilities = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        return Scored(
            natural=None if score == "loss" else 0.0,
            title=f"{score.upper() if score == 'psmi' else score}, layer {layer}, {checkpoint}",
            scores=scores,
            labels=self.data.labels,
            positions=np.arange(len(scores)),
            errors=errors,
            log_lira=log_lira if self.truth else None,
            probabilities=probabilities,
            nearby=probabilities.argmax(axis=1),
            warnings=self._warnings(checkpoint),
        )

    def _warnings(self, checkpoint: str) -> tuple[Note, ...]:
        if checkpoint in self.early:
            return (
                Note("not learned", "no better than chance", accuracy=0.1, chance=0.1),
            )
        if checkpoint != "epoch-1":
            return ()
        return (Note("unsettled", "The model has hardly begun to learn."),)

    def samples(self) -> ImageDataset:
        return self.data

    def device_status(self) -> str:
        return "CPU, 2 threads"


def hostile_questions() -> tuple[list[dict[str, object]], list[str]]:
    """Questions that try to be more than text, and their ids."""
    plain = (
        "Which ward should the patient with a wobbling gait and an unsteady hand be sent to, given "
        "that she was seen there last spring and that the note of her physician mentions dizziness "
        "on standing up, a slight tremor at rest, and no pain at all? Answer with one ward only."
    )
    texts = [
        plain,
        "<script>document.body.remove()</script> is shown as written",
        '<img src=x onerror="document.body.remove()"> and <b>bold</b>',
        "[click](javascript:alert(1)) & &amp; &#60;",
        "\u202eright to left override\u202c and \u0000 NUL and \u0007 bell",
        "ما هو القسم المناسب لهذا المريض؟",
        "👩🏽‍⚕️ which ward? 🏥",
        "W" * 1_000_000,
        "half a character \ud83d and then text",
    ]
    choices = [
        "neurology",
        "<i>surgery</i>",
        "אורתופדיה",
        "paediatrics and " + "long " * 40,
    ]
    records = [
        {"question": text, "choices": choices, "answer": i % 4}
        for i, text in enumerate(texts)
    ]
    return records, [
        f"patient-{i:03d}" if i % 2 else "<svg onload=alert(1)>" * 3
        for i in range(7, 16)
    ]
