"""A script of one's own, as a function of its rows: the whole way from a list to a fork."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import mannwhitneyu
from sklearn.linear_model import LogisticRegression
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, Subset, TensorDataset

import memowidgets as mw
from memowidgets.audit.views.answers import AuditView
from memowidgets.store import NotThereError, RunDirectory, StoreError
from memowidgets.training.script import Known
from tests.training.small import Inline

N = 180
WIDTH = 6
CLASSES = 3
BATCH = 24
EPOCHS = 12
PLANTED = range(0, N, 10)


def samples():
    """Three clouds, with every tenth sample under another class's label."""
    rng = np.random.default_rng(0)
    labels = np.arange(N) % CLASSES
    x = rng.normal(size=(N, WIDTH)) + 4 * np.eye(CLASSES, WIDTH)[labels]
    labels[PLANTED] = (labels[PLANTED] + 1) % CLASSES
    return TensorDataset(torch.tensor(x, dtype=torch.float32), torch.tensor(labels))


DATA = samples()


class Script:
    """A training loop as anyone writes it; what tests change of it are its attributes."""

    def __init__(self, **changes):
        self.calls = []
        self.width = 64
        self.lr = 0.015
        self.ends_at = None
        self.fails_at = None
        self.takes = lambda rows: rows
        self.seeds = None
        self.epochs = EPOCHS
        vars(self).update(changes)

    def __call__(self, rows, watch, seed):
        self.calls.append((tuple(rows), seed))
        if len(self.calls) == self.fails_at:
            raise RuntimeError("the disk of the script is full")
        if self.seeds is not None:
            torch.manual_seed(self.seeds())
        parts = nn.Linear(WIDTH, self.width), nn.ReLU(), nn.Linear(self.width, CLASSES)
        module = nn.Sequential(*parts)
        optimizer = torch.optim.AdamW(module.parameters(), lr=self.lr)
        rows = Subset(DATA, self.takes(rows))
        loader = DataLoader(rows, batch_size=BATCH, shuffle=True)
        watch.follow(module, steps_per_epoch=len(loader))
        for _ in range(self.epochs):
            for inputs, labels in loader:
                cross_entropy(module(inputs), labels).backward()
                optimizer.step()
                optimizer.zero_grad()
                if watch.step() or watch.steps == self.ends_at:
                    return

    def __reduce__(self):  # a worker's calls are not those of this process
        plain = {name: of for name, of in vars(self).items() if name != "calls"}
        return _script, (plain,)


def _script(attributes):
    return Script(**attributes)


class Here(Inline):
    """Trains in this process with the script itself, so that its calls are seen."""

    def __init__(self, audit):
        self._script = audit.run.script

    def work(self, fn, index, name, source, *rest):
        from memowidgets.training.travel import pack, unpack

        job = unpack(source)
        job = replace(job, recipe=replace(job.recipe, fit=Forwarded(self._script.fit)))
        return fn(index, name, pack(job), *rest)


KEPT = {}


class Forwarded:
    """A function that is pickled by its number."""

    def __init__(self, fit):
        KEPT[id(fit)] = fit
        self._number = id(fit)

    def __call__(self, *given):
        return KEPT[self._number](*given)


def begun(path, fit=None, **changes):
    options = {"checkpoint_every": 1} | changes
    return mw.Audit.from_script(fit or Script(), DATA, path, **options)


@pytest.fixture(scope="module")
def audit(tmp_path_factory):
    audit = begun(tmp_path_factory.mktemp("script") / "run")
    audit.train()
    audit.run_references(1, Inline())
    audit.run_shadows(20, Inline(), design="balanced", keep_forward=True)
    return audit


def test_the_target_trains_on_its_members_alone_and_says_where_to_look(audit):
    (rows, seed), *_ = audit.run.script.fit.calls
    assert np.array_equal(audit.data.ids[list(rows)], audit.members)
    assert list(rows) == sorted(rows)
    assert seed != audit.run.seed
    assert len(audit.checkpoints) == EPOCHS + 1
    assert audit.prediction.reached
    assert audit.checkpoints["test_loss"].notna().all()


def is_higher(values, chosen):
    """Whether chosen values are higher than the others, as one in a thousand draws is by chance."""
    values = np.asarray(values)
    test = mannwhitneyu(values[chosen], values[~chosen], alternative="greater")
    return test.pvalue < 0.001


def test_planted_labels_are_memorized_by_the_truth_and_found_by_scores(audit):
    planted = np.isin(audit.members, [str(i) for i in PLANTED])
    assert is_higher(audit.log_lira(), planted)
    for metric in ("psmi", "loss", "reference"):
        assert is_higher(-audit.score(metric), planted)
    assert set(audit.flagged(share=0.1).index) & {str(i) for i in PLANTED}


