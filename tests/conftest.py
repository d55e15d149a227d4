"""Fixtures that any test may use: a browser and a JupyterLab."""

from __future__ import annotations

from tests.browser.harness import chromium, lab, notebook_page, voila_page

__all__ = ["chromium", "lab", "notebook_page", "voila_page"]
