"""Make the recorded audits, and print the numbers of them that the pages quote.

    python -m benchmarks.recorded mmlu --smollm2 FOLDER --mmlu FILE --run runs/mmlu
    python -m benchmarks.recorded banking77 --smollm2 FOLDER --banking77 FILE --run runs/banking77
    python -m benchmarks.recorded cifar10 --cifar10 PATH --run runs/cifar
    python -m benchmarks.recorded patients --smollm2 FOLDER --run runs/patients
    python -m benchmarks.recorded digits --run runs/digits

If it is stopped, the same command continues. With --export it scores every checkpoint, and writes
the numbers, but never a sample.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import memowidgets as mw
from benchmarks.measure import Namespace, Row
from benchmarks.recording import export
from memowidgets.audit.views.answers import AuditView
from memowidgets.evaluation import Evaluation
from memowidgets.store import run_at
from memowidgets.widgets.inspected import Listed

VARIANCES = ("shrunk", "per-sample", "global")
ETA, ETAS = 4.0, (4.0, 6.0, 8.0, 10.0)
OF_TEXTS = ("psmi", "loss", "logit_gap", "csl", "psmi+csl")
METRICS = ("psmi", "loss", "logit_gap")
SEED = 0
QUESTIONS = 2250
LONGEST = 56  # tokens of a prompt, so that 32 shadow models take hours on two cores
MESSAGES = 6750  # a ninth is held out, so that the pool has 6000
CANARIES = 0.02
AUDITED = 0.05  # share of ordinary images that are audited, in addition to all canaries
NOTES = 800  # a ninth is held out, so that 355 of them are members
WRONG_DIGITS = 0.05  # share of the digits with a wrong label
REFERENCES = 2
MILESTONES = (8 / 9, 17 / 18)  # full rate until ρ, which the loss must not jump over
EARLY = 8  # epoch before ρ at which gaps are stored, too


# ---------------------------------------------------------------- the numbers that pages quote


def rows(_: Namespace) -> list[Row]:
    """Return every checkpoint of the texts, and the paper's table for the vision network."""
    texts = {
        "SmolLM2 on MMLU": "mmlu-field-smollm2",
        "SmolLM2 on Banking77": "banking77-smollm2",
    }
    shown = {"generated notes": "patients-smollm2", "digits": "digits"}
    said = [
        Row(f"{title}, a line of the page", line)
        for title, name in shown.items()
        for line in readable(mw.open_recorded(name))
    ]
    return (
        [row for title, name in texts.items() for row in _texts(title, name)]
        + _cifar()
        + said
    )


def _cifar() -> list[Row]:
    audit = mw.open_recorded("cifar10-wrn")
    found = []
    for of, table in zip(
        ("by the paper's protocol", "by halves"), tables(audit), strict=True
    ):
        for row in table.to_dict("records"):
            scores = [f"{name} {row[name]}" for name in METRICS]
            at = f"TPR {row['TPR at τ = 0']}, FPR {row['FPR at τ = 0']}"
            what = f"CIFAR-10, {row['memorised']}, {row['share']}, {of}: AUC; τ = 0"
            found.append(Row(what, ", ".join(scores), "", at))
    return found


def _texts(title: str, name: str) -> list[Row]:
    """Return every checkpoint, and the number of memorised samples by variance."""
    audit = mw.open_recorded(name)
    counts = {v: int((audit.log_lira(variance=v) >= ETA).sum()) for v in VARIANCES}
    said = ", ".join(f"{count} ({variance})" for variance, count in counts.items())
    found = [Row(f"{title}: members that are memorised, of {len(audit.members)}", said)]
    compared = audit.compare(OF_TEXTS, checkpoints="all")
    for checkpoint in audit.checkpoints.index[1:]:
        aucs = [
            f"{row.metric} {_with_interval(row.auc, (row.auc_low, row.auc_high), ' to ')}"
            for row in compared[compared["checkpoint"] == checkpoint].itertuples()
        ]
        point = audit.evaluate("psmi", checkpoint=checkpoint).at(0.0)
        drop, accuracy = audit.checkpoints.loc[checkpoint, ["drop", "test_accuracy"]]
        rates = [
            ("TPR", point.tpr, point.tpr_interval),
            ("FPR", point.fpr, point.fpr_interval),
        ]
        found.append(
            Row(
                f"{title} at {checkpoint.replace('-', ' ')}, drop {drop:.3f}, held-out accuracy "
                f"{accuracy:.2f}: AUC; τ = 0",
                ", ".join(aucs),
                "",
                ", ".join(
                    f"{rate} {_with_interval(*given, ' to ')}" for rate, *given in rates
                ),
            )
        )
    return found


def tables(audit: mw.Audit) -> Iterator[pd.DataFrame]:
    """Yield the paper's table by its protocol, and then for random halves.

    The paper's protocol evaluates all pairs. Rows by η have ordinary pictures only.
    """

    def pooled(metric: str, **how: Any) -> Evaluation:
        return audit.evaluate_pooled(metric, with_canaries="truth" in how, **how)

    for design, evaluate in (("canaries", pooled), ("halves", audit.evaluate)):
        if any(key.split("-")[0] == design for key in audit.shadow_sets):
            audit.use_shadows(design)
            yield _table(evaluate)


def _table(evaluate: Callable[..., Evaluation]) -> pd.DataFrame:
    """Return a table with rows by η, and a row for the canaries."""
    truths = [(f"η = {eta:g}", {"eta": eta}) for eta in ETAS]
    found = []
    for name, how in [*truths, ("OOD canaries", {"truth": "canaries"})]:
        try:
            of = {metric: evaluate(metric, **how) for metric in METRICS}
        except (
            ValueError
        ) as error:  # no sample, or every sample, is memorised at this η
            print(f"{name}: {error}")
            continue
        first, at = of["psmi"], of["psmi"].at(0.0)
        found.append(
            {
                "memorised": name,
                "share": f"{first.n_memorized / first.n:.2%} of {first.n}",
                **{
                    m: _with_interval(e.auc, e.auc_interval, "–") for m, e in of.items()
                },
                "FPR at τ = 0": f"{at.fpr:.2f}",
                "TPR at τ = 0": f"{at.tpr:.2f}",
            }
        )
    return pd.DataFrame(found)


def readable(audit: mw.Audit) -> Iterator[str]:
    """Yield what a page says of a recording that shows its samples: lines of tables."""
    metrics = (*OF_TEXTS, *["reference"] * bool(audit.evidence.references.indices))
    for metric in metrics:
        found = audit.evaluate(metric)
        yield f"| `{metric}` | {_with_interval(found.auc, found.auc_interval, ' to ')} |"
    at = audit.evaluate("psmi").at(0.0)
    rates = (_with_interval(at.tpr, at.tpr_interval, " to "), at.fpr, at.fpr_interval)
    yield (
        f"At τ = 0 PSMI flags {at.flagged} of {at.n} members and finds {at.found} of the "
        f"{at.found + at.missed} memorised ones: TPR {rates[0]}, FPR "
        f"{_with_interval(rates[1], rates[2], ' to ')}."
    )
    memorized = audit.log_lira() >= ETA
    flagged = audit.score("psmi") <= 0
    kinds = _kinds(audit)
    doubted = _doubted(audit)
    for kind in sorted(set(kinds)):
        chosen = kinds == kind
        counts = (rows[chosen].sum() for rows in (memorized, flagged, doubted))
        yield f"| {kind} | {chosen.sum()} | {' | '.join(map(str, counts))} |"


def _doubted(audit: mw.Audit) -> pd.Series[bool]:
    """Return which members the dashboard lists where it opens under "Label looks wrong"."""
    dashboard = audit.dashboard()
    place = dashboard.metric, dashboard.layer, dashboard.checkpoint
    dashboard.close()
    listed = Listed(AuditView(audit).view(*place))
    if listed.looks_wrong is None:
        raise ValueError("the recording knows no neighbours where its dashboard opens")
    return pd.Series(listed.looks_wrong, index=audit.members)


def _kinds(audit: mw.Audit) -> pd.Series[str]:
    """Return what a member is: the attribute of that name, or whether its label is wrong."""
    if isinstance(audit.data, mw.data.MCQDataset):
        kinds = audit.data.attributes["kind"]
    else:
        kinds = np.where(np.array(audit.data.canaries), "wrong label", "ordinary")
    return pd.Series(kinds, index=audit.data.ids)[audit.members]


def _with_interval(value: float, interval: tuple[float, float], to: str) -> str:
    return f"{value:.2f} ({interval[0]:.2f}{to}{interval[1]:.2f})"


# ---------------------------------------------------------------- making them


@dataclass(frozen=True)
class Recording:
    """How a recorded audit is made, and what is said of it.

    Attributes
    ----------
    make : callable
        From the arguments to the audit, as it is on disk.
    last : str
        The last layer. Others are scored at the ρ checkpoint, or at every one if `each` is true.
    about : callable
        From the audit and the arguments to its title, and the call that loads its data.
    options : str
        Arguments of the command, as a format of the arguments.
    each : bool
        Whether every layer is scored at every checkpoint.
    references : int
        Number of reference models.
    """

    make: Callable[[Namespace], mw.Audit]
    last: str
    about: Callable[[mw.Audit, Namespace], tuple[str, str]]
    options: str
    each: bool = False
    references: int = 0


def _mmlu(arguments: Namespace) -> mw.Audit:
    lora = mw.models.LoRA(layers="top:4")
    model = mw.models.CausalLM.from_pretrained(
        arguments.smollm2, lora=lora, max_length=2048
    )
    everything = mw.data.fetch_mcq("mmlu-field", split="test", source=arguments.mmlu)
    short = np.flatnonzero(model.lengths(everything) <= LONGEST)
    chosen = np.sort(np.random.default_rng(SEED).permutation(short)[:QUESTIONS])
    training = _training(arguments, checkpoint_every=0.5, batch_size=8, lr=1e-3)
    return mw.Audit(model, everything.take(chosen), arguments.run, training, SEED)


def _banking77(arguments: Namespace) -> mw.Audit:
    lora = mw.models.LoRA(r=8, layers="top:4")
    model = mw.models.SequenceClassifier.from_pretrained(arguments.smollm2, lora=lora)
    everything = mw.data.TextDataset.from_csv(
        arguments.banking77, text="text", label="category"
    )
    drawn = np.random.default_rng(SEED).permutation(len(everything))[
        : arguments.messages
    ]
    training = _training(arguments, checkpoint_every=0.5, batch_size=16, lr=1e-3)
    return mw.Audit(
        model, everything.take(np.sort(drawn)), arguments.run, training, SEED
    )


def _patients(arguments: Namespace) -> mw.Audit:
    lora = mw.models.LoRA(r=8, layers="top:4")
    model = mw.models.CausalLM.from_pretrained(arguments.smollm2, lora=lora)
    data = mw.data.make_patients(NOTES, seed=SEED)
    training = _training(arguments, checkpoint_every=0.25, batch_size=8, lr=1e-3)
    return mw.Audit(model, data, arguments.run, training, SEED)


def _digits(arguments: Namespace) -> mw.Audit:
    data = mw.data.load_digits(canaries=WRONG_DIGITS, seed=SEED)
    model = mw.models.ConvNet()
    return mw.Audit(model, data, arguments.run, _training(arguments), SEED)


def _cifar10(arguments: Namespace) -> mw.Audit:
    everything = mw.data.fetch_cifar10(arguments.cifar10)
    step = len(everything) // arguments.images
    arguments.chosen = range(0, step * arguments.images, step)
    count = round(CANARIES * arguments.images)
    count = count if arguments.canaries is None else arguments.canaries
    data = everything.take(arguments.chosen).with_canaries(count, kind="ood", seed=SEED)
    model = mw.models.WideResNet(arguments.depth, arguments.width, pool=4)
    training = _training(
        arguments,
        checkpoint_every=arguments.checkpoint_every,
        batch_size=arguments.batch,
        lr=arguments.lr,
        milestones=MILESTONES,
    )
    return mw.Audit(model, data, arguments.run, training, SEED)