def test_the_target_is_one_model_of_many(audit):
    table = audit.memorized_per_model(1.0)
    assert "target" in table.index
    assert table["truly"].notna().all()
    other = audit.as_target(3)
    assert set(other.members) != set(audit.members)
    assert len(other.log_lira()) > 0
    assert audit.evaluate_pooled("loss", eta=1.0, targets=[0, 1]).auc > 0.5


def test_report_and_page_read_it_as_any_audit(audit, tmp_path):
    page = audit.report(tmp_path / "page.html", figures=False)
    assert "Audit.from_script" in page.read_text()
    page = audit.dashboard()
    assert page.state
    page.close()
    with pytest.raises(NotThereError, match="script"):
        audit.training  # noqa: B018 - its settings are the script's


def test_the_truth_is_that_of_a_loop_by_hand(audit):
    """Shadow model 4, trained without the package, has the gaps that the run has of it."""
    from memowidgets.training.config import derived_seed
    from memowidgets.training.design import SHADOW

    file = RunDirectory(audit.path).read_tensors("shadows/balanced/0004")

    class ByHand:
        steps = 0

        def follow(self, module, steps_per_epoch):
            self.module = module

        def step(self):
            return False

    seed = derived_seed(audit.run.seed, SHADOW.stream, 4)
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    watch = ByHand()
    pool = audit.run.design.pool
    Script()(pool[file["members"]], watch, seed)
    inputs, labels = DATA[pool]
    logits = watch.module.eval()(inputs).double()
    own = logits.gather(1, labels[:, None])[:, 0]
    others = logits.scatter(1, labels[:, None], -torch.inf).amax(1)
    there = np.array(file[f"gap.epoch-{EPOCHS}"])
    np.testing.assert_allclose(there, (own - others).detach(), atol=1e-3)


def test_a_model_makes_only_the_passes_that_are_asked_for(audit, monkeypatch):
    """A reference model ends where the target is looked at, a shadow model with the script."""
    from memowidgets.training.passes import Looker

    passes = []
    look = Looker.look
    monkeypatch.setattr(Looker, "look", lambda *given: passes.append(0) or look(*given))
    audit.run_references(2, Here(audit))
    assert len(passes) == 1
    audit.run_shadows(21, Here(audit), design="balanced", keep_forward=False)
    assert (
        len(passes) <= 1 + EPOCHS + 2
    )  # with the losses that other shadow models have


def test_a_script_that_seeds_and_prints_changes_no_random_state(tmp_path, capsys):
    def told(rows, watch, seed):
        print("one of my lines")
        Script(seeds=lambda: 3, epochs=2)(rows, watch, seed)

    torch.manual_seed(7)
    before = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].copy()
    begun(tmp_path, told).train()
    assert torch.equal(before[0], torch.get_rng_state())
    assert before[1] == random.getstate()
    assert np.array_equal(before[2], np.random.get_state()[1])
    assert capsys.readouterr().out == "one of my lines\n"


def test_interrupted_it_begins_again_and_keeps_what_was_recorded(tmp_path):
    audit = begun(tmp_path)
    audit.train(stop_at_drop=0.95)
    fit = audit.run.script.fit
    told = audit.prediction.record
    file = RunDirectory(tmp_path).place("forward/epoch-1.safetensors")
    written = file.stat().st_mtime_ns
    with pytest.raises(NotThereError, match="train"):
        audit.run_shadows(2, Inline())
    audit.train(stop_at_drop=0.95)  # is there already
    assert len(fit.calls) == 1
    audit.train()
    assert len(fit.calls) == 2
    assert fit.calls[0] == fit.calls[1]
    assert file.stat().st_mtime_ns == written
    assert audit.prediction.record == told
    assert audit.checkpoints.index[-1] == f"epoch-{EPOCHS}"
    audit.train()  # has come to its end
    assert len(fit.calls) == 2


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"width": 31}, "weights of the names and shapes"),
        ({"seeds": iter(range(9)).__next__}, "epoch-0"),
        ({"lr": 0.02}, "epoch-1"),
    ],
)
def test_another_script_does_not_go_on_with_a_recording(tmp_path, changes, said):
    begun(tmp_path).train(stop_at_drop=0.95)
    with pytest.raises(StoreError, match=said):
        begun(tmp_path, Script(**changes)).train()


def test_a_killed_script_begins_again(tmp_path):
    def killed(rows, watch, seed):
        Script(ends_at=20)(rows, watch, seed)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        begun(tmp_path, killed).train()
    again = begun(tmp_path)
    before = len(again.checkpoints)
    assert 1 < before < EPOCHS
    again.train()
    assert len(again.checkpoints) == EPOCHS + 1


def test_a_script_that_ignores_its_rows_is_refused_before_shadow_models(tmp_path):
    audit = begun(tmp_path, Script(takes=lambda _: np.arange(75)))
    audit.train()
    with pytest.raises(ValueError, match="rows"):
        audit.run_references(1, Inline())
    assert not audit.n_shadows


