"""Early scores on several audits, side by side: AUC, rank and paired differences."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from memowidgets import charts, evaluation
from memowidgets.audit.audit import Audit
from memowidgets.audit.evidence import Evidence
from memowidgets.audit.numbers.judge import area, check_both_kinds, needs_of
from memowidgets.audit.numbers.scores import SCORES, score
from memowidgets.audit.numbers.truth import (
    is_log_lira,
    memorized_members,
    positives,
)
from memowidgets.audit.views.figures import score_theme
from memowidgets.checks import several
from memowidgets.data import Dataset
from memowidgets.store import StoreError

if TYPE_CHECKING:
    import altair as alt

TRUTHS = ("log_lira", "canaries")
_COLUMNS = (
    *("setting", "truth", "metric", "auc", "auc_low", "auc_high", "rank"),
    *("difference", "difference_low", "difference_high"),
    *("n", "n_memorized", "n_targets"),
)
Score = str | Callable[[Audit], ArrayLike]


class _Target(NamedTuple):
    """An audit, and its evidence with what scores and truth need."""

    audit: Audit
    evidence: Evidence


@dataclass(frozen=True, eq=False)
class Scoreboard:
    """Early scores on several audits.

    It can be taken apart: ``table, chart = mw.scoreboard(audits)``.

    Attributes
    ----------
    table : DataFrame
        One row for each setting, truth and score: ``setting``, ``truth``, ``metric``, ``auc`` with
        its 95 % interval ``auc_low`` to ``auc_high``, ``rank`` (1 is the highest AUC),
        ``difference`` of the AUC to that of the score to compare with, and its paired 95 %
        interval, ``n`` and ``n_memorized`` (pairs of a sample and a target), and ``n_targets``.
    missing : tuple of str
        What could not be judged, and why.
    notes : tuple of str
        What a reader must know of a setting before trusting its rows, such as label noise.
    """

    table: pd.DataFrame
    missing: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def ranks(self) -> pd.DataFrame:
        """Mean rank of each score by truth and over all, best first, and number of rankings."""
        table = self.table
        ranks = table.pivot_table(index="metric", columns="truth", values="rank", sort=False)
        ranks["mean"] = table.groupby("metric")["rank"].mean()
        ranks["n"] = table.groupby("metric")["rank"].size()
        return ranks.sort_values("mean").rename_axis(columns=None)

    @property
    def chart(self) -> alt.LayerChart:
        """Rank of each score in each setting, best mean rank first."""
        return self.figure()

    def figure(self, theme: str = "light") -> alt.LayerChart:
        """Draw the rank of each score in each setting, in a theme, "light" or "dark"."""
        return charts.ranks(self.table, score_theme(theme))

    def __iter__(self) -> Iterator[Any]:
        yield self.table
        yield self.chart

    def __repr__(self) -> str:
        rankings = self.table[["setting", "truth"]].drop_duplicates()
        n_scores, n_settings = len(self.ranks), len(rankings["setting"].unique())
        head = f"Scoreboard: {n_scores} scores, {n_settings} settings, {len(rankings)} rankings"
        missing = [f"missing: {reason}" for reason in self.missing]
        notes = [f"note: {note}" for note in self.notes]
        return "\n".join([head, self.ranks.round(2).to_string(), *missing, *notes])


def scoreboard(
    audits: Mapping[str, Audit | Sequence[Audit]] | Iterable[Audit],
    scores: Iterable[str] | Mapping[str, str | Callable[[Audit], ArrayLike]] | None = None,
    truth: str | None = None,
    eta: float = 4.0,
    against: str = "psmi",
) -> Scoreboard:
    """Compare early scores on several audits, at each audit's prediction checkpoint.

    All scores of a setting are judged on the same samples: those that have a truth and every
    score. The truth comes from shadow models, and ``"reference"`` from other models, so the two
    share no noise.

    Parameters
    ----------
    audits : mapping of str to Audit or sequence of Audit, or iterable of Audit
        By what a reader calls the setting. Several audits of a setting are several targets, such
        as runs of other seeds or `Audit.as_target`: their pairs of a sample and a target are
        pooled, and intervals come from a bootstrap by sample and by target.
    scores : iterable of str, or mapping of str to (str or callable), optional
        Names as in `Audit.score`, or functions of an audit that return one value for each member,
        in the order of `Audit.members` or as a Series by id, low where memorisation is likely.
        Default: all early scores of these audits.
    truth : {"log_lira", "canaries"}, optional
        Default: both, where they are known.
    eta : float
        Log-LiRA from which on a sample counts as memorised.
    against : str
        Score that the differences refer to. It is one of `scores`; without PSMI among them and
        no other choice, there are no differences.

    Returns
    -------
    Scoreboard
        ``table``, ``chart``, ``ranks``, ``missing`` and ``notes``.
        ``table, chart = scoreboard(…)`` works too.

    Raises
    ------
    TypeError
        If something else than an audit is given.
    ValueError
        If there is no audit, one is given twice in a setting, a name is unknown, `against` is not
        one of the scores, or nothing can be judged.

    Examples
    --------
    >>> import memowidgets as mw
    >>> board = mw.scoreboard({"MMLU": mw.open_recorded("mmlu-field-smollm2")}, ["psmi", "csl"])
    >>> board.table[["metric", "auc", "rank"]].round(3)
      metric    auc  rank
    0   psmi  0.846   2.0
    1    csl  0.902   1.0
    """
    settings = _settings(audits)
    truths = TRUTHS if truth is None else (truth,)
    if isinstance(scores, str) or not set(truths) <= set(TRUTHS):
        raise ValueError("scores are several names, and truth is one of " + ", ".join(TRUTHS))
    metrics = _checked_scores(scores, settings, against)
    found = {
        setting: [_Target(one, _complete(one, metrics.values())) for one in of]
        for setting, of in settings.items()
    }
    parts, missing, notes = [], [], []
    for setting, targets in found.items():
        for each in truths:
            try:
                table, lacking = _paired(targets, metrics, each, eta)
                missing += [f"{setting}: {reason}" for reason in lacking]
                rows = _judged(table, each, against)
            except (ValueError, StoreError) as error:
                missing.append(
                    f"{setting}, by {'log-LiRA' if is_log_lira(each) else each}: {error}"
                )
                continue
            parts.append(rows.assign(setting=setting, truth=each))
            notes += [f"{setting}: {note}" for note in _notes(targets, each)]
    if not parts:
        raise ValueError(f"there is nothing to compare: {'; '.join(missing)}")
    table = pd.concat(parts, ignore_index=True)[list(_COLUMNS)]
    return Scoreboard(table, tuple(dict.fromkeys(missing)), tuple(dict.fromkeys(notes)))


def _checked_scores(
    scores: Iterable[str] | Mapping[str, str | Callable[[Audit], ArrayLike]] | None,
    settings: Mapping[str, Sequence[Audit]],
    against: str,
) -> dict[str, Score]:
    if scores is None:
        there = {name for of in settings.values() for one in of for name in one.metrics}
        scores = [name for name, known in SCORES.items() if name in there and known.is_early]
    named = scores if isinstance(scores, Mapping) else {name: name for name in scores}
    metrics: dict[str, Score] = {str(name): metric for name, metric in named.items()}
    for name, metric in metrics.items():
        if isinstance(metric, str) and metric not in SCORES:
            raise ValueError(f"unknown score {metric!r}; valid: {', '.join(SCORES)}")
        if not isinstance(metric, str) and not callable(metric):
            raise TypeError(f"{name!r} must be a score's name or a function of an audit")
    if against not in metrics and against != "psmi":
        raise ValueError(
            f"against is {against!r}, which is not one of the scores: {', '.join(metrics)}"
        )
    return metrics


def _notes(targets: Sequence[_Target], truth: str) -> list[str]:
    """Return what a reader must know of a setting before trusting its rows."""
    said = [note for one in targets for note in one.evidence.notes_at("prediction")]
    if is_log_lira(truth):
        said += [note for one in targets for note in one.evidence.shadows.lost]
    if len(targets) < evaluation.ENOUGH_MODELS:
        few = "one target" if len(targets) == 1 else f"{len(targets)} targets"
        said.append(
            f"the intervals rest on {few}, and a difference is confirmed from "
            f"{evaluation.ENOUGH_MODELS} targets on"
        )
    return said


def _complete(audit: Audit, metrics: Iterable[Score]) -> Evidence:
    """Return the evidence with what scores and truth need; what can't be made is said later."""
    for metric in (*(one for one in metrics if isinstance(one, str)), None):
        truth = "log_lira" if metric is None else None
        with suppress(ValueError, StoreError):
            audit.evidence_with(needs_of(audit.evidence, metric, truth=truth))
    return audit.evidence


