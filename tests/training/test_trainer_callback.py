"""Transformers' own Trainer, on tiny models made here, with an audit listening."""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import Trainer, TrainerCallback, TrainingArguments

import memowidgets as mw
from memowidgets.audit.views.answers import AuditView
from memowidgets.models import device as device_room
from memowidgets.models.lora import quiet_peft
from memowidgets.models.tokens import word_tokenizer
from memowidgets.store import NotThereError, StoreError
from memowidgets.training.lookout import StopRule, write_stop
from tests.audit.conftest import view_of
from tests.models import test_causal_lm as causal
from tests.programs import printed
from tests.training.small import run_in_two_processes

N = 36
QUIET = {
    "report_to": [],
    "disable_tqdm": True,
    "logging_strategy": "no",
    "save_strategy": "no",
}
ON_THE_CPU = {"use_cpu": True, "dataloader_pin_memory": False}


@pytest.fixture(scope="module")
def data():
    return mw.data.make_mcqs(n=N, seed=0)


@pytest.fixture(scope="module")
def tokenizer(data):
    return word_tokenizer(data)


def tiny(vocabulary, **changes):
    size = {"num_hidden_layers": 2, "num_key_value_heads": 2, "attention_dropout": 0.1}
    return causal.tiny("llama", vocabulary, **size | changes)


def with_adapters(model, seed=0):
    torch.manual_seed(seed)
    config = LoraConfig(
        r=4, lora_dropout=0.2, target_modules="all-linear", task_type="CAUSAL_LM"
    )
    with quiet_peft():
        return get_peft_model(model, config)


def script_rows(data, tokenizer, positions=None):
    """What an SFT script makes of questions: ids of prompt and label, the loss on the label."""
    rows = []
    for i in range(len(data)) if positions is None else positions:
        prompt = tokenizer(data.prompt(i))["input_ids"]
        label = tokenizer(data.replies(i)[data.labels[i]])["input_ids"]
        rows.append(
            {"input_ids": prompt + label, "labels": [-100] * len(prompt) + label}
        )
    return rows


def collate(rows):
    width = max(len(row["input_ids"]) for row in rows)

    def padded(lists, value):
        return torch.tensor([[*one, *[value] * (width - len(one))] for one in lists])

    return {
        "input_ids": padded([row["input_ids"] for row in rows], 0),
        "labels": padded([row["labels"] for row in rows], -100),
        "attention_mask": padded([[1] * len(row["input_ids"]) for row in rows], 0),
    }


def trainer(
    model,
    rows,
    folder,
    *callbacks,
    kind=Trainer,
    arguments=TrainingArguments,
    data_collator=collate,
    **changes,
):
    course = {
        "num_train_epochs": 3,
        "per_device_train_batch_size": 4,
        "learning_rate": 1e-2,
    }
    settings = {**ON_THE_CPU, **QUIET, **course, **changes}
    arguments = arguments(output_dir=str(folder), **settings)
    some = rows[:8] if isinstance(rows, list) else None
    return kind(model, arguments, data_collator, rows, some, callbacks=list(callbacks))


def make_audit(model, tokenizer, data, path, every=1, **changes):
    settings = {"members": "all", "held_out": None} | changes
    training = settings.pop("training", mw.TrainingConfig(checkpoint_every=every))
    recipe = mw.models.CausalLM.from_model(model, tokenizer)
    return mw.Audit(recipe, data, path=path, training=training, **settings)


def trained_weights(model):
    return {
        n: p.detach().clone() for n, p in model.named_parameters() if p.requires_grad
    }


def assert_same_weights(some, others):
    torch.testing.assert_close(some, others, rtol=0, atol=0)


@pytest.fixture
def record(data, tokenizer, tmp_path):
    """Train with a callback; what is not given is tiny, new and as the audit has it."""

    def run(
        *others,
        rho=None,
        every=1,
        audit=None,
        model=None,
        rows=None,
        options=None,
        **course,
    ):
        model = tiny(len(tokenizer)) if model is None else model
        audit = audit or make_audit(model, tokenizer, data, tmp_path / "run", every)
        callback = mw.training.MemorizationCallback(audit, rho, **options or {})
        rows = script_rows(data, tokenizer) if rows is None else rows
        resume = course.pop("resume", None)
        made = trainer(model, rows, tmp_path / "out", callback, *others, **course)
        made.train(resume_from_checkpoint=resume)
        return audit, callback, made

    return run


