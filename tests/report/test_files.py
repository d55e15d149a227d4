"""The two files: what they say, what they leave out, how they are written."""

from __future__ import annotations

import base64
import dataclasses
import html
import json
import os
import re
import zlib
from html.parser import HTMLParser

import jsonschema
import numpy as np
import pytest

from memowidgets.decisions import Decision
from memowidgets.evaluation.curve import Truly
from memowidgets.report import schema, write
from memowidgets.report.page import wire
from memowidgets.report.words import (
    headline,
    how_many_truly,
    lead,
    limits,
    next_steps,
    sure,
    why,
)
from memowidgets.vocabulary import Note
from memowidgets.widgets import ThresholdExplorer
from tests.report.content import (
    ALL,
    EVIL,
    by_class,
    hostile,
    partly_judged,
    plain,
    without_truth,
)


def payload(page: str) -> tuple[dict, bytes]:
    """Everything that the script of a page gets."""
    packed = re.search(r"id='mr-data'>([^<]*)</script>", page)[1]
    whole = zlib.decompress(base64.b64decode(packed))
    size = int.from_bytes(whole[:4], "little")
    return json.loads(whole[4 : 4 + size]), whole[4 + size :]


@pytest.mark.parametrize("make", ALL.values(), ids=ALL)
def test_the_json_keeps_to_its_schema_and_the_page_says_its_limits(make, tmp_path):
    content = make()
    page = write(content, tmp_path / "a.html").read_text("utf-8")
    found = json.loads((tmp_path / "a.json").read_text("utf-8"))
    check = jsonschema.Draft202012Validator(schema())
    check.validate(found)
    for wrong in ({"more": 1}, {"version": 2}, {"truth": {"auc": 0.5}}):
        assert not check.is_valid(found | wrong)
    for text in (headline(content), *limits(content)):
        assert text in html.unescape(page)


def test_headline_and_decisions_speak_of_the_flagged_samples(tmp_path):
    scored = plain().scored
    flagged = int((scored.scores <= 0).sum())
    first, *_, last = (f"id-{row:05d}" for row in np.argsort(scored.scores))
    at = "2026-01-31T09:30:00Z"
    removed = Decision("remove", "", "", "Ann", at)
    content = plain(decisions={first: removed, last: Decision("keep", by="Bo")})
    page = write(content, tmp_path / "a.html").read_text("utf-8")
    (table,) = re.findall(r"What was decided</h2><table>(.*?)</table>", page)
    rows = re.findall(r"<th scope='row'>(\w+)</th><td>(\d+)</td>", table)
    assert dict(rows) == {"remove": "1", "open": str(flagged - 1)}
    text = html.unescape(page.split("<script")[0])
    assert f">1 of {flagged} was looked at by a person.<" in text
    assert "Decided by Ann (1) and Bo (1) on 2026-01-31." in text
    assert "1 more decision is on a sample that is not flagged." in text
    found = json.loads((tmp_path / "a.json").read_text("utf-8"))["decisions"]
    assert (found["looked_at"], found["flagged"]["keep"], found["all"]["keep"]) == (
        1,
        0,
        1,
    )
    assert [(one["by"], one["flagged"], one["at"]) for one in found["made"]] == [
        (made.by, name == first, made.at)
        for name, made in sorted(content.decisions.items())
    ]


def test_without_decisions_nobody_is_named(tmp_path):
    undecided = plain(
        decisions={"id-00001": Decision("undecided", "a note", "", "Ann")}
    )
    page = write(undecided, tmp_path / "b.html").read_text("utf-8")
    found = json.loads((tmp_path / "b.json").read_text("utf-8"))["decisions"]
    assert (found["people"], found["made"], found["looked_at"]) == ([], [], 0)
    assert "Ann" not in page
    assert "No person has looked at them yet." in page


