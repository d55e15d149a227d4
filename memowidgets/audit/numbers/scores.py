"""The early scores: which there are, how each is computed, and who is flagged by one.

To add a score by name, add an entry to `SCORES`. Everything else follows from it: the command
line, the dashboard's picker, the report and the run directory, which keeps what took time.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from memowidgets import evaluation
from memowidgets.audit.numbers import trace
from memowidgets.audit.numbers.truth import log_lira
from memowidgets.audit.source import (
    LOGITS,
    REFERENCES,
    REPRESENTATIONS,
    SHADOWS,
    TRACE,
    ForwardPass,
    Scores,
    Source,
)
from memowidgets.metrics import PSMI, Mahalanobis, csl, mean_over_checkpoints, mean_rank
from memowidgets.metrics.arrays import like
from memowidgets.metrics.psmi import small_classes
from memowidgets.progress import Progress
from memowidgets.stamps import digest
from memowidgets.store import StoreError
from memowidgets.training.device import computed_on
from memowidgets.training.rho import Record
from memowidgets.visible import listed, quoted

__all__ = [
    "BASELINE",
    "BY_CLASS",
    "EARLY",
    "PER_LAYER",
    "SCORES",
    "Asked",
    "Metric",
    "NamedScore",
    "checked_tau",
    "counts_of",
    "flagged",
    "is_computed",
    "is_defined",
    "is_free",
    "metrics_of",
    "missing_passes",
    "named_series",
    "needs_no_pass",
    "notes_on_classes",
    "notes_on_zero",
    "opening_tau",
    "probabilities",
    "representation",
    "score",
    "states",
]

_SMALLEST_CLASS = 2
_FEWEST_CLASSES = 2

Floats = NDArray[np.float64]
Labels = NDArray[np.int64]
Metric = Callable[[NDArray[np.float32], NDArray[np.float32], Labels], NDArray[Any]]


@dataclass(frozen=True)
class Asked:
    """What a score of a source is asked for.

    Attributes
    ----------
    source : Source
        The evidence.
    layer : str
        Name of a layer.
    record : Record
        The checkpoint.
    last : int or None
        Number of checkpoints to average, counted from this one back; None for all.
    progress : Progress or None
        Receives the progress.
    """

    source: Source
    layer: str
    record: Record
    last: int | None = None
    progress: Progress | None = None

    def of(self, metric: str, record: Record | None = None) -> Scores:
        """Another score of the same layer, here or at another checkpoint."""
        there = record or self.record
        return score(self.source, metric, self.layer, there.name, self.progress)

    def knows(self, metric: str, record: Record | None = None) -> bool:
        """Whether `of` answers without computing anything."""
        return is_computed(self.source, metric, self.layer, (record or self.record).name)


@dataclass(frozen=True)
class NamedScore:
    """A score that users call by name. One of the three functions computes it.

    Attributes
    ----------
    title : str
        Name for readers.
    of_layer : callable, optional
        Takes a layer's representation, (n_members, values), the labels and a seed; returns
        `Scores`. They are kept in the run directory.
    of_outputs : callable, optional
        Takes the forward pass and the labels; returns one value for each member.
    of_source : callable, optional
        Takes what is `Asked`; returns `Scores`. For scores from more than one forward pass.
    is_there : callable, optional
        Takes what is `Asked`; returns whether `of_source` answers without computing anything.
    needs : tuple of str, optional
        Kinds of evidence that `of_source` uses. Those of the other functions are known.
    uses_layer : bool
        Whether `of_source` has another value at each layer.
    every_pass : bool
        Whether `of_source` needs the forward pass of each checkpoint so far.
    on_device : bool
        Whether `of_layer` also takes a tensor, which stays on the GPU of the audit.
    per_class : bool
        Whether `of_layer` fits each class, so that scores of small classes are inaccurate.
    tau : float, optional
        Threshold that means the same for every model; None if there is none.
    """

    title: str
    of_layer: Callable[[NDArray[np.float32], Labels, int], Scores] | None = None
    of_outputs: Callable[[ForwardPass, Labels], NDArray[np.floating[Any]]] | None = None
    of_source: Callable[[Asked], Scores] | None = None
    is_there: Callable[[Asked], bool] | None = None
    needs: tuple[str, ...] = ()
    uses_layer: bool = False
    every_pass: bool = False
    on_device: bool = False
    per_class: bool = False
    tau: float | None = None

    def __post_init__(self) -> None:
        if self.of_layer is not None:
            object.__setattr__(self, "needs", (REPRESENTATIONS,))
            object.__setattr__(self, "uses_layer", True)
        elif self.of_outputs is not None:
            object.__setattr__(self, "needs", (LOGITS,))

    @property
    def is_early(self) -> bool:
        """Whether it needs no shadow models."""
        return SHADOWS not in self.needs

    @property
    def over_checkpoints(self) -> bool:
        """Whether it is a mean over the checkpoints so far."""
        return TRACE in self.needs


def _psmi(states: Any, labels: Labels, seed: int) -> Scores:
    rows = _scorable(labels)
    x, y = states if len(rows) == len(labels) else states[like(states, rows)], labels[rows]
    if len(np.unique(y)) < _FEWEST_CLASSES:
        raise ValueError(
            f"PSMI needs two classes of two members or more; of {len(labels)} members "
            f"{len(rows)} are in such a class, {len(np.unique(y))} classes in all"
        )
    psmi = PSMI(random_state=seed).fit(x, y)
    values, errors = psmi.score_samples(x, y, return_std=True)
    of_codes = small_classes(psmi.classes_.tolist(), np.bincount(y)[psmi.classes_])
    notes = tuple(note for note in psmi.warnings_ if note not in of_codes)  # `score` has names
    return Scores(rows, values, errors, notes)


def _scorable(labels: Labels) -> NDArray[np.int64]:
    """Rows whose class has at least two members: PSMI needs a standard deviation."""
    counts = np.bincount(labels)
    return np.flatnonzero(counts[labels] >= _SMALLEST_CLASS)


def _mahalanobis(states: NDArray[np.float32], labels: Labels, seed: int) -> Scores:
    del labels, seed  # it knows no classes, and draws nothing
    fitted = Mahalanobis().fit(states)
    return Scores.of_all(fitted.score_samples(states), fitted.warnings_)


def _csl(asked: Asked) -> Scores:
    records = trace.records_up_to(asked.source, asked.record, asked.last)
    losses = [asked.source.losses_at(record, asked.progress) for record in records]
    return Scores.of_all(csl(np.stack(losses)))


def _has_csl(asked: Asked) -> bool:
    return _at_each(asked, asked.source.has_losses)


def _at_each(asked: Asked, is_there: Callable[[Record], bool]) -> bool:
    """Whether what a mean over the checkpoints so far needs is there at each of them."""
    records = trace.so_far(asked.source, asked.record)
    return len(records) >= trace.FEWEST and all(map(is_there, records))


def _psmi_mean(asked: Asked) -> Scores:
    """Mean PSMI; its standard error is at most the mean of theirs, however they correlate."""
    records = trace.records_up_to(asked.source, asked.record, asked.last)
    found = [asked.of("psmi", record) for record in records]
    errors = [one.errors for one in found if one.errors is not None]
    return Scores(
        found[0].rows,
        mean_over_checkpoints(np.stack([one.mu for one in found])),
        np.mean(errors, axis=0) if len(errors) == len(found) else None,
        tuple(dict.fromkeys(note for one in found for note in one.notes)),
    )


def _has_psmi_mean(asked: Asked) -> bool:
    return _at_each(asked, lambda record: asked.knows("psmi", record))


def _psmi_and_csl(asked: Asked) -> Scores:
    psmi, over_checkpoints = asked.of("psmi"), _csl(asked)
    both = np.stack([psmi.mu, over_checkpoints.mu[psmi.rows]])
    return Scores(psmi.rows, mean_rank(both), notes=psmi.notes)


def _has_psmi_and_csl(asked: Asked) -> bool:
    return _has_csl(asked) and asked.knows("psmi")


def _baseline(asked: Asked) -> Scores:
    source = asked.source
    values = log_lira(source, asked.record.name)
    members = source.members
    if values.empty:
        raise ValueError(
            f"{len(source.shadows)} shadow models are too few: no member is in some and not in "
            "others; run more"
        )
    rows = np.arange(len(members))
    if len(values) < len(rows):  # by name only where need be: it takes its time
        rows = np.flatnonzero(pd.Index(members).isin(values.index))
    return Scores(rows, -values.to_numpy())


def _reference(asked: Asked) -> Scores:
    """Mean logit gap of the reference models that never saw a member."""
    gaps = asked.source.references.gaps(asked.record.name).astype(np.float64)
    return Scores.of_all(np.nanmean(gaps, axis=0))


def _has_reference(asked: Asked) -> bool:
    return asked.record.name in asked.source.references.checkpoints()


SCORES: dict[str, NamedScore] = {
    "psmi": NamedScore("PSMI", of_layer=_psmi, on_device=True, per_class=True, tau=0.0),
    "loss": NamedScore(
        "Log-probability of the label", of_outputs=lambda made, _labels: -made.losses()
    ),
    "logit_gap": NamedScore(
        "Logit gap", of_outputs=lambda made, labels: made.gaps(labels), tau=0.0
    ),
    "mahalanobis": NamedScore("Mahalanobis", of_layer=_mahalanobis),
    "csl": NamedScore(
        "Mean log-probability so far", of_source=_csl, is_there=_has_csl, needs=(TRACE,)
    ),
    "psmi_mean": NamedScore(
        "Mean PSMI",
        of_source=_psmi_mean,
        is_there=_has_psmi_mean,
        needs=(REPRESENTATIONS, TRACE),
        uses_layer=True,
        every_pass=True,
    ),
    "psmi+csl": NamedScore(
        "PSMI + mean log-probability",
        of_source=_psmi_and_csl,
        is_there=_has_psmi_and_csl,
        needs=(REPRESENTATIONS, TRACE),
        uses_layer=True,
    ),
    "baseline": NamedScore("Baseline", of_source=_baseline, needs=(SHADOWS,), tau=-4.0),
    "reference": NamedScore(
        "Reference models",
        of_source=_reference,
        is_there=_has_reference,
        needs=(REFERENCES,),
    ),
}
BASELINE = "baseline"
BY_CLASS = "class"
EARLY = tuple(name for name, known in SCORES.items() if known.is_early)
PER_LAYER = tuple(name for name, known in SCORES.items() if known.uses_layer)


def metrics_of(source: Source) -> tuple[str, ...]:
    """Return the names of the scores that the source's evidence allows."""
    there = source.evidence
    return tuple(name for name, known in SCORES.items() if set(known.needs) <= set(there))