def test_a_warm_up_from_a_rate_of_0_is_no_proof_that_rows_are_ignored(tmp_path):
    def warming(rows, watch, seed):
        module = nn.Sequential(nn.Linear(WIDTH, 8), nn.ReLU(), nn.Linear(8, CLASSES))
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
        loader = DataLoader(Subset(DATA, rows), batch_size=BATCH, shuffle=True)
        schedule = torch.optim.lr_scheduler.LambdaLR(
            optimizer, lambda step: float(step >= 2 * len(loader))
        )
        watch.follow(module, steps_per_epoch=len(loader))
        for _ in range(4):
            for inputs, labels in loader:
                cross_entropy(module(inputs), labels).backward()
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
                watch.step()

    audit = begun(tmp_path, warming)
    with pytest.warns(UserWarning, match="step 0"):
        audit.train()
    audit.run_references(1, Inline())
    assert len(audit.score("reference")) == len(audit.members)


def test_what_raises_at_the_seventh_model_leaves_six(tmp_path):
    fit = Script(epochs=2)
    audit = begun(tmp_path, fit)
    audit.train()
    fit.fails_at = 9  # the target, the look at its rows, and six models came before
    with pytest.raises(RuntimeError, match="disk of the script"):
        audit.run_shadows(8, Here(audit), checkpoints="final")
    assert audit.n_shadows == 6
    audit.run_shadows(8, Here(audit), checkpoints="final")
    assert audit.n_shadows == 8
    assert len({seed for _, seed in fit.calls}) == 9


def test_a_script_that_goes_on_is_ended_at_its_next_step(tmp_path):
    steps = []

    def deaf(rows, watch, seed):
        Script(ends_at=None).__call__(rows, Deaf(watch, steps), seed)

    audit = begun(tmp_path, deaf)
    audit.train(stop_at_drop=0.95)
    assert max(steps) == audit.prediction.until.step + 1


class Deaf:
    """A watch whose answers nobody hears."""

    def __init__(self, watch, steps):
        self._watch = watch
        self._steps = steps
        self.follow = watch.follow

    @property
    def steps(self):
        return self._watch.steps

    def step(self):
        self._steps.append(self._watch.steps + 1)
        self._watch.step()
        return False


@pytest.mark.parametrize(
    ("fit", "error", "said"),
    [
        (lambda rows, watch, seed: None, ValueError, "watch.step"),
        (lambda rows, watch, seed: watch.step(), ValueError, "watch.follow"),
        (lambda rows, watch, seed: watch.follow(3, 1), TypeError, "int"),
        (Script(epochs=0), ValueError, "watch.step"),
    ],
)
def test_what_does_not_say_how_it_trains_is_refused(tmp_path, fit, error, said):
    with pytest.raises(error, match=said):
        begun(tmp_path, fit).train()


def test_a_model_that_ends_before_the_place_to_look_is_refused(tmp_path):
    fit = Script()
    audit = begun(tmp_path, fit)
    audit.train()
    audit.run_references(1, Inline())
    fit.ends_at = 3
    with pytest.raises(ValueError, match="3 steps"):
        audit.run_references(2, Here(audit))


def test_what_cannot_travel_is_said_with_what_trains_here(tmp_path):
    class Locked(Script):
        def __reduce__(self):
            raise TypeError("a lock")

    audit = begun(tmp_path, Locked(epochs=2))
    audit.train()
    with pytest.raises(TypeError, match="ThreadPoolExecutor"):
        audit.run_shadows(1, Inline())


def test_parts_of_an_array_job_make_the_shadow_models_of_one_process(audit, tmp_path):
    begun(tmp_path).train()
    for part in range(2):
        again = begun(tmp_path)  # as each job makes it
        parts = range(part, 4, 2)
        again.run_shadows(4, Inline(), design="balanced", indices=parts)
    assert again.n_shadows == 4
    last = f"gap.epoch-{EPOCHS}"
    for index in range(4):
        name = f"shadows/balanced/{index:04d}"
        there, here = (RunDirectory(a.path).read_tensors(name) for a in (audit, again))
        np.testing.assert_array_equal(there[last], here[last])


class NeedsGpu(Script):
    """A script that trains on a GPU alone, once it has trained the target."""

    def __call__(self, rows, watch, seed):
        if self.needs:
            raise AssertionError("Torch not compiled with CUDA enabled")
        super().__call__(rows, watch, seed)

    def __reduce__(self):
        return NeedsGpu, (), {**vars(self), "calls": []}


