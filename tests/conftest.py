"""Fixtures that any test may use: a browser, a JupyterLab and Node."""

from __future__ import annotations

from tests.browser.harness import chromium, kept, lab, notebook_page, voila_page
from tests.javascript import node

__all__ = ["chromium", "kept", "lab", "node", "notebook_page", "voila_page"]
