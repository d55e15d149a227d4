"""transformers' own Trainer on tiny classifiers made here, with an audit listening."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from transformers import DataCollatorWithPadding, Trainer

import memowidgets as mw
from memowidgets.training.trainer_rows import check_rows, count_rows
from tests.models.test_sequence_classifier import (
    classifier,
    texts,
    tiny,
    tokenizer_of_words,
)
from tests.training.test_trainer_callback import assert_same_weights, trained_weights
from tests.training.test_trainer_callback import trainer as a_trainer

N = 30


@pytest.fixture(scope="module")
def data():
    return texts(N)


@pytest.fixture(scope="module")
def tokenizer(data):
    return tokenizer_of_words(data.texts)


def script_rows(data, tokenizer, key="label"):
    """What a script makes of texts: token ids and a class."""
    return [
        {**tokenizer(text, return_token_type_ids=False), key: int(label)}
        for text, label in zip(data.texts, data.labels, strict=True)
    ]


def trainer(model, rows, tokenizer, folder, *callbacks, **changes):
    course = {"per_device_train_batch_size": 5, "learning_rate": 5e-3} | changes
    collate = DataCollatorWithPadding(tokenizer)
    return a_trainer(model, rows, folder, *callbacks, data_collator=collate, **course)


def make_audit(model, tokenizer, data, path, every=1):
    training = mw.TrainingConfig(checkpoint_every=every, precision="float32")
    recipe = classifier(model, tokenizer)
    return mw.Audit(recipe, data, path, training=training, members="all", held_out=None)


def begin(audit, model, rows, tokenizer, folder, **changes):
    callback = mw.training.MemorizationCallback(audit, None)
    trainer(
        model, rows, tokenizer, folder / "out", callback, max_steps=1, **changes
    ).train()


class Weighted(Trainer):
    """Has a loss of its own, which is trained as it is."""

    def compute_loss(self, model, inputs, return_outputs=False, **_):
        labels = inputs.pop("labels")
        outputs = model(**inputs)
        weight = torch.tensor([5.0, 1.0, 1.0])
        loss = torch.nn.functional.cross_entropy(outputs.logits, labels, weight)
        return (loss, outputs) if return_outputs else loss


def test_a_run_with_the_callback_ends_in_the_weights_of_one_without(
    data, tokenizer, tmp_path
):
    rows, ends = script_rows(data, tokenizer), []
    audit = make_audit(
        tiny("bert", len(tokenizer)), tokenizer, data, tmp_path / "run", 0.5
    )
    for callbacks in ((), (mw.training.MemorizationCallback(audit, None),)):
        model = tiny("bert", len(tokenizer)).train()
        trainer(
            model, rows, tokenizer, tmp_path / "out", *callbacks, kind=Weighted
        ).train()
        ends.append(trained_weights(model))
    assert_same_weights(*ends)
    assert audit.checkpoints["step"].tolist() == [0, 3, 6, 9, 12, 15, 18]
    losses = -audit.score("loss", checkpoint="final")
    assert audit.checkpoints["median_loss"].iloc[-1] == pytest.approx(
        losses.median(), rel=1e-6
    )
    made = audit.run.forward(audit.evidence.names.record("final"))
    model.eval()
    for i in range(4):
        inputs = tokenizer(
            data.texts[i], return_tensors="pt", return_token_type_ids=False
        )
        with torch.no_grad():
            logits = model(**inputs).logits[0]
        np.testing.assert_allclose(made["logits"][i], logits, atol=1e-5)


def test_label_smoothing_is_interrupted_where_the_drop_levels_off(
    data, tokenizer, tmp_path, capsys
):
    words = [
        f"{text} {'abc'[label]}"
        for text, label in zip(data.texts, data.labels, strict=True)
    ]
    plain = mw.data.TextDataset.from_texts(words, data.labels, data.class_names)
    known = tokenizer_of_words(plain.texts)
    model = tiny("bert", len(known)).train()
    audit = make_audit(model, known, plain, tmp_path / "run")
    callback = mw.training.MemorizationCallback(audit)
    course = {
        "num_train_epochs": 60,
        "label_smoothing_factor": 0.2,
        "learning_rate": 1e-2,
    }
    rows = script_rows(plain, known, "labels")
    trainer(model, rows, known, tmp_path / "out", callback, **course).train()
    chosen = audit.prediction
    assert chosen.why == "level"
    assert chosen.until == callback.interrupted
    assert chosen.record.step < callback.interrupted.step
    said = capsys.readouterr().out
    assert f"interrupted at {callback.interrupted.name}" in said
    assert f"look at {chosen.record.name}: " in said
    assert "label smoothing" in said


# Rows and labels


@pytest.fixture
def fresh(data, tokenizer, tmp_path):
    model = tiny("bert", len(tokenizer))
    return make_audit(model, tokenizer, data, tmp_path / "run"), model


def typed(rows, kind):
    return [{**row, "token_type_ids": [kind] * len(row["input_ids"])} for row in rows]


def first_tokens(row, n):
    return {
        **row,
        "input_ids": row["input_ids"][:n],
        "attention_mask": row["attention_mask"][:n],
    }


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            lambda rows: [*rows[:4], *rows[5:]],
            "1 of 30 members are in no row .* '{ids[4]}'",
        ),
        (
            lambda rows: [first_tokens(row, 3) for row in rows],
            "its max_length with truncate=True",
        ),
        (
            lambda rows: [
                *rows[:7],
                {**rows[7], "label": (rows[7]["label"] + 1) % 3},
                *rows[8:],
            ],
            "'{ids[7]}' the Trainer's label is . where .*class_names=",
        ),
        (lambda rows: typed(rows, 1), "rows have token_type_ids other than 0"),
    ],
    ids=["a row less", "cut", "another label", "pairs"],
)
def test_rows_of_other_samples_are_refused(
    fresh, data, tokenizer, tmp_path, change, said
):
    audit, model = fresh
    with pytest.raises(ValueError, match=said.format(ids=data.ids)):
        begin(audit, model, change(script_rows(data, tokenizer)), tokenizer, tmp_path)
    assert not (tmp_path / "run/checkpoints").exists()


def test_rows_are_found_in_any_order_whatever_their_label_is_called(
    fresh, data, tokenizer, tmp_path
):
    audit, model = fresh
    rows = typed(script_rows(data, tokenizer, key="label_ids")[::-1], 0)
    begin(audit, model, rows, tokenizer, tmp_path)
    assert audit.checkpoints["step"].tolist() == [0, 1]


class Loader:
    """Rows that a function reads."""

    def __init__(self, rows, read):
        self.dataset, self.collate_fn = rows, lambda batch: read(batch[0])


@pytest.mark.parametrize("label", [np.array([0.0, 1.0, 1.0]), 0.5, float("nan"), None])
def test_labels_that_are_not_one_class_are_refused(label, fresh, data, tokenizer):
    rows = script_rows(data, tokenizer)
    rows[2] |= {"label": label}

    def read(row):
        named = {} if row["label"] is None else {"labels": np.array([row["label"]])}
        return {"input_ids": np.array([row["input_ids"]])} | named

    passes = mw.training.MemorizationCallback(fresh[0])._recorder.passes
    with pytest.raises(
        ValueError, match=f"'{data.ids[2]}' .*Trainer's label is .* has class"
    ):
        check_rows(Loader(rows, read), passes)


def test_a_head_with_other_classes_is_refused(fresh, data, tokenizer, tmp_path):
    model = tiny("bert", len(tokenizer), num_labels=5)
    with pytest.raises(ValueError, match="has 5 logits for 3 classes"):
        begin(fresh[0], model, script_rows(data, tokenizer), tokenizer, tmp_path)


def test_another_padding_token_is_refused_where_a_head_goes_by_it(
    data, tokenizer, tmp_path
):
    rows = script_rows(data, tokenizer)
    for family, matters in (("llama", True), ("bert", False)):
        model = tiny(family, len(tokenizer))
        audit = make_audit(model, tokenizer, data, tmp_path / family)
        model.config.pad_token_id = 7
        if not matters:
            begin(audit, model, rows, tokenizer, tmp_path)
            continue
        with pytest.raises(
            ValueError, match=r"has the padding token 7, .* pads texts with 0"
        ):
            begin(audit, model, rows, tokenizer, tmp_path)


def test_images_are_compared_with_the_nearest_and_augmented_ones_are_not():
    rng = np.random.default_rng(0)
    images = rng.normal(size=(20, 3, 16, 16)).astype(np.float32)
    ours = images + np.float32(1e-3)
    twice = [*range(20), 7]

    def check(read, rows=twice):
        data = SimpleNamespace(
            labels=np.arange(20) % 2, ids=[f"image-{i}" for i in range(20)]
        )
        model = SimpleNamespace(
            feeder=lambda *_: lambda place: torch.tensor(ours[place])
        )
        recipe = SimpleNamespace(model=model, data=data)
        members = rng.permutation(20)
        passes = SimpleNamespace(recipe=recipe, members=members, held_out=None)
        return np.array(data.ids)[members], check_rows(Loader(rows, read), passes)

    def steady(i):
        return {"pixel_values": images[i][None], "labels": np.array([i % 2])}

    with pytest.warns(UserWarning, match="1 of 20 members stand in several"):
        assert count_rows(*check(steady)) == {"image-7": 2}
    with pytest.raises(
        ValueError, match=r"1 of 20 members are in no row .*without random augment"
    ):
        check(steady, range(1, 20))
    for read, said in (
        (
            lambda i: {"pixel_values": images[i][None] + rng.normal()},
            "differ each time",
        ),
        (lambda i: {"input_values": images[i][None]}, "KeyError: 'pixel_values'"),
    ):
        with pytest.warns(UserWarning, match=f"it was not checked.*{said}"):
            assert check(read)[1] == []


@pytest.mark.parametrize("family", ["vit", "resnet"])
def test_classifiers_of_images_are_recorded_and_their_weights_stay(family, tmp_path):
    from tests.models import test_image_classifier as made_here

    data, processor = made_here.images(), made_here.processor()
    recipe = made_here.classifier(made_here.tiny(family))
    plan = mw.TrainingConfig(checkpoint_every=1, precision="float32")
    audit = mw.Audit(
        recipe, data, tmp_path / "run", training=plan, members="all", held_out=None
    )

    def row(i):
        made = processor(
            images=[data.images[i]],
            return_tensors="pt",
            input_data_format="channels_last",
        )
        return {"pixel_values": made["pixel_values"][0], "label": int(data.labels[i])}

    def collate(rows):
        labels = torch.tensor([row["label"] for row in rows])
        return {
            "pixel_values": torch.stack([r["pixel_values"] for r in rows]),
            "labels": labels,
        }

    rows, ends = [row(i) for i in reversed(range(len(data)))], []
    course = {
        "num_train_epochs": 2,
        "per_device_train_batch_size": 6,
        "learning_rate": 5e-5,
    }
    for callbacks in ([], [mw.training.MemorizationCallback(audit, None)]):
        model = made_here.tiny(family).train()
        course["data_collator"] = collate
        a_trainer(model, rows, tmp_path / "out", *callbacks, **course).train()
        ends.append(dict(model.state_dict()))
    assert_same_weights(*ends)
    assert audit.checkpoints["step"].tolist() == [0, 6, 12]
    assert np.isfinite(audit.score("psmi")).all()
    losses = audit.score("loss", checkpoint="final")
    # the weights give it again, with the running means
    audit.run.run.forget("forward")
    again = audit.score("loss", checkpoint="final")
    np.testing.assert_allclose(again, losses, rtol=1e-4, atol=1e-5)