def is_defined(source: Source, metric: str | Metric, record: Record) -> bool:
    """Return whether there are enough checkpoints for a score, if it is a mean over them."""
    if not isinstance(metric, str) or metric not in SCORES or not SCORES[metric].over_checkpoints:
        return True
    return len(trace.so_far(source, record)) >= trace.FEWEST


def is_free(source: Source, metric: str, layer: str | int, record: Record) -> bool:
    """Return whether an early score needs at most the pass of its own checkpoint.

    Means over checkpoints don't where there are fewer than two. Mean PSMI doesn't where a pass at
    an earlier checkpoint is missing. Reference models are asked at some checkpoints only.
    """
    known = SCORES[metric]
    if not is_defined(source, metric, record):
        return False
    if REFERENCES in known.needs and not is_computed(source, metric, layer, record.name):
        return False
    return known.is_early and set(missing_passes(source, metric, layer, record)) <= {record}


def needs_no_pass(source: Source, metric: str, checkpoint: str | float) -> bool:
    """Return whether all passes and losses are on disk that a named score needs at a checkpoint."""
    record, known = source.names.record(checkpoint), SCORES[metric]
    if not known.over_checkpoints:
        return source.kept_forward(record).exists
    so_far = trace.so_far(source, record)
    if known.every_pass:
        return all(source.kept_forward(one).exists for one in so_far)
    here = not known.uses_layer or source.kept_forward(record).exists
    return here and all(source.has_losses(one) for one in so_far)


