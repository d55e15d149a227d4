"""Tensors of torch and arrays of any layout, wherever arrays are taken."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import memowidgets as mw
from memowidgets import evaluation, memorization, metrics
from memowidgets.widgets import SampleInspector, ThresholdExplorer

N = 40


def drawn(*shape):
    generator = torch.Generator().manual_seed(0)
    return torch.randn(*shape, generator=generator).bfloat16().float()


SCORES = drawn(N)
TRUTH = torch.arange(N) % 4 == 0
LABELS = torch.arange(N) % 3
LOGITS = drawn(N, 3)
GAPS, INSIDE = drawn(16, N), torch.arange(16)[:, None] % 2 == torch.arange(N) % 2


def as_array(tensor):
    return tensor.numpy()


def learning(tensor):
    return tensor.clone().requires_grad_()


def counted(explorer):
    explorer.close()
    return list(explorer.counts.values())


@pytest.mark.parametrize("as_tensor", [torch.clone, learning, torch.Tensor.bfloat16])
@pytest.mark.parametrize(
    "ask",
    [
        lambda of: evaluation.roc(of(SCORES), TRUTH).auc,
        lambda of: evaluation.roc(of(SCORES), TRUTH, groups=LABELS).auc,
        lambda of: memorization.log_lira(of(GAPS), INSIDE, of(SCORES), "shrunk"),
        lambda of: memorization.rmia(of(GAPS), INSIDE, of(SCORES)),
        lambda of: memorization.counterfactual(of(GAPS), INSIDE),
        lambda of: memorization.probability_memorized(of(SCORES), of(SCORES.abs())),
        lambda of: metrics.loss(of(LOGITS), LABELS),
        lambda of: metrics.logit_gap(of(LOGITS), LABELS),
        lambda of: metrics.csl(of(GAPS.abs())),
        lambda of: metrics.mean_rank([of(SCORES), of(GAPS[0])]),
        lambda of: mw.Audit.from_arrays(
            LABELS, logits=of(LOGITS), log_lira=of(SCORES)
        ).log_lira(),
        lambda of: counted(ThresholdExplorer(of(SCORES), log_lira=5 * of(GAPS[0]))),
    ],
)
def test_a_tensor_is_the_array_of_its_values(ask, as_tensor):
    np.testing.assert_allclose(ask(as_tensor), ask(as_array), rtol=1e-6)


TEXTS = [f"text {i}" for i in range(N)]


def opened(widget):
    widget.close()
    return [0]


DOORS = {  # for each array that a user may bring: a door, and an array that it takes
    "scores": (lambda of: evaluation.roc(of, TRUTH).auc, SCORES),
    "memorized": (lambda of: evaluation.roc(SCORES, of).auc, TRUTH),
    "groups": (lambda of: evaluation.roc(SCORES, TRUTH, groups=of).auc, LABELS),
    "labels of scores": (lambda of: evaluation.below_class(SCORES.numpy(), of), LABELS),
    "compared": (
        lambda of: (
            evaluation.compare(
                evaluation.roc(of, TRUTH), evaluation.roc(-SCORES, TRUTH)
            ).difference
        ),
        SCORES,
    ),
    "logits": (lambda of: metrics.loss(of, LABELS), LOGITS),
    "y": (lambda of: metrics.logit_gap(LOGITS, of), LABELS),
    "losses": (metrics.csl, GAPS.abs()),
    "X": (lambda of: metrics.Mahalanobis().fit(of).score_samples(of), LOGITS),
    "X of PSMI": (lambda of: psmi(of, LABELS), LOGITS),
    "y of PSMI": (lambda of: psmi(LOGITS, of), LABELS),
    "gaps": (lambda of: memorization.log_lira(of, INSIDE, SCORES), GAPS),
    "member mask": (lambda of: memorization.counterfactual(GAPS, of), INSIDE),
    "given labels": (lambda of: audit(labels=of).score("loss"), LABELS),
    "given logits": (lambda of: audit(logits=of).score("loss"), LOGITS),
    "layer": (lambda of: audit(representations=of).score("mahalanobis"), LOGITS),
    "given log_lira": (lambda of: audit(log_lira=of).log_lira(), SCORES),
    "canaries": (lambda of: audit(canaries=of).data.canaries, TRUTH),
    "references": (lambda of: audit(reference_gaps=of).score("reference"), GAPS),
    "own score": (
        lambda of: audit(representations=LOGITS).score(lambda labels: of),
        SCORES,
    ),
    "truth": (lambda of: audit().evaluate("loss", truth=of).auc, TRUTH),
    "explorer": (lambda of: opened(ThresholdExplorer(of)), SCORES),
    "inspector": (lambda of: opened(SampleInspector(TEXTS, of)), SCORES),
    "inspector's labels": (
        lambda of: opened(SampleInspector(TEXTS, SCORES, labels=of)),
        LABELS,
    ),
    "inspector's images": (
        lambda of: opened(SampleInspector(of, SCORES)),
        GAPS.T.reshape(N, 4, 4).sigmoid(),
    ),
    "images": (
        lambda of: mw.data.ImageDataset.from_arrays(of, LABELS).images,
        GAPS.T.reshape(N, 4, 4).sigmoid(),
    ),
    "labels of texts": (lambda of: texts(of).labels, LABELS),
    "new labels": (lambda of: texts(LABELS).with_labels(of).labels, LABELS),
    "positions": (lambda of: texts(LABELS).take(of).labels, TRUTH),
}


def texts(labels):
    return mw.data.TextDataset.from_texts(TEXTS, labels)


def audit(**given):
    return mw.Audit.from_arrays(**{"labels": LABELS, "logits": LOGITS} | given)


def psmi(X, y):
    return metrics.PSMI(50).fit(X, y).score_samples(X, y)


def negated(tensor):
    """Values that torch negates when they are read, as those of an imaginary part are."""
    return torch.complex(torch.zeros(tensor.shape), -tensor.float()).conj().imag


def big_endian(tensor):
    array = tensor.numpy()
    return array.astype(array.dtype.newbyteorder(">"))


def half(tensor):
    array = tensor.numpy()
    return array.astype(np.float16) if array.dtype.kind == "f" else array


WORKS = {"big-endian": big_endian, "float16": half, "negated": negated}


# whole numbers and masks have no imaginary part
CASES = [
    (name, how)
    for name, (_, tensor) in DOORS.items()
    for how in WORKS
    if how != "negated" or tensor.is_floating_point()
]


@pytest.mark.filterwarnings("ignore::UserWarning")  # what these few samples call for
@pytest.mark.parametrize(("name", "how"), CASES)
def test_an_array_of_another_layout_is_the_array_of_its_values(name, how):
    ask, tensor = DOORS[name]
    if how == "float16" and tensor.is_floating_point():
        tensor = tensor.half().float()
    np.testing.assert_allclose(
        ask(WORKS[how](tensor)), ask(tensor.numpy()), rtol=1e-5, atol=1e-5
    )


REFUSED = {
    "meta": (lambda tensor: tensor.to("meta"), "meta device"),
    "sparse": (torch.Tensor.to_sparse, r"sparse_coo.*\.to_dense\(\)"),
    "quantized": (
        lambda tensor: torch.quantize_per_tensor(tensor.float(), 0.1, 0, torch.qint8),
        r"\.dequantize\(\)",
    ),
    "nested": (
        lambda tensor: torch.nested.nested_tensor(list(tensor.float())),
        r"\.to_padded_tensor",
    ),
}


@pytest.mark.filterwarnings("ignore::UserWarning")  # torch's, of what goes one day
@pytest.mark.parametrize("how", REFUSED)
@pytest.mark.parametrize("name", DOORS)
def test_a_tensor_without_a_real_value_at_each_place_is_refused(name, how):
    ask, tensor = DOORS[name]
    make, facts = REFUSED[how]
    with pytest.raises((TypeError, ValueError, IndexError), match=facts):
        ask(make(tensor))


ANY = {
    "groups",
    "positions",
    "inspector's images",
}  # what they are is not only a number


@pytest.mark.parametrize("name", [name for name in DOORS if name not in ANY])
def test_a_complex_number_is_no_number_here(name):
    ask, tensor = DOORS[name]
    tensor = torch.complex(tensor.float(), tensor.float()).conj()
    with pytest.raises((TypeError, ValueError), match="complex"):
        ask(tensor)