# What is recorded


@pytest.mark.parametrize("adapters", [False, True])
def test_the_callback_gives_the_audit_that_train_gives(
    adapters, data, tokenizer, tmp_path, in_the_audits_order
):
    model = tiny(len(tokenizer), attention_dropout=0.0)
    if adapters:
        model = with_adapters(model)
        model.peft_config["default"].lora_dropout = 0.0
        for part in model.modules():
            if isinstance(part, torch.nn.Dropout):
                part.p = 0.0
    steps = {
        "epochs": 5,
        "batch_size": 3,
        "accumulate": 2,
        "lr": 1e-2,
        "schedule": "linear",
    }
    plan = mw.TrainingConfig(
        checkpoint_every=0.5, weight_decay=0.0, precision="float32", **steps
    )
    ours = make_audit(model, tokenizer, data, tmp_path / "ours", training=plan)
    ours.train(stop_at_drop=1e-9)
    ours.train()
    course = {"per_device_train_batch_size": 3, "gradient_accumulation_steps": 2}
    course |= {
        "num_train_epochs": 5,
        "max_grad_norm": 0.0,
        "lr_scheduler_type": "linear",
    }
    rows = script_rows(data, tokenizer)
    whole = make_audit(model, tokenizer, data, tmp_path / "whole", training=plan)
    callback = mw.training.MemorizationCallback(whole, None)
    live = copy.deepcopy(model)
    trainer(
        live, rows, tmp_path / "out", callback, kind=in_the_audits_order, **course
    ).train()
    write_stop(whole.run.run, StopRule(1e-9))
    assert whole.checkpoints.index.tolist() == ours.checkpoints.index.tolist()
    for column in ("epoch", "step", "prediction", "learned"):
        assert whole.checkpoints[column].tolist() == ours.checkpoints[column].tolist()
    for column in ("median_loss", "train_loss", "drop"):
        np.testing.assert_allclose(
            whole.checkpoints[column], ours.checkpoints[column], rtol=5e-3
        )
    for metric in ("loss", "logit_gap", "psmi"):
        expected = ours.score(metric)
        np.testing.assert_allclose(
            whole.score(metric), expected, atol=0.02 * expected.std() + 2e-3
        )
    assert whole.layers == ours.layers


@pytest.mark.filterwarnings("ignore:.*checkpointing.* is deprecated:FutureWarning")
def test_a_run_with_the_callback_ends_in_the_weights_of_one_without(
    data, tokenizer, tmp_path
):
    rows = script_rows(data, tokenizer)
    course = {"gradient_accumulation_steps": 2, "gradient_checkpointing": True}
    course |= {"eval_strategy": "steps", "eval_steps": 2, "eval_on_start": True}

    def run(name, *callbacks, resume=False, **changes):
        for seed in (0, 5) if resume else (0,):
            model = with_adapters(tiny(len(tokenizer)), seed)
            made = trainer(
                model, rows, tmp_path / name, *callbacks, **course, **changes
            )
            made.train(resume_from_checkpoint=seed > 0)
        return trained_weights(made.model)

    expected = run("plain")
    audit = make_audit(
        with_adapters(tiny(len(tokenizer))), tokenizer, data, tmp_path / "a", 0.4
    )
    with_callback = run("with", mw.training.MemorizationCallback(audit, None))
    assert_same_weights(with_callback, expected)
    assert audit.checkpoints["step"].tolist() == [0, 2, 4, 6, 8, 10, 12, 14, 15]

    audit = make_audit(
        with_adapters(tiny(len(tokenizer))), tokenizer, data, tmp_path / "b", 0.4
    )
    callback = mw.training.MemorizationCallback(audit, 0.02)
    resumed = run(
        "resumed", callback, resume=True, save_strategy="steps", save_steps=500
    )
    assert 0 < audit.prediction.record.step < 15
    assert audit.checkpoints["step"].tolist() == [0, 2, 4, 6, 8, 10, 12, 14, 15]
    assert_same_weights(resumed, expected)


