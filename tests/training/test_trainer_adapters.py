"""Adapters of peft of each kind through transformers' own Trainer, and through an audit."""

from __future__ import annotations

import tempfile
import warnings
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import peft
import pytest
import torch
from transformers import DataCollatorWithPadding

import memowidgets as mw
from memowidgets.models.lora import quiet_peft
from memowidgets.models.tokens import word_tokenizer
from tests.adoption import own_models
from tests.models import test_causal_lm as causal
from tests.models import test_sequence_classifier as classifiers
from tests.training import test_trainer_callback as questions
from tests.training import test_trainer_classifiers as texts

pytestmark = [
    pytest.mark.filterwarnings(f"ignore:.*{said}:UserWarning")
    for said in ("has not learned its task", "nothing has settled yet")
]
N = 18
TRAINING = mw.TrainingConfig(
    epochs=1, checkpoint_every=1, batch_size=6, lr=1e-2, precision="float32"
)
LORA = partial(peft.LoraConfig, r=2, target_modules=["q_proj"])


def wrapped(model, config, name="default"):
    torch.manual_seed(1)
    with quiet_peft(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what peft says of tied weights is its own
        return peft.get_peft_model(model, config, adapter_name=name)


def set_repacking(model, happens):
    """Let layers in 4 bits do in eval mode what they do on a processor with AVX512-BF16, or not."""
    for part in model.modules():
        if hasattr(part, "support_avx512bf16_for_cpu"):
            part.support_avx512bf16_for_cpu = happens
    return model


def in_4_bits(model, *, repacked=False):
    """The model as `from_pretrained` loads it with weights in 4 bits."""
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        return set_repacking(own_models.in_4_bits(folder), repacked)


def asked(model):
    """The model after its owner has looked at hidden states."""
    model.eval()(torch.tensor([[2, 3]]), output_hidden_states=True)
    return model.train()


def with_trained_norms(model):
    for name, weights in model.named_parameters():
        if "norm" in name:
            weights.requires_grad = True
    return model


def with_another(model, active):
    model.add_adapter("other", LORA(target_modules=["v_proj"]))
    of_one_or_more = model if isinstance(active, str) else model.base_model
    of_one_or_more.set_adapter(active)
    return model


@dataclass(frozen=True)
class Kind:
    """How a model gets adapters, and whether they are all that is trained."""

    config: object
    family: str = "llama"
    tied: bool = False
    name: str = "default"
    before: object = None
    after: object = None
    whole: bool = True

    def model(self, tiny, task_type):
        model = tiny(self.family, tie_word_embeddings=self.tied)
        model = model if self.before is None else self.before(model)
        if self.config is None:
            return model
        model = wrapped(model, self.config(task_type=task_type), self.name)
        return model if self.after is None else self.after(model)


EMBEDDED = {
    "embeddings that are saved": Kind(partial(LORA, modules_to_save=["embed_tokens"])),
    "tied embeddings that are saved": Kind(
        partial(LORA, modules_to_save=["embed_tokens", "lm_head"]), tied=True
    ),
    "embeddings of GPT-2": Kind(
        partial(
            peft.LoraConfig,
            target_modules=["c_attn"],
            fan_in_fan_out=True,
            modules_to_save=["wte"],
        ),
        "gpt2",
    ),
    "trained tokens": Kind(partial(LORA, trainable_token_indices=[2, 3])),
    "trained tokens that are tied": Kind(
        partial(LORA, trainable_token_indices=[2, 3]), tied=True
    ),
    "trained tokens alone": Kind(
        partial(peft.TrainableTokensConfig, token_indices=[2, 3])
    ),
    "LoRA on embeddings": Kind(partial(LORA, target_modules=["embed_tokens"])),
}
QUESTIONS = EMBEDDED | {
    "LoRA": Kind(LORA),
    "LoRA on 4 bits": Kind(LORA, before=in_4_bits),
    "LoRA on 4 bits that eval mode repacks": Kind(
        LORA, before=partial(in_4_bits, repacked=True)
    ),
    "rsLoRA": Kind(partial(LORA, use_rslora=True)),
    "DoRA": Kind(partial(LORA, use_dora=True)),
    "LoRA with dropout": Kind(partial(LORA, lora_dropout=0.3)),
    "one block": Kind(partial(LORA, layers_to_transform=[1])),
    "tied embeddings": Kind(LORA, tied=True),
    "head that is saved": Kind(partial(LORA, modules_to_save=["lm_head"])),
    "LoRA on the head": Kind(partial(LORA, target_modules=["lm_head"])),
    "IA3": Kind(
        partial(
            peft.IA3Config,
            target_modules=["k_proj", "down_proj"],
            feedforward_modules=["down_proj"],
        )
    ),
    "LoHa": Kind(partial(peft.LoHaConfig, r=2, target_modules=["q_proj"])),
    "LoKr": Kind(partial(peft.LoKrConfig, r=2, target_modules=["q_proj"])),
    "AdaLoRA": Kind(
        partial(peft.AdaLoraConfig, target_modules=["q_proj"], total_step=30)
    ),
    "OFT": Kind(partial(peft.OFTConfig, target_modules=["q_proj"], oft_block_size=4)),
    "VeRA": Kind(partial(peft.VeraConfig, target_modules=["q_proj"], r=2)),
    "prefix tuning": Kind(partial(peft.PrefixTuningConfig, num_virtual_tokens=2)),
    "a name of its own": Kind(
        partial(LORA, modules_to_save=["lm_head"]), name="mine_2"
    ),
    "the second of two": Kind(LORA, after=partial(with_another, active="other")),
    "two at once": Kind(
        LORA, after=partial(with_another, active=["default", "other"]), whole=False
    ),
    "norms beside it": Kind(LORA, after=with_trained_norms, whole=False),
    "a model that was asked": Kind(LORA, before=asked),
}
BERT = partial(LORA, target_modules=["query"])
TEXTS = {
    "LoRA": Kind(BERT, "bert"),
    "embeddings that are saved": Kind(
        partial(BERT, modules_to_save=["word_embeddings", "classifier"]), "bert"
    ),
    "a part of the model that is saved": Kind(
        partial(BERT, modules_to_save=["embeddings", "classifier"]), "bert"
    ),
    "trained tokens": Kind(
        partial(BERT, trainable_token_indices={"word_embeddings": [2, 3]}), "bert"
    ),
    "LoRA on embeddings": Kind(
        partial(BERT, target_modules=["word_embeddings"]), "bert"
    ),
    "embeddings of a Llama": Kind(partial(LORA, modules_to_save=["embed_tokens"])),
    "a name of its own": Kind(BERT, "bert", name="mine"),
}


@dataclass(frozen=True)
class Task:
    """Data with a tokenizer, rows and models that fit, of one kind of audit."""

    adapter: type
    data: object
    tokenizer: object
    rows: list
    collate: object
    tiny: object
    task_type: str

    def model(self, kind):
        torch.manual_seed(0)
        tiny = partial(self.tiny, vocabulary=len(self.tokenizer))
        return kind.model(tiny, self.task_type).train()

    def audit(self, kind, path, members="all"):
        recipe = self.adapter.from_model(self.model(kind), self.tokenizer)
        return mw.Audit(
            recipe, self.data, path, training=TRAINING, members=members, held_out=None
        )

    def train(self, kind, folder, *callbacks):
        model = self.model(kind)
        course = {"num_train_epochs": 1, "per_device_train_batch_size": 6}
        questions.trainer(
            model,
            self.rows,
            folder,
            *callbacks,
            data_collator=self.collate,
            **course,
        ).train()
        return model

    def ask(self, model, i):
        """Logits and last hidden state of one sample, as transformers gives them."""
        is_text = self.adapter is mw.models.SequenceClassifier
        text = self.data.texts[i] if is_text else self.data.prompt(i)
        ids = torch.tensor([self.tokenizer(text)["input_ids"]])
        set_repacking(model, happens=False)
        with torch.no_grad():
            answer = model.eval()(input_ids=ids, output_hidden_states=True)
        state = answer.hidden_states[-1][0]
        if is_text:
            first = model.config.model_type == "bert"
            return answer.logits[0], state[0 if first else -1]
        letters = [text.strip() for text in self.data.replies(i)]
        tokens = self.tokenizer.convert_tokens_to_ids(letters)
        return answer.logits[0, -1][tokens], state[-1]


@pytest.fixture(scope="module")
def of_questions():
    data = mw.data.make_mcqs(n=N, seed=0)
    tokenizer = word_tokenizer(data)

    def tiny(family, vocabulary, **changes):
        layers = {"n_layer": 2} if family == "gpt2" else {"num_hidden_layers": 2}
        return causal.tiny(family, vocabulary, **layers, **changes)

    rows = questions.script_rows(data, tokenizer)
    collate, adapter = questions.collate, mw.models.CausalLM
    return Task(adapter, data, tokenizer, rows, collate, tiny, "CAUSAL_LM")


@pytest.fixture(scope="module")
def of_texts():
    data = classifiers.texts(N)
    tokenizer = classifiers.tokenizer_of_words(data.texts)

    def tiny(family, vocabulary, tie_word_embeddings):
        return classifiers.tiny(family, vocabulary)

    rows = texts.script_rows(data, tokenizer)
    collate = DataCollatorWithPadding(tokenizer)
    adapter = mw.models.SequenceClassifier
    return Task(adapter, data, tokenizer, rows, collate, tiny, "SEQ_CLS")


@pytest.fixture
def train_both(tmp_path):
    """Train with a callback and without; return the audit and the model that was recorded."""

    def run(task, kind, audited=None):
        expected = task.train(kind, tmp_path / "out")
        audit = task.audit(audited or kind, tmp_path / "run")
        callback = mw.training.MemorizationCallback(audit, None)
        found = task.train(kind, tmp_path / "out", callback)
        questions.assert_same_weights(
            dict(found.named_parameters()), dict(expected.named_parameters())
        )
        return audit, found

    return run


def assert_recorded(task, kind, audit, model):
    record = audit.evidence.names.record("final")
    seen = audit.run.forward(record)
    for i in range(4):
        logits, state = task.ask(model, i)
        np.testing.assert_allclose(seen["logits"][i], logits, atol=2e-6)
        np.testing.assert_allclose(
            seen["layer." + audit.layers[-1]][i], state, atol=1e-5
        )
    first = audit.evidence.names.record(0)
    assert first.weights != record.weights
    assert np.isfinite(audit.score("psmi", checkpoint="final")).all()
    folder = Path(audit.path, "checkpoints", record.name)
    names = {file.stem for file in folder.iterdir()}
    assert names - {"record"} == (
        {"adapter_model", "adapter_config"} if kind.whole else {"weights"}
    )


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_training_on_questions_is_recorded_and_stays_as_it_is(
    name, of_questions, train_both
):
    kind = QUESTIONS[name]
    assert_recorded(of_questions, kind, *train_both(of_questions, kind))


@pytest.mark.parametrize("name", TEXTS)
def test_a_training_on_texts_is_recorded_and_stays_as_it_is(name, of_texts, train_both):
    kind = TEXTS[name]
    assert_recorded(of_texts, kind, *train_both(of_texts, kind))


@pytest.mark.parametrize("name", EMBEDDED)
def test_an_audit_trains_it_here_and_in_a_worker_process(
    name, of_questions, tmp_path, worker
):
    audit = of_questions.audit(EMBEDDED[name], tmp_path, members="half")
    audit.train()
    audit.run_references(1, executor=worker)
    audit.run_shadows(2, executor=worker)
    shadows = audit.evidence.shadows.read("epoch-1")
    assert np.isfinite(np.array(shadows.gaps)).all()
    assert np.isfinite(audit.score("reference")).all()


def test_adapters_that_the_audit_did_not_get_are_recorded(of_questions, train_both):
    """The audit is of the model before it was wrapped, as a script may have it."""
    kind = EMBEDDED["trained tokens"]
    bare = replace(kind, config=None)
    assert_recorded(of_questions, kind, *train_both(of_questions, kind, bare))


@pytest.mark.parametrize("kind", [peft.PromptTuningConfig, peft.PromptEncoderConfig])
def test_tokens_before_each_text_are_refused_where_they_enter(
    kind, of_questions, of_texts, tmp_path
):
    prompts = Kind(partial(kind, num_virtual_tokens=2))
    said = f"{kind(num_virtual_tokens=2).peft_type.value}.* 2 tokens .*LoRA"
    for task in (of_questions, of_texts):
        with pytest.raises(ValueError, match=said):
            task.audit(prompts, tmp_path / "run")
        bare = task.audit(replace(prompts, config=None), tmp_path / task.task_type)
        callback = mw.training.MemorizationCallback(bare, None)
        with pytest.raises(ValueError, match=said):
            task.train(prompts, tmp_path / "out", callback)
        assert not Path(bare.path, "checkpoints").exists()