@pytest.mark.parametrize(
    ("known", "advised", "never"),
    [
        ({}, "Train shadow models", "half of the data"),
        ({"leaves_out": False}, "half of the data", "Train shadow models"),
        ({"can_train": False}, "Where the model is trained", "shadow models"),
        ({"can_train": False, "is_recording": True}, "Look at", "rain"),
    ],
)
def test_no_advice_is_given_that_the_run_cannot_follow(known, advised, never):
    content = dataclasses.replace(without_truth(), **known)
    steps = " ".join(next_steps(content))
    assert advised in steps
    assert never not in steps


# what whoever signs asks, and where the JSON answers it
TEN = {
    "what was audited": lambda found: found["facts"]["model"],
    "on which rows": lambda found: found["numbers"]["members"],
    "when": lambda found: found["created"],
    "by whom": lambda found: "audited_by" in found["sign_off"],
    "what was found": lambda found: found["headline"],
    "how sure": lambda found: found["how_sure"],
    "what was decided": lambda found: found["decisions"]["flagged"],
    "by whom it was decided": lambda found: found["decisions"]["people"][0]["by"],
    "what was not looked at": lambda found: found["decisions"]["flagged"]["undecided"],
    "what to do next": lambda found: found["next_steps"],
}


def test_ten_questions_of_who_has_to_sign_are_answered(tmp_path):
    made = Decision("remove", by="Ann", at="2026-01-31T09:30:00Z")
    content = plain(decisions={"id-00001": made})
    page = write(content, tmp_path / "a.html").read_text("utf-8")
    found = json.loads((tmp_path / "a.json").read_text("utf-8"))
    assert all(answer(found) for answer in TEN.values())
    # what is filled in later still keeps to the schema
    found["sign_off"] |= {"release": False, "reason": "<none>", "reviewed_by": "Cy"}
    jsonschema.Draft202012Validator(schema()).validate(found)
    text = html.unescape(page.split("<section class='mr-caveats'")[0])
    text = text.replace("\N{NO-BREAK SPACE}", " ")
    for fact in (found["headline"], found["how_sure"], *found["next_steps"]):
        assert fact in text
    for fact in (
        "600 of 1",
        "2026-01-02",
        "Audited by",
        "Decided by Ann",
        "Not looked",
    ):
        assert fact in text


@pytest.mark.parametrize(
    ("log_lira", "flagged", "facts"),
    [
        ([0, 0, 9, 9], 2, "^2 samples .* None of the 2 "),
        ([9, 9, 0, 0], 1, "^1 sample .* 1 of the 2 "),
        ([9, 0, 0, 0], 1, "one .* is among"),
        ([0, 0, 0, 9], 1, "one .* is not among"),
        ([0, 0, 0, 0], 0, "^No samples .* None was"),
        (None, 3, "^3 of 4 .* No shadow models"),
        (None, 0, "^No samples flagged.* No shadow models"),
    ],
)
def test_the_headline_holds_the_result(log_lira, flagged, facts):
    log_lira = None if log_lira is None else np.array(log_lira, dtype=float)
    known = {"scores": np.arange(4.0), "log_lira": log_lira, "errors": None}
    scored = dataclasses.replace(plain(4).scored, **known)
    assert re.search(facts, headline(plain(4, scored=scored, tau=flagged - 0.5)))


def test_the_words_of_page_one_are_of_this_audit():
    scored = plain().scored
    doubted = dataclasses.replace(
        scored, doubt=lambda _eta: Truly(22.4, 32, np.zeros(len(scored)))
    )
    assert re.search(r"^Of the \d+, about 22 ", how_many_truly(plain(scored=doubted)))
    assert how_many_truly(plain()) == ""
    early = Note("not learned", "the model has not learned its task")
    assert "says little" in sure(plain(warnings=(early,)))
    for given, by in ((False, "32 shadow models"), (True, "log-LiRA that was given")):
        assert by in lead(plain(truth_given=given))