EVERY_FIVE = {
    "eval_strategy": "steps",
    "save_strategy": "steps",
    "eval_steps": 5,
    "save_steps": 5,
}


class StopAt(TrainerCallback):
    def __init__(self, step):
        self.step = step

    def on_step_end(self, args, state, control, **kwargs):
        control.should_training_stop |= state.global_step == self.step


@pytest.mark.parametrize(
    ("every", "others", "course", "steps"),
    [
        (0.5, [], {"max_steps": 13}, [0, 4, 9, 13]),  # nine steps an epoch
        (
            1,
            [],
            {"per_device_train_batch_size": 8, "dataloader_drop_last": True},
            [0, 4, 8, 12],
        ),
        (1, [StopAt(12)], {}, [0, 9, 12]),
        (1, [StopAt(12)], {"load_best_model_at_end": True, **EVERY_FIVE}, [0, 9]),
    ],
)
def test_the_end_is_the_trainers_whatever_the_audit_planned(
    record, every, others, course, steps
):
    audit, _, _ = record(*others, every=every, **course)
    assert audit.checkpoints["step"].tolist() == steps
    per_epoch = 4 if course.get("dataloader_drop_last") else 9
    assert audit.checkpoints["epoch"].iloc[-1] == pytest.approx(steps[-1] / per_epoch)
    assert audit.evidence.names.record("final").step == steps[-1]
    assert len(audit.score("psmi", checkpoint="final")) == N
    with pytest.raises(NotThereError, match=r"of 2 are there, .*layer 1 .*: .*layers="):
        audit.score("psmi", layer=1, checkpoint="final")


@pytest.mark.parametrize("trained_in", ["float32", "bfloat16"])
def test_a_pass_that_was_deleted_is_made_again_in_its_own_precision(
    record, data, tokenizer, tmp_path, monkeypatch, trained_in
):
    """Whatever the processor multiplies fastest."""
    audit, _, made = record(bf16=trained_in == "bfloat16", num_train_epochs=2)
    assert audit.evidence.names.record(2).precision == trained_in
    kept = audit.run.forward(audit.evidence.names.record("final"))["layer.2"][0]
    ids = torch.tensor([tokenizer(data.prompt(0))["input_ids"]])
    with (
        torch.no_grad(),
        torch.autocast("cpu", torch.bfloat16, enabled=trained_in == "bfloat16"),
    ):
        hidden = made.model.eval()(ids, output_hidden_states=True).hidden_states[-1][
            0, -1
        ]
    np.testing.assert_allclose(kept, hidden.float(), atol=0.1)
    file, expected = (
        tmp_path / "run/forward/epoch-2.safetensors",
        audit.score("loss", checkpoint=2),
    )
    for rounds in (False, True):
        file.unlink()
        monkeypatch.setattr(
            device_room, "runs_bfloat16", lambda _device, rounds=rounds: rounds
        )
        again = mw.Audit.open(tmp_path / "run", data=data, model=audit.run.model)
        np.testing.assert_allclose(
            again.score("loss", checkpoint=2), expected, atol=1e-5
        )
        there = again.run.run.read_tensors("forward/epoch-2")
        assert there.metadata["precision"] == trained_in
    name = "checkpoints/epoch-2/record.json"
    audit.run.run.write_note(
        name, audit.run.run.read_note(name) | {"precision": "float16"}
    )
    file.unlink()
    with pytest.raises(StoreError, match="pass at epoch-2 is in float16; it needs"):
        audit.score("loss", checkpoint=2)


def test_weights_and_states_that_were_not_kept_are_not_made_up(record, tmp_path):
    audit, _, _ = record(options={"keep": "prediction+final"})
    assert len(list((tmp_path / "run").glob("checkpoints/*/weights.safetensors"))) <= 2
    assert len(audit.checkpoints) == 4
    assert len(audit.score("loss", checkpoint=0)) == N
    for _ in ("with the pass", "without it"):
        with pytest.raises(NotThereError, match=r"prediction\+final"):
            audit.score("psmi", checkpoint=0)
        (tmp_path / "run/forward/epoch-0.safetensors").unlink(missing_ok=True)


