"""Bases that bitsandbytes holds in 4 bits, on processors that repack them and on others.

Models are tiny and have random weights. Widths are multiples of 64, because on a CPU with
AVX512-BF16 bitsandbytes repacks blocks of so many values in eval mode. On other processors the
flag by which a layer does so is set here as it is there, and what it would call is counted.
"""

from __future__ import annotations

import copy
import importlib.machinery
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import bitsandbytes
import numpy as np
import peft
import pytest
import torch
import transformers
from bitsandbytes.nn import Linear4bit

import memowidgets as mw
from memowidgets.models import pretrained
from memowidgets.models.base import Bases, restore_modes
from memowidgets.models.lora import quiet_peft
from memowidgets.models.quantized import (
    check_quantization,
    is_packed,
    warn_of_repacked,
)
from memowidgets.training.travel import pack, unpack
from tests.adoption.own_models import (
    TRAINING,
    classifier,
    in_4_bits,
    questions,
    tokenizer,
)
from tests.models.small import llama_folder, one_pass, saved
from tests.models.test_refused import check_refused

CausalLM, SequenceClassifier = mw.models.CausalLM, mw.models.SequenceClassifier
LoRA = mw.models.LoRA
DATA = questions()
CPU = torch.device("cpu")
EVERY = np.arange(len(DATA))
BITSANDBYTES = bitsandbytes.nn.modules


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("llama")
    return llama_folder(place, tokenizer(DATA), width=64, layers=2)


@pytest.fixture(scope="module")
def reader(folder):
    return transformers.AutoTokenizer.from_pretrained(folder)


def adapted(base, name="default"):
    config = peft.LoraConfig(
        r=2, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM"
    )
    torch.manual_seed(1)
    with quiet_peft():
        model = peft.get_peft_model(base, config, adapter_name=name)
    for key, weights in model.named_parameters():
        if "lora_B" in key:
            torch.nn.init.normal_(weights)
    return model


def prepared(base):
    with warnings.catch_warnings():  # peft asks transformers for an old name
        warnings.simplefilter("ignore", FutureWarning)
        return peft.prepare_model_for_kbit_training(base)


def layers_of(model):
    return [part for part in model.modules() if isinstance(part, Linear4bit)]


@pytest.fixture(params=[False, True], ids=["other processors", "AVX512-BF16"])
def repacks(request, monkeypatch):
    """Whether layers repack their weights in eval mode; the number of times that they did."""
    counted = []

    def repacked(values, state):
        counted.append(len(values))
        return values, state

    monkeypatch.setattr(BITSANDBYTES, "has_avx512bf16", lambda: request.param)
    monkeypatch.setattr(BITSANDBYTES, "_convert_weight_packed_for_cpu", repacked)
    return request.param, counted


def plain_pass(module, model):
    """Losses and last hidden states as transformers itself gives them, one prompt at a time."""
    for part in layers_of(module.eval()):
        part.support_avx512bf16_for_cpu = False
    losses, states = [], []
    feed = model.feeder(DATA, CPU, "float32")
    with torch.no_grad():
        for i in EVERY:
            batch = feed(np.array([i]))
            answer = module(
                input_ids=batch["input_ids"],
                attention_mask=batch["attention_mask"],
                output_hidden_states=True,
            )
            label = batch["options"][:, int(DATA.labels[i])]
            logits = answer.logits[:, -1].float()
            losses.append(torch.nn.functional.cross_entropy(logits, label).item())
            states.append(answer.hidden_states[-1][0, -1].numpy())
    return np.array(losses), np.stack(states)