@pytest.mark.parametrize(
    "make", [lambda: plain(tau=0.1), by_class], ids=["score", "class"]
)
def test_the_numbers_are_the_evaluations(make, tmp_path):
    content = make()
    page = write(content, tmp_path / "a.html").read_text("utf-8")
    found = json.loads((tmp_path / "a.json").read_text("utf-8"))
    point, at = content.evaluation.at(content.tau), found["truth"]["at_tau"]
    names = ("found", "flagged_only", "missed", "left_alone")
    assert [at[name] for name in names] == [getattr(point, name) for name in names]
    assert at["tpr_interval"] == list(point.tpr_interval)
    below = content.scored.scores <= content.tau
    assert (found["prediction"]["tau"], found["prediction"]["flagged"]) == (
        content.tau,
        below.sum(),
    )
    assert below[content.by_risk[: below.sum()]].all()
    assert found["truth"]["auc"] == content.evaluation.auc
    assert found["decisions"]["all"] == {
        "keep": 0, "anonymise": 0, "remove": 1, "relabel": 0, "undecided": 599,
    }  # fmt: skip
    assert found["checkpoints"][0]["test_accuracy"] is None
    by_its_class = found["prediction"]["axis"] == "class"
    assert by_its_class == (make is by_class)
    assert ("against its class" in page.split("<script")[0]) == by_its_class


def test_without_truth_there_is_no_rate_anywhere(tmp_path):
    write(without_truth(), tmp_path / "a.html")
    found = json.loads((tmp_path / "a.json").read_text("utf-8"))
    assert found["truth"] is None
    page = (tmp_path / "a.html").read_text("utf-8")
    text = page.split("<script")[0]
    assert "was not measured" in text
    assert not re.search(r"\b(TPR|FPR|AUC|precision)\b.*\d", text.split("</style>")[-1])
    head, _ = payload(page)
    assert head["explorer"]["truth"]["bits"] is None
    assert head["explorer"]["log_lira"] is None


def test_without_samples_no_file_holds_an_id_a_text_a_label_or_a_note(tmp_path):
    content = hostile()
    closed = plain(
        len(content.ids),
        ids=content.ids,
        decisions=content.decisions,
        scored=content.scored,
    )
    open_files = write(content, tmp_path / "open.html").read_text("utf-8")
    write(closed, tmp_path / "closed.html")
    head, blobs = payload((tmp_path / "closed.html").read_text("utf-8"))
    assert head["inspector"]["items"] is None
    everything = json.dumps(head["inspector"]) + repr(blobs)
    # numbers hold no sample, ever
    for name in (
        "closed.html",
        "closed.json",
        "open.json",
    ):
        everything += (tmp_path / name).read_text("utf-8")
    for secret in (
        "onload=alert",
        "patient-",
        "wobbling gait",
        "neurology",
        "new-class",
    ):
        assert secret in json.dumps(payload(open_files)[0]), (
            "the test would not find it"
        )
        assert secret not in everything
    items = payload(open_files)[0]["inspector"]["items"]
    assert [item["to"].split()[0] for item in items if item["to"]] == ["new-class"]
    # their owner's alone
    assert {p.stat().st_mode & 0o077 for p in tmp_path.glob("open.*")} == {0}


def test_why_is_a_fact_of_label_and_model(tmp_path):
    scored = plain(3).scored
    known = {
        "labels": np.array([0, 1, -1]),
        "probabilities": np.array([[0.003, 0.94], [0.2, 0.8], [0.5, 0.5]]),
    }
    content = plain(3, scored=dataclasses.replace(scored, **known), tau=9.0)
    named = {"class_names": ["cat", "dog"], "samples": ["a", "b", "c"]}
    shown = dataclasses.replace(content, **named)
    assert [why(content, row) for row in range(3)] == [
        "its label 0.3 %, another class 94 %",
        "its label 80 %",
        "",
    ]
    assert why(shown, 0) == "cat 0.3 %, model: dog 94 %"
    page = write(content, tmp_path / "a.html").read_text("utf-8")
    assert "another class 94\N{NO-BREAK SPACE}%" in page


