"""What checkpoints take of a training, and what of them is kept."""

from __future__ import annotations

import pytest

import memowidgets as mw
from memowidgets.store import NotThereError, run_at
from tests.audit.test_watching import STEPS, mlp, samples, seeded
from tests.audit.test_watching import trained as train


def trained(path, epochs=4, **options):
    module, data = mlp(), samples()
    watch = mw.watch(module, data, path, STEPS, stop_at_drop=0.5, **options)
    seeded()
    train(module, data, epochs, watch)
    watch.end()
    return watch.audit


def test_what_was_not_kept_is_an_error_that_says_so_and_the_rest_is_the_same(tmp_path):
    whole = trained(tmp_path / "all", checkpoint_every=0.5)
    trained(tmp_path / "run", checkpoint_every=0.5, keep="prediction+final")
    part, run = mw.Audit.open(tmp_path / "run"), run_at(tmp_path / "run")
    assert part.checkpoints.equals(whole.checkpoints)
    prediction = whole.run.names.prediction().record.name
    last = whole.checkpoints.index[-1]
    assert prediction != last
    for name in whole.checkpoints.index:
        is_there = name in (prediction, last)
        layers = [
            key
            for key in run.read_tensors(f"forward/{name}")
            if key.startswith("layer.")
        ]
        assert bool(layers) == is_there
        assert part.score("loss", checkpoint=name).equals(
            whole.score("loss", checkpoint=name)
        )
        if is_there:
            assert part.score("psmi", checkpoint=name).equals(
                whole.score("psmi", checkpoint=name)
            )
        else:
            with pytest.raises(NotThereError, match=name) as refused:
                part.score("psmi", checkpoint=name)
            assert 'keep="prediction+final"' in str(refused.value)
    with pytest.raises(ValueError, match=r"prediction\+final") as refused:
        trained(tmp_path / "run", epochs=1, checkpoint_every=0.5)
    assert '"all"' in str(refused.value)
    with pytest.raises(ValueError, match="some"):
        trained(tmp_path / "other", keep="some")
