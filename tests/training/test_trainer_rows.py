"""What a Trainer evaluates on as held-out samples, beside the same samples given as data."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import memowidgets as mw
from memowidgets.models.tokens import tokenizer_of_words, word_tokenizer
from tests.models import test_sequence_classifier as classifiers
from tests.training import test_trainer_callback as questions
from tests.training import test_trainer_classifiers as texts

N = 36
KEPT, ASIDE = np.arange(28), np.arange(28, 36)
COLUMNS = ["test_loss", "test_accuracy"]


@pytest.fixture(scope="module")
def of_questions():
    data = mw.data.make_mcqs(n=N, seed=0)
    tokenizer = word_tokenizer(data)

    def rows(positions):
        made = questions.script_rows(data, tokenizer, positions)
        # a token that ends each text, and the loss over all of it
        for row in made:
            row["input_ids"] = [*row["input_ids"], 1]
            row["labels"] = row["input_ids"]
        return made

    def audit(place, held_out=None):
        recipe = mw.models.CausalLM.from_model(
            questions.tiny(len(tokenizer)), tokenizer
        )
        return mw.Audit(
            recipe, data.take(KEPT), place, members="all", held_out=held_out
        )

    def train(callback, place, evaluated):
        torch.manual_seed(0)
        model = questions.tiny(len(tokenizer))
        made = questions.trainer(model, rows(KEPT), place, callback, num_train_epochs=2)
        made.eval_dataset = evaluated
        made.train()

    return data, rows, audit, train


@pytest.fixture(scope="module")
def of_texts():
    data = classifiers.texts(N)
    tokenizer = tokenizer_of_words(data.texts)

    def rows(positions):
        return texts.script_rows(data.take(positions), tokenizer)

    def audit(place, held_out=None):
        recipe = mw.models.SequenceClassifier.from_model(
            classifiers.tiny("bert", len(tokenizer)), tokenizer
        )
        return mw.Audit(
            recipe, data.take(KEPT), place, members="all", held_out=held_out
        )

    def train(callback, place, evaluated):
        torch.manual_seed(0)
        model = classifiers.tiny("bert", len(tokenizer))
        made = texts.trainer(
            model, rows(KEPT), tokenizer, place, callback, num_train_epochs=2
        )
        made.eval_dataset = evaluated
        made.train()

    return data, rows, audit, train


@pytest.mark.parametrize("kind", ["of_questions", "of_texts"])
def test_what_a_trainer_evaluates_on_is_held_out(kind, request, tmp_path):
    data, rows, audit, train = request.getfixturevalue(kind)
    tables = {}
    for name, held_out, evaluated in (
        ("given", data.take(ASIDE), None),
        # those that are trained on too are no held-out samples
        ("evaluated", None, [*rows(KEPT[:3]), *rows(ASIDE)]),
        ("trained on alone", None, rows(KEPT[:3])),
    ):
        made = audit(tmp_path / name, held_out)
        callback = mw.training.MemorizationCallback(made, stop_at_drop=None)
        train(callback, tmp_path / "out", evaluated)
        tables[name] = made.checkpoints
    np.testing.assert_allclose(
        tables["evaluated"][COLUMNS], tables["given"][COLUMNS], atol=1e-5
    )
    assert tables["given"]["test_loss"].notna().all()
    assert tables["trained on alone"]["test_loss"].isna().all()
    again = mw.Audit.open(tmp_path / "evaluated")
    np.testing.assert_array_equal(
        again.checkpoints[COLUMNS], tables["evaluated"][COLUMNS]
    )


def without_an_answer(rows):
    return [{**row, "input_ids": [*row["input_ids"][:-2], 1, 1]} for row in rows]


def test_rows_of_another_task_are_said_and_not_taken(of_questions, tmp_path):
    _data, rows, audit, train = of_questions
    made = audit(tmp_path / "run")
    callback = mw.training.MemorizationCallback(made, stop_at_drop=None)
    with pytest.warns(UserWarning, match=r"token 1\b.*held_out="):
        train(callback, tmp_path / "out", without_an_answer(rows(ASIDE)))
    assert made.checkpoints["test_loss"].isna().all()