@pytest.mark.parametrize("before", [lambda base: base, prepared])
def test_losses_and_representations_are_those_of_a_plain_pass(
    before, folder, reader, repacks
):
    raw = adapted(before(in_4_bits(folder)))
    model = CausalLM.from_model(raw, reader)
    flags, counted = repacks
    assert {part.support_avx512bf16_for_cpu for part in layers_of(raw)} == {flags}
    built = model.build(DATA)
    found = one_pass(model, built, DATA, EVERY)
    as_given = one_pass(model, raw, DATA, EVERY)
    assert counted == []
    assert {part.support_avx512bf16_for_cpu for part in layers_of(raw)} == {flags}
    with torch.no_grad():  # what an evaluation of others does
        raw.eval()(torch.tensor([[2, 3]]))
    assert len(counted) == flags * len(layers_of(raw))
    losses, states = plain_pass(raw, model)
    for seen in (found, as_given):
        np.testing.assert_allclose(seen.losses, losses, atol=1e-5)
        np.testing.assert_allclose(seen.layers["2"], states, atol=1e-5)


def test_a_pass_between_steps_leaves_gradients_as_they_are(folder, repacks):
    model = CausalLM.from_pretrained(folder, LoRA(r=2), quantization="nf4")
    module = model.build(DATA).train()
    feed, labels = model.feeder(DATA, CPU, "float32"), torch.from_numpy(DATA.labels)

    def gradients():
        module.zero_grad()
        model.outputs(module, feed(EVERY[:8]), labels[:8])[1].mean().backward()
        trained = [p for p in module.parameters() if p.requires_grad]
        return [p.grad.clone() for p in trained]

    before = gradients()
    one_pass(model, module, DATA, EVERY)
    torch.testing.assert_close(gradients(), before, rtol=0, atol=0)
    assert any(bool(one.any()) for one in before)
    assert module.training
    assert repacks[1] == []


def test_weights_that_an_evaluation_of_others_repacked_are_said(folder, reader):
    """On every processor: the state of such a weight says that it was repacked."""
    raw = adapted(in_4_bits(folder))
    warn_of_repacked(raw)
    state = layers_of(raw)[0].weight.quant_state
    state.packing_format_for_cpu = True
    with pytest.warns(UserWarning, match=r"1 of 14 .*support_avx512bf16_for_cpu"):
        warn_of_repacked(raw)


def test_repacked_weights_are_other_weights_and_are_said(folder, reader):
    """What bitsandbytes does to them in eval mode is done here, on every processor."""
    raw = adapted(in_4_bits(folder))
    before = CausalLM.from_model(raw, reader).settings()["weights"]
    for part in layers_of(raw):
        weight = part.weight
        weight.data, _ = BITSANDBYTES._convert_weight_packed_for_cpu(
            weight.data, weight.quant_state
        )
    with pytest.warns(UserWarning, match="14 of 14"):
        after = CausalLM.from_model(raw, reader).settings()["weights"]
    assert after != before  # it was rounded


def test_the_identity_is_of_packed_weights_with_their_state(folder, reader):
    def weights_of(raw):
        return CausalLM.from_model(raw, reader, LoRA(r=2)).settings()["weights"]

    raw = in_4_bits(folder)
    first = weights_of(raw)
    assert weights_of(in_4_bits(folder)) == first
    packed = layers_of(raw)[0].weight
    packed.quant_state.state2.absmax[0] *= 1.01
    assert weights_of(raw) != first
    packed.quant_state.state2.absmax[0] /= 1.01
    packed.data[0] ^= 1
    assert weights_of(raw) != first


