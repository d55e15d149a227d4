"""The notebook 03_cifar10 runs from top to bottom without a warning."""

import pytest

from tests.notebooks.running import check_notebook


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_it_runs(tmp_path):
    check_notebook("03_cifar10", tmp_path)
