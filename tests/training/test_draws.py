"""Which members a training draws, with loaders, samplers and trainers of others."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    RandomSampler,
    SequentialSampler,
    TensorDataset,
    WeightedRandomSampler,
)
from transformers import DataCollatorWithPadding, Trainer

import memowidgets as mw
from memowidgets.models.tokens import tokenizer_of_words
from memowidgets.training.draws import Draws
from tests.audit.conftest import view_of
from tests.audit.test_watching import mlp, samples
from tests.models.test_sequence_classifier import texts, tiny
from tests.training.test_lightning_callback import NOTHING_BESIDE, lightning, new_module
from tests.training.test_trainer_callback import trainer
from tests.training.test_trainer_classifiers import make_audit, script_rows

N = 30
pytestmark = [
    pytest.mark.filterwarnings(f"ignore:.*{said}:UserWarning")
    for said in ("has not learned its task", "nothing has settled yet")
]
ROWS = TensorDataset(torch.arange(N))


class Reversed(BatchSampler):
    """A batch sampler of one's own."""

    def __iter__(self):
        yield from reversed(list(super().__iter__()))


def drawn(loader, epochs=1):
    """Counts of each row, as a loop sees them and as they are counted."""
    draws = Draws(loader, [[i] for i in range(N)])
    seen = np.zeros(N, int)
    for _ in range(epochs):
        for (batch,) in loader:
            np.add.at(seen, batch.numpy(), 1)
    kept = {}
    run = SimpleNamespace(
        write_tensors=lambda _n, arrays, more, _of: kept.update(arrays, **more)
    )
    draws.write(run, "epoch-1", "")
    return seen, kept


@pytest.mark.parametrize(
    "settings",
    [
        {"shuffle": True},
        {"sampler": WeightedRandomSampler(torch.arange(N) % 3, 40)},
        {"shuffle": True, "drop_last": True},
        {"batch_sampler": Reversed(SequentialSampler(ROWS), 4, drop_last=False)},
        {"sampler": RandomSampler(ROWS, num_samples=7), "num_workers": 1},
        {"batch_size": None, "sampler": WeightedRandomSampler([1.0] * N, 9)},
    ],
    ids=[
        "shuffled",
        "weighted",
        "last dropped",
        "own batches",
        "workers",
        "single rows",
    ],
)
def test_rows_are_counted_as_a_loop_sees_them(settings):
    own_size = {"batch_size", "batch_sampler"} & {*settings}
    loader = DataLoader(ROWS, **({} if own_size else {"batch_size": 4}), **settings)
    if loader.batch_size is None and loader.batch_sampler is None:
        loader.collate_fn = lambda row: [torch.atleast_1d(row[0])]
    torch.manual_seed(3)
    plain = [batch[0].tolist() for batch in loader]
    torch.manual_seed(3)
    seen, kept = drawn(loader, epochs=2)
    np.testing.assert_array_equal(kept["members"], seen)
    assert (int(kept["drawn"]), int(kept["rows"])) == (seen.sum(), N)
    torch.manual_seed(3)
    assert [batch[0].tolist() for batch in loader] == plain


@pytest.mark.parametrize(
    "loader",
    [
        DataLoader(list(range(N)), batch_sampler=[[0, 1], [2, 3]]),
        [torch.arange(3)],
        None,
    ],
)
def test_what_draws_no_rows_by_number_is_not_counted(loader):
    assert not Draws(loader, [[0]]).are_seen


@pytest.mark.parametrize("key", [lambda i: (i, 2), lambda i: (i, (8, 9)), str])
def test_a_loader_of_other_keys_than_row_numbers_runs_and_is_not_counted(key):
    """Such as a row with the size of its picture."""

    class Sized(TensorDataset):
        def __getitem__(self, name):
            return super().__getitem__(
                int(name[0] if isinstance(name, tuple) else name)
            )

    rows = Sized(torch.arange(N))
    loader = DataLoader(rows, batch_size=4, sampler=[key(i) for i in range(N)])
    seen, kept = drawn(loader)
    assert (seen == 1).all()
    assert not kept


