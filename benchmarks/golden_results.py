"""Make golden results through the public names: run by `benchmarks.golden`, once for each tree.

It is run as a file, so that the package comes from the tree in ``PYTHONPATH`` and the results from
here: nothing of `benchmarks` may be imported.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import hashlib
import io
import json
import os
import re
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

RECORDINGS = ("mmlu-field-smollm2", "cifar10-wrn", "banking77-smollm2")
VARIANCES = ("per-sample", "global", "shrunk")
# Times, versions and machines; "these" is a digest with which the page asks again.
UNLIKE = ("created", "versions", "device", "machine", "request", "version", "seconds", "these")
SECONDS_TO_WAIT = 60
# How many are truly memorised stands where older trees say what chance alone would give.
_OF_COUNTS = re.compile(
    r"with \d+ shadow models, chance alone would give [\d.]+ of the [\d.]+ memorised(, which is "
    r"more than a quarter; train more shadow models or raise η)?|of the [\d.]+ memorised, [\w ]+ "
    r"truly (are|is): log-LiRA from \d+ shadow models has errors",
    re.IGNORECASE,
)
_MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


class Inline(Executor):
    """Do the work at once in this process. Worker processes take seconds to start."""

    _max_workers = 1

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run the function, and return its future."""
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 - the future raises it
            future.set_exception(error)
        return future


class Results:
    """Named results, appended to a file of JSON lines. An error or a warning is a result too."""

    def __init__(self, file: Path, folder: Path) -> None:
        self.lines, self.folder, self.place = file.open("a"), folder, ""

    def keep(self, name: str, call: Callable[[], Any]) -> Any:
        """Call, write what it returned or raised, and return it (None after an error)."""
        value, made = None, {}
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                value = call()
                made["value"] = plain(value)
            except Exception as error:  # noqa: BLE001 - an error is a golden result
                made["error"] = f"{type(error).__name__}: {error}"
        said = {f"{one.category.__name__}: {one.message}" for one in caught}
        if said:
            made["warnings"] = sorted(said)
        line = json.dumps({"name": f"{self.place}: {name}", **made})
        line = _MOMENT.sub("<moment>", line)
        self.lines.write(line.replace(str(self.folder), "<folder>") + "\n")
        self.lines.flush()
        return value


def plain(value: Any) -> Any:
    """Return a value as what JSON holds exactly: texts, numbers, lists and objects."""
    if value is None or isinstance(value, bool | int | float):
        return value
    for kind, turn in TURNED.items():
        if isinstance(value, kind):
            return turn(value)
    if isinstance(value, Iterable) and not hasattr(value, "labels"):
        return [plain(of) for of in value if not (isinstance(of, str) and _OF_COUNTS.search(of))]
    return of_object(value)


def of_series(value: pd.Series) -> Any:
    """Return name, index, values and attributes."""
    found = {"name": value.name, "index": value.index, "values": value.to_numpy()}
    return plain(found | ({"attrs": value.attrs} if value.attrs else {}))


def of_frame(value: pd.DataFrame) -> Any:
    """Return index and columns."""
    columns = {str(name): value[name].to_numpy() for name in value.columns}
    return plain({"index": value.index, "columns": columns})


def of_object(value: Any) -> Any:
    """Return the public content of an evaluation, a dataset or another dataclass."""
    if hasattr(value, "auc_interval"):
        return evaluation(value)
    if hasattr(value, "labels") and hasattr(value, "ids"):
        return dataset(value)
    if dataclasses.is_dataclass(value):
        names = [field.name for field in dataclasses.fields(value)]
        return {name: plain(getattr(value, name)) for name in names if name[0] != "_"}
    return plain(repr(value))