def _paired(
    targets: Sequence[_Target], metrics: Mapping[str, Score], truth: str, eta: float
) -> tuple[pd.DataFrame, list[str]]:
    """Pair samples and targets.

    Returns
    -------
    DataFrame
        ``sample``, ``target``, ``memorized``, and a column for each score that all targets have.
    list of str
        Why other scores are missing.
    """
    lacking: dict[str, str] = {}
    every: list[dict[str, pd.Series]] = [{} for _ in targets]
    for target, values in zip(targets, every, strict=True):
        for name, metric in metrics.items():
            try:
                values[name] = _values(target, metric)
            except (ValueError, StoreError) as error:
                lacking[name] = f"no {name}: {error}"
    parts = []
    names = _sample_names([target.evidence for target in targets])
    for number, (_, evidence) in enumerate(targets):
        there = {name: one for name, one in every[number].items() if name not in lacking}
        memorized = memorized_members(evidence, truth, eta)
        table = pd.DataFrame({"memorized": memorized} | there).dropna()
        if table.empty:
            raise ValueError(f"no member of {evidence!r} has a truth and every score")
        table["sample"] = names[number].reindex(table.index)
        parts.append(table.assign(target=number))
    whole = pd.concat(parts, ignore_index=True)
    return whole.astype({"memorized": np.bool_}), list(lacking.values())