def missing_passes(source: Source, metric: str, layer: str | int, record: Record) -> list[Record]:
    """Return the checkpoints at which a forward pass must be made for a score, if any can be."""
    known = SCORES[metric]
    if not source.makes_passes:
        return []
    if known.every_pass:
        records = trace.so_far(source, record)
    elif known.of_source is None or known.uses_layer:
        records = [record]
    else:
        return []
    of = "psmi" if known.of_source is not None else metric
    return [
        one
        for one in records
        if not source.kept_forward(one).exists and not is_computed(source, of, layer, one.name)
    ]


def score(
    source: Source,
    metric: str | Metric,
    layer: str | int = "last",
    checkpoint: str | float = "prediction",
    progress: Progress | None = None,
    last: int | None = None,
    name_and_version: tuple[str | None, str] | None = None,
) -> Scores:
    """Score the members, as `Audit.score` describes; read from disk what was computed before."""
    known = _known(metric)
    if name_and_version is not None and known is not None:
        raise ValueError(f"version= is for a function of your own, not for {metric!r}")
    if last is not None and not (known and known.over_checkpoints):
        means = ", ".join(name for name, one in SCORES.items() if one.over_checkpoints)
        raise ValueError(f"last= goes with a mean over checkpoints ({means}), not with {metric!r}")
    record, name = source.names.record(checkpoint), source.names.layer(layer)
    if not isinstance(metric, str) or known is None:
        made, function = source.forward(record, progress), cast("Metric", metric)
        if name_and_version is None:
            return _custom(source, function, made, name)
        own_name, version = name_and_version
        kept_as = f"own-{digest([own_name or _name_of(function), version])}"
        return _kept(made, kept_as, name, lambda: _custom(source, function, made, name))
    if known.of_source is not None:
        return known.of_source(Asked(source, name, record, last, progress))
    if is_computed(source, metric, name, record.name):
        found = _named(source, metric, name, record, progress)
    else:
        with source.alone(progress):
            found = _named(source, metric, name, record, progress)
    on_classes = notes_on_classes(metric, counts_of(source, found), source.data.class_names)
    return replace(found, notes=(*on_classes, *found.notes))