TURNED: dict[Any, Callable[[Any], Any]] = {
    str: lambda text: re.sub(r" at 0x[0-9a-f]+", "", _OF_COUNTS.sub("<counts>", str(text))),
    np.generic: lambda number: plain(number.item()),
    (bytes, bytearray, memoryview): lambda buffer: (
        "sha256:" + hashlib.sha256(bytes(buffer)).hexdigest()
    ),
    np.ndarray: lambda array: plain(array.tolist()),
    pd.Series: of_series,
    pd.DataFrame: of_frame,
    pd.Index: lambda index: plain(index.to_numpy()),
    Mapping: lambda table: {str(k): plain(of) for k, of in table.items() if str(k) not in UNLIKE},
}


def evaluation(of: Any) -> Any:
    """Return the public numbers of an evaluation, with its counts at several thresholds."""
    roc = of.roc
    finite = roc["tau"][np.isfinite(roc["tau"])].to_numpy()
    taus = [0.0, *np.quantile(finite, (0.05, 0.5))] if len(finite) else [0.0]
    found = {"auc": of.auc, "interval": of.auc_interval, "warnings": list(of.warnings), "roc": roc}
    return plain(found | {"at": [of.at(float(tau)) for tau in taus]})


def dataset(of: Any) -> Any:
    """Return ids, labels, names, canaries and the first samples of a dataset."""
    found = {name: getattr(of, name) for name in ("ids", "labels", "class_names", "canaries")}
    samples = [of[i] for i in range(min(5, len(of)))]
    return plain(found | {"n": len(of), "samples": samples})


# ---------------------------------------------------------------- what is asked of an audit


def numbers(keep: Results, audit: Any, layers: Iterable[Any], quick: bool = False) -> None:
    """Keep checkpoints, scores, ground truth and evaluations of an audit."""
    checkpoints = keep.keep("checkpoints", lambda: audit.checkpoints)
    for name in ("members", "labels", "layers", "metrics", "n_shadows", "has_ground_truth"):
        keep.keep(name, lambda name=name: getattr(audit, name))
    keep.keep("prediction", lambda: audit.prediction)
    keep.keep("unknown score", lambda: audit.score("no such score"))
    keep.keep("unknown layer", lambda: audit.score("psmi", layer="no such layer"))
    keep.keep("unknown checkpoint", lambda: audit.score("psmi", checkpoint="no such checkpoint"))
    for metric in audit.metrics:
        keep.keep(f"score {metric}", lambda m=metric: audit.score(m, return_std=m == "psmi"))
    named = ["prediction", "final"] if quick or checkpoints is None else list(checkpoints.index)
    for layer in layers:
        for at in named:
            for metric in ("psmi", "mahalanobis", "loss", "logit_gap"):
                keep.keep(
                    f"score {metric}, layer {layer}, {at}",
                    lambda m=metric, of=layer, c=at: audit.score(m, of, c),
                )
    _truth(keep, audit)
    for metric in ("psmi", "csl"):
        keep.keep(f"evaluate {metric}", lambda m=metric: audit.evaluate(m))
        keep.keep(
            f"evaluate {metric}, canaries", lambda m=metric: audit.evaluate(m, truth="canaries")
        )
    keep.keep("evaluate, eta 2, uncertain", lambda: audit.evaluate("psmi", eta=2, uncertain=True))
    keep.keep("compare", lambda: audit.compare(["psmi", "loss"], checkpoints=["prediction"]))
    keep.keep("compare canaries", lambda: audit.compare(["loss", "psmi"], truth="canaries"))
    keep.keep("flagged", audit.flagged)
    keep.keep("flagged, tau 0", lambda: audit.flagged("psmi", tau=0.0))
    keep.keep("flagged, share", lambda: audit.flagged("loss", share=0.05))
    keep.keep("flagged, class", lambda: audit.flagged("psmi", tau="class"))
    keep.keep("flagged, both", lambda: audit.flagged("psmi", tau=0.0, share=0.1))


def _truth(keep: Results, audit: Any) -> None:
    for variance in VARIANCES:
        keep.keep(
            f"log_lira {variance}", lambda v=variance: audit.log_lira(variance=v, return_std=True)
        )
    keep.keep("log_lira, prediction", lambda: audit.log_lira("prediction"))


