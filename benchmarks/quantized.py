"""SmolLM2 in 4 bits: scores beside the full base's, shadow models, and the page's first example.

Scores are those of two audits that differ in the base alone, at the end of the training. Beside it
stands how far two trainings on the full base agree that differ in their seed alone.
"""

from __future__ import annotations

import contextlib
import tempfile
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

import memowidgets as mw
from benchmarks.measure import Namespace, Row, left_out
from memowidgets.models.device import cpu_threads

WORK = "SmolLM2 in 4 bits"
PATIENTS, WRONG, SEED = 400, 0.06, 5
TOP = 4  # blocks with adapters
TARGETS = [f"{name}_proj" for name in ("q", "k", "v", "o", "gate", "up", "down")]
SCORES = ("psmi", "loss", "logit_gap")
EPOCHS, BATCH = 4, 8

MODELS, POOL = 8, 48
STEPS_OF_ONE = 9
GOAL = "≤ 1.1×"

PAGE = Path(__file__).parents[1] / "docs/language_models.md"
NOTES = 48
CHANGES = {
    "Qwen/Qwen2.5-0.5B-Instruct": "{folder}",
    "max_length=None": "max_length=None, use_cpu=True, bf16=False, report_to=[], "
    "gradient_checkpointing=False, learning_rate=1e-3, per_device_train_batch_size=4",
    "MemorizationCallback(audit)": "MemorizationCallback(audit, checkpoint_every=1)",
}


def rows(arguments: Namespace) -> list[Row]:
    if arguments.smollm2 is None:
        return [left_out(WORK, "needs --smollm2 FOLDER")]
    with warnings.catch_warnings(), cpu_threads(1):
        warnings.simplefilter("ignore")  # few samples, and what TRL and peft say
        return [
            *_beside(arguments.smollm2),
            *_shadows(arguments.smollm2),
            *_from_first_line_to_report(arguments.smollm2.resolve()),
        ]


def _beside(folder: Path) -> list[Row]:
    """Compare scores of the members between the two bases, and between two seeds."""
    full = _scores(folder, None, SEED)
    packed = _scores(folder, "nf4", SEED)
    other = _scores(folder, None, SEED + 1)
    setting = (
        f"{WORK}: make_mcqs({PATIENTS}, atypical={WRONG}), LoRA on the top {TOP} blocks, epoch "
        f"{EPOCHS}"
    )
    drops = [audited.attrs["drop"] for audited in (packed, full, other)]
    rows = [
        Row(
            f"{setting}: drop of the loss",
            f"{drops[0]:.3f}",
            f"{drops[1]:.3f} full, {drops[2]:.3f} with another seed",
        )
    ]
    for name in SCORES:
        ours = packed[name].corr(full[name], method="spearman")
        seeds = full[name].corr(other[name], method="spearman")
        rows.append(
            Row(
                f"{WORK}: rank correlation of {name} with the full base, {len(full)} members",
                f"{ours:.3f}",
                f"{seeds:.3f} between two seeds of the full base",
            )
        )
    return rows