# Trainers


@pytest.fixture(scope="module")
def data():
    return texts(N)


@pytest.fixture(scope="module")
def tokenizer(data):
    return tokenizer_of_words(data.texts)


class OfTwoClasses(Trainer):
    """Draws by weight: rows of the third class have none."""

    def _get_train_sampler(self, *_args):
        weights = [float(row["label"] < 2) for row in self.train_dataset]
        return WeightedRandomSampler(weights, len(weights))


@pytest.fixture
def record(data, tokenizer, tmp_path):
    """Train one epoch or more; each step has five rows, and each epoch six steps."""

    def run(kind=OfTwoClasses, rho=None, every=0.5, resume=None, **course):
        model = tiny("bert", len(tokenizer)).train()
        audit = make_audit(model, tokenizer, data, tmp_path / "run", every)
        callback = mw.training.MemorizationCallback(audit, rho)
        course = {"per_device_train_batch_size": 5, "learning_rate": 5e-3} | course
        collate = DataCollatorWithPadding(tokenizer)
        rows = script_rows(data, tokenizer)
        made = trainer(
            model,
            rows,
            tmp_path / "out",
            callback,
            kind=kind,
            data_collator=collate,
            **course,
        )
        made.train(resume_from_checkpoint=resume)
        return audit

    return run


def draws_at(audit, checkpoint="final"):
    record = audit.evidence.names.record(checkpoint)
    kept = audit.run.run.read_tensors(f"draws/{record.name}", record.weights)
    return np.array(kept["members"]), int(kept.metadata["drawn"])


@pytest.mark.parametrize(
    "course", [{}, {"gradient_accumulation_steps": 2}, {"dataloader_num_workers": 1}]
)
def test_members_that_are_never_drawn_are_said_and_have_no_score(course, record, data):
    audit = record(num_train_epochs=2, **course)
    third = data.labels == 2
    counts, n = draws_at(audit)
    assert n == counts.sum() == 60
    assert not counts[third].any()
    never = counts == 0
    assert audit.evidence.undrawn.tolist() == np.flatnonzero(never).tolist()
    for at in (0.5, "final"):
        with pytest.warns(UserWarning, match=f"{never.sum()} of 30 members .* 60 rows"):
            flagged = audit.flagged("loss", checkpoint=at, share=0.3)
        assert not {*flagged.index} & {*data.ids[never]}
    with pytest.warns(UserWarning, match=f"{never.sum()} members have no score"):
        assert (
            audit.score("csl", checkpoint="final").index.tolist()
            == data.ids[~never].tolist()
        )
    again = mw.Audit.open(audit.path, data=data)
    notes = {note.key: note for note in again.evidence.general_notes}
    assert notes["never drawn"].numbers == {"members": never.sum(), "drawn": 60}
    seen = view_of(again).view("loss", "2", "final")
    assert len(seen) == 30 - never.sum()
    assert "never drawn" in {note.key for note in seen.warnings}


@pytest.mark.parametrize("sampling", ["random", "group_by_length"])
def test_an_ordinary_order_leaves_nobody_out_before_or_after_an_epoch(sampling, record):
    audit = record(Trainer, num_train_epochs=2, train_sampling_strategy=sampling)
    assert (draws_at(audit)[0] == 2).all()
    assert (draws_at(audit, 0.5)[0] == 0).any()
    assert len(audit.evidence.undrawn) == 0


def test_in_the_first_epoch_only_whole_classes_are_left_out(record, data, monkeypatch):
    """Whoever has not been drawn yet may be drawn later."""
    audit = record(num_train_epochs=1, max_steps=3)
    counts, n = draws_at(audit)
    assert n in {15, 20}  # a batch is loaded in advance
    assert (counts[data.labels < 2] == 0).any()
    assert len(audit.evidence.undrawn) == 0  # five draws of a class are too few to tell
    monkeypatch.setattr("memowidgets.training.draws._EXPECTED", 5)
    again = mw.Audit.open(audit.path, data=data)
    assert again.evidence.undrawn.tolist() == np.flatnonzero(data.labels == 2).tolist()