@pytest.mark.parametrize("needs", [True, False])
def test_workers_without_the_gpu_of_the_target_are_named(tmp_path, needs):
    fit = NeedsGpu(epochs=2, needs=False)
    audit = begun(tmp_path, fit)
    audit.train()
    run = audit.run.run
    absent = "mps" if torch.cuda.is_available() else "cuda"
    known = replace(Known.read(run), device=absent, uses_rows=True)
    known.write(run)
    audit = begun(tmp_path, fit)
    fit.needs = needs
    if not needs:  # it trains on what there is
        audit.run_shadows(1, Inline(), "final")
        assert audit.n_shadows == 1
        return
    with pytest.raises(StoreError, match=f"{absent}.*not compiled with CUDA"):
        audit.run_shadows(1, Inline(), "final")


def test_a_fork_trains_on_what_is_kept_in_the_rows_of_the_script(audit, tmp_path):
    removed = [str(i) for i in PLANTED]
    audit.decision_log.decide(removed, "remove")
    kept = audit.kept()
    fork = audit.fork(tmp_path / "fork", kept)
    fit = audit.run.script.fit
    before = len(fit.calls)
    fork.train()
    rows, _ = fit.calls[before]
    assert set(rows).isdisjoint(PLANTED)
    assert [str(row) for row in rows] == list(fork.members)
    fork.run_shadows(2, Inline())
    again = audit.fork(tmp_path / "fork", kept)
    assert again.n_shadows == 2
    audit.decision_log.undo()


def test_a_fork_with_other_labels_says_what_to_do(audit, tmp_path):
    labels = audit.data.labels.copy()
    labels[5] = (labels[5] + 1) % CLASSES
    with pytest.raises(ValueError, match="from_script"):
        audit.fork(tmp_path / "fork", audit.data.with_labels(labels))
    with pytest.raises(ValueError, match="scratch"):
        audit.fork(tmp_path / "fork", audit.data, start="prediction")


@pytest.mark.parametrize("call", ["from_script", "from_estimator"])
def test_the_steps_begin_a_run_like_this_one(tmp_path, call):
    given = (Script(), DATA)
    if call == "from_estimator":
        given = (LogisticRegression(), np.eye(90), np.arange(90) % 3)
    audit = getattr(mw.Audit, call)(*given, tmp_path, members="all")
    know = AuditView(audit).steps().know
    assert f"mw.Audit.{call}(" in know.lines.code


def test_opened_without_its_script_it_is_read_and_says_how_to_go_on(audit):
    opened = mw.Audit.open(audit.path, data=DATA)
    assert opened.evaluate("loss", eta=1.0).auc == audit.evaluate("loss", eta=1.0).auc
    more = AuditView(opened).steps().wire["more"]
    assert ("from_script" in more["said"], more["button"]) == (True, "")
    with pytest.raises(NotThereError, match="from_script"):
        opened.run_shadows(30)
    with pytest.raises(NotThereError, match="from_script"):
        opened.train()


def test_a_watched_run_says_how_to_go_on(tmp_path):
    module = nn.Sequential(nn.Linear(WIDTH, 8), nn.ReLU(), nn.Linear(8, CLASSES))
    audit = mw.watch(module, DATA, tmp_path, 3).audit
    for work in (audit.train, lambda: audit.run_shadows(2), audit.fork):
        args = (tmp_path / "fork", audit.data) if work == audit.fork else ()
        with pytest.raises(NotThereError, match=r"fit\(rows, watch, seed\)"):
            work(*args)


def test_another_version_or_other_data_are_another_run(audit):
    with pytest.raises(ValueError, match="version"):
        begun(audit.path, version="2")
    with pytest.raises(ValueError, match="samples"):
        mw.Audit.from_script(Script(), Subset(DATA, range(50)), audit.path)


def test_data_of_the_package_are_fed_too(tmp_path):
    import pandas as pd

    frame = pd.DataFrame(np.asarray(DATA.tensors[0]), columns=list("abcdef"))
    frame["label"] = [f"class {y}" for y in DATA.tensors[1].tolist()]
    table = mw.data.TableDataset.from_frame(frame, label="label")
    audit = mw.Audit.from_script(Script(epochs=8), table, tmp_path, checkpoint_every=1)
    audit.train()
    audit.run_shadows(2, Inline())
    assert len(audit.score("loss", checkpoint="final")) == len(audit.members)
    assert audit.n_shadows == 2


@pytest.mark.slow
@pytest.mark.own_processes
def test_real_worker_processes_train_the_models_of_this_process(audit, tmp_path):
    own = begun(tmp_path)
    own.train()
    own.run_shadows(2, processes=2, design="balanced")
    last = f"gap.epoch-{EPOCHS}"
    for index in range(2):
        name = f"shadows/balanced/{index:04d}"
        there, here = (RunDirectory(a.path).read_tensors(name) for a in (audit, own))
        np.testing.assert_allclose(there[last], here[last], atol=1e-3)