def test_settings_that_the_trainer_did_not_use_are_shown_nowhere(record, tmp_path):
    audit, _, _ = record(learning_rate=3e-3, max_steps=9)
    with pytest.raises(NotThereError, match="settings were not used"):
        _ = audit.training
    page = Path(audit.report(tmp_path / "page.html"))
    numbers = json.loads(page.with_suffix(".json").read_text(encoding="utf-8"))
    told = numbers["training"]
    assert (told["learning_rate"], told["max_steps"]) == (3e-3, 9)
    assert {"epochs", "lr", "num_train_epochs"}.isdisjoint(told)
    assert (
        "MemorizationCallback" in numbers["trained_by"] == numbers["facts"]["training"]
    )
    unused = audit.run.training
    for shown in (page.read_text(encoding="utf-8"), audit._repr_html_(), repr(audit)):
        assert "training, epochs" not in shown
        assert f"{unused.lr:g}" not in shown
        assert "Trainer" in shown or shown == repr(audit)


@dataclass
class OwnArguments(TrainingArguments):
    """Arguments of a user, one of which no JSON can hold."""

    weigh: Any = None
    table: str = ""


class Weighted(Trainer):
    """A user's own Trainer."""

    def compute_loss(self, model, inputs, **options):
        return super().compute_loss(model, inputs, **options)


def test_the_report_states_what_the_trainer_uses_and_no_place_of_a_file(
    record, tmp_path
):
    changes = {
        "kind": Weighted,
        "num_train_epochs": 2,
        "per_device_train_batch_size": 8,
        "gradient_accumulation_steps": 2,
        "learning_rate": 5e-4,
        "label_smoothing_factor": 0.1,
        "arguments": OwnArguments,
        "weigh": {"of": lambda label: label, "by": {1, 2}},
        "table": str(tmp_path / "rows.csv"),
        "hub_token": "hf_secret",
        "run_name": "ms-smith",
    }
    audit, _, _ = record(**changes)
    page = audit.report(tmp_path / "page.html", figures=False)
    numbers = json.loads(page.with_suffix(".json").read_text("utf-8"))
    stated = numbers["training"]
    assert stated["num_train_epochs"] == 2
    assert stated["per_device_train_batch_size"] == 8
    assert stated["gradient_accumulation_steps"] == 2
    assert stated["learning_rate"] == 5e-4
    assert stated["label_smoothing_factor"] == 0.1
    assert stated["optimizer"] == "AdamW"
    assert stated["loss"] == "Weighted.compute_loss"
    assert "<lambda>" in stated["weigh"]
    assert "file" in stated["table"]
    assert numbers["versions"]["training"]["transformers"] == transformers.__version__
    assert numbers["facts"]["model"] == "LlamaForCausalLM"
    assert "Weighted" in numbers["trained_by"]
    everything = page.read_text("utf-8") + json.dumps(numbers)
    for secret in ("hf_secret", "ms-smith", str(tmp_path)):
        assert secret not in everything


def test_an_optimizer_of_its_own_is_stated_in_place_of_the_arguments(
    data, tokenizer, tmp_path
):
    model = tiny(len(tokenizer))
    audit = make_audit(model, tokenizer, data, tmp_path / "run")
    callback = mw.training.MemorizationCallback(audit, None)
    run = trainer(
        model, script_rows(data, tokenizer), tmp_path, callback, num_train_epochs=1
    )
    run.optimizer = torch.optim.SGD(model.parameters(), lr=0.25, weight_decay=0.5)
    run.lr_scheduler = torch.optim.lr_scheduler.StepLR(run.optimizer, 3)
    run.train()
    (origin,) = audit.evidence.origins
    assert origin.settings["optimizer"] == "SGD"
    assert origin.settings["learning_rate"] == 0.25
    assert origin.settings["weight_decay"] == 0.5
    assert origin.settings["schedule"] == "StepLR"
    assert {"optim", "lr_scheduler_type", "warmup_steps"}.isdisjoint(origin.settings)


