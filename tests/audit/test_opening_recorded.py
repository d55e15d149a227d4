"""Recorded audits hold numbers, ids and hashes; never a sample, a weight or a path."""

import shutil
import warnings
from pathlib import Path

import numpy as np
import pytest

import memowidgets as mw
from benchmarks.recorded import METRICS, readable, tables
from benchmarks.recording import export
from memowidgets.audit.runs import opening
from memowidgets.files import fingerprints
from memowidgets.store import RECORDING, NotThereError, StoreError, Tensors, run_at
from tests.hostile.forged import change_manifest
from tests.training.small import Inline

PAGE = Path(__file__).parents[2] / "docs" / "recordings.md"
ABOUT = {"title": "wards", "data": "mw.data.make_mcqs(80, seed=5)", "command": "none"}


@pytest.fixture(scope="module")
def data():
    return mw.data.make_mcqs(80, seed=5)


@pytest.fixture(scope="module")
def audit(data, tmp_path_factory):
    training = mw.TrainingConfig(epochs=3)
    model = mw.models.CausalLM.from_scratch(data, layers=2, width=16)
    path = tmp_path_factory.mktemp("run")
    audit = mw.Audit(model, data, path=path, training=training)
    audit.train()
    audit.run_shadows(4, Inline())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # to have every score computed
        any_truth = np.arange(len(audit.members)) % 3 == 0
        audit.compare(checkpoints="all", layers="all", truth=any_truth)
    return audit


@pytest.fixture(scope="module")
def folder(audit, tmp_path_factory):
    folder = tmp_path_factory.mktemp("recordings") / "wards"
    export(audit.path, folder, ABOUT, ("1", "2"))
    return folder


def test_the_run_itself_opens_with_data_and_model_made_again_and_holds_no_question(
    audit, data, tmp_path
):
    path = shutil.copytree(audit.path, tmp_path / "run")
    again = mw.Audit.open(path)
    assert isinstance(again.data, mw.data.MCQDataset)
    assert again.score("psmi", checkpoint=2).equals(audit.score("psmi", checkpoint=2))
    again.run_shadows(5, Inline())
    assert again.n_shadows == 5
    with pytest.raises(ValueError, match="other data prompts"):
        mw.Audit.open(path, data=data.with_template("{question} {options} Ward:"))
    everything = b"".join(
        file.read_bytes() for file in path.rglob("*") if file.is_file()
    )
    assert not any(question.encode() in everything for question in data.questions)


def test_all_numbers_come_back(audit, folder):
    again = mw.Audit.open(folder)
    assert again.prediction == audit.prediction  # with each held-out sample's loss
    assert again.prediction.held_out == "losses"
    assert again.recording == ABOUT
    assert again.members.tolist() == audit.members.tolist()
    assert again.checkpoints.equals(audit.checkpoints)
    for metric in ("psmi", "loss", "logit_gap", "mahalanobis", "csl", "psmi+csl"):
        for checkpoint in ("epoch-1", "prediction", "final"):
            # a mean over checkpoints
            if "csl" not in metric or checkpoint != "epoch-1":
                ours, theirs = (
                    a.score(metric, checkpoint=checkpoint) for a in (again, audit)
                )
                np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(again.log_lira(), audit.log_lira(), rtol=0, atol=1e-6)
    np.testing.assert_allclose(
        again.log_lira("prediction"), audit.log_lira("prediction"), atol=0.1
    )