def _values(target: _Target, metric: Score) -> pd.Series:
    members = target.evidence.members
    if isinstance(metric, str):
        found = score(target.evidence, metric)
        return pd.Series(found.mu, members[found.rows])
    given = metric(target.audit)
    if isinstance(given, pd.Series) and set(given.index) == set(members):
        given = given.reindex(members)
    values = np.asarray(given, dtype=np.float64)
    if values.shape != members.shape or not np.isfinite(values).all():
        raise ValueError(
            f"it must give one finite value for each of {len(members)} members, and gave "
            f"{int(np.isfinite(values).sum())} in the shape {values.shape}"
        )
    return pd.Series(values, members)


def _sample_names(targets: Sequence[Evidence]) -> list[pd.Series]:
    """Return a name of each sample of each target, by id.

    Two samples have the same name if their content and their label from before label noise are the
    same, whatever their ids. Where nobody knows the content, all ids and labels must be the same.
    """
    known: dict[tuple[Any, ...], str] = {}
    hashed: dict[int, tuple[Dataset, list[str]]] = {}  # of the data that targets share
    named = []
    for number, evidence in enumerate(targets):
        data = evidence.clean_data
        if id(data) not in hashed:
            hashed[id(data)] = data, data.content_hashes()
        ids, labels, hashes = data.ids.tolist(), data.labels.tolist(), hashed[id(data)][1]
        unknown = (tuple(ids), tuple(labels)) if hashes == ids else ()
        keys = [(one, label, unknown) for one, label in zip(hashes, labels, strict=True)]
        names = [
            known.setdefault(key, f"{number} {name}") for key, name in zip(keys, ids, strict=True)
        ]
        named.append(pd.Series(names, ids))
    return named


def _judged(table: pd.DataFrame, truth: str, against: str) -> pd.DataFrame:
    memorized = table["memorized"].to_numpy()
    check_both_kinds(memorized, truth)
    names = [str(name) for name in table if name not in ("memorized", "sample", "target")]
    n_targets = len(table["target"].unique())
    grouped = {"groups": table["sample"], "models": table["target"]} if n_targets > 1 else {}
    found = {
        name: evaluation.roc(table[name].to_numpy(), memorized, **grouped).called(positives(truth))
        for name in names
    }
    if not found:
        raise ValueError("no score can be had")
    rows, differences = [], ("difference", "difference_low", "difference_high")
    for name, one in found.items():
        apart: tuple[float, ...] = (np.nan, np.nan, np.nan)
        enough = min(one.n_memorized, one.n - one.n_memorized) > 1
        if against in found and name != against and enough:
            test = evaluation.compare(one, found[against])
            apart = (test.difference, *test.interval)
        rows.append({"metric": name, **area(one), **dict(zip(differences, apart, strict=True))})
    judged = pd.DataFrame(rows).assign(n_targets=n_targets)
    return judged.assign(rank=judged["auc"].rank(ascending=False))


def _settings(
    audits: Mapping[str, Audit | Sequence[Audit]] | Iterable[Audit],
) -> dict[str, Sequence[Audit]]:
    if not isinstance(audits, Mapping):
        given = several("audits", audits)
        for one in given:
            _check_audit(one)
        audits = dict(zip(_names_of(given), given, strict=True))
    found: dict[str, Sequence[Audit]] = {
        str(name): [of] if isinstance(of, Audit) else list(of) for name, of in audits.items()
    }
    if not found or not all(found.values()):
        raise ValueError("there is no audit to compare scores on")
    for one in [one for of in found.values() for one in of]:
        _check_audit(one)
    for name, of in found.items():
        if len({id(one) for one in of}) < len(of):
            raise ValueError(f"the setting {name!r} has the same audit twice")
    return found


def _names_of(audits: Sequence[Audit]) -> list[str]:
    """Return the folders of audits; their paths, then with a number, where these are the same."""
    paths = [str(getattr(one, "path", "")) for one in audits]
    names = [PurePath(path).name or path for path in paths]
    chosen = names if len(set(names)) == len(names) else paths
    if len(set(chosen)) == len(chosen):
        return chosen
    return [f"{name} ({number})" for number, name in enumerate(chosen, start=1)]


def _check_audit(one: object) -> None:
    if not isinstance(one, Audit):
        raise TypeError(f"a scoreboard is of audits, not of {type(one).__name__}")