def test_a_training_that_goes_on_with_other_settings_states_both(
    data, tokenizer, tmp_path
):
    for rate, epochs, goes_on in ((1e-2, 1, False), (1e-2, 2, True), (1e-3, 3, True)):
        model = tiny(len(tokenizer), attention_dropout=0.0)
        audit = make_audit(model, tokenizer, data, tmp_path / "run")
        callback = mw.training.MemorizationCallback(audit, None)
        course = {"learning_rate": rate, "num_train_epochs": epochs}
        saved = {"save_strategy": "epoch", "lr_scheduler_type": "constant"}
        run = trainer(
            model,
            script_rows(data, tokenizer),
            tmp_path / "t",
            callback,
            **course,
            **saved,
        )
        run.train(resume_from_checkpoint=goes_on)
    first, *_, last = audit.evidence.origins
    assert first.step == 0
    assert last.step == 2 * 9
    assert first.settings["num_train_epochs"] == 1
    assert last.settings["num_train_epochs"] == 3
    page = audit.report(tmp_path / "page.html", figures=False)
    numbers = json.loads(page.with_suffix(".json").read_text("utf-8"))
    assert [one["from_step"] for one in numbers["earlier_training"]] == [0, 9]


# Interruption and resumption


def test_it_interrupts_once_saves_there_and_goes_on_recording(
    record, data, tokenizer, tmp_path, capsys
):
    course = {"save_strategy": "steps", "save_steps": 500}
    audit, callback, _ = record(rho=0.2, every=0.5, **course)
    at = callback.interrupted.step
    assert (tmp_path / f"out/checkpoint-{at}").is_dir()
    assert (
        f"interrupted at {callback.interrupted.name} (step {at})"
        in capsys.readouterr().out
    )
    assert audit.evidence.names.final() is None
    with pytest.raises(
        ValueError, match="let the training go on that is recorded here"
    ):
        audit.score("loss", checkpoint="final")
    files = {
        f: f.stat().st_mtime_ns for f in (tmp_path / "run/checkpoints").rglob("*.json")
    }
    again, callback, _ = record(rho=0.2, every=0.5, resume=True, **course)
    assert callback.interrupted is None
    assert again.prediction.record.step == at
    assert again.checkpoints["step"].tolist() == [0, 4, 9, 14, 18, 22, 27]
    assert all(file.stat().st_mtime_ns == time for file, time in files.items())


def test_going_back_behind_the_interruption_neither_doubles_nor_stops_again(
    record, tmp_path
):
    course = {
        "save_strategy": "steps",
        "save_steps": 5,
        "learning_rate": 3e-3,
        "rho": 0.2,
    }
    audit, _, _ = record(**course)
    at, before = audit.prediction.record.step, audit.checkpoints
    _, _, resumed = record(
        audit=audit, resume=str(tmp_path / "out/checkpoint-5"), **course
    )
    assert resumed.state.global_step == 27 > at
    assert audit.checkpoints.loc[before.index, "median_loss"].equals(
        before["median_loss"]
    )
    assert audit.checkpoints["step"].is_unique


# Adapters


@pytest.mark.parametrize("given", ["wrapped", "bare"])
def test_adapters_are_kept_as_peft_saves_them(given, record, data, tokenizer, tmp_path):
    live = with_adapters(tiny(len(tokenizer)))
    audited = live if given == "wrapped" else tiny(len(tokenizer))
    audit = make_audit(audited, tokenizer, data, tmp_path / "run")
    record(audit=audit, model=live)
    with quiet_peft():
        loaded = PeftModel.from_pretrained(
            tiny(len(tokenizer)), tmp_path / "run/checkpoints/epoch-3"
        ).eval()
    gaps = audit.run.forward(audit.evidence.names.record("final"))["logits"]
    for i in range(5):
        ids = torch.tensor([tokenizer(data.prompt(i))["input_ids"]])
        with torch.no_grad():
            words = loaded(ids).logits[0, -1]
        letters = tokenizer.convert_tokens_to_ids([t.strip() for t in data.replies(0)])
        np.testing.assert_allclose(gaps[i], words[letters], atol=1e-4)
    assert np.isfinite(audit.score("psmi", checkpoint=2)).all()