@pytest.mark.parametrize(
    ("storage", "double", "kind"),  # each pair of two once
    [
        (torch.uint8, False, "nf4"),
        (torch.uint8, True, "fp4"),
        (torch.bfloat16, False, "fp4"),
        (torch.bfloat16, True, "nf4"),
    ],
)
def test_a_copy_and_one_that_has_travelled_are_packed_alike(
    storage, double, kind, folder, reader
):
    config = transformers.BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type=kind,
        bnb_4bit_use_double_quant=double,
        bnb_4bit_quant_storage=storage,
        llm_int8_skip_modules=["lm_head", "v_proj"],
    )
    raw = transformers.LlamaForCausalLM.from_pretrained(
        folder, quantization_config=config
    )
    model = CausalLM.from_model(raw, reader, LoRA(r=2))
    travelled = unpack(pack(model))
    for one in (model, travelled):
        made = one.build(DATA).get_base_model()
        layers = layers_of(made)
        assert len(layers) == 12
        assert all(is_packed(part.weight) for part in layers)
        for part in layers:
            assert part.quant_state is part.weight.quant_state
        stated = {k.replace("base_layer.", ""): v for k, v in made.state_dict().items()}
        for name, values in raw.state_dict().items():
            bits = [
                each.reshape(-1).view(torch.uint8) for each in (stated[name], values)
            ]
            assert torch.equal(*bits), name


def test_models_of_a_process_share_the_base_and_train_nothing_of_it(folder, reader):
    recipes = [
        CausalLM.from_model(in_4_bits(folder), reader, LoRA(r=2)),
        CausalLM.from_model(adapted(prepared(in_4_bits(folder))), reader),
        CausalLM.from_pretrained(folder, LoRA(r=2), quantization="nf4"),
    ]
    for model in recipes:
        bases = Bases()
        made = [model.begin(DATA, CPU, "float32", bases) for _ in range(2)]
        alone = model.begin(DATA, CPU, "float32")
        one, other = (
            {n: p.data_ptr() for n, p in m.named_parameters() if not p.requires_grad}
            for m in made
        )
        assert one == other
        states = [{id(p.weight.quant_state) for p in layers_of(m)} for m in made]
        assert states[0] == states[1]
        trained = [
            {p.data_ptr() for p in m.parameters() if p.requires_grad} for m in made
        ]
        assert trained[0].isdisjoint(trained[1])
        found = [one_pass(model, m, DATA, EVERY).losses for m in (*made, alone)]
        np.testing.assert_array_equal(found[0], found[1])
        np.testing.assert_array_equal(found[0], found[2])


def test_shadow_models_of_a_process_put_the_base_together_once(
    folder, reader, tmp_path, monkeypatch
):
    model = CausalLM.from_model(adapted(in_4_bits(folder)), reader)
    audit = mw.Audit(model, DATA, tmp_path, training=TRAINING, device="cpu", seed=1)
    audit.train()
    audit.score("psmi")  # the pass that this needs builds the target once more
    made = []

    def counted(*given):
        made.append(given)
        return put_together(*given)

    put_together = pretrained.put_together
    monkeypatch.setattr(pretrained, "put_together", counted)
    with ThreadPoolExecutor(1) as thread:
        audit.run_shadows(3, executor=thread)
    assert len(made) == 14
    gaps = audit.evidence.shadows.read("epoch-2").gaps
    assert np.isfinite(gaps).all()


def test_a_map_of_one_device_and_files_in_4_bits_are_taken(folder, reader, tmp_path):
    saved(tmp_path, in_4_bits(folder), reader)

    def given(place):
        raw = transformers.AutoModelForCausalLM.from_pretrained(
            tmp_path, device_map=place
        )
        return CausalLM.from_model(raw, reader, LoRA(r=2))

    made = [
        given({"": "cpu"}),
        given("cpu"),
        CausalLM.from_pretrained(tmp_path, LoRA(r=2)),
        CausalLM.from_pretrained(folder, LoRA(r=2), quantization="nf4"),
    ]
    first, *others = (
        one_pass(each, each.build(DATA), DATA, EVERY).losses for each in made
    )
    for losses in others:
        np.testing.assert_array_equal(losses, first)
    copied = unpack(pack(made[0])).build(DATA)
    np.testing.assert_array_equal(one_pass(made[0], copied, DATA, EVERY).losses, first)


