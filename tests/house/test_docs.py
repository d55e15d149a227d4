"""The site: built without a warning, whole, asking nobody; what its pages show works as written."""

from __future__ import annotations

import ast
import doctest
import importlib
import inspect
import re
import zipfile
from pathlib import Path

import pytest

import memowidgets as mw
from scripts.docs import pack, problems
from tests.browser.harness import opened, save
from tests.front_end.tools import serious

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs").rglob("*.md"))
ROOMS = re.findall(
    r"^(\w+)$", (ROOT / "docs/api/index.md").read_text("utf-8"), re.MULTILINE
)
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", flags=re.DOTALL | re.MULTILINE)
OPTIONS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


def blocks(page, language):
    return [
        text
        for name, text in BLOCK.findall(page.read_text("utf-8"))
        if name == language
    ]


@pytest.mark.slow
def test_every_link_leads_somewhere_and_nothing_is_loaded_from_elsewhere(site):
    assert list(problems(site)) == []


def test_what_is_broken_is_found(tmp_path):
    (tmp_path / "b.html").write_text('<p id="here">')
    (tmp_path / "a.html").write_text(
        '<a href="b.html#here">good</a><a href="b.html#there">no place</a><a href="c.html">'
        'no file</a><a href="https://example.org">elsewhere</a><script src="https://example.org/x.js"></script>'
    )
    assert list(problems(tmp_path)) == [
        "a.html links to b.html#there, which has no such place",
        "a.html links to c.html, which is not there",
        "a.html loads https://example.org/x.js from another machine",
    ]


@pytest.mark.slow
@pytest.mark.parametrize("room", ROOMS)
def test_every_public_name_is_in_the_reference(site, room):
    page = (site / "api" / f"{room}.html").read_text("utf-8")
    module = importlib.import_module(f"memowidgets.{room}")
    public = set(module.__all__)
    documented = {name for name in public if f'id="memowidgets.{room}.{name}"' in page}
    assert not [name for name in public - documented if callable(getattr(module, name))]


@pytest.mark.slow
def test_the_site_in_one_file_opens_from_disk_and_asks_nobody(chromium, site, tmp_path):
    place = tmp_path / "my class, 3 % of it"
    with zipfile.ZipFile(pack(site)) as packed:
        packed.extractall(place)
    (unpacked,) = place.iterdir()
    with opened(chromium, (unpacked / "index.html").as_uri(), offline=True) as page:
        for name in ("start", "api/metrics", "worksheet"):
            page.goto((unpacked / f"{name}.html").as_uri())
            page.get_by_role("heading", level=1).first.wait_for()
            save(page, f"docs-{name.replace('/', '-')}")
        found = serious(page, also=("moderate", "minor"))
        for link in ("Watch it memorise", "PSMI"):
            page.locator("article").get_by_role("link", name=link, exact=True).click()
            page.wait_for_selector("body[data-ready]")
            found += serious(page, also=("moderate", "minor"))
            page.go_back()
        page.goto((unpacked / "search.html").as_uri() + "?q=directions")
        page.locator("#search-results").get_by_role("link", name="Concepts").wait_for()
    assert not found


@pytest.mark.slow
@pytest.mark.parametrize(("question", "there"), [(9, True), (22, False)])
def test_a_link_to_a_question_leads_there_or_to_the_lesson(
    chromium, site, question, there
):
    page = chromium.new_page(viewport={"width": 960, "height": 780})
    page.goto(f"{(site / 'worksheet.html').as_uri()}#question-{question}")
    page.wait_for_load_state()
    target = page.locator(f"#question-{question}" if there else "h1").first
    page.wait_for_function(
        "(one) => { const { top } = one.getBoundingClientRect(); return top >= 0 && top < 780; }",
        arg=target.element_handle(),
    )
    assert (page.evaluate("scrollY") > 0) == there
    page.close()


# These train for seconds, or import Lightning.
LONG = {("your_training_loop", "python")}
LONG |= {(page, "pycon") for page in ("find_and_fix", "own_model", "start")}


def pages(language):
    """The pages that show something in a language, as parameters."""
    return [
        pytest.param(
            page,
            id=page.stem,
            marks=[pytest.mark.slow] * ((page.stem, language) in LONG),
        )
        for page in PAGES
        if blocks(page, language)
    ]


@pytest.mark.parametrize("page", pages("pycon"))
def test_the_examples_of_a_page_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = "\n".join(blocks(page, "pycon"))
    test = doctest.DocTestParser().get_doctest(text, {}, page.stem, str(page), 0)
    said = []
    doctest.DocTestRunner(optionflags=OPTIONS).run(test, out=said.append)
    assert said == []


BEFORE = """
import memowidgets as mw
audit = another = mw.open_recorded('mmlu-field-smollm2')
memorized = audit.log_lira() >= 4
scores = audit.score('psmi')
audit.decision_log.decide(audit.flagged().index.tolist(), 'keep')
"""


@pytest.mark.slow
def test_the_fragments_of_the_page_on_reports_run(tmp_path, monkeypatch):
    """With what the page takes for granted before them."""
    monkeypatch.chdir(tmp_path)
    names = {}
    for text in [BEFORE, *blocks(ROOT / "docs" / "report.md", "python")]:
        if "sign_off" not in text:
            exec(text, names)
            continue
        with pytest.raises(AssertionError, match="memorised by this model"):
            exec(text, names)  # all was looked at, and nobody has signed


def resolved(node):
    """What a dotted name that begins with mw, audit or memowidgets stands for."""
    if isinstance(node, ast.Name):
        return {"mw": mw, "memowidgets": mw, "audit": mw.Audit}.get(node.id)
    if isinstance(node, ast.Attribute) and (owner := resolved(node.value)) is not None:
        found = getattr(owner, node.attr)  # an unknown name raises, and says which
        kinds = (inspect.isroutine, inspect.isclass, inspect.ismodule)
        return found if any(is_kind(found) for is_kind in kinds) else None
    return None


@pytest.mark.parametrize("page", pages("python"))
def test_the_fragments_of_a_page_use_names_that_there_are(page):
    """What needs a cluster, a GPU or an hour is not run; its names and keywords are checked."""
    for node in (
        one for text in blocks(page, "python") for one in ast.walk(ast.parse(text))
    ):
        if isinstance(node, ast.Attribute):
            resolved(node)
        if isinstance(node, ast.Call) and (called := resolved(node.func)) is not None:
            takes = inspect.signature(called).parameters
            if not any(p.kind is p.VAR_KEYWORD for p in takes.values()):
                assert {k.arg for k in node.keywords} <= {*takes}, ast.unparse(node)