# Encodings


def test_other_prompts_are_an_error_that_shows_both_and_no_text(
    data, tokenizer, tmp_path
):
    """The Trainer has a tokenizer, with which it could show the text."""
    model = tiny(len(tokenizer))
    audit = make_audit(model, tokenizer, data, tmp_path / "run")
    other = data.with_template("{question} {options} Ward:")
    callback = mw.training.MemorizationCallback(audit)
    made = trainer(model, script_rows(other, tokenizer), tmp_path / "out", callback)
    made.callback_handler.processing_class = tokenizer
    with pytest.raises(
        ValueError, match="36 of 36 members are in no row of the Trainer"
    ) as error:
        made.train()
    ours, theirs = (tokenizer(d.prompt(0))["input_ids"] for d in (data, other))
    first = next(
        i
        for i, pair in enumerate(zip(ours, theirs, strict=False))
        if pair[0] != pair[1]
    )
    said = str(error.value)
    assert f"from token {first} on" in said
    assert str(theirs[first : first + 8])[1:-1] in said
    assert 'template="chat"' in said
    assert "Which ward" not in said
    assert not (tmp_path / "run/checkpoints").exists()


def changed(rows, place, **values):
    return [{**row, **values} if i == place else row for i, row in enumerate(rows)]


def packed(rows):
    return [
        {key: [*rows[i][key], *rows[i + 1][key]] for key in rows[0]}
        for i in range(0, N, 2)
    ]


def longer(row, *, before):
    more = {"input_ids": 1, "labels": -100 if before else 1}
    return {
        key: [more[key], *ids] if before else [*ids, more[key]]
        for key, ids in row.items()
    }


class Stream(torch.utils.data.IterableDataset):
    def __init__(self, rows):
        self.rows = rows

    def __iter__(self):
        return iter(self.rows)


def at_least_two(rows):
    if len(rows) < 2:
        raise ValueError("two or more, please")
    return collate(rows)


def padded_left(batch):
    made = collate(batch)
    extra = torch.zeros(len(batch), 3, dtype=torch.long)
    return {
        name: torch.cat([extra - 100 if name == "labels" else extra, values], dim=1)
        for name, values in made.items()
    }


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            lambda rows: [longer(row, before=True) for row in rows],
            r"differs from token 0 on(?s:.*)Trainer begins .*token 1 .*add_bos_token=False",
        ),
        (
            lambda rows: [{k: ids[1:] for k, ids in row.items()} for row in rows],
            r"differs from token 0 on(?s:.*)audit begins .*token \d+ .*add_bos_token=False",
        ),
        (
            lambda rows: changed(rows, 7, input_ids=[*rows[7]["input_ids"][:-1], 1]),
            "1 of 36 members .*{ids[7]}.* token {last} on",
        ),
        (
            lambda rows: changed(
                rows, 3, labels=[5, 5, *[-100] * (len(rows[3]["labels"]) - 2)]
            ),
            "leaves out the label of '{ids[3]}'",
        ),
        (lambda rows: rows[:-1], "1 of 36 members .*'{ids[35]}'"),
        (packed, r"18 of 36 members are in no row(?s:.*)one sample a row"),
    ],
    ids=[
        "a token that the Trainer begins with",
        "a token that the audit begins with",
        "another label",
        "no loss on a label",
        "a row less",
        "packed",
    ],
)
def test_rows_of_other_samples_are_refused(record, data, tokenizer, change, said):
    rows = script_rows(data, tokenizer)
    last = len(rows[7]["input_ids"]) - 1
    with pytest.raises(ValueError, match=said.format(ids=data.ids, last=last)):
        record(rows=change(rows), max_steps=1)


@pytest.mark.parametrize(
    ("change", "collator", "said"),
    [
        (Stream, collate, "it was not checked .* read one by one"),
        (list, at_least_two, r"read one by one \(ValueError: two or more, please\)"),
    ],
    ids=["streamed", "only together"],
)
def test_what_cannot_be_checked_of_rows_is_said(
    record, data, tokenizer, change, collator, said
):
    rows = change(script_rows(data, tokenizer))
    with pytest.warns(UserWarning, match=said):
        audit, _, _ = record(rows=rows, data_collator=collator, max_steps=9)
    assert len(audit.checkpoints) >= 2