def counts_of(source: Source, found: Scores) -> Labels:
    """Return the number of scored members of each class."""
    return np.bincount(source.labels[found.rows], minlength=len(source.data.class_names))


def notes_on_classes(
    metric: str | Metric, counts: Labels, class_names: Sequence[str]
) -> tuple[str, ...]:
    """Return a note that names the small classes, for a score that is fitted to each class."""
    known = _known(metric)
    return small_classes(class_names, counts) if known and known.per_class else ()


def is_computed(
    source: Source,
    metric: str,
    layer: str | int = "last",
    checkpoint: str | float = "prediction",
) -> bool:
    """Whether `score` answers without computing anything, be it by an error."""
    record, name = source.names.record(checkpoint), source.names.layer(layer)
    known = SCORES[metric]
    if known.is_there is not None:
        return known.is_there(Asked(source, name, record))
    made = source.kept_forward(record)
    if known.of_layer is None:
        return made.exists or not source.makes_passes
    return made.exists and made.is_scored(metric, name)


def named_series(
    source: Source, metric: str | Metric, found: Scores, name: str | None = None
) -> tuple[pd.Series, pd.Series | None]:
    """Return scores and their standard errors by id; warn of members that have none."""
    members = source.members
    missing = len(members) - len(found.rows)
    if missing:
        left_out = np.setdiff1d(np.arange(len(members)), found.rows)
        reason = (
            "they are in every shadow model or in none"
            if metric == BASELINE
            else "their class has fewer than two"
        )
        warnings.warn(
            f"{missing} members have no score, {reason}: {listed(members[left_out], 5)}",
            UserWarning,
            stacklevel=3,
        )
    label = name or _name_of(metric)
    index = pd.Index(members[found.rows], name="id")
    errors = None if found.errors is None else pd.Series(found.errors, index, name=f"{label}_std")
    return pd.Series(found.mu, index, name=label), errors


