"""Downloads from a hub on this machine, which redirects, refuses and changes."""

from __future__ import annotations

import io
import types
from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import save

import memowidgets as mw
from memowidgets.models.tokens import word_tokenizer
from tests.hub import Hub

pytest.importorskip("huggingface_hub")
MMLU = {
    "question": ["Which bone?", "Which star?", "Which rib?", "Which moon?"],
    "subject": ["anatomy", "astronomy", "anatomy", "astronomy"],
    "choices": [list("abcd")] * 4,
    "answer": [3, 1, 0, 2],
}
MMLU_FILE = "all/test-00000-of-00001.parquet"
BONES = "cais/mmlu"


def parquet(columns) -> bytes:
    written = io.BytesIO()
    pd.DataFrame(columns).to_parquet(written)
    return written.getvalue()


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A hub that HF_ENDPOINT names, for the libraries that read that name before the test too.

    What is imported in here can't keep its address for the tests that come after.
    """
    import huggingface_hub.hf_file_system  # noqa: F401
    import transformers.utils.hub
    from huggingface_hub import close_session, constants, hf_api

    with Hub().open() as hub:
        monkeypatch.setenv("NO_PROXY", "127.0.0.1,localhost")
        monkeypatch.setattr(constants, "ENDPOINT", hub.address)
        monkeypatch.setattr(hf_api.api, "endpoint", hub.address)
        # made on use
        monkeypatch.setattr(transformers.utils.hub, "_hf_api", None, raising=False)
        template = hub.address + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
        monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setenv("MEMOWIDGETS_CACHE", str(tmp_path / "cache"))
        monkeypatch.delenv("HF_TOKEN", raising=False)
        for asking in ("huggingface_hub.utils._http", "huggingface_hub.file_download"):
            monkeypatch.setattr(
                f"{asking}.time", types.SimpleNamespace(sleep=lambda _: None)
            )
        close_session()
        yield hub
        close_session()


@pytest.fixture
def mmlu(hub):
    return hub.dataset(BONES, {"README.md": b"# MMLU", MMLU_FILE: parquet(MMLU)})


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    """Files of a small Llama, its weights in two parts, and those of another seed."""
    from tests.models.small import llama_folder

    data = mw.data.make_mcqs(40, seed=1)
    tokenizer, files = word_tokenizer(data), []
    for seed in (0, 1):
        folder = llama_folder(
            tmp_path_factory.mktemp("llama"), tokenizer, width=16, layers=2, seed=seed,
            max_shard_size="8KB",
        )  # fmt: skip
        files.append({file.name: file.read_bytes() for file in folder.iterdir()})
    assert sum(name.endswith(".safetensors") for name in files[0]) > 1
    return data, *files


def weights(model, data) -> dict[str, np.ndarray]:
    return {
        name: p.detach().numpy().copy()
        for name, p in model.build(data).named_parameters()
    }


# what is downloaded


def test_questions_come_from_the_hub_once(hub, mmlu, tmp_path, monkeypatch):
    data = mw.data.fetch_mcq("mmlu")
    assert data.labels.tolist() == MMLU["answer"]
    assert data.source["arguments"]["revision"] == mmlu.branches["main"]
    assert not hub.requests("README"), "only the data are asked for"
    assert len(hub.requests("GET /cdn/")) == 1
    mw.data.fetch_mcq("mmlu")
    assert len(hub.requests("GET /cdn/")) == 1, "the same file was downloaded twice"
    hub.asked.clear()
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    again = mw.data.fetch_mcq(**data.source["arguments"])
    assert again.content_hashes() == data.content_hashes()
    assert hub.asked == []


def test_images_come_from_the_hub(hub):
    from PIL import Image

    pixels = (
        np.random.default_rng(0).integers(256, size=(3, 32, 32, 3)).astype(np.uint8)
    )
    pictures = []
    for one in pixels:
        written = io.BytesIO()
        Image.fromarray(one).save(written, "PNG")
        pictures.append({"bytes": written.getvalue(), "path": None})
    table = parquet({"img": pictures, "label": [1, 0, 9]})
    hub.dataset("uoft-cs/cifar10", {"plain_text/train-00000-of-00001.parquet": table})
    data = mw.data.fetch_cifar10()
    np.testing.assert_array_equal(data.images, pixels)
    assert data.labels.tolist() == [1, 0, 9]
    assert (
        mw.data.fetch_cifar10(**data.source["arguments"]).ids.tolist()
        == data.ids.tolist()
    )


def test_a_converted_branch_is_read_by_its_name(hub):
    table = parquet({"input": ["I lied.", "I ate."], "label": [1, 0]})
    files = {
        "commonsense/test/0000.parquet": table,
        "hendrycks_ethics.py": b"raise SystemExit",
    }
    hub.dataset("EleutherAI/hendrycks_ethics", files, branch="refs/convert/parquet")
    assert mw.data.fetch_mcq("ethics").labels.tolist() == [1, 0]
    assert not hub.requests(r"\.py")


def test_a_changed_repository_is_followed_unless_a_revision_is_pinned(
    hub, mmlu, tmp_path
):
    first = mw.data.fetch_mcq("mmlu")
    model = mw.models.CausalLM.from_scratch(first, layers=1, width=16)
    mw.Audit(model, first, tmp_path / "run", device="cpu")
    mmlu.push({MMLU_FILE: parquet(MMLU | {"answer": [1, 0, 1, 0]})})
    assert mw.data.fetch_mcq("mmlu").labels.tolist() == [1, 0, 1, 0]
    pinned = mw.data.fetch_mcq("mmlu", revision=first.source["arguments"]["revision"])
    assert pinned.content_hashes() == first.content_hashes()
    hub.asked.clear()
    opened = mw.Audit.open(tmp_path / "run")
    assert opened.data.labels.tolist() == first.labels.tolist()
    assert hub.asked == [], "opening a run asked the hub"


def test_a_model_comes_from_the_hub_and_is_the_one_in_the_folder(hub, llama, tmp_path):
    data, files, other = llama
    repository = hub.model("someone/llama", files)
    first = repository.branches["main"]
    load = partial(mw.models.CausalLM.from_pretrained, lora=None)
    model = load("someone/llama")
    of_hub = weights(model, data)
    repository.push(other)
    hub.asked.clear()
    again = weights(model, data)
    assert hub.asked == [], "the hub was asked for what this machine has"
    folder = tmp_path / "llama"
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    for found in (again, weights(load(folder), data)):
        np.testing.assert_equal(found, of_hub)
    np.testing.assert_equal(
        weights(load("someone/llama", revision=first), data), of_hub
    )
    newest = weights(load("someone/llama"), data)
    assert any((newest[name] != of_hub[name]).any() for name in of_hub)
    assert model.describe(data)["weights"] == f"commit {first}"
    with pytest.raises(ValueError, match="is a folder, which has no revisions"):
        load(folder, revision=first)


def test_a_run_of_a_hubs_model_is_opened_offline_and_with_its_own_commit_alone(
    hub, llama, tmp_path
):
    data, files, other = llama
    repository = hub.model("someone/llama", files)
    load = partial(
        mw.models.CausalLM.from_pretrained, "someone/llama", mw.models.LoRA(r=2)
    )
    training = mw.TrainingConfig(epochs=1, checkpoint_every=1, precision="float32")
    audit = mw.Audit(load(), data, tmp_path / "run", training=training, device="cpu")
    audit.train()
    scores = audit.score("loss")
    repository.push(other)
    moved = load()
    hub.asked.clear()
    opened = mw.Audit.open(tmp_path / "run", device="cpu")
    pd.testing.assert_series_equal(opened.score("loss"), scores)
    with pytest.raises(ValueError, match="other model weights"):
        mw.Audit.open(tmp_path / "run", data, moved, device="cpu")
    assert hub.asked == []


@pytest.mark.parametrize(
    "revision", ["../../secret", "/etc/passwd", "", "a//b", "ma in", ".."]
)
def test_a_revision_is_never_a_path(revision):
    with pytest.raises(ValueError, match="revision must be the name of a branch"):
        mw.data.fetch_mcq("mmlu", revision=revision)
    with pytest.raises(ValueError, match="revision must be the name of a branch"):
        mw.models.CausalLM.from_pretrained("someone/llama", revision=revision)


def test_a_path_has_no_revision(tmp_path):
    for read in (partial(mw.data.fetch_mcq, "mmlu"), mw.data.fetch_cifar10):
        with pytest.raises(ValueError, match="is a path, which has no revisions"):
            read(source=tmp_path, revision="main")


# what is refused


def data_of_hub(_data, **how):
    return mw.data.fetch_mcq("mmlu", **how)


def model_of_hub(data, **how):
    return mw.models.CausalLM.from_pretrained("someone/llama", **how).build(data)


GETS = pytest.mark.parametrize(
    ("get", "name"),
    [(data_of_hub, BONES), (model_of_hub, "someone/llama")],
    ids=["data", "model"],
)


@pytest.fixture
def both(hub, mmlu, llama):
    """A hub that has what both ask for."""
    hub.model("someone/llama", llama[1])
    return hub


def gated(hub):
    for repository in (*hub.datasets.values(), *hub.models.values()):
        repository.gated = True


def gone(hub):
    hub.datasets.clear()
    hub.models.clear()


def always(how, pattern="(HEAD|GET) "):
    return lambda hub: hub.goes_wrong(pattern, how)


FAILS = {  # what a hub does, and what the one sentence about it says besides the repository's name
    "gated": (gated, PermissionError, "is gated; accept its licence.*folder"),
    "gone": (gone, ConnectionError, ""),
    "html": (always("html", ".*"), ConnectionError, ""),
    "500": (always("500"), ConnectionError, ""),
}


@GETS
@pytest.mark.parametrize(("how", "error", "says"), FAILS.values(), ids=FAILS)
def test_a_hub_that_fails_is_one_sentence(both, llama, get, name, how, error, says):
    how(both)
    with pytest.raises(error, match=f"{name}.*{says}") as raised:
        get(llama[0])
    assert len(str(raised.value).splitlines()) == 1


@GETS
@pytest.mark.usefixtures("both")
def test_a_revision_that_is_not_there(llama, get, name):
    with pytest.raises(ValueError, match=f"{name} on the hub has no such revision"):
        get(llama[0], revision="v2")


def test_weights_in_pickles_are_refused_and_nothing_is_sent_to_convert_them(hub, llama):
    data, files, _ = llama
    pickles = {name: c for name, c in files.items() if "safetensors" not in name}
    hub.model("someone/old", pickles | {"pytorch_model.bin": b"\x80\x02}q\x00."})
    model = mw.models.CausalLM.from_pretrained("someone/old")
    with pytest.raises(
        ValueError, match="has no weights in safetensors, and pickles are never"
    ):
        model.build(data)
    assert not hub.requests(r"\.bin|POST|discussions|convert")


# what is not whole


def test_some_files_of_a_table_are_never_taken_for_all(hub, monkeypatch):
    halves = [{name: v[i : i + 2] for name, v in MMLU.items()} for i in (0, 2)]
    name = "all/test-0000{}-of-00002.parquet"
    hub.dataset(BONES, {name.format(i): parquet(half) for i, half in enumerate(halves)})
    hub.goes_wrong("HEAD .*00001-of", "404")
    with pytest.raises(ConnectionError, match=BONES):
        mw.data.fetch_mcq("mmlu")
    # An older library keeps no list of the repository's files to compare with.
    listing = "huggingface_hub._snapshot_download.read_tree_cache"
    monkeypatch.setattr(listing, lambda *_: None, raising=False)
    with monkeypatch.context() as offline:
        offline.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
        with pytest.raises(ConnectionError, match="1 of the 2 parts"):
            mw.data.fetch_mcq("mmlu")
    hub.faults.clear()
    assert mw.data.fetch_mcq("mmlu").labels.tolist() == MMLU["answer"]


def test_what_was_cut_off_on_this_disk_is_named(hub, mmlu, llama, tmp_path):
    mw.data.fetch_mcq("mmlu")
    (file,) = (file for file in tmp_path.rglob("blobs/*") if file.is_file())
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(
        ValueError, match=r"parquet is not a whole Parquet file .*delete it"
    ):
        mw.data.fetch_mcq("mmlu")
    data, files, _ = llama
    whole = {n: c for n, c in files.items() if "safetensors" not in n}
    content = save({"lm_head.weight": torch.zeros(4, 4)})
    hub.model("someone/llama", whole | {"model.safetensors": content[:-8]})
    with pytest.raises(ValueError, match="the weights of someone/llama are not whole"):
        model_of_hub(data, lora=None)