def comparisons(keep: Results, audit: Any) -> None:
    """Keep what compares definitions, numbers of shadow models, and other targets."""
    keep.keep("compare_memorization", audit.compare_memorization)
    keep.keep("shadow_curve", lambda: audit.shadow_curve(repeats=2))
    other = keep.keep("as_target 1", lambda: audit.as_target(1))
    if other is not None:
        keep.keep("as_target 1: members", lambda: other.members)
        keep.keep("as_target 1: psmi", lambda: other.score("psmi"))
        keep.keep("as_target 1: log_lira", other.log_lira)
        keep.keep("as_target 1: evaluate", lambda: other.evaluate("psmi"))
        keep.keep("as_target 1: flagged", other.flagged)
    keep.keep("as_target, none such", lambda: audit.as_target(10_000))


def views(keep: Results, audit: Any, name: str) -> None:
    """Keep the figures' data, the dashboard's state and answers, and the report's JSON twin."""
    figures = keep.keep("figures", audit.figures)
    if figures is not None:
        for attribute in ("tables", "missing", "notes"):
            keep.keep(f"figures: {attribute}", lambda a=attribute: getattr(figures, a))
        for chart in figures:
            keep.keep(f"figures: {chart}", lambda c=chart: chart_data(figures[c]))
    page = keep.folder / f"{name}.html"

    def report() -> Any:
        audit.report(page)
        return json.loads(page.with_suffix(".json").read_text())

    keep.keep("report", report)
    dashboard = keep.keep("dashboard", lambda: _quiet(audit.dashboard))
    if dashboard is not None:
        _dashboard(keep, dashboard)
        dashboard.close()


def _quiet(call: Callable[[], Any]) -> Any:
    with contextlib.redirect_stdout(io.StringIO()):
        return call()


def chart_data(chart: Any) -> list[Any]:
    """Return the rows behind an Altair chart, without the names that Altair makes up for them."""
    described = chart.to_dict(validate=False)
    found = list(described.get("datasets", {}).values())
    return [*found, *(_inline(described))]


def _inline(described: Any) -> Iterator[Any]:
    if isinstance(described, dict):
        values = described.get("data", {})
        if isinstance(values, dict) and "values" in values:
            yield values["values"]
        for child in described.values():
            yield from _inline(child)
    elif isinstance(described, list):
        for child in described:
            yield from _inline(child)


def _dashboard(keep: Results, dashboard: Any) -> None:
    """Keep what a dashboard shows at each score, and what it answers to a page's messages."""
    told: list[tuple[Any, Any]] = []
    dashboard.send = lambda content, buffers=None: told.append((content, buffers))

    def asked(kind: str, last: str, **content: Any) -> Any:
        told.clear()
        dashboard._handle_custom_msg({"type": kind, "request": "1", **content}, [])  # noqa: SLF001
        ends = time.monotonic() + SECONDS_TO_WAIT
        while time.monotonic() < ends and not any(of.get("type") == last for of, _ in told):
            time.sleep(0.01)
        return list(told)

    def picked(**state: Any) -> Any:
        dashboard.state = state
        if not dashboard.computed:
            dashboard.compute()
            dashboard.wait(SECONDS_TO_WAIT)
        shown = ("state", "computed", "counts", "evaluation", "undecided")
        return {name: getattr(dashboard, name) for name in shown}

    dashboard.wait(SECONDS_TO_WAIT)
    for metric in ("psmi", "loss", "no such metric"):
        keep.keep(f"dashboard, {metric}", lambda m=metric: picked(metric=m))
    keep.keep("dashboard, tau and eta", lambda: picked(metric="psmi", tau=0.1, eta=2.0))
    keep.keep("dashboard, another state", lambda: picked(colour=1))
    for shown in ("all", "flagged", "missed", "no such filter"):
        keep.keep(
            f"message page, {shown}",
            lambda f=shown: asked("page", "page", page=0, filter=f, sort="risk"),
        )
    keep.keep("message page, search", lambda: asked("page", "page", page=1, search="a"))
    keep.keep("message page, wrong", lambda: asked("page", "said", page="x"))
    keep.keep("message detail", lambda: asked("detail", "known", position=0, known=True))
    keep.keep("message detail, wrong", lambda: asked("detail", "said", position=-1))
    keep.keep(
        "message decide", lambda: asked("decide", "said", positions=[0, 2], decision="remove")
    )
    keep.keep("decided", lambda: dashboard.decisions)
    keep.keep("message export", lambda: asked("export", "said"))
    keep.keep("message undo", lambda: asked("undo", "said"))
    keep.keep("message unknown", lambda: asked("no such message", "said"))
    keep.keep("undone", lambda: dashboard.decisions)


def decided(keep: Results, audit: Any, path: Path | None, training: bool = True) -> None:
    """Keep what follows from decisions: the log, the dataset, and a fork trained on it."""
    names = [str(name) for name in audit.members[:6]]
    log = audit.decision_log
    keep.keep("decide remove", lambda: log.decide(names[:3], "remove"))
    keep.keep("decide keep", lambda: log.decide(names[3:5], "keep", "checked"))
    keep.keep("decide unknown", lambda: log.decide(["no such id"], "remove"))
    keep.keep("decide wrongly", lambda: log.decide(names, "no such decision"))
    keep.keep("decide relabel", lambda: log.decide(names[5:], "relabel"))
    keep.keep("undo", log.undo)
    keep.keep("decisions", lambda: audit.decisions)
    kept = keep.keep("kept", audit.kept)
    if path is None or kept is None:
        return
    for start in ("scratch", "prediction"):
        fork = keep.keep(f"fork {start}", lambda s=start: audit.fork(path / s, start=s))
        if fork is not None and training:
            keep.keep(f"fork {start}: train", fork.train)
            keep.keep(f"fork {start}: checkpoints", lambda f=fork: f.checkpoints)
            keep.keep(f"fork {start}: psmi", lambda f=fork: f.score("psmi"))


# ---------------------------------------------------------------- the parts


def recording(keep: Results, name: str) -> None:
    """Keep the numbers of a recording; it is read, not trained."""
    import memowidgets as mw

    audit = keep.keep("open", lambda: mw.open_recorded(name))
    if audit is None:
        return
    numbers(keep, audit, ("last",))
    for layer in audit.layers[:-1]:
        keep.keep(f"score psmi, layer {layer}", lambda of=layer: audit.score("psmi", of))
    comparisons(keep, audit)
    views(keep, audit, name)
    decided(keep, audit, keep.folder / "forks", training=False)
    keep.keep("train", audit.train)
    keep.keep("run_shadows", lambda: audit.run_shadows(200))


def _trained(keep: Results, audit: Any, path: Path, n_shadows: int, name: str) -> None:
    """Train, compare with shadow models, look, decide and fork."""
    keep.keep("untrained score", lambda: audit.score("psmi"))
    keep.keep("train, interrupted", lambda: audit.train(stop_at_drop=0.3))
    keep.keep("train", audit.train)
    keep.keep("log_lira without shadows", audit.log_lira)
    keep.keep("run_shadows", lambda: audit.run_shadows(n_shadows, Inline(), keep_forward=True))
    keep.keep("run_references", lambda: audit.run_references(1, Inline()))
    numbers(keep, audit, [*range(1, len(audit.layers) + 1)], quick=name != "digits")
    comparisons(keep, audit)
    views(keep, audit, name)
    decided(keep, audit, path.parent / f"{name}-forks")


def digits(keep: Results) -> None:
    """Keep a fresh run on images, with two designs of shadow models, reopened at the end."""
    import memowidgets as mw

    data = mw.data.load_digits().take(range(120)).with_canaries(12, seed=0)
    training = mw.TrainingConfig(epochs=2, checkpoint_every=1, batch_size=8, lr=6e-3)
    path = keep.folder / "digits"
    keep.keep("data", lambda: data)
    audit = mw.Audit(mw.models.ConvNet(4), data, path=path, training=training, device="cpu")
    _trained(keep, audit, path, 12, "digits")
    keep.keep(
        "evaluate_pooled", lambda: audit.evaluate_pooled("psmi", eta=1.0, targets=(0, 1, 2, 3))
    )
    keep.keep("run_shadows, processes", lambda: audit.run_shadows(4, design="balanced"))
    keep.keep("log_lira, balanced", lambda: audit.log_lira(return_std=True))
    again = keep.keep("open", lambda: mw.Audit.open(path, device="cpu"))
    if again is not None:
        keep.keep("opened: log_lira", again.log_lira)
        keep.keep("opened: psmi", lambda: again.score("psmi"))
        keep.keep("opened: decisions", lambda: again.decisions)
        keep.keep("opened: training", lambda: again.training)
    keep.keep("another seed", lambda: mw.Audit(mw.models.ConvNet(4), data, path, training, seed=1))
    keep.keep(
        "another model", lambda: mw.Audit(mw.models.ConvNet(8), data, path, training, device="cpu")
    )


def questions(keep: Results) -> None:
    """Keep a fresh run of a small language model on generated questions."""
    import memowidgets as mw

    data = mw.data.make_mcqs(n=80, atypical=0.1, seed=0)
    model = mw.models.CausalLM.from_scratch(data, layers=2, width=32)
    training = mw.TrainingConfig(epochs=2, checkpoint_every=1, batch_size=8, lr=3e-3)
    path = keep.folder / "questions"
    keep.keep("data", lambda: data)
    audit = mw.Audit(model, data, path=path, training=training, device="cpu")
    _trained(keep, audit, path, 6, "questions")


def texts(keep: Results) -> None:
    """Keep a fresh run of a small text classifier."""
    import memowidgets as mw

    rng = np.random.default_rng(0)
    words = np.array(["red", "green", "blue", "round", "square", "large", "small", "old"])
    labels = np.arange(80) % 2
    said = [
        " ".join(rng.choice(words[4 * label : 4 * label + 4], 4)) + f" number {i}"
        for i, label in enumerate(labels)
    ]
    data = mw.data.TextDataset.from_texts(said, labels, ["colour", "shape"])
    data = data.with_canaries(8, seed=0)
    model = mw.models.SequenceClassifier.from_scratch(data, layers=2, width=32)
    training = mw.TrainingConfig(epochs=2, checkpoint_every=1, batch_size=8, lr=3e-3)
    path = keep.folder / "texts"
    keep.keep("data", lambda: data)
    audit = mw.Audit(model, data, path=path, training=training, device="cpu")
    _trained(keep, audit, path, 6, "texts")


def network(n_classes: int, n_features: int) -> Any:
    """Return a small network for rows of a table."""
    from torch import nn

    return nn.Sequential(nn.Linear(n_features, 16), nn.ReLU(), nn.Linear(16, n_classes))


def table(keep: Results) -> None:
    """Keep a fresh run of a user's module on the rows of a table."""
    import memowidgets as mw

    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"age": rng.normal(50, 10, 120), "dose": rng.normal(size=120)})
    frame["ward"] = np.where(rng.random(120) < 0.5, "north", "south")
    frame["outcome"] = np.where(frame["dose"] + rng.normal(0, 0.3, 120) > 0, "well", "ill")
    data = mw.data.TableDataset.from_frame(frame, "outcome").with_canaries(10, seed=0)
    training = mw.TrainingConfig(epochs=10, checkpoint_every=5, lr=1e-2, precision="float32")
    model = mw.models.TorchClassifier(network, version="1")
    path = keep.folder / "table"
    keep.keep("data", lambda: data)
    audit = mw.Audit(model, data, path=path, training=training, device="cpu")
    _trained(keep, audit, path, 8, "table")


