"""Kept outputs of frozen blocks go to a folder of the module's own."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True, scope="module")
def _cache_of_its_own(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MEMOWIDGETS_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield
