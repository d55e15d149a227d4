"""Every number in a figure is the audit's own, and what can't be drawn is named with its call."""

from __future__ import annotations

import base64
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import memowidgets as mw
from memowidgets.audit.views.figures import NAMES
from memowidgets.registry import own_names, spoken
from tests.audit.conftest import small_audit
from tests.charts.reading import marks, most_rows, units

SCORES = [
    name for name in own_names() if not name.startswith(("baseline", "reference"))
]


@pytest.fixture(scope="module")
def audit():
    return mw.open_recorded("mmlu-field-smollm2")


@pytest.fixture(scope="module")
def figures(audit):
    return audit.figures()


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    """Digits with canaries, trained to the end, scored at two checkpoints; no shadow models."""
    audit = small_audit(tmp_path_factory.mktemp("figures") / "run")
    audit.train()
    audit.score("psmi", checkpoint=1)
    audit.score("loss")
    return audit


def own_files(audit) -> dict[str, int]:
    root = Path(audit.path)
    return {
        str(f.relative_to(root)): f.stat().st_mtime_ns
        for f in root.rglob("*")
        if f.is_file()
    }


def column(table: pd.DataFrame, *names: str) -> np.ndarray:
    return table[list(names)].to_numpy(dtype=float)


# The numbers are the audit's


def test_all_are_drawn_with_few_rows(figures):
    assert tuple(figures) == NAMES
    assert not figures.missing
    assert max(map(most_rows, figures.values())) <= 5000


def test_training_shows_both_sides_and_the_best_epoch(audit, figures):
    table = audit.checkpoints
    for kind, best in (
        ("loss", table["test_loss"].min()),
        ("accuracy", table["test_accuracy"].max()),
    ):
        (lines,) = (u for u in marks(figures["training"], "line") if kind in u.data)
        for side, name in (("train", "training"), ("test", "held out")):
            drawn = lines.data[lines.data["samples"] == name]
            assert drawn[kind].tolist() == table[f"{side}_{kind}"].tolist()
        (ring,) = (u for u in marks(figures["training"], "point") if kind in u.data)
        assert ring.data[kind].item() == best
        first = table["epoch"][table[f"test_{kind}"] == best].iloc[0]
        assert ring.data["epoch"].item() == first
        assert f"epoch {first:g}" in ring.title["subtitle"]
    rules = marks(figures["training"], "rule")
    assert {u.data["epoch"].item() for u in rules} == {audit.prediction.record.epoch}


def test_roc_curves_and_their_marked_point_are_those_of_the_evaluations(audit, figures):
    _, lines = marks(figures["roc"], "line")
    labels = lines.encoding["color"]["scale"]["domain"]
    assert lines.data["label"].unique().tolist() == labels
    for metric, label in zip([*SCORES, "baseline"], labels, strict=True):
        found = audit.evaluate(metric)
        low, high = found.auc_interval
        assert label.endswith(f": {found.auc:.2f} ({low:.2f} to {high:.2f})")
        drawn = lines.data[lines.data["label"] == label]
        exact = {tuple(point) for point in column(found.roc, "fpr", "tpr")}
        assert {tuple(point) for point in column(drawn, "fpr", "tpr")} <= exact
    (cross,) = marks(figures["roc"], "point")
    point = audit.evaluate("psmi").at(0.0)
    assert column(cross.data, "fpr", "tpr").tolist() == [[point.fpr, point.tpr]]
    (said,) = figures["roc"].title
    assert f"TPR {point.tpr:.0%}, FPR {point.fpr:.0%}".replace("%", " %") in said


def test_each_checkpoint_has_its_panel(audit, figures):
    compared = audit.compare(SCORES[:2], checkpoints="all").set_index(
        ["epoch", "metric"]
    )["auc"]
    panels = {u.title: u.data for u in marks(figures["roc_by_checkpoint"], "text")}
    assert len(panels) == len(audit.checkpoints) - 1
    chosen = f"epoch {audit.prediction.record.epoch:g}, look here"
    assert [name for name in panels if "look here" in name] == [chosen]
    for title, texts in panels.items():
        epoch = float(re.match(r"epoch ([\d.]+)", title)[1])
        shown = dict(text.rsplit(" ", 1) for text in texts["text"])
        for metric in SCORES[:2]:
            assert shown[spoken(metric)] == f"{compared[epoch, metric]:.2f}"
        assert (shown.get("Baseline") == "1.00") == (epoch == 6)


def test_memorised_and_other_members_beside_eta_are_both_drawn():
    values = pd.DataFrame({"checkpoint": "end", "log_lira": [4.1] * 17 + [3.9] * 9})
    (bars,) = marks(mw.charts.histograms_of_log_lira(values), "rect")
    drawn = bars.data.set_index("kind")["up"]
    assert drawn.to_dict() == {"↑ memorised (log-LiRA ≥ η)": 17, "↓ others": -9}
    # counts are positive on both sides
    assert "abs(" in bars.encoding["y"]["axis"]["labelExpr"]