def test_order_padding_other_rows_and_what_follows_the_label_do_not_matter(
    record, data, tokenizer
):
    others = script_rows(mw.data.make_mcqs(n=12, seed=7), tokenizer)
    rows = [
        longer(row, before=False)
        for row in [*script_rows(data, tokenizer)[::-1], *others]
    ]
    audit, _, _ = record(rows=rows, data_collator=padded_left, max_steps=1)
    assert len(audit.checkpoints) == 2


def test_members_in_several_rows_are_counted_and_their_cards_say_so(
    record, data, tokenizer
):
    rows = script_rows(data, tokenizer)
    with pytest.warns(UserWarning, match="2 of 36 members stand in several .*up to 3"):
        audit, _, _ = record(rows=[*rows, rows[4], rows[4], rows[7]], max_steps=1)
    assert audit.evidence.repeated == {data.ids[4]: 3, data.ids[7]: 2}
    again = mw.Audit.open(audit.path, data=data)
    assert again.evidence.repeated == audit.evidence.repeated
    (note,) = (n for n in again.evidence.general_notes if n.key == "repeated rows")
    assert (note.numbers["members"], note.numbers["most"]) == (2, 3)
    view, place = view_of(again), ("psmi", again.layers[-1], "final")
    assert any("stands in 3 rows" in said for said in view.detail(4, *place).notes)
    assert not any("rows" in said for said in view.detail(5, *place).notes)


def test_rows_that_answer_with_words_name_the_reply(data, tokenizer, tmp_path):
    wards = data.with_template("{question} {options} Answer:")
    audit = make_audit(tiny(len(tokenizer)), tokenizer, wards, tmp_path / "letters")
    rows = script_rows(wards, tokenizer)
    for row in rows:
        row["input_ids"][-1] = row["labels"][-1] = row["input_ids"][0]  # another word
    callback = mw.training.MemorizationCallback(audit)
    with pytest.raises(
        ValueError, match=r'(?s)36 of 36 members.*reply="text".*one token an opt'
    ):
        trainer(audit.run.model.build(wards), rows, tmp_path / "out", callback).train()


@pytest.mark.parametrize(
    "name", ["DataCollatorForLanguageModeling", "DataCollatorForSeq2Seq"]
)
def test_the_collators_of_transformers_are_read(name, record, data, tokenizer):
    rows, options = script_rows(data, tokenizer), {}
    if name == "DataCollatorForLanguageModeling":  # the loss on prompt and label
        rows = [
            {"input_ids": row["input_ids"], "text": "dropped by the Trainer"}
            for row in rows
        ]
        options = {"mlm": False}
    collator = getattr(transformers, name)(tokenizer, **options)
    audit, _, _ = record(rows=rows, data_collator=collator, max_steps=2)
    assert audit.checkpoints["step"].tolist() == [0, 2]
    rows[0] = {key: v if key == "text" else v[1:] for key, v in rows[0].items()}
    with pytest.raises(ValueError, match="1 of 36 members are in no row"):
        record(audit=audit, rows=rows, data_collator=collator, max_steps=2)


# What is refused


@pytest.fixture
def fresh(data, tokenizer, tmp_path):
    model = tiny(len(tokenizer))
    return make_audit(model, tokenizer, data, tmp_path / "run"), model