def representation(
    source: Source, layer: str | int, checkpoint: str | float
) -> NDArray[np.float32]:
    """Return a layer's output for each member, as `Audit.representation` describes."""
    return _single(states(source, layer, checkpoint))


def states(source: Source, layer: str | int, checkpoint: str | float) -> NDArray[Any]:
    """Return a layer's output for each member as it is kept: memory-mapped, or in float16."""
    record = source.names.record(checkpoint)
    made = source.kept_forward(record)
    if not made.exists:
        raise StoreError(
            made.why_not or f"nothing was scored at {record.name} yet: call score() there first"
        )
    return made.representation(source.names.layer(layer))


def _single(values: NDArray[Any]) -> NDArray[np.float32]:
    """Return values in float32, copied only if they are kept in another type."""
    return values.astype(np.float32) if values.dtype != np.float32 else values


def probabilities(source: Source, checkpoint: str | float) -> Floats:
    """Return the model's probability of each class for each member, (n_members, n_classes)."""
    from scipy.special import softmax

    logits = source.logits_at(source.names.record(checkpoint))
    found: Floats = softmax(logits.astype(np.float64), axis=1)
    return found


def flagged(
    source: Source,
    metric: str | Metric,
    layer: str | int,
    checkpoint: str | float,
    tau: float | str | None,
    share: float | None,
) -> pd.DataFrame:
    """Return the members that a threshold flags, as `Audit.flagged` describes."""
    if tau is not None and share is not None:
        raise ValueError("give tau= or share=, not both")
    of_class = isinstance(tau, str) and tau == BY_CLASS
    threshold = None if tau is None or of_class else checked_tau(tau)
    if threshold is not None and math.isnan(threshold):
        raise ValueError("tau is NaN; it must be a number")
    found = score(source, metric, layer, checkpoint)
    for note in (*source.notes_at(checkpoint), *found.notes):
        warnings.warn(note, UserWarning, stacklevel=4)  # the caller of `Audit.flagged`
    table = pd.DataFrame({"score": found.mu}, pd.Index(source.members[found.rows], name="id"))
    if found.errors is not None:
        table["std"] = found.errors
    names = np.array(source.data.class_names)
    labels = source.labels[found.rows]
    table["label"] = names[labels]
    if LOGITS in source.evidence:
        of_classes = probabilities(source, checkpoint)[found.rows]
        table["guess"] = names[of_classes.argmax(axis=1)]
        table["p_label"] = of_classes[np.arange(len(labels)), labels]
    canaries = source.data.canaries
    if canaries is not None:
        table["canary"] = canaries[source.member_rows][found.rows]
    if source.has_ground_truth:
        table["log_lira"] = log_lira(source)
    if of_class:
        chosen = evaluation.below_class(found.mu, labels)
    elif share is not None:
        chosen = found.mu <= evaluation.lowest_share(found.mu, share)
    else:
        chosen = found.mu <= (opening_tau(metric, found) if threshold is None else threshold)
    return table[chosen].sort_values("score", kind="stable")


