"""Widgets among others': in the page that somebody saves, and beside the names of their bases."""

from __future__ import annotations

import ast
import inspect
import json
import textwrap
from html.parser import HTMLParser

import ipywidgets
import numpy as np
import pytest
import traitlets
from ipywidgets.embed import dependency_state, embed_minimal_html

import memowidgets as mw
import memowidgets.teaching  # with its classes, all of them are known
from memowidgets.widgets.widget import Guarded

MADE_BY_TRAITLETS = set(vars(type("Bare", (traitlets.HasTraits,), {})))
SCORES = np.array([-1.0, 0.5, 2.0, -0.25])


def widget_classes(of=Guarded):
    """All widget classes of the package."""
    subclasses = [each for one in of.__subclasses__() for each in widget_classes(one)]
    return list(dict.fromkeys([of, *subclasses]))


def is_ours(kind):
    return kind.__module__.startswith("memowidgets.")


def source_of(kind):
    return ast.parse(textwrap.dedent(inspect.getsource(kind)))


def names_on_self(kind):
    """Attributes that methods of a class assign to ``self``."""
    return {
        node.attr
        for node in ast.walk(source_of(kind))
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    }


def carries_on(function):
    """Whether a method calls the one of its base that it stands before."""
    if not inspect.isfunction(function):
        return False
    called = f"super().{function.__name__}("
    return called in inspect.getsource(function)


@pytest.mark.parametrize("kind", widget_classes(), ids=lambda kind: kind.__name__)
def test_a_name_of_a_widget_hides_none_of_its_bases(kind):
    """A method may stand before one of its base if it calls that; nothing else may."""
    bases = [base for base in kind.__mro__ if not is_ours(base) and base is not object]
    theirs = set().union(*map(vars, bases), *map(names_on_self, bases))
    theirs -= MADE_BY_TRAITLETS
    ours = [base for base in kind.__mro__ if is_ours(base)]
    hidden = {
        f"{base.__name__}.{name}"
        for base in ours
        for name, value in vars(base).items()
        if name in theirs and not name.startswith("__") and not carries_on(value)
    }
    kept = set().union(*map(names_on_self, ours)) - set().union(*map(vars, ours))
    assert (hidden, kept & theirs) == (set(), set())


class Scripts(HTMLParser):
    """The JSON that a saved page holds, by type."""

    def __init__(self, page):
        super().__init__()
        self.kind, self.found = "", {}
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.kind = dict(attrs).get("type", "")

    def handle_data(self, data):
        if self.kind.endswith("+json") and data.strip():
            self.found[self.kind] = json.loads(data)


@pytest.mark.parametrize("drop_defaults", [True, False])
def test_a_page_saved_of_any_widget_holds_ours_as_they_are(
    opened, tmp_path, drop_defaults
):
    dashboard, _ = opened(n=60)
    dashboard.tau = 0.25
    inspector = mw.widgets.SampleInspector(["one", "two", "three", "four"], SCORES)
    explorer = mw.widgets.ThresholdExplorer(SCORES, np.array([1, 0, 0, 1], bool))
    slider = ipywidgets.IntSlider(7)
    target = tmp_path / "saved.html"
    embed_minimal_html(target, views=[slider], drop_defaults=drop_defaults)
    kept = Scripts(target.read_text("utf-8")).found
    models = kept["application/vnd.jupyter.widget-state+json"]["state"]
    assert models[slider.model_id]["state"]["value"] == 7
    assert {inspector.model_id, explorer.model_id} <= models.keys()
    alone = dependency_state([dashboard], drop_defaults=drop_defaults)
    for saved in (models, alone):
        values = saved[dashboard.model_id]["state"]
        assert (values["tau"], values["_choices"]) == (0.25, dashboard._choices)
    slider.close()