def test_audits_that_can_not_stand_for_a_trainer_are_refused(
    fresh, data, tokenizer, tmp_path
):
    audit, model = fresh
    recipe = mw.models.CausalLM.from_model(model, tokenizer, lora=mw.models.LoRA(r=2))
    noise = mw.TrainingConfig(label_noise=0.1)
    noisy = make_audit(model, tokenizer, data, tmp_path / "noisy", training=noise)
    images = mw.Audit(
        mw.models.ConvNet(), mw.data.load_digits(), path=tmp_path / "images"
    )
    for given, error, said in (
        ([mw.Audit(recipe, data, path=tmp_path / "lora")], ValueError, "without lora"),
        ([noisy], ValueError, "label_noise changes only the audit's own training"),
        ([images], TypeError, r"an audit of a CausalLM .* not one of ConvNet"),
        ([audit, 95], ValueError, "stop_at_drop must be a share"),
        (
            [audit, None, [3]],
            ValueError,
            "unknown layer 3; valid: last, or a name of 1, 2",
        ),
    ):
        with pytest.raises(error, match=said):
            mw.training.MemorizationCallback(*given)


def test_other_models_are_refused(fresh, record, tokenizer):
    audit, model = fresh
    with pytest.raises(ValueError, match="in training has 3 blocks, the audit's 2"):
        record(audit=audit, model=tiny(len(tokenizer), num_hidden_layers=3))
    next(model.parameters()).ds_id = 0
    with pytest.raises(ValueError, match="spread over processes"):
        record(audit=audit, model=model)


def test_after_a_refused_start_the_same_audit_starts_again(
    record, data, tokenizer, tmp_path
):
    """And held-out samples are looked at, which must not be trained on."""
    model = tiny(len(tokenizer))
    audit = make_audit(model, tokenizer, data, tmp_path / "runs" / "run", held_out=0.25)
    with pytest.raises(ValueError, match=r"\d+ held-out samples are rows"):
        record(audit=audit, model=model)
    rows = script_rows(audit.member_data, tokenizer)
    with pytest.raises(ValueError, match="members are in no row"):
        record(audit=audit, model=model, rows=rows[:8])
    record(audit=audit, model=model, rows=rows, max_steps=7)
    assert mw.Audit.open(audit.path).checkpoints["step"].tolist() == [0, 7]
    assert audit.checkpoints["test_loss"].notna().all()
    assert len(audit.score("psmi", checkpoint="final")) == 27


def test_a_recorded_training_is_not_trained_on_by_the_audit(fresh, record):
    audit, model = fresh
    record(audit=audit, model=model, max_steps=9)
    with pytest.raises(
        ValueError, match="has another training, which had other weights"
    ):
        # trained already: its step 0 is not that step 0
        record(audit=audit, model=model)
    with pytest.raises(
        StoreError, match=r"was recorded from a Trainer, .* trainer\.train\(resume"
    ):
        audit.train()
    instead = AuditView(audit).steps().more.lines.code
    assert "callbacks=[watch.callback]" in instead
    for work, kind in (
        (audit.run_references, "reference"),
        (audit.run_shadows, "shadow"),
    ):
        with pytest.raises(
            StoreError, match=f"from a Trainer, so it cannot train {kind} models"
        ):
            work(2)


def test_a_run_that_the_audit_trained_is_not_recorded_into(fresh, record):
    audit, model = fresh
    audit.train(stop_at_drop=1e-9)
    with pytest.raises(StoreError, match=r"has checkpoints of audit.train\(\)"):
        record(audit=audit, model=model)


# Several processes


@pytest.mark.slow
def test_two_processes_record_once_and_stop_together(data, tokenizer, tmp_path):
    run_in_two_processes("two_processes.py", tmp_path)
    steps = {(tmp_path / f"stopped-{rank}").read_text() for rank in (0, 1)}
    audit = mw.Audit.open(tmp_path / "run", data=data)
    assert steps == {str(audit.prediction.record.step)}
    assert audit.checkpoints["step"].is_unique
    assert np.isfinite(audit.score("psmi")).all()
    last = audit.evidence.names.found[-1]
    drawn = audit.run.run.read_tensors(f"draws/{last.name}", last.weights).metadata
    assert int(drawn["drawn"]) >= 4 * last.step  # of both processes


def test_libraries_are_imported_when_their_callback_is_used():
    found = printed(
        "import sys, memowidgets.training, memowidgets.audit; print(*sys.modules)"
    )
    assert not {"transformers", "lightning", "pytorch_lightning"} & {*found.split()}
    with pytest.raises(AttributeError, match="it has LightningCallback, MemorizationC"):
        _ = mw.training.Callback