def watched(keep: Results) -> None:
    """Keep what `mw.watch` records of a loop."""
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset

    import memowidgets as mw

    torch.manual_seed(0)
    y = torch.arange(96) % 3
    x = torch.randn(96, 8) + 2 * nn.functional.one_hot(y, 8)
    data = TensorDataset(x, y)
    module = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
    optimizer = torch.optim.AdamW(module.parameters(), lr=0.01)
    loader = DataLoader(data, batch_size=8, shuffle=True)
    path = keep.folder / "watched"
    keep.keep("without steps", lambda: mw.watch(module, data, path))
    settings: dict[str, Any] = {"checkpoint_every": 0.5, "stop_at_drop": 0.3}
    watch = mw.watch(module, data, path, len(loader), layers=["0", "2.input"], **settings)
    for _epoch in range(2):
        for inputs, labels in loader:
            nn.functional.cross_entropy(module(inputs), labels).backward()
            optimizer.step()
            optimizer.zero_grad()
            watch.step()
    keep.keep("steps", lambda: (watch.steps, watch.reached))
    keep.keep("weights", lambda: [of.detach().numpy() for of in module.parameters()])
    audit = watch.audit
    numbers(keep, audit, [*range(1, len(audit.layers) + 1)])
    views(keep, audit, "watched")
    decided(keep, audit, keep.folder / "watched-forks")


def arrays(keep: Results) -> None:
    """Keep an audit of given arrays, in memory and in a folder."""
    import memowidgets as mw

    rng = np.random.default_rng(0)
    labels = np.arange(150) % 3
    first = rng.normal(size=(150, 6)) + 3 * np.eye(3, 6)[labels]
    last = rng.normal(size=(150, 5)) + 3 * np.eye(3, 5)[labels]
    logits = rng.normal(size=(150, 3)) + 3 * np.eye(3)[labels]
    logits[:8] = np.roll(logits[:8], 1, axis=1)
    inside = rng.random((12, 150)) < 0.5
    gaps = rng.normal(size=(12, 150)) + 2 * inside
    given = {"labels": labels, "representations": {"a": first, "b": last}, "logits": logits}
    shadows = {"shadow_gaps": gaps, "shadow_members": inside, "final_logits": logits}
    canaries = np.arange(150) < 8
    audit = mw.Audit.from_arrays(**given, **shadows, canaries=canaries)
    numbers(keep, audit, ("a", "b"))
    comparisons(keep, audit)
    views(keep, audit, "arrays")
    decided(keep, audit, None)
    path = keep.folder / "arrays"
    keep.keep("in a folder", lambda: len(mw.Audit.from_arrays(**given, path=path).members))
    keep.keep("opened: psmi", lambda: mw.Audit.open(path).score("psmi", "a"))
    keep.keep("labels alone", lambda: mw.Audit.from_arrays(labels))
    keep.keep("wrong shape", lambda: mw.Audit.from_arrays(labels, logits=logits[:-1]))
    keep.keep(
        "given truth",
        lambda: mw.Audit.from_arrays(labels, last, log_lira=gaps.mean(0)).evaluate("psmi", eta=1),
    )


PARTS: dict[str, Callable[[Results], None]] = {
    "arrays": arrays,
    "watched": watched,
    "digits": digits,
    "table": table,
    "texts": texts,
    "questions": questions,
    **{name: lambda keep, name=name: recording(keep, name) for name in RECORDINGS},
}


def main() -> None:
    """Write the results of the parts that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("parts", nargs="+", choices=PARTS)
    arguments = parser.parse_args()
    import torch

    torch.set_num_threads(1)
    os.chdir(arguments.folder)
    results = Results(arguments.file, arguments.folder)
    for part in arguments.parts:
        begun = time.monotonic()
        results.place = part
        try:
            with contextlib.redirect_stderr(io.StringIO()):
                PARTS[part](results)
        except Exception as error:  # noqa: BLE001 - the other parts still count
            results.keep("ended early", lambda error=error: f"{type(error).__name__}: {error}")
        print(f"{part}: {time.monotonic() - begun:.0f} s", file=sys.stderr)
    results.lines.close()


if __name__ == "__main__":
    main()
