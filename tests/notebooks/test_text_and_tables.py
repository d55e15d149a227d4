"""The notebook 07_text_and_tables runs from top to bottom without a warning."""

import pytest

from tests.notebooks.running import check_notebook


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_it_runs(tmp_path):
    check_notebook("07_text_and_tables", tmp_path)