def opening_tau(metric: str | Metric, found: Scores) -> float:
    """Return where τ stands at first, everywhere: the score's own, or the lowest 5 % flagged."""
    known = _known(metric)
    return evaluation.opening_tau(found.mu, known.tau if known else None)


def notes_on_zero(source: Source, metric: str | Metric, found: Scores) -> tuple[str, ...]:
    """Return a note if PSMI's τ = 0 flags less than half of what the rule by class flags."""
    known = _known(metric)
    if not known or not known.per_class:
        return ()
    at_zero = int((found.mu <= 0).sum())
    by_class = int(evaluation.below_class(found.mu, source.labels[found.rows]).sum())
    if 2 * at_zero >= by_class:
        return ()
    return (f'τ = 0 is strict: it flags {at_zero}, tau="class" {by_class}',)


def checked_tau(tau: Any) -> float:
    """Return a threshold as a number.

    Raises
    ------
    TypeError
        If it is not a number, such as a rule that `Evaluation.threshold` takes.
    """
    if isinstance(tau, bool) or not isinstance(tau, int | float | np.number):
        raise TypeError(
            f"tau must be a number, not {tau!r}; for a rule such as 'youden' pass "
            "tau=audit.evaluate(metric).threshold('youden')"
        )
    return float(tau)


def _named(
    source: Source, metric: str, layer: str, record: Record, progress: Progress | None
) -> Scores:
    """One named score, from the forward pass of a checkpoint."""
    made, known, labels = source.forward(record, progress), SCORES[metric], source.labels
    if known.of_outputs is not None:
        return Scores.of_all(known.of_outputs(made, labels))

    def compute() -> Scores:
        (progress or Progress()).report(0, 1, f"computing {metric} at {layer}")
        return _of_states(known, made.representation(layer), source)

    return _kept(made, metric, layer, compute)


def _kept(made: ForwardPass, metric: str, layer: str, compute: Callable[[], Scores]) -> Scores:
    """Return the scores that are kept beside a forward pass; compute and keep them otherwise."""
    kept = made.stored(metric, layer)
    if kept is not None:
        return kept
    found = compute()
    try:
        made.store(metric, layer, found)
    except StoreError as error:
        warnings.warn(f"the scores are not kept: {error}", UserWarning, stacklevel=2)
    return found


def _of_states(known: NamedScore, states: Any, source: Source) -> Scores:
    """Compute a score of a layer, on the audit's device if it has the memory for it."""
    compute = cast("Callable[[Any, Labels, int], Scores]", known.of_layer)
    if known.on_device:
        found = computed_on(
            source.device, states, lambda held: compute(held, source.labels, source.seed)
        )
        if found is not None:
            return found
    return compute(states, source.labels, source.seed)


def _custom(source: Source, metric: Metric, made: ForwardPass, layer: str) -> Scores:
    """Scores by a function of the user's."""
    labels = source.labels
    values = np.asarray(
        metric(_single(np.array(made.representation(layer))), made.logits(), labels), float
    )
    if values.shape != labels.shape:
        raise ValueError(
            f"the metric returned the shape {values.shape}; it must return one value for each "
            f"of {len(labels)} members"
        )
    wrong = ~np.isfinite(values)
    if wrong.any():
        raise ValueError(
            f"the metric returned {int(wrong.sum())} values that are not finite, the first "
            f"for {quoted(source.members[int(np.argmax(wrong))])}"
        )
    return Scores.of_all(values)


def _known(metric: str | Metric) -> NamedScore | None:
    """Return the score of that name; None for a function of the user's."""
    if metric not in SCORES if isinstance(metric, str) else not callable(metric):
        raise ValueError(
            f"unknown score {metric!r}; valid: {', '.join(SCORES)}, or a callable "
            "(representation, logits, labels)"
        )
    return SCORES[metric] if isinstance(metric, str) else None


def _name_of(metric: str | Metric) -> str:
    if isinstance(metric, str):
        return metric
    return str(getattr(metric, "__name__", type(metric).__name__))