def _training(arguments: Namespace, **settings: Any) -> mw.TrainingConfig:
    return mw.TrainingConfig(epochs=arguments.epochs, **settings)


def _of_cifar10(audit: mw.Audit, arguments: Namespace) -> tuple[str, str]:
    n, canaries = len(audit.data), int(audit.data.canaries.sum())
    accuracy = audit.checkpoints.iloc[-1].test_accuracy
    return (
        (
            f"WRN{arguments.depth}-{arguments.width} on {n} images of CIFAR-10 (JPEG copy), "
            f"{canaries} of them OOD canaries; test accuracy {accuracy:.2f}"
        ),
        (
            f"mw.data.fetch_cifar10(PATH).take({arguments.chosen})"
            f'.with_canaries({canaries}, "ood", seed={SEED})'
        ),
    )


RECORDINGS = {
    "mmlu": Recording(
        _mmlu,
        "30",
        lambda *_: (
            "SmolLM2-135M-Instruct (dequantised) on MMLU by field",
            'mw.data.fetch_mcq("mmlu-field", split="test")',
        ),
        "--smollm2 FOLDER --mmlu FILE --run runs/mmlu --shadows {shadows}",
        each=True,
    ),
    "banking77": Recording(
        _banking77,
        "30",
        lambda audit, _: (
            (
                "SmolLM2-135M-Instruct (dequantised) with a classification head on "
                f"{len(audit.data)} messages of Banking77; test accuracy "
                f"{audit.checkpoints.iloc[-1].test_accuracy:.2f}"
            ),
            (
                'mw.data.TextDataset.from_csv(PATH, text="text", label="category"), the training '
                "messages of Banking77"
            ),
        ),
        "--smollm2 FOLDER --banking77 FILE --run runs/banking77 --shadows {shadows}",
    ),
    "patients": Recording(
        _patients,
        "30",
        lambda audit, _: (
            (
                "SmolLM2-135M-Instruct (dequantised) on generated notes about fictional patients; "
                f"held-out accuracy {audit.checkpoints.iloc[-1].test_accuracy:.2f}"
            ),
            f"mw.data.make_patients({NOTES}, seed={SEED})",
        ),
        "--smollm2 FOLDER --run runs/patients --shadows {shadows}",
        references=REFERENCES,
    ),
    "digits": Recording(
        _digits,
        "hidden",
        lambda audit, _: (
            (
                "a convolutional network on scikit-learn's digits, 5 % with a wrong label; "
                f"held-out accuracy {audit.checkpoints.iloc[-1].test_accuracy:.2f}"
            ),
            f"mw.data.load_digits(canaries={WRONG_DIGITS}, seed={SEED})",
        ),
        "--run runs/digits --shadows {shadows}",
        references=REFERENCES,
    ),
    "cifar10": Recording(
        _cifar10,
        "features",
        _of_cifar10,
        "--cifar10 PATH --run runs/cifar --images {images} --epochs {epochs:g} "
        "--shadows {shadows} --width {width} --batch {batch} --lr {lr:g}",
    ),
}


EPOCHS = {"mmlu": 6, "banking77": 5, "patients": 10, "digits": 25, "cifar10": 18}


def main() -> None:
    """Train, score, export."""
    arguments = _arguments()
    os.nice(arguments.nice)
    recording = RECORDINGS[arguments.recording]
    audit = recording.make(arguments)
    audit.train()
    print(
        audit.checkpoints.to_string(), *audit.prediction.warnings, sep="\n", flush=True
    )
    if not arguments.shadows:
        return
    for design in arguments.designs:
        _shadow(audit, arguments, design)
    if recording.references:
        audit.run_references(recording.references, processes=arguments.processes)
    run = run_at(audit.path)
    files = (run.path / "shadows").rglob("*.safetensors")
    names = [str(file.relative_to(run.path).with_suffix("")) for file in files]
    seconds = [float(run.read_tensors(name).metadata["seconds"]) for name in names]
    print(
        f"{len(seconds)} shadow models, {np.median(seconds):.0f} s each on one core (median)"
    )
    if arguments.recording == "cifar10":
        print(*(table.to_string(index=False) for table in tables(audit)), sep="\n")
    else:
        print(audit.compare(OF_TEXTS, checkpoints="all").to_string())
        if arguments.recording in ("patients", "digits"):
            print(*readable(audit), sep="\n")
    if arguments.export is None:
        return
    rho = audit.prediction.record.name
    for checkpoint in audit.checkpoints.index[1:]:
        for layer in (
            audit.layers if recording.each or checkpoint == rho else (recording.last,)
        ):
            audit.score("psmi", layer, checkpoint)
            audit.score("mahalanobis", layer, checkpoint)
    title, data = recording.about(audit, arguments)
    options = recording.options.format(**vars(arguments))
    about = {
        "title": title,
        "data": data,
        "command": f"python -m benchmarks.recorded {arguments.recording} {options} --export FOLDER",
        "machine": arguments.machine,
        "cost": f"{sum(seconds) / 3600:.1f} core hours for {len(seconds)} shadow models",
    }
    export(audit.path, arguments.export, about)


def _shadow(audit: mw.Audit, arguments: Namespace, design: str) -> None:
    """Train the shadow models of a design; with canaries, every one is the target in turn."""
    if arguments.recording != "cifar10":
        audit.run_shadows(arguments.shadows, processes=arguments.processes)
        return
    paper = design == "canaries"
    canaries = np.array(audit.data.canaries)
    ordinary = np.flatnonzero(~canaries)
    drawn = np.random.default_rng(SEED).permutation(ordinary)[
        : round(AUDITED * len(canaries))
    ]
    audit.run_shadows(
        arguments.shadows,
        checkpoints=(EARLY, "prediction", "final"),
        design=design,
        keep_forward=paper,
        audited=canaries | np.isin(np.arange(len(canaries)), drawn) if paper else None,
        processes=arguments.processes,
    )


def _arguments() -> Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.recorded", description=__doc__
    )
    kinds = parser.add_subparsers(dest="recording", required=True)
    for name, epochs in EPOCHS.items():
        one = kinds.add_parser(name)
        one.set_defaults(designs=("halves",))
        one.add_argument(
            "--run", type=Path, required=True, help="run directory, new or old"
        )
        one.add_argument("--epochs", type=float, default=epochs)
        one.add_argument(
            "--shadows", type=int, default=32, help="number; 0 trains the target only"
        )
        one.add_argument("--processes", type=int)
        one.add_argument(
            "--nice", type=int, default=0, help="nice level of the process"
        )
        one.add_argument(
            "--machine", default="two cores, no GPU, shared with other work"
        )
        one.add_argument("--export", type=Path, help="folder for the numbers")
        if name in ("mmlu", "banking77", "patients"):
            one.add_argument(
                "--smollm2", type=Path, required=True, help="for from_pretrained"
            )
    mmlu, banking77, cifar10 = (
        kinds.choices[name] for name in ("mmlu", "banking77", "cifar10")
    )
    mmlu.add_argument(
        "--mmlu", type=Path, required=True, help="MMLU's test questions, JSON"
    )
    banking77.add_argument(
        "--banking77", type=Path, required=True, help="training messages, CSV"
    )
    banking77.add_argument(
        "--messages", type=int, default=MESSAGES, help="number of messages"
    )
    cifar10.add_argument(
        "--cifar10", type=Path, required=True, help="as for fetch_cifar10"
    )
    cifar10.add_argument(
        "--images", type=int, default=10_000, help="number, up to 50 000"
    )
    cifar10.add_argument(
        "--canaries", type=int, help="number of canaries (default: 2 %%)"
    )
    cifar10.add_argument("--depth", type=int, default=16)
    cifar10.add_argument("--width", type=int, default=1)
    cifar10.add_argument("--checkpoint-every", type=float, default=1)
    cifar10.add_argument("--batch", type=int, default=64)
    cifar10.add_argument("--lr", type=float, default=0.1)
    cifar10.add_argument("--designs", nargs="+", default=["halves", "canaries"])
    return parser.parse_args()


if __name__ == "__main__":
    main()