def test_it_computes_in_the_precision_of_the_training(folder):
    model = CausalLM.from_pretrained(folder, LoRA(r=2), quantization="nf4")
    for precision, dtype in (("float32", torch.float32), ("bfloat16", torch.bfloat16)):
        for bases in (None, Bases()):
            module = model.begin(DATA, CPU, precision, bases)
            assert {part.compute_dtype for part in layers_of(module)} == {dtype}
            assert {p.weight.dtype for p in layers_of(module)} == {torch.uint8}
            seen = one_pass(model, module, DATA, EVERY, precision)
            assert np.isfinite(seen.losses).all()


def test_the_head_of_a_classifier_is_trained_and_never_in_4_bits(tmp_path):
    raw, words, data = classifier("GPT2", n_embd=64, n_layer=2, n_head=2)
    saved(tmp_path, raw, words)
    model = SequenceClassifier.from_pretrained(tmp_path, LoRA(r=2), quantization="nf4")
    audit = mw.Audit(
        model, data, tmp_path / "run", training=TRAINING, device="cpu", seed=1
    )
    audit.train()
    again = mw.Audit.open(tmp_path / "run", data=data, model=model)
    assert np.isfinite(again.score("psmi")).all()
    module = model.build(data)
    assert module.get_base_model().score.weight.dtype == torch.float32
    assert len(layers_of(module)) == 8


def bare_8_bits(folder):
    config = transformers.BitsAndBytesConfig(load_in_8bit=True)
    return transformers.LlamaForCausalLM.from_pretrained(
        folder, quantization_config=config
    )


def quantised_otherwise(folder):
    raw = transformers.LlamaForCausalLM.from_pretrained(folder)
    raw.config.quantization_config = {"quant_method": "torchao"}
    return raw


class Scaled(torch.Tensor):
    """A tensor of a library's own class, as torchao's, which says that it is floating."""

    __module__ = "somebodys.tensors"


def quantised_in_memory(folder):
    """By a library that writes nothing of it into the configuration."""
    raw = transformers.LlamaForCausalLM.from_pretrained(folder)
    part = raw.model.layers[1].mlp.down_proj
    values = part.weight.data.as_subclass(Scaled)
    part.weight = torch.nn.Parameter(values, requires_grad=False)
    return raw


def on_two_devices(folder):
    raw = in_4_bits(folder)
    raw.lm_head.to("meta")
    return raw


def merged(folder):
    raw = adapted(in_4_bits(folder))
    with warnings.catch_warnings():  # it says that it rounds
        warnings.simplefilter("ignore")
        raw.merge_adapter()
    return raw


def test_what_cannot_be_trained_on_is_refused_by_name_where_it_enters(
    folder, reader, tmp_path
):
    def given(raw, **options):
        return CausalLM.from_model(raw, reader, **options)

    name = "LlamaForCausalLM"
    bare = given(in_4_bits(folder))  # a Trainer may add adapters
    audit = mw.Audit(bare, DATA, tmp_path / "run", training=TRAINING, device="cpu")
    check_refused(
        ValueError, "CausalLM | only adapters | lora=mw.models.LoRA()", audit.train
    )
    check_refused(
        ValueError,
        f"{name} | 8 bits | load_in_4bit=True",
        given,
        bare_8_bits(folder),
    )
    check_refused(
        ValueError,
        f"{name} | torchao | load_in_4bit=True",
        given,
        quantised_otherwise(folder),
    )
    check_refused(
        ValueError,
        f"{name} | somebodys | load_in_4bit=True",
        given,
        quantised_in_memory(folder),
    )
    check_refused(
        ValueError,
        f"{name} | one device | cpu, meta",
        given,
        on_two_devices(folder),
    )
    check_refused(
        ValueError, "q_proj | merged | unmerge_adapter()", given, merged(folder)
    )
    saved(tmp_path, in_4_bits(folder), reader)
    check_refused(
        ValueError,
        "lora=mw.models.LoRA()",
        CausalLM.from_pretrained,
        tmp_path,
        None,
    )
    with pytest.raises(ValueError, match=r"'int3'.*\"nf4\""):
        CausalLM.from_pretrained(folder, quantization="int3")