@pytest.mark.parametrize("stopped_at", [6, 8])
def test_a_training_that_goes_on_counts_on(stopped_at, record, tmp_path):
    """From a checkpoint of the audit, and from between two of them."""
    steps = {"num_train_epochs": 3, "save_strategy": "steps", "save_steps": stopped_at}
    whole = draws_at(record(**steps))
    audit = record(resume=str(tmp_path / f"out/checkpoint-{stopped_at}"), **steps)
    counts, n = draws_at(audit)
    assert whole[1] == 90
    assert 90 <= n <= 95  # the batch that was loaded in advance may count twice
    assert ((counts == 0) == (whole[0] == 0)).all()
    assert audit.evidence.undrawn.tolist() == np.flatnonzero(counts == 0).tolist()


def test_draws_that_nobody_counted_are_not_known(record, tmp_path):
    """Between the last checkpoint of the audit and the epoch that is gone through again."""
    steps = {"num_train_epochs": 3, "save_strategy": "steps", "save_steps": 8}
    record(every=3, **steps)
    audit = record(every=3, resume=str(tmp_path / "out/checkpoint-8"), **steps)
    assert not audit.evidence.sees_draws
    assert len(audit.evidence.undrawn) == 0
    notes = view_of(audit).view("loss", "2", "final").notes
    assert "draws not seen" in {note.key for note in notes}
    assert len(audit.score("loss", checkpoint="final")) == N


def test_the_interrupted_training_goes_on_counting(record, tmp_path):
    course = {"num_train_epochs": 3, "save_strategy": "steps", "save_steps": 500}
    audit = record(rho=0.01, **course)
    at = audit.prediction.record
    assert at.step < 18
    audit = record(rho=0.01, resume=True, **course)
    assert 90 <= draws_at(audit)[1] <= 95


# Loops of others


def lightning_run(data, path, loader, epochs=2):
    module = new_module()
    steps = {"steps_per_epoch": 8, "checkpoint_every": 1, "stop_at_drop": None}
    watch = mw.watch(module, data, path, **steps)
    callback = mw.training.LightningCallback(watch)
    settings = {"accelerator": "cpu", "max_epochs": epochs, **NOTHING_BESIDE}
    made = lightning().Trainer(callbacks=[callback], **settings)
    made.fit(module, loader)
    return watch.audit


@pytest.mark.filterwarnings("ignore")  # of Lightning
def test_lightning_counts_the_rows_of_the_watched_data(tmp_path):
    data = samples()
    labels = torch.stack([label for _, label in data])
    only = WeightedRandomSampler((labels == 1).double(), len(data))
    loader = DataLoader(data, batch_size=8, sampler=only)
    audit = lightning_run(data, tmp_path / "run", loader)
    undrawn = audit.evidence.undrawn
    assert {*np.flatnonzero(labels.numpy() == 0)} <= {*undrawn}
    assert len(audit.score("loss", checkpoint="final")) == len(data) - len(undrawn)
    copied = DataLoader(list(data), batch_size=8, shuffle=True)
    other = lightning_run(data, tmp_path / "other", copied)
    assert not other.evidence.sees_draws


def test_a_watched_loop_says_on_its_page_that_draws_are_not_seen(tmp_path):
    audit = mw.watch(mlp(), samples(), tmp_path / "run", 8, checkpoint_every=1)
    for _ in range(8):
        audit.step()
    audit = audit.audit
    view = view_of(audit).view("loss", audit.layers[-1], "epoch-1")
    (note,) = (note for note in view.notes if note.key == "draws not seen")
    assert "by weight" in note
