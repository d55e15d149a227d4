"""The command line on whole, broken and hostile run directories."""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import asdict
from importlib import metadata

import numpy as np
import pytest

import memowidgets as mw
from memowidgets.__main__ import main
from memowidgets.audit.runs import opening
from memowidgets.commands import doctor
from memowidgets.store import FORMAT, PackedRun, RunDirectory
from memowidgets.training.lookout import StopRule
from tests.hostile.forged import change_manifest, held
from tests.programs import printed

RECORDING = opening.RECORDINGS / "mmlu-field-smollm2"
ANSI = "\x1b[2J\x1b]0;owned\x07\x9b31m\u202eevil"
HEAVY = ("torch", "transformers", "altair", "sklearn", "pandas", "anywidget", "numpy")
CALL = re.compile(
    r"\b(Audit|audit|mw)\.[a-z]+\b(?<!html)(?<!json)|\w\([\w, ]*[=)…]|\w=[…'\"]"
)
UNSEEN = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A whole run, the recording with every file where a run directory has it. Only read it."""
    packed, place = PackedRun(RECORDING), tmp_path_factory.mktemp("runs") / "whole"
    manifest = packed.read_manifest()
    directory = RunDirectory(place)
    directory.write_manifest(manifest)
    for one in (packed, directory):
        one.hold(manifest)
    for name, kept in packed._files.items():
        arrays = {key: kept[key] for key in kept}
        small = {
            key: a.astype(np.int32) for key, a in arrays.items() if a.dtype == np.uint16
        }
        directory.write_tensors(name, arrays | small, kept.metadata, kept.of)
    for name in packed._notes:
        note = packed.read_note(name)
        directory.write_note(name, {key: note[key] for key in note if key != "check"})
    return place


@pytest.fixture(autouse=True)
def _reports_without_figures(monkeypatch):
    """They take ten times as long as all the rest."""
    report = functools.partialmethod(mw.Audit.report, figures=False)
    monkeypatch.setattr(mw.Audit, "report", report)


def changed(run, place, **changes):
    """A run that differs in its manifest alone, as if it had been made so."""
    shutil.copytree(run, place, dirs_exist_ok=True)
    change_manifest(place, lambda manifest: manifest.update(changes))
    return place


def said(capsys, *arguments):
    """Exit status, standard output and errors of a command; neither is a danger to a terminal.

    A command never answers in the words of Python.
    """
    status = main([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    assert not UNSEEN.search(out + err)
    assert not CALL.search(out + err), err
    return status, out, err


@pytest.mark.parametrize("command", [[], ["doctor"], ["demo"], ["report"], ["audits"]])
def test_help_fits_a_screen(command, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit) as stopped:
        main([*command, "--help"])
    lines = capsys.readouterr().out.splitlines()
    assert stopped.value.code == 0
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80


def test_help_loads_nothing_heavy():
    code = (
        "import sys\nfrom memowidgets.__main__ import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit:\n    pass\n"
        f"print([m for m in {HEAVY} if m in sys.modules])"
    )
    assert printed(code).splitlines()[-1] == "[]"


@pytest.fixture
def of_a_hub(run, tmp_path):
    """The run as if its model and its data were named on a hub."""
    data = json.loads((run / "manifest.json").read_text("utf-8"))["data"]
    arguments = {"name_or_path": "evil/model", "max_length": 64, "cache": True}
    model = {"model": "CausalLM.from_pretrained", "arguments": arguments}
    source = {"loader": "fetch_mcq", "arguments": {"name": "arc-easy"}}
    return changed(
        run, tmp_path / "run", model_source=model, data=data | {"source": source}
    )


def test_a_report_of_a_run_asks_no_hub(of_a_hub, tmp_path, capsys):
    """No test may ask another machine: tests/conftest.py."""
    options = ["--tau", "-0.05", "--metric", "psmi"]
    status, out, err = said(capsys, "report", of_a_hub, tmp_path / "a.html", *options)
    assert status == 0
    assert all(line.startswith("note: ") for line in err.splitlines())
    assert out.split() == [str(tmp_path / name) for name in ("a.html", "a.json")]
    found = json.loads((tmp_path / "a.json").read_text("utf-8"))
    assert found["prediction"]["tau"] == -0.05
    assert found["truth"]["memorized"] == 35
    status, _, err = said(capsys, "report", of_a_hub, tmp_path / "a.html")
    assert status == 2
    assert "a.html is there already" in err
    assert "pass --overwrite" in err
    page = tmp_path / "pass tau=.html"
    page.touch()
    # a path stays as it is
    assert str(page) in said(capsys, "report", of_a_hub, page)[2]


@pytest.mark.parametrize(
    ("options", "facts"),
    [
        (["--tau", "nan"], ["tau must be a", "number, not nan"]),
        (["--metric", ANSI], ["unknown score", "logit_gap"]),
        (
            ["--include-samples"],
            ["--include-samples: the samples are not at", "Python"],
        ),
    ],
)
def test_options_that_make_no_sense(run, tmp_path, capsys, options, facts):
    status, out, err = said(capsys, "report", run, tmp_path / "a.html", *options)
    assert (status, out) == (2, "")
    assert all(fact in err for fact in facts), err
    assert not list(tmp_path.iterdir())


def huge(place):
    with (place / "manifest.json").open("r+b") as file:
        file.truncate(2**31)  # a hole: it takes no room on the disk


def a_file(place):
    shutil.rmtree(place)
    place.touch()


def leading_out(place):
    directory = held(place)
    name = "checkpoints/epoch-1/record.json"
    directory.write_note(name, directory.read_note(name) | {"name": "../../evil"})


def of_ansi(place):
    change_manifest(place, lambda manifest: manifest.update(model=ANSI))


BROKEN = {  # what is done to a run, and what the one line about it says
    "nothing": (shutil.rmtree, ["does not exist"]),
    "a file": (a_file, ["is not a folder"]),
    "a huge manifest": (huge, ["has 2147483648 bytes"]),
    "a checkpoint outside": (leading_out, ["is broken: it names '../../evil'"]),
    "a model that is text": (of_ansi, []),
}  # tests/hostile/test_broken.py has all other ways to break a manifest


@pytest.mark.parametrize(("damage", "facts"), BROKEN.values(), ids=BROKEN)
def test_a_broken_run_is_refused_in_one_line(run, tmp_path, capsys, damage, facts):
    place = tmp_path / f"run{ANSI}"
    shutil.copytree(run, place)
    damage(place)
    status, out, err = said(capsys, "report", place, tmp_path / "out.html")
    assert (status, out) == (2, "")
    assert len(err.splitlines()) == 1
    assert len(err) < 2000
    assert all(fact in err for fact in facts), err
    assert list(tmp_path.iterdir()) == ([] if damage is shutil.rmtree else [place])


def test_the_runs_in_a_folder(run, tmp_path, capsys):
    model = json.loads((run / "manifest.json").read_text("utf-8"))["model"]
    changed(run, tmp_path / "a" / "b" / "whole")
    changed(run, tmp_path / "evil\x1b[31m", model={**model, "class": ANSI * 99})
    newer = changed(run, tmp_path / "newer")
    (newer / "manifest.json").write_text(json.dumps({"format": FORMAT + 1}))
    early = held(changed(run, tmp_path / "early"))
    early.write_note("rho.json", asdict(StopRule(0.99999)))
    (tmp_path / "around").symlink_to(tmp_path, target_is_directory=True)
    status, out, err = said(capsys, "audits", tmp_path)
    assert (status, err) == (0, "")
    lines = out.splitlines()
    assert lines[0].split()[:3] == ["run", "model", "members"]
    (whole,) = [line for line in lines if line.startswith("a/b/whole")]
    assert re.search(r"CausalLM +1000 of 2250 +6 +95\.4 % +32$", whole)
    assert re.search(r"^early .*not reached: \d+(\.\d)? %", out, re.MULTILINE)
    assert "evil⟨U+001B⟩[31m" in out
    assert re.search(rf"^newer: .*written in format {FORMAT + 1}", out, re.MULTILINE)
    assert len(lines) == 5
    assert max(map(len, lines)) < 900


def test_a_folder_without_runs(tmp_path, capsys):
    assert said(capsys, "audits", tmp_path)[1].startswith("no run in ")
    status, out, err = said(capsys, "audits", tmp_path / "nowhere")
    assert (status, out) == (2, "")
    assert "there is no folder" in err


# ------------------------------------------------------------ demo


def test_the_demo_writes_its_page_and_opens_it(tmp_path, capsys, monkeypatch):
    opened = []
    monkeypatch.setattr(
        "webbrowser.open", lambda address: opened.append(address) or False
    )
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    status, out, err = said(capsys, "demo")
    (folder,) = tmp_path.iterdir()  # of its own
    page = folder / "index.html"
    assert folder.stat().st_mode & 0o077 == 0
    assert (status, err, opened) == (0, "", [page.as_uri()])
    assert str(page) in out
    assert "Open the page in one yourself" in out  # the browser did not open
    assert [*folder.iterdir()] == [page]
    status, _, err = said(capsys, "demo", "--no-open", "--out", folder)
    assert (status, len(opened)) == (2, 1)
    assert "pass --overwrite" in err
    status, _, _ = said(capsys, "demo", "--no-browser", "--overwrite", "--out", folder)
    assert (status, len(opened)) == (0, 1)


def test_a_demo_needs_a_folder_that_can_be_made(run, capsys):
    for place in (run / "manifest.json", run / "manifest.json" / "below"):
        status, out, err = said(capsys, "demo", "--no-browser", "--out", place)
        assert (status, out) == (2, "")
        assert str(place) in err
        assert "--out" in err
        assert "Errno" not in err


# ------------------------------------------------------------ where the output goes


def test_an_encoding_without_greek_is_no_end(run):
    ended = subprocess.run(
        [sys.executable, "-m", "memowidgets", "audits", str(run.parent)],
        env=os.environ | {"PYTHONIOENCODING": "ascii"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "\\u03c1" in ended.stdout


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such pipes")
def test_a_reader_that_has_enough_gets_no_traceback(run):
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as closed:
        ended = subprocess.run(
            [sys.executable, "-m", "memowidgets", "audits", str(run.parent)],
            stdout=closed, stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
    assert (ended.returncode, ended.stderr) == (2, "")


# ------------------------------------------------------------ doctor


def test_here_everything_is_well_and_said_in_one_line_each(capsys):
    assert main(["doctor"]) == 0
    said = capsys.readouterr()
    lines = said.out.splitlines()
    assert all(line.startswith(("ok  ", "note  ", "WRONG  ")) for line in lines)
    assert said.err == ""
    for word in (
        "Python 3.",
        "numpy",
        "torch",
        "device",
        "ipykernel",
        "jupyterlab",
        "anywidget",
    ):
        assert word in said.out


@pytest.mark.parametrize(
    ("name", "version", "how", "facts"),
    [
        ("numpy", None, "WRONG", ["'numpy>=2.1'"]),
        ("anywidget", "0.1.0", "WRONG", ["0.1.0", "'anywidget>=0.11'"]),
        ("torch", "99.0+cpu", "ok", ["99.0+cpu"]),
        ("torch", None, "note", ["memowidgets[train]"]),
        ("peft", None, "note", ["language models", "memowidgets[llm]"]),
        ("ipykernel", None, "note", ["is not installed"]),
    ],
)
def test_a_package_that_is_missing_or_old(monkeypatch, name, version, how, facts):
    real = metadata.version

    def replaced(asked):
        if asked == name and version is None:
            raise metadata.PackageNotFoundError(name)
        return version if asked == name else real(asked)

    monkeypatch.setattr(metadata, "version", replaced)
    (line,) = [one for one in map(str, doctor.examine()) if f" {name} " in one]
    assert line.split()[0] == how
    assert [fact for fact in facts if fact not in line] == []