class Elements(HTMLParser):
    """Names of all elements of a page, and of their attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.names, self.attributes = set(), set()
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.names.add(tag)
        self.attributes |= {name for name, _ in attrs}


def test_nothing_of_the_users_is_markup(tmp_path):
    write(hostile(), tmp_path / "a.html")
    page = (tmp_path / "a.html").read_text("utf-8")
    before = page.split("<script type='text/plain'")[0].split("</style>")[1]
    found = Elements(before)
    assert found.names == {
        "body", "header", "span", "time", "h1", "h2", "p", "b", "main", "section", "div",
        "table", "thead", "tbody", "tr", "th", "td", "ul", "ol", "li", "details", "summary",
        "figure", "figcaption", "img", "svg", "rect", "path", "text", "footer", "button",
    }  # fmt: skip
    assert not {"style", "href"} & found.attributes
    assert not [name for name in found.attributes if name.startswith("on")]
    assert set(re.findall(r"<[^>]+\ssrc='([a-z]+:)", before)) == {"data:"}
    assert "\x1b" not in page
    assert "\u202e" not in before


def test_the_policy_names_this_script_and_this_style_alone(tmp_path):
    import hashlib

    page = write(hostile(), tmp_path / "a.html").read_text("utf-8")
    policy = re.search(r"Content-Security-Policy' content=\"([^\"]*)\"", page)[1]
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy
    (style,) = re.findall(r"<style>(.*?)</style>", page, re.DOTALL)
    (script,) = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    for text in (style, script):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy
    assert len(re.findall("<script", page)) == 2


def test_the_explorer_gets_what_the_widget_sends():
    content = partly_judged()
    scored = content.scored
    explorer = ThresholdExplorer(
        scored.scores, log_lira=scored.log_lira, title=scored.title
    )
    try:
        shown = explorer.get_state()
        sent, truth = shown["_data"], shown["_truth"]
    finally:
        explorer.close()
    made = wire(content)["explorer"]
    assert made["data"] == sent
    assert made["truth"] == truth


def test_files_that_are_there_stay(tmp_path):
    (tmp_path / "a.json").write_text("mine")
    with pytest.raises(FileExistsError, match=r"a\.json exists.*overwrite=True"):
        write(plain(), tmp_path / "a.html")
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]
    write(plain(), tmp_path / "a.html", overwrite=True)
    assert json.loads((tmp_path / "a.json").read_text("utf-8"))["name"] == "digits"
    (tmp_path / "b.json").mkdir()
    with pytest.raises(FileExistsError, match=r"b\.json"):
        write(plain(), tmp_path / "b.html", overwrite=True)
    with pytest.raises(ValueError, match=r"'a\.pdf' .*print.*'a\.html'"):
        write(plain(), tmp_path / "a.pdf")
    with pytest.raises(ValueError, match=r"must end in \.html, not 'a\.txt'"):
        write(plain(), tmp_path / "a.txt")
    with pytest.raises(FileNotFoundError, match="none is not a folder"):
        write(plain(), tmp_path / "none" / "a.html")


def test_a_write_that_fails_leaves_all_as_it_was(tmp_path, monkeypatch):
    write(plain(), tmp_path / "a.html")
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    real = os.fsync
    left = iter([True, False])

    def full(handle):
        if not next(left):
            raise OSError(28, "No space left on device")
        real(handle)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write(plain(tau=0.2), tmp_path / "a.html", overwrite=True)
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before


def test_a_hundred_thousand_samples_fit_in_two_megabytes(tmp_path):
    content = plain(100_000)
    page = write(content, tmp_path / "a.html")
    assert page.stat().st_size <= 2_000_000
    head, _ = payload(page.read_text("utf-8"))
    assert len(head["inspector"]["columns"]["scores"]) == 1000
    most = np.sort(content.scored.scores)[:1000]
    assert head["inspector"]["columns"]["scores"] == most.tolist()


def test_ten_thousand_classes_and_their_names_fit_on_a_page(tmp_path):
    names = [f"class {i} {EVIL}" for i in range(10_000)]
    few = Note("small classes", "10 000 classes have few samples", names)
    labels = np.arange(600)
    content = plain(
        scored=dataclasses.replace(plain().scored, labels=labels), class_names=names,
        samples=[f"text {i}" for i in range(600)], warnings=(few,),
    )  # fmt: skip
    assert write(content, tmp_path / "a.html").stat().st_size < 1_000_000