def test_over_training_shows_what_compare_says(audit, figures):
    shown = next(
        u.data for u in marks(figures["over_training"], "line") if "auc" in u.data
    )
    expected = audit.compare(SCORES[:3], checkpoints="all")
    keys = ["metric", "epoch"]
    shown, expected = (
        t.sort_values(keys).reset_index(drop=True) for t in (shown, expected)
    )
    assert shown[keys].equals(expected[keys])
    names = ("auc", "auc_low", "auc_high")
    assert np.array_equal(column(shown, *names), column(expected, *names))
    loss = next(
        u.data
        for u in marks(figures["over_training"], "line")
        if "median_loss" in u.data
    )
    assert loss["median_loss"].tolist() == audit.checkpoints["median_loss"].tolist()


def test_over_training_shows_quartiles_of_both_groups(audit, figures):
    memorized = audit.log_lira() >= 4
    groups = [
        u.data for u in marks(figures["over_training"], "line") if "quantity" in u.data
    ]
    assert [len(table) for table in groups] == [24, 4]
    for row in pd.concat(groups).itertuples():
        is_psmi = row.quantity == "psmi"
        values = (
            audit.score("psmi", checkpoint=row.epoch)
            if is_psmi
            else audit.log_lira(row.epoch)
        )
        group = values[memorized[values.index] == row.memorized]
        expected = group.quantile([0.25, 0.5, 0.75]).tolist()
        assert [row.low, row.median, row.high] == pytest.approx(expected)


def test_layers_are_those_of_compare(audit, figures):
    (lines,) = marks(figures["auc_by_layer"], "line")
    expected = audit.compare(["psmi", "mahalanobis"], layers="all").set_index(
        ["metric", "layer"]
    )
    metrics = lines.data["score"].map(
        {spoken(metric): metric for metric in own_names()}
    )
    for metric, row in zip(metrics, lines.data.itertuples(), strict=True):
        want = expected.loc[(metric, row.layer)]
        assert (row.auc, row.auc_low, row.auc_high) == (
            want.auc,
            want.auc_low,
            want.auc_high,
        )
    assert lines.encoding["x"]["sort"] == list(audit.layers)


def test_by_eta_every_point_is_an_evaluation(audit, figures):
    upper, lower = marks(figures["auc_by_eta"], "line")
    for row in upper.data.iloc[::7].itertuples():
        metric = next(m for m in SCORES if spoken(m) == row.score)
        found = audit.evaluate(metric, eta=row.eta)
        assert (row.auc, (row.auc_low, row.auc_high)) == (found.auc, found.auc_interval)
    values = audit.log_lira()
    for row in lower.data.itertuples():
        assert row.share == (values >= row.eta).mean()
    assert upper.data["eta"].nunique() == len(lower.data)
    left_out = max(upper.data["eta"]) + 0.5
    assert (values >= left_out).sum() < 2


def test_histograms_count_every_member(audit, figures):
    panels = [
        u for u in marks(figures["lira_over_training"], "rect") if "kind" in u.data
    ]
    assert [u.title["text"] for u in panels] == ["epoch 3.5, look here", "epoch 6"]
    for unit, checkpoint in zip(panels, ("prediction", "final"), strict=True):
        values = audit.log_lira(checkpoint).to_numpy()
        for row in unit.data.itertuples():
            assert row.samples == ((values >= row.left) & (values < row.right)).sum()
        assert unit.data["samples"].sum() == len(values)
        memorized = (values >= 4).sum()
        assert unit.data.loc[unit.data["left"] >= 4, "samples"].sum() == memorized
        assert unit.title["subtitle"].endswith(f"({memorized} of {len(values)})")


def test_definitions_are_those_of_the_comparison(audit, figures):
    found = audit.compare_memorization()
    (cells,) = units(figures["definitions"])
    assert cells.data["samples"].sum() == len(found.values)
    assert list(figures.notes["definitions"]) == [found.note]
    pair = found.spearman[(found.spearman["a"] == "attack_success_rate")].iloc[0]
    assert figures["definitions"].title.startswith(
        f"Spearman's ρ {pair.rho:.2f} ({pair.low:.2f} to {pair.high:.2f})"
    )
    np.testing.assert_array_equal(
        figures.data["definitions"]["rmia"], found.values["rmia"]
    )


# What they look like


def test_a_notebook_shows_them_without_a_network(figures):
    some = mw.charts.Figures(
        {name: figures[name] for name in ("training", "roc", "auc_by_eta")}
    )
    page = some._repr_html_()
    assert page.count("<img") == len(some)
    assert not re.search("http|<script", page)
    for encoded in re.findall(r"data:image/svg\+xml;base64,([\w+/=]+)", page):
        picture = base64.b64decode(encoded).decode()
        addresses = set(re.findall(r"https?://[^\"' ]+", picture))
        assert addresses <= {
            "http://www.w3.org/2000/svg",
            "http://www.w3.org/1999/xlink",
        }
        assert "NaN" not in picture


def test_figures_are_looked_up_by_name(figures):
    with pytest.raises(
        KeyError, match="unknown figure 'lira'; there are training, roc,"
    ):
        figures["lira"]
    with pytest.raises(KeyError, match=r"drops is a table.*\.tables"):
        figures["drops"]


# What is missing


def test_without_shadow_models_training_and_canaries_are_drawn(planted):
    figures = planted.figures()
    assert tuple(figures) == ("training", "roc_by_eta")
    assert set(figures.missing) == set(NAMES) - set(figures)
    (panel,) = {u.title for u in marks(figures["roc_by_eta"], "text")}
    assert panel.endswith("canaries")
    assert "run_shadows(64)" in figures.notes["roc_by_eta"][0]
    for name in (
        "roc",
        "roc_by_checkpoint",
        "over_training",
        "auc_by_layer",
        "auc_by_eta",
    ):
        assert "run_shadows(64)" in figures.missing[name]
    said = "<li><b>roc, roc_by_checkpoint, over_training, auc_by_layer"
    assert said in figures._repr_html_()
    with pytest.raises(KeyError, match="roc was not drawn: no ground truth"):
        figures["roc"]


def test_canaries_are_a_truth_of_their_own(planted):
    figures = planted.figures(truth="canaries")
    drawn = ["training", "roc", "roc_by_checkpoint", "over_training", "roc_by_eta"]
    assert list(figures) == drawn
    (groups,) = (
        u for u in marks(figures["over_training"], "line") if "quantity" in u.data
    )
    assert set(groups.data["samples"]) == {"canaries", "other members"}
    _, lines = marks(figures["roc"], "line")
    found = planted.evaluate("loss", truth="canaries")
    assert f"Log-probability: {found.auc:.2f}" in lines.data["label"].iloc[0]
    (panel,) = {u.title for u in marks(figures["roc_by_eta"], "text")}
    assert panel == f"{found.n_memorized} canaries"


def test_nothing_is_computed_unasked_and_what_compare_computed_is_drawn(planted):
    before = own_files(planted)
    figures = planted.figures(truth="canaries")
    assert own_files(planted) == before
    (note,) = [
        note for note in figures.notes["roc"] if note.startswith("not computed: psmi")
    ]
    assert "audit.compare(layers=" in note
    assert "auc_by_layer" in figures.missing
    found = planted.compare(["psmi"], layers="all", truth="canaries")
    (lines,) = marks(planted.figures(truth="canaries")["auc_by_layer"], "line")
    assert lines.data["auc"].tolist() == found["auc"].tolist()


def test_before_training_all_are_missing_and_an_interrupted_one_is_drawn(tmp_path):
    audit = small_audit(tmp_path / "run", held_out=None)
    figures = audit.figures()
    assert len(figures) == 0
    assert set(figures.missing.values()) == {
        "the target is not trained yet: audit.train()"
    }
    assert "not drawn: training, roc, " in repr(figures)
    with pytest.warns(UserWarning, match="the drop jumped"):
        audit.train(stop_at_drop=0.3)
    figures = audit.figures()
    assert list(figures) == ["training"]
    (note,) = figures.notes["training"]
    assert note == "there are no held-out samples, and so no held-out curves"
    assert not marks(figures["training"], "point")[0].data.size
    assert (
        "not trained to the end yet: call train()" in figures.missing["over_training"]
    )


def test_arrays_have_one_checkpoint():
    rng = np.random.default_rng(0)
    labels = np.arange(120) % 3
    logits = rng.normal(size=(120, 3)) + 2 * np.eye(3)[labels]
    states = rng.normal(size=(120, 6)) + 2 * np.eye(3, 6)[labels]
    audit = mw.Audit.from_arrays(
        labels=labels,
        representations=states,
        logits=logits,
        log_lira=rng.normal(3, 2, size=120),
    )
    audit.compare()
    figures = audit.figures()
    assert list(figures) == ["roc", "auc_by_eta", "roc_by_eta", "lira_over_training"]
    _, lines = marks(figures["roc"], "line")
    assert lines.data["label"].nunique() == 4
    assert "no curves of the training" in figures.missing["training"]
    assert "only one layer" in figures.missing["auc_by_layer"]
    assert "shadow_gaps=" in figures.missing["definitions"]


def test_a_truth_that_is_not_there_is_refused(audit):
    with pytest.raises(ValueError, match="these data have no canaries"):
        audit.figures(truth="canaries")
