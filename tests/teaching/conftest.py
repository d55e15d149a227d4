"""The playgrounds' front ends, asked in Node."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.javascript import asking


@pytest.fixture(scope="session")
def ask(node):
    """Asks the front ends' modules."""
    with asking(node, Path(__file__).parent / "js" / "driver.mjs") as ask:
        yield ask