def test_what_the_model_answers_comes_back_without_the_logits(audit, folder):
    """The loss of a language model is of all tokens, so it does not tell the probability."""
    again = mw.Audit.open(folder)
    for checkpoint in ("epoch-1", "prediction", "final"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it has not learned much
            both = [
                a.flagged("loss", share=1.0, checkpoint=checkpoint)
                for a in (again, audit)
            ]
        ours, theirs = (table.loc[audit.members] for table in both)
        assert ours["guess"].equals(theirs["guess"])
        np.testing.assert_allclose(ours["p_label"], theirs["p_label"], rtol=1e-5)
    with pytest.raises(NotThereError, match="no logits at epoch-1"):
        again.probabilities("epoch-1")
    np.testing.assert_allclose(
        again.probabilities("final"), audit.probabilities("final"), rtol=0.01
    )
    dashboard = again.dashboard()
    dashboard.close()


def test_it_is_two_files_without_sample_weight_or_path(data, audit, folder):
    files = sorted(folder.iterdir())
    assert [file.name for file in files] == ["manifest.json", "recording.safetensors"]
    whole = sum(file.stat().st_size for file in Path(audit.path).rglob("*.safetensors"))
    content = b"".join(file.read_bytes() for file in files)
    assert len(content) < whole / 2
    for sample in (data[i] for i in range(len(data))):
        assert sample.question.encode() not in content
    assert audit.path.encode() not in content
    with pytest.raises(StoreError, match="is not empty"):
        export(audit.path, folder, ABOUT)


@pytest.mark.parametrize("damage", ["cut", "changed", "other", "gone"])
def test_a_damaged_recording_is_refused(audit, folder, tmp_path, damage):
    shutil.copytree(folder, tmp_path / "wards")
    file = tmp_path / "wards/recording.safetensors"
    content = file.read_bytes()
    if damage == "cut":
        file.write_bytes(content[: len(content) // 2])
    elif damage == "changed":
        begin = 8 + int.from_bytes(content[:8], "little")
        file.write_bytes(content[:begin] + bytes(255 - b for b in content[begin:]))
    elif damage == "other":
        change_manifest(tmp_path / "wards", lambda manifest: manifest.update(seed=7))
    else:
        file.unlink()
    with pytest.raises(StoreError, match=r"\.safetensors"):
        mw.Audit.open(tmp_path / "wards").log_lira()


def test_hidden_states_are_there_where_they_were_kept(audit, folder):
    again = mw.Audit.open(folder)

    def norm(representations):
        return -np.linalg.norm(representations, axis=1)

    ours, theirs = (a.score(norm, layer=2) for a in (again, audit))
    assert np.allclose(ours, theirs, rtol=1e-3)
    with pytest.raises(
        NotThereError, match=r"no layer are there, .* layer 2 .* epoch-1"
    ):
        again.score(norm, layer=2, checkpoint="epoch-1")


def test_every_design_and_every_shadow_as_the_target_come_back(audit, data, tmp_path):
    chosen = np.arange(len(data)) % 2 == 0
    audit.run_shadows(4, Inline(), design="canaries", audited=chosen, keep_forward=True)
    eta = float(audit.as_target(0).log_lira().median())
    pooled = {
        m: audit.evaluate_pooled(m, eta=eta) for m in ("psmi", "loss", "logit_gap")
    }
    export(audit.path, tmp_path / "both", ABOUT, ())
    again = mw.Audit.open(tmp_path / "both")
    assert again.shadow_sets == audit.shadow_sets
    for metric, found in pooled.items():
        ours = again.evaluate_pooled(metric, eta=eta)
        assert ours.auc == pytest.approx(found.auc, abs=1e-3)  # losses in float16
        assert ours.auc_interval == pytest.approx(found.auc_interval, abs=0.01)
    shadow = again.as_target(1)
    with pytest.raises(
        StoreError, match="keeps logit gaps and losses of shadow models only"
    ):
        shadow.probabilities()
    again.use_shadows("halves")
    audit.use_shadows("halves")
    assert again.n_shadows == 4
    np.testing.assert_allclose(again.log_lira(), audit.log_lira(), rtol=0, atol=1e-6)
    files = [file for file in (tmp_path / "both").rglob("*") if file.is_file()]
    assert not any(b"forward.layer" in file.read_bytes()[:4000] for file in files)


def test_other_samples_need_the_data(audit, data, folder, tmp_path, monkeypatch):
    # as of data that the package cannot generate
    with monkeypatch.context() as patched:
        patched.delitem(opening._DATA, "make_mcqs")
        export(audit.path, tmp_path / "wards", ABOUT)
    with_data = mw.Audit.open(tmp_path / "wards", data)
    assert with_data.member_data[0].question in data.questions
    without = mw.Audit.open(tmp_path / "wards")
    assert without.member_data[0].hint == f"data={ABOUT['data']}"


@pytest.mark.parametrize("other", ["texts", "labels", "fails"])
def test_samples_of_another_generator_are_not_shown(data, folder, monkeypatch, other):
    """Numbers about some samples are never shown beside others, whoever opens the recording."""
    changed = mw.data.make_mcqs(80, seed=6)
    if other == "labels":
        changed = data.with_labels((data.labels + 1) % 6)

    def make(**_):
        if other == "fails":
            raise ValueError("n must be larger")
        return changed

    monkeypatch.setitem(opening._DATA, "make_mcqs", make)
    assert mw.Audit.open(folder).member_data[0].hint == f"data={ABOUT['data']}"


def test_data_that_hold_more_will_do_and_other_data_are_refused(audit, data, folder):
    everything = data.take(np.random.default_rng(0).permutation(len(data)))
    assert mw.Audit.open(folder, everything).data.ids.tolist() == data.ids.tolist()
    with pytest.raises(ValueError, match="its data have 80 samples, these 10"):
        mw.Audit.open(folder, data.take(np.arange(10)))
    with pytest.raises(ValueError, match="unknown recorded audit 'nothing'; there are"):
        mw.open_recorded("nothing")
    with pytest.raises(ValueError, match="these are not the data"):
        mw.Audit.open(folder, mw.data.make_mcqs(80, seed=6))


def test_a_recording_is_opened_where_a_wheel_of_its_own_put_it_or_that_wheel_is_named(
    folder, tmp_path, monkeypatch
):
    monkeypatch.setattr(opening, "RECORDINGS", tmp_path / "of the package")
    with pytest.raises(ModuleNotFoundError, match="pip install memowidgets-recordings"):
        mw.open_recorded("cifar10-wrn")
    shutil.copytree(folder, tmp_path / "memowidgets_recordings" / "cifar10-wrn")
    monkeypatch.syspath_prepend(tmp_path)
    assert mw.open_recorded("cifar10-wrn").recording == ABOUT


@pytest.mark.parametrize("place", sorted(opening.installed_recordings().values()))
def test_each_array_of_a_recording_is_what_was_packed(place):
    manifest = run_at(place).read_manifest()
    files, _ = Tensors.open_packed(place / RECORDING, fingerprints(manifest)[0])
    numbers = sum(array.size for kept in files.values() for array in kept.values())
    assert numbers > 100_000


@pytest.mark.slow
def test_the_vision_recording_says_what_its_page_says():
    audit = mw.open_recorded("cifar10-wrn")
    assert sorted(audit.shadow_sets.values()) == [32, 32]
    assert not hasattr(audit.data[0], "image")
    numbers = set()
    for table in tables(audit):
        for row in table.to_dict("records"):
            said = [
                row[metric].replace("–", " to ").replace("0.", ".")
                for metric in METRICS
            ]
            at_zero = f"{row['TPR at τ = 0'][1:]}, {row['FPR at τ = 0'][1:]}"
            numbers.add(f"{' | '.join(said)} | {at_zero} |")
    page = PAGE.read_text("utf-8").split("## CIFAR-10")[1].splitlines()
    shown = [
        line.split(" | ", 2)[2] for line in page if line.startswith(("| η", "| OOD"))
    ]
    assert len(numbers & {*shown}) == len(shown) == 4


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("patients-smollm2", lambda: mw.data.make_patients(800, seed=0)),
        ("digits", lambda: mw.data.load_digits(canaries=0.05, seed=0)),
    ],
)
def test_a_recording_shows_its_samples_and_says_what_its_page_says(name, make):
    audit, expected = mw.open_recorded(name), make()
    assert audit.data.content_hashes() == expected.content_hashes()
    np.testing.assert_array_equal(audit.data.labels, expected.labels)
    np.testing.assert_array_equal(audit.data.canaries, expected.canaries)
    place = opening.RECORDINGS / name
    content = b"".join(file.read_bytes() for file in place.iterdir())
    assert len(content) < 2_000_000
    if name == "patients-smollm2":
        assert len(content) < 1_200_000
        assert not any(question.encode() in content for question in expected.questions)
    said = PAGE.read_text("utf-8")
    for row in readable(audit):
        assert row in said, row


@pytest.mark.parametrize(
    ("work", "said"),
    [
        (lambda audit: audit.train(), "cannot train"),
        (lambda audit: audit.run_shadows(8), "cannot train shadow models"),
        (lambda audit: audit.run_references(1), "cannot train reference models"),
        (lambda audit: audit.score("reference"), "cannot train reference models"),
    ],
)
def test_what_needs_weights_is_not_advised(folder, work, said):
    with pytest.raises(
        StoreError, match=f"holds numbers, .* so it {said}.*make an audit"
    ):
        work(mw.Audit.open(folder))
