"""Configuration of Sphinx, which builds the site from the pages and docstrings."""

from __future__ import annotations

import sys
import tomllib
from importlib.metadata import version as installed
from pathlib import Path
from typing import TYPE_CHECKING, Any

from docutils import nodes
from sphinx.errors import PycodeError
from sphinx.pycode import ModuleAnalyzer
from sphinx.util.docutils import SphinxDirective

sys.path.insert(0, str(Path(__file__).parents[1]))

from scripts.live import STILLS, UnknownPartError, part

if TYPE_CHECKING:
    from sphinx.application import Sphinx

project = "memowidgets"
author = "memowidgets contributors"
version = release = installed("memowidgets")

PROJECT = Path(__file__).parents[1] / "pyproject.toml"
SOURCE = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]["urls"]["Source"]

extensions = ["myst_parser", "sphinx.ext.autodoc", "numpydoc"]
exclude_patterns = ["_static"]
# only base classes: they take 15 s to import
autodoc_mock_imports = [
    "lightning",
    "transformers",
]
# else they are imported for comments
for mocked in (
    *autodoc_mock_imports,
    "lightning.pytorch",
):
    ModuleAnalyzer.cache["module", mocked] = PycodeError(f"{mocked} is not imported")
default_role = "py:obj"  # a name in single backticks becomes a link if possible

autodoc_default_options = {"members": True, "member-order": "bysource"}
autodoc_typehints = "none"  # the docstrings describe the types
autodoc_preserve_defaults = True
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3
myst_links_external_new_tab = False
suppress_warnings = ["myst.header"]  # report.md has two titles

smartquotes = False  # quoted text is often code

html_theme = "furo"
html_title = "memowidgets"
html_static_path = ["_static"]
html_favicon = "_static/icon.svg"
html_css_files = ["site.css"]
html_copy_source = False
html_show_search_summary = False  # a page opened from disk may not read another
html_show_sphinx = False
html_show_copyright = False
html_theme_options = {
    "light_css_variables": {
        "color-brand-primary": "#1c5d8c",
        "color-brand-content": "#1c5d8c",
        "font-stack": "system-ui, sans-serif",
    },
    "dark_css_variables": {
        "color-brand-primary": "#72b7ea",
        "color-brand-content": "#72b7ea",
    },
    "footer_icons": [],
    # "Edit this page", of the repository that pyproject.toml names
    "source_repository": SOURCE,
    "source_branch": "main",
    "source_directory": "docs/",
    "top_of_page_buttons": ["edit"],
}


def _without_its_own(
    _app: Sphinx, what: str, _name: str, _found: Any, _o: Any, lines: list[str]
) -> None:
    """Remove a room's docstring, which is for developers; the room's page introduces it."""
    if what == "module":
        lines.clear()


class Live(SphinxDirective):
    """A part that moves: ``{live} KIND NAME``, as `scripts.live.part` has them."""

    required_arguments = 2

    def run(self) -> list[nodes.Node]:
        """Return the part as HTML."""
        try:
            found = part(*self.arguments)
        except UnknownPartError as error:
            raise self.error(str(error)) from error
        self.env.note_reread()  # it shows what the package has by now
        root = "../" * self.env.docname.count("/")
        markup = found.markup().replace(STILLS, f"{root}{STILLS}")
        return [nodes.raw("", markup, format="html")]


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the function and the directive above."""
    app.connect("autodoc-process-docstring", _without_its_own)
    app.add_directive("live", Live)
    return {"parallel_read_safe": True}
