"""Every kind of note, made of secrets: whoever may not see the samples is shown none of them."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import get_args

import numpy as np
import pytest

import memowidgets as mw
from memowidgets.audit import run as run_room
from memowidgets.audit.evidence import Evidence
from memowidgets.audit.names import GIVEN
from memowidgets.audit.numbers.computing import ScorePart, _finished, computed
from memowidgets.audit.numbers.scores import (
    SHARED_NOISE,
    ask,
    notes_on_truth,
    notes_on_zero,
)
from memowidgets.audit.run import fork_note
from memowidgets.audit.runs.given import _note_on_copies
from memowidgets.audit.views.answers import _note_on_draws
from memowidgets.audit.views.report import content_of
from memowidgets.data import ImageDataset
from memowidgets.evaluation import roc
from memowidgets.evaluation.curve import Truly
from memowidgets.evaluation.scored import Scored
from memowidgets.memorization.densities import note_on_shape
from memowidgets.memorization.gaps import note_on_order
from memowidgets.metrics import PSMI, Mahalanobis
from memowidgets.models import ConvNet
from memowidgets.registry import find_row, registered
from memowidgets.store import BrokenError
from memowidgets.training.checkpoint import REPEATS
from memowidgets.training.lookout import Prediction
from memowidgets.training.shadows import ShadowSet
from memowidgets.vocabulary import Kind, Note
from tests.report.test_files import payload
from tests.training.test_lookout import records

N = 120
SECRET = "Brindlow"
LABELS = np.array([0] * 55 + [1] * 55 + [2] * 10)
CLASSES = [f"{SECRET} ward {i}" for i in range(3)]
IDS = [f"{SECRET}-{i:04d}" for i in range(N)]
TEXTS = [f"note {i} on Mrs {SECRET}" for i in range(N)]
RNG = np.random.default_rng(0)
STATES = RNG.normal(size=(N, 4)) + 3 * np.eye(3, 4)[LABELS]
MARKS = np.arange(N) % 2 == 0


def audit_of(**changes) -> mw.Audit:
    given = {
        "representations": STATES,
        "logits": RNG.normal(size=(N, 3)) + 2 * np.eye(3)[LABELS],
        "log_lira": RNG.gumbel(0, 2, N),
        "samples": TEXTS,
        "ids": IDS,
        "class_names": CLASSES,
    }
    return mw.Audit.from_arrays(LABELS, **given | changes)


def of_psmi(X, y=LABELS, **options):
    return PSMI(**options).fit(X, np.array(CLASSES)[y]).warnings_


def of_dominant():
    y = np.arange(600) % 3
    X = RNG.normal(size=(600, 16)) + y[:, None]
    X[577] *= 1e5
    return of_psmi(X, y)


def of_roc(n_positive=5, **options):
    return roc(RNG.normal(size=N), np.arange(N) < n_positive, **options).warnings


def of_truly():
    known = Truly(3.2, 16, np.full(N, 0.5))
    return roc(RNG.normal(size=N), MARKS).with_truly(known).warnings


def of_choice(why):
    record, _, last = records(0.5, 0.6)
    chosen = Prediction(record, 0.5, 0.95, False, why, last, elsewhere=last)
    return replace(chosen, jumped_from=0.1).warnings


def of_strict_zero():
    scores = 1 + np.where(MARKS, 0.0, 1.0) + 1e-3 * RNG.random(N)
    return notes_on_zero("psmi", replace(Scored.of_all(scores), labels=LABELS))


def of_own_score():
    mw.score("mine")(lambda labels: (labels * 1.0, None, [f"{SECRET}-0007 is odd"]))
    asked = ask(audit_of().evidence, "last", GIVEN)
    return computed(ScorePart(find_row("mine"), asked)).notes


def of_kept_alone():
    gone = SimpleNamespace(name="mine", is_gone=True, fits_classes=False)
    asked = ask(audit_of().evidence, "last", GIVEN)
    return _finished(gone, asked, Scored.of_all(np.arange(N))).notes


def of_unscored():
    mw.score("mine")(lambda labels: np.where(labels == 2, np.nan, 0.5))
    audit = audit_of()
    content = content_of(audit, None, "mine", include_samples=True, figures=False)
    return content.cautions


def of_error(returned):
    mw.score("mine")(returned)
    with pytest.raises(ValueError, match=SECRET) as error:
        audit_of().score("mine")
    return error.value.args


def fail(labels):
    raise LookupError(f"{SECRET} is not in my table")


def of_run(path, monkeypatch):
    """Notes on a run whose training left something out, and drew something twice."""
    data = mw.data.load_digits().take(range(N))
    given = data.images, data.labels
    names = [f"{SECRET} digit {i}" for i in range(10)]
    data = ImageDataset.from_arrays(*given, names, ids=IDS)
    noisy = mw.TrainingConfig(epochs=1, batch_size=16, label_noise=0.2)
    audit = mw.Audit(ConvNet(4), data, path, noisy, device="cpu", held_out=None)
    audit.train()
    member = str(audit.members[0])
    audit.run.run.write_note(REPEATS, {"rows": {member: 3}})
    monkeypatch.setattr(run_room, "never_drawn", lambda *_: (np.arange(2), 60))
    again = mw.Audit.open(path, data=data, model=ConvNet(4))
    broken = {0: BrokenError("shadows/0000.safetensors is cut off")}
    fork = {"checkpoint": "epoch-1", "seen": 3, "start": "epoch-1"}
    return [
        *again.evidence.general_notes,
        *again.evidence.not_learned(again.evidence.names.final()),
        *ShadowSet(audit.run.run).lost(broken),
        *fork_note({"fork": fork}),
    ]


def made_by_all(path, monkeypatch) -> dict[str, Note]:
    """A note of each kind, each by the function of the package that makes it."""
    evidence = audit_of().evidence
    humps = RNG.choice([-2, 2], size=(32, N)) + RNG.normal(size=(32, N))
    halves = np.arange(32)[:, None] % 2 == np.zeros(N)
    copies = np.where(np.arange(N) % 2 == np.arange(2)[:, None], 0.5, np.nan)
    twice = SimpleNamespace(content_hashes=lambda: [SECRET] * N)
    flat = np.pad(STATES, ((0, 0), (0, 2)))
    notes = [
        *of_psmi(STATES),
        *of_psmi(np.zeros((N, 4))),
        *of_psmi(RNG.normal(size=(N, 16)), tol=1e-3),
        *of_dominant(),
        *Mahalanobis().fit(flat).warnings_,
        *of_roc(),
        *of_roc(N - 5),
        *of_roc(N // 2, groups=IDS, models=np.zeros(N)),
        *of_truly(),
        *of_choice("turn"),
        *of_choice("level"),
        *of_choice("unsettled"),
        note_on_shape(humps, halves),
        note_on_order(humps, halves, RNG.normal(size=N)),
        _note_on_copies(twice, copies),
        *_note_on_draws(replace(evidence, sees_draws=False)),
        *notes_on_truth(evidence, MARKS, 3, "member"),
        SHARED_NOISE,
        *of_strict_zero(),
        *of_own_score(),
        *of_kept_alone(),
        *of_unscored(),
        *of_error(fail),
        *of_error(lambda labels: np.where(labels == 2, np.inf, 0.0)),
        *of_error(lambda labels: (labels, -1.0 - labels)),
        *of_run(path, monkeypatch),
    ]
    return {note.key: note for note in notes}


@pytest.fixture(scope="module")
def of_each(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registered.REGISTRY, "_of_session", {})
        return made_by_all(tmp_path_factory.mktemp("run") / "run", patch)


def test_there_is_a_note_of_each_kind(of_each):
    assert set(of_each) == set(get_args(Kind))


def test_a_sentence_names_nobody(of_each):
    for note in of_each.values():
        assert SECRET not in note.sentence
        assert all(name not in note.sentence for name in note.names)
        assert all(isinstance(number, int | float) for number in note.numbers.values())
        assert all(said in note for said in (note.sentence, *note.names))


def test_there_are_names_to_leave_out(of_each):
    named = {kind for kind, note in of_each.items() if SECRET in note}
    assert {"small classes", "own note", "own error", "wrong score"} <= named


def test_without_samples_nothing_of_an_audit_names_them(of_each, tmp_path, monkeypatch):
    every = tuple(of_each.values())
    monkeypatch.setattr(Evidence, "notes_at", lambda *_: every)
    audit = audit_of()
    page = audit.report(tmp_path / "closed.html")
    opened = audit.report(tmp_path / "opened.html", include_samples=True)
    numbers = opened.with_suffix(".json").read_text("utf-8")
    everything = page.read_text("utf-8") + page.with_suffix(".json").read_text("utf-8")
    everything += numbers + audit._repr_html_()
    assert SECRET in opened.read_text("utf-8")
    assert SECRET not in everything + repr(payload(page.read_text("utf-8")))
    found = json.loads(numbers)
    assert {note.sentence for note in every} <= set(found["warnings"])
    shown = audit.dashboard()
    assert len(shown._warnings) > 20
    # a saved notebook holds these
    assert SECRET not in repr(shown._warnings + shown._notes)
    shown.close()


@pytest.mark.parametrize(
    "returned",
    [
        fail,
        lambda labels: np.where(labels == 2, np.inf, 0.0),
        lambda labels: (labels, -1.0 - labels),
    ],
)
def test_an_error_names_no_sample_in_a_report_without_samples(returned, tmp_path):
    mw.score("mine")(returned)
    page = audit_of().report(tmp_path / "a.html", metric="mine", figures=False)
    numbers = page.with_suffix(".json").read_text("utf-8")
    assert "mine" in json.loads(numbers)["missing"]["scores"]
    assert SECRET not in page.read_text("utf-8") + numbers