def test_a_head_in_4_bits_is_refused_with_what_leaves_it_out(tmp_path):
    raw, words, _ = classifier(
        "Llama", hidden_size=64, intermediate_size=64, num_hidden_layers=2
    )
    saved(tmp_path, raw, words)
    kind = transformers.LlamaForSequenceClassification
    whole = in_4_bits(tmp_path, kind, llm_int8_skip_modules=[])
    facts = "LlamaForSequenceClassification | llm_int8_skip_modules=['score']"
    check_refused(
        ValueError, facts, SequenceClassifier.from_model, whole, words, LoRA(r=2)
    )
    kept = in_4_bits(tmp_path, kind, llm_int8_skip_modules=["score"])
    SequenceClassifier.from_model(kept, words, LoRA(r=2))


def test_a_library_that_is_too_old_is_named(folder, reader, tmp_path, monkeypatch):
    raw = in_4_bits(folder)
    saved(tmp_path, raw, reader)
    monkeypatch.setattr(bitsandbytes, "__version__", "0.44.0")
    facts = "0.44.0 | memowidgets[quantized]"
    for call in (
        lambda: CausalLM.from_pretrained(folder, quantization="nf4"),
        lambda: CausalLM.from_pretrained(tmp_path, LoRA(r=2)),
        lambda: CausalLM.from_model(raw, reader, LoRA(r=2)),
    ):
        check_refused(ImportError, facts, call)


class Hidden:
    """A finder that knows no bitsandbytes, as where it is not installed."""

    def find_spec(self, name, path=None, target=None):
        found = importlib.machinery.PathFinder.find_spec(name, path, target)
        return None if name == "bitsandbytes" else found


def test_a_library_that_is_missing_is_named(folder, reader, tmp_path, monkeypatch):
    saved(tmp_path, in_4_bits(folder), reader)
    finders = [
        one for one in sys.meta_path if one is not importlib.machinery.PathFinder
    ]
    monkeypatch.setattr(sys, "meta_path", [Hidden(), *finders])
    monkeypatch.delitem(sys.modules, "bitsandbytes")
    facts = "bitsandbytes | memowidgets[quantized]"
    load = CausalLM.from_pretrained
    check_refused(ImportError, facts, partial(load, quantization="nf4"), folder)
    check_refused(ImportError, facts, load, tmp_path, LoRA(r=2))


ASKS_AT_ITS_IMPORT = """
__version__ = "0.46.1"
try:
    import kernels
    kernels.ASKED.append("kernels-community/quantization-bitsandbytes")
except ImportError:
    pass
"""


def test_no_kernel_is_fetched_where_it_is_imported(tmp_path, monkeypatch):
    """bitsandbytes asks the hub for one on some processors; here it does on each."""
    (tmp_path / "bitsandbytes.py").write_text(ASKS_AT_ITS_IMPORT)
    (tmp_path / "kernels.py").write_text("ASKED = []")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "bitsandbytes")
    check_quantization("nf4")
    import kernels

    assert sys.modules["bitsandbytes"].__file__ == str(tmp_path / "bitsandbytes.py")
    assert kernels.ASKED == []
    monkeypatch.delitem(sys.modules, "kernels")


def test_a_base_in_4_bits_answers_as_it_did_after_a_copy_of_it_was_trained(
    folder, reader
):
    raw = in_4_bits(folder)
    model = CausalLM.from_model(raw, reader, LoRA(r=2))
    module = model.build(DATA)
    before = {name: values.clone() for name, values in raw.state_dict().items()}
    with restore_modes(module):
        copy.deepcopy(module)
    with torch.no_grad():
        for weights in module.parameters():
            if weights.requires_grad:
                weights.add_(1)
    torch.testing.assert_close(dict(raw.state_dict()), before, rtol=0, atol=0)
