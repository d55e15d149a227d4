"""Made-up content of reports: plain, hostile, and with holes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from memowidgets.decisions import Decision
from memowidgets.evaluation.scored import Scored
from memowidgets.registry import find_row
from memowidgets.report import Content, Digest, Figure
from memowidgets.vocabulary import Note
from tests.widgets.fake_source import hostile_questions, scores_like_psmi

SVG = '<svg xmlns="http://www.w3.org/2000/svg" width="40" height="20"><text>a figure</text></svg>'
EVIL = (
    "</script><script>document.body.remove()</script>"
    "<img src=x onerror=document.body.remove()> | `x` [c](javascript:alert(1)) @all #1"
    "\x1b[31m \u202etxt.exe"
)


def plain(n: int = 600, seed: int = 0, **changes) -> Content:
    """Scores with errors and a truth, decisions on some; no samples."""
    scores, errors, log_lira = scores_like_psmi(n, seed=seed)
    known = {
        "name": "digits",
        "created": "2026-01-02T03:04:05Z",
        "facts": {"model": "ConvNet"},
        "numbers": {"members": n, "samples": 2 * n, "classes": 10, "shadow_models": 32},
        "layers": ["conv", "fc"],
        "training": {"epochs": 4, "lr": 0.001},
        "versions": {"report": {"memowidgets": "0.1.0"}},
        "seed": 0,
        "checkpoints": [
            {"name": "epoch-2", "epoch": 2.0, "step": 9, "median_loss": 0.1, "drop": 0.96,
             "test_accuracy": float("nan"), "prediction": True, "learned": True},
        ],
        "tau": 0.0,
        "eta": 4.0,
        "score": find_row("psmi"),
        "scored": Scored(
            np.arange(n), scores, errors, log_lira, title="PSMI, layer fc, epoch 2",
            metric="psmi", layer="fc", checkpoint="epoch-2", natural=0.0,
        ),
        "ids": [f"id-{i:05d}" for i in range(n)],
        "decisions": {"id-00001": Decision("remove", "names a patient"), "gone": Decision("keep")},
        "figures": (Figure("roc", "The curve.", SVG),),
        "digests": (
            Digest("model", "checkpoints/epoch-2/weights.safetensors", "0123456789abcdef" * 4),
            Digest("decisions", "decisions.csv", "fedcba9876543210" * 4),
        ),
    }  # fmt: skip
    return Content(**(known | changes))


def hostile() -> Content:
    """Every text that comes from the user tries to be more than text."""
    records, ids = hostile_questions()
    ids = [f"{name}{i}{EVIL}" for i, name in enumerate(ids)]
    samples = [
        {**record, "id": name} for record, name in zip(records, ids, strict=True)
    ]
    n, labels = len(samples), np.array([record["answer"] for record in records])
    rng = np.random.default_rng(0)
    scored = Scored(
        np.arange(n), np.linspace(-0.5, 0.2, n), np.full(n, 0.01), np.linspace(9, -2, n), labels,
        rng.dirichlet([1] * 4, n), title=EVIL, metric="psmi", layer=EVIL, checkpoint=EVIL,
        natural=0.0,
    )  # fmt: skip
    return plain(
        n,
        name=EVIL,
        facts={EVIL: EVIL},
        layers=[EVIL],
        training={EVIL: EVIL},
        versions={EVIL: {EVIL: EVIL}},
        checkpoints=[{"name": EVIL, "epoch": 1.0, "step": 1, "median_loss": 0.1, "drop": 0.9,
                      "prediction": True}],
        score=replace(find_row("psmi"), spoken=EVIL, definition=EVIL),
        scored=scored,
        ids=ids,
        samples=samples,
        class_names=[EVIL, "<b>B</b>", "C", "D"],
        decisions={ids[0]: Decision("remove", EVIL, "", EVIL),
                   ids[1]: Decision("relabel", "", f"new-class {EVIL}")},
        figures=(Figure(EVIL, EVIL, SVG),),
        warnings=[Note("own note", "a score says", [EVIL])],
        missing={EVIL: EVIL},
    )  # fmt: skip


def untrained() -> Content:
    """Nothing is scored yet."""
    return plain(
        scored=None, checkpoints=[], figures=(), decisions={},
        missing={"scores": "the target is not trained yet: call train()"},
    )  # fmt: skip


def without_truth() -> Content:
    """A practitioner's audit: scores alone."""
    content = plain()
    alone = replace(content.scored, log_lira=None)
    return plain(scored=alone, numbers=content.numbers | {"shadow_models": 0})


def one_kind() -> Content:
    """No sample is memorised: there is no ROC."""
    scored = plain().scored
    low = np.minimum(scored.log_lira, 3.0)
    return plain(
        scored=replace(scored, errors=None, log_lira=low, layer="", title="PSMI")
    )


def partly_judged() -> Content:
    """Those of the samples that have a log-LiRA, and the score ties."""
    scored = plain().scored
    judged = np.arange(600) % 7 > 0
    scores = np.round(scored.scores, 2)
    loss = {"metric": "loss", "title": "Loss", "layer": "", "errors": None}
    return plain(scored=replace(scored, scores=scores, **loss).only(judged))


def by_class() -> Content:
    """Each class has a threshold of its own; some samples are left out, and scores tie."""
    content = partly_judged()
    labels = content.scored.positions % 3
    scored = replace(content.scored, labels=labels)
    return replace(content, scored=scored.against_class, tau=-1.0)


KINDS = (by_class, plain, hostile, untrained, without_truth, one_kind, partly_judged)
ALL = {kind.__name__: kind for kind in KINDS}