def _scores(folder: Path, quantization: str | None, seed: int) -> pd.DataFrame:
    """Return the scores of an audit's members; its attribute "drop" is that of the loss.

    All audits have the same members; the seed draws the adapters and the order of batches.
    """
    data = mw.data.make_mcqs(PATIENTS, atypical=WRONG, seed=SEED)
    members = np.random.default_rng(SEED).permutation(PATIENTS)[: PATIENTS // 2]
    model = _model(folder, quantization)
    with tempfile.TemporaryDirectory() as place:
        audit = mw.Audit(
            model,
            data.take(np.sort(members)),
            path=place + "/run",
            training=mw.TrainingConfig(
                epochs=EPOCHS, checkpoint_every=EPOCHS, batch_size=BATCH, lr=1e-3
            ),
            members="all",
            held_out=None,
            device="cpu",
            seed=seed,
        )
        audit.train()
        found = {name: audit.score(name, checkpoint="final") for name in SCORES}
        table = pd.DataFrame(found)
        table.attrs["drop"] = float(audit.checkpoints["drop"].iloc[-1])
    return table


def _model(
    folder: Path, quantization: str | None, *, cache: bool = True
) -> mw.models.CausalLM:
    lora = mw.models.LoRA(layers=f"top:{TOP}")
    return mw.models.CausalLM.from_pretrained(
        folder, lora, cache=cache, quantization=quantization
    )


def _shadows(folder: Path) -> list[Row]:
    """Measure shadow models beside the same trainings written by hand.

    Both load the base once, run all of it in each step, and end each training with a pass over the
    pool.
    """
    data = mw.data.make_mcqs(POOL, seed=SEED)
    epochs = STEPS_OF_ONE * BATCH / (POOL / 2)
    config = mw.TrainingConfig(
        epochs=epochs,
        checkpoint_every=epochs,
        batch_size=BATCH,
        lr=1e-3,
        precision="float32",
    )
    with tempfile.TemporaryDirectory() as place:
        audit = mw.Audit(
            _model(folder, "nf4", cache=False),
            data,
            path=place + "/run",
            training=config,
            held_out=None,
            device="cpu",
        )
        audit.train()
        plain = _seconds(lambda: _by_hand(folder, data))
        with ThreadPoolExecutor(1) as executor:
            ours = _seconds(lambda: audit.run_shadows(MODELS, executor, "final"))
    return [
        Row(
            f"{WORK}: {MODELS} shadow models with no output kept, {STEPS_OF_ONE} steps of "
            f"{BATCH} and a pass over {POOL} prompts each, one thread",
            f"{ours:.0f} s of the processor",
            f"{plain:.0f} s for {MODELS} plain trainings with peft in one process",
            f"{ours / plain:.2f}×",
            GOAL,
        )
    ]


def _seconds(work: Callable[[], None]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def _by_hand(folder: Path, data: Any) -> None:
    """Train adapters on a base in 4 bits, loaded once, as a script does without an audit."""
    import peft
    import transformers
    from bitsandbytes.nn import Linear4bit

    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    base = transformers.AutoModelForCausalLM.from_pretrained(
        folder,
        device_map={"": "cpu"},
        dtype=torch.float32,
        quantization_config=transformers.BitsAndBytesConfig(
            load_in_4bit=True,
            bnb_4bit_quant_type="nf4",
            bnb_4bit_use_double_quant=True,
            bnb_4bit_compute_dtype=torch.float32,
        ),
    )
    for part in base.modules():
        if isinstance(part, Linear4bit):  # else one pass in eval mode ends the training
            part.support_avx512bf16_for_cpu = False
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    tokenizer.padding_side = "left"
    prompts = data.prompts()
    letters = [tokenizer(f" {x}")["input_ids"][-1] for x in "ABCDEF"]
    answers = torch.tensor(letters)[torch.from_numpy(data.labels)]
    n_blocks = base.config.num_hidden_layers
    config = peft.LoraConfig(
        r=8,
        lora_alpha=16,
        target_modules=TARGETS,
        layers_to_transform=list(range(n_blocks - TOP, n_blocks)),
        task_type="CAUSAL_LM",
    )

    def logits(model: Any, rows: np.ndarray) -> torch.Tensor:
        batch = tokenizer([prompts[i] for i in rows], padding=True, return_tensors="pt")
        answer = model(**batch, use_cache=False, logits_to_keep=1)
        return answer.logits[:, -1]

    for seed in range(MODELS):
        torch.manual_seed(seed)
        rng = np.random.default_rng(seed)
        half = rng.permutation(POOL)[: POOL // 2]
        model = peft.get_peft_model(base, config).train()
        trained = [p for p in model.parameters() if p.requires_grad]
        optimizer = torch.optim.AdamW(trained, lr=1e-3)
        for _ in range(STEPS_OF_ONE):
            rows = rng.choice(half, BATCH, replace=False)
            loss = torch.nn.functional.cross_entropy(
                logits(model, rows), answers[torch.from_numpy(rows)]
            )
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            optimizer.zero_grad()
        with torch.no_grad():
            model.eval()
            for start in range(0, POOL, BATCH):
                logits(model, np.arange(start, start + BATCH))
        base = model.unload()


def _from_first_line_to_report(folder: Path) -> list[Row]:
    """Run the first example of the page on language models, with the changes of `CHANGES`."""
    data = mw.data.make_mcqs(NOTES, atypical=WRONG, seed=SEED)
    example = PAGE.read_text("utf-8").split("```python\n")[1].split("```")[0]
    for before, after in CHANGES.items():
        example = example.replace(before, after.format(folder=folder))
    names: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as place, contextlib.chdir(place):
        data.to_jsonl("questions.jsonl")
        seconds = _seconds(lambda: exec(example, names))  # noqa: S102 - our own page
        audit = names["audit"]
        size = Path("questions.html").stat().st_size
        place_to_look = audit.prediction
        flagged = audit.flagged()
        final = audit.checkpoints.iloc[-1]
    wrong = np.array(data.ids)[data.canaries]
    n_wrong = np.isin(wrong, flagged.index).sum()
    setting = f"QLoRA of {NOTES} patients by the page's first example, SmolLM2"
    return [
        Row(
            f"{setting}: from the first line to the end of the training",
            f"{seconds:.0f} s of the processor, a report of {size / 1e6:.1f} MB",
        ),
        Row(
            f"{setting}: flagged at {place_to_look.record.name}, drop {place_to_look.drop:.2f}",
            f"{len(flagged)} patients, {n_wrong} of the {len(wrong)} with a wrong ward",
            f"drop {final['drop']:.2f}, training accuracy {final['train_accuracy']:.2f} at the end",
        ),
    ]
