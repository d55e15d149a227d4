"""PSMI against independent references, in hard cases, and on bad input."""

import tracemalloc

import numpy as np
import psmi as published
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.stats import norm
from sklearn.datasets import load_breast_cancer

from memowidgets.metrics import PSMI, fitted, projections
from memowidgets.metrics.arrays import GivenRows
from memowidgets.metrics.controls import Whole
from memowidgets.metrics.psmi import FEW_SAMPLES, KNOWS_NO_LABELS, small_classes
from tests.metrics import reference


def score(X, y, m=256, method="control-variates", seed=0):
    return PSMI(m, method, random_state=seed).fit(X, y).score_samples(X, y)


def test_plain_agrees_with_the_formula():
    X, y = reference.made(90, 6, 3)
    y[:12] = 0  # unequal classes: a prior that is left out shows
    scores = PSMI(300, "plain").fit(X, y).score_samples(X, y)
    expected = reference.psmi(X, y, reference.directions(300, 6))
    np.testing.assert_allclose(scores, expected, atol=2e-5)


def test_few_directions_are_not_biased():
    X, y, expected = reference.long_reference(300, 24, 4)
    runs = [PSMI(64, random_state=s).fit(X, y).score_samples(X, y) for s in range(20)]
    error = np.mean(runs, axis=0) - expected
    noise = np.std(runs, axis=0) / np.sqrt(len(runs))
    assert np.mean(np.abs(error) < 3.5 * noise + 0.002) > 0.98


@pytest.mark.parametrize(("n_classes", "most"), [(3, 6e9), (12, 6e9), (12, 0)])
def test_means_of_controls_are_exact(n_classes, most, monkeypatch):
    """With the covariance of each class, and with a common basis for all."""
    monkeypatch.setattr("memowidgets.metrics.controls._WHOLE", most)
    X, y = reference.made(400, 40, n_classes, decay=0.5)
    y, m = np.sort(np.unique(y, return_inverse=True)[1]), 8192
    rows = GivenRows(X)
    found = fitted.fit(rows, y, fitted.Look.at(rows, y, corrected=True), m, 5)
    assert isinstance(found.look.gaussians.total, Whole) == (most > 0)
    places, P = projections.segments(y), found.directions.along(X)
    means = found.look.gaussians.means(X, places)
    room = np.empty((5, m, len(X)), dtype=np.float32)
    _, *controls = projections._variables(
        room, P, places, found.tables, slice(0, m), means
    )
    for control in controls:
        far = control.mean(axis=0) / (control.std(axis=0) / np.sqrt(m))
        assert np.abs(far).max() < 5


def test_agrees_with_the_published_package():
    X, y = reference.made(500, 20, 5)
    np.random.seed(0)
    theirs, _, _ = published.PSMI(n_estimators=4000).fit_transform(
        X.astype(np.float64), y
    )
    ours, error = PSMI(1024).fit(X, y).score_samples(X, y, return_std=True)
    spread = reference.values(X, y, reference.directions(2000, 20)).std(
        axis=1
    ) / np.sqrt(4000)
    assert np.mean(np.abs(ours - theirs) < 4 * np.hypot(error, spread)) > 0.99


@pytest.mark.parametrize(
    ("n_classes", "n"),
    [
        (2, 300),
        (10, 500),
        pytest.param(4, 400, marks=pytest.mark.slow),
        pytest.param(30, 180, marks=pytest.mark.slow),
    ],
)
def test_standard_errors_are_honest(n_classes, n):
    X, y, expected = reference.long_reference(n, 32, n_classes, decay=0.3)
    covered = []
    for seed in range(6):
        found, error = (
            PSMI(256, random_state=seed).fit(X, y).score_samples(X, y, return_std=True)
        )
        covered.append(np.mean(np.abs(found - expected) < 1.96 * error))
    assert 0.91 <= np.mean(covered) <= 0.98


def error_and_spread(estimator, X, y):
    scores, errors = estimator.score_samples(X, y, return_std=True)
    medians = np.array([np.median(scores[y == c]) for c in y])
    return np.sqrt(np.mean(errors**2)), 1.4826 * np.median(np.abs(scores - medians))


def test_auto_reaches_its_tolerance_or_says_so():
    X, y = reference.made(600, 32, 8, decay=0.5)
    estimator = PSMI(tol=0.06).fit(X, y)
    error, spread = error_and_spread(estimator, X, y)
    assert error <= 0.063 * spread  # as about 500 of the rows tell
    assert estimator.n_directions_ % 256 == 0
    assert 256 < estimator.n_directions_ < 2048
    assert np.array_equal(
        estimator.score_samples(X, y),
        PSMI(estimator.n_directions_).fit(X, y).score_samples(X, y),
    )


def test_the_default_follows_the_data():
    easy, hard = reference.made(600, 16, 3), reference.made(600, 32, 8, decay=0.5)
    assert PSMI().fit(*easy).n_directions_ == 256
    estimator = PSMI().fit(*hard)
    error, spread = error_and_spread(estimator, *hard)
    assert 256 < estimator.n_directions_ <= 2048
    assert error <= 0.1 * spread
    of_256, _ = error_and_spread(PSMI(256).fit(*hard), *hard)
    assert of_256 > 0.1 * spread


def test_the_default_stops_at_2048(monkeypatch):
    rng, asked, fit = np.random.default_rng(0), [], fitted.fit
    monkeypatch.setattr(
        "memowidgets.metrics.psmi.fit", lambda *a: asked.append(a[3]) or fit(*a)
    )
    X, y = rng.normal(size=(1000, 64)), np.arange(1000) % 4
    psmi = PSMI(tol=1e-3).fit(X, y)
    assert asked == [256, 2048]  # at once, where it is far from its tolerance
    assert psmi.n_directions_ == 2048
    assert any("2048 directions leave" in note for note in psmi.warnings_)


def far_apart(wrong):
    rng = np.random.default_rng(0)
    y = np.arange(300) % 2
    X = rng.normal(size=(300, 16)) + 12 * y[:, None]
    y[:wrong] = 1 - y[:wrong]
    return X, y


@pytest.mark.parametrize("wrong", [0, 6])
def test_scores_that_are_alike_need_no_order_where_none_of_them_is_near_0(wrong):
    X, y = far_apart(wrong)
    psmi = PSMI().fit(X, y)
    scores, errors = psmi.score_samples(X, y, return_std=True)
    error, spread = error_and_spread(psmi, X, y)
    assert psmi.n_directions_ == 2048
    assert error > 0.1 * spread
    assert (scores <= 0).sum() == wrong
    assert (np.abs(scores) > 2 * errors).all()
    assert psmi.warnings_ == ()


def test_scores_near_0_that_directions_leave_uncertain_are_counted():
    """Of noise, where a very small error was asked for."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(400, 16)), np.arange(400) % 4
    psmi = PSMI(tol=1e-3).fit(X, y)
    scores, errors = psmi.score_samples(X, y, return_std=True)
    (note,) = [note for note in psmi.warnings_ if note.key == "imprecise"]
    near = int((np.abs(scores) <= 2 * errors).sum())
    assert near > 0
    assert note.numbers["undecided"] == near
    assert note.numbers["judged"] == 400
    assert f"{near} of 400" in note


def nearly_one_dimension(n_classes, second, seed):
    """400 rows in 20 dimensions, of which one varies, and another `second` times as much."""
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.arange(400) % n_classes)
    X = np.zeros((400, 20))
    X[:, :2] = rng.normal(size=(400, 2)) + rng.normal(size=(n_classes, 2))[y]
    X[:, 1] *= second
    return X, y


def exact_in_the_plane(X, y, steps=400):
    """PSMI of two columns, by a sum over angles that are dense near both axes."""
    edges = np.union1d(np.logspace(-9, 0, steps), np.linspace(0, 1, steps)) * np.pi / 4
    middle, width = (edges[1:] + edges[:-1]) / 2, np.diff(edges) / np.pi
    angles = np.concatenate(
        [axis + middle * s for axis in (0, np.pi / 2) for s in (1, -1)]
    )
    theta = np.column_stack([np.cos(angles), np.sin(angles)])
    return reference.values(X, y, theta) @ np.tile(width, 4)


@pytest.mark.parametrize("second", [0, 1e-5, 1e-4])
@pytest.mark.parametrize("n_classes", [2, 3, 8])
def test_controls_that_others_explain(n_classes, second):
    """A random direction meets the plane of two columns at an even angle."""
    for seed in range(4):
        X, y = nearly_one_dimension(n_classes, second, seed)
        found = score(X, y, seed=seed)
        np.testing.assert_allclose(
            found, exact_in_the_plane(X[:, :2], y, 60), atol=0.01
        )


@pytest.mark.parametrize("longer", [1, 100, 0.01])
@pytest.mark.parametrize("n_classes", [2, 4, 8])
def test_two_features_of_any_axes(n_classes, longer):
    rng = np.random.default_rng(0)
    y = np.arange(400) % n_classes
    X = (rng.normal(size=(400, 2)) + rng.normal(size=(n_classes, 2))[y]) * [longer, 1]
    expected = exact_in_the_plane(X, y)
    for seed in range(3):
        found, error = (
            PSMI(random_state=seed).fit(X, y).score_samples(X, y, return_std=True)
        )
        np.testing.assert_allclose(found, expected, atol=1e-3)
        assert np.sqrt(np.mean((found - expected) ** 2)) < (
            1e-5 if longer == 1 else 1e-4
        )
        assert np.mean(np.abs(found - expected) < 3 * error + 2e-6) > 0.7
        assert error.max() < 0.01


def few_of_some_classes():
    """300 rows: five classes of 3, and one of the rest."""
    rng = np.random.default_rng(1)
    y = np.minimum(np.arange(300) // 3, 5)
    X = rng.normal(size=(300, 16)) + 3 * rng.normal(size=(6, 16))[y] / 4
    return X.astype(np.float32), y


def test_classes_of_three():
    X, y = few_of_some_classes()
    parts = [
        PSMI(4096, "plain", random_state=1000 + s).fit(X, y).score_samples(X, y)
        for s in range(16)
    ]
    expected, error_there = np.mean(parts, axis=0), np.std(parts, axis=0) / 4
    covered = []
    for seed in range(6):
        found, error = (
            PSMI(256, random_state=seed).fit(X, y).score_samples(X, y, return_std=True)
        )
        far = np.abs(found - expected)
        covered.append(np.mean(far < 1.96 * np.hypot(error, error_there)))
    assert np.mean(covered) > 0.92  # .88 with tails of a thousandth
    found, error = PSMI().fit(X, y).score_samples(X, y, return_std=True)
    wrong = (found <= 0) != (expected <= 0)
    assert np.all(np.abs(found[wrong]) < 4 * np.hypot(error, error_there)[wrong])


@pytest.mark.parametrize(("n_classes", "size"), [(3, 1), (12, 1), (3, 1e-9)])
def test_a_row_that_dominates_its_class_is_named(n_classes, size):
    X, y = reference.made(600, 16, n_classes)
    assert not PSMI().fit(X, y).warnings_
    X[5] *= 1e5
    X *= np.float32(size)
    (note,) = PSMI().fit(X, y).warnings_
    assert note.names == ("row 5",)


@pytest.mark.parametrize(("n", "n_classes"), [(300, 2), (600, 3)])
def test_a_huge_row_costs_directions_and_no_precision(n, n_classes):
    """Values of its class follow log |θᵀx|, whose mean takes many directions."""
    X, y = reference.made(n, 16, n_classes)
    X[5] *= 1e5
    theta = reference.directions(2000, 16)
    values = reference.values(X, y, theta)
    found, error = PSMI(2000, "plain").fit(X, y).score_samples(X, y, return_std=True)
    # float64, same directions
    np.testing.assert_allclose(found, values.mean(axis=1), atol=1e-4)
    others = (y == y[5]) & (np.arange(n) != 5)
    along = np.log(np.abs(theta @ (X[5] / np.linalg.norm(X[5]))))
    assert np.corrcoef(values[others].mean(axis=0), along)[0, 1] ** 2 > 0.7
    assert np.median(error[others]) > 0.02  # said, not hidden
    corrected = PSMI(256).fit(X, y).score_samples(X, y, return_std=True)[1]
    # by an eighth as many
    assert np.median(corrected[others]) < np.median(error[others])


def test_representations_that_know_nothing_are_noticed():
    noticed = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        y = np.arange(400) % 4
        psmi = PSMI(256, random_state=seed).fit(rng.normal(size=(400, 16)), y)
        noticed.append(KNOWS_NO_LABELS in psmi.warnings_)
    assert sum(noticed) >= 17
    for n_classes in (2, 4, 40):
        X, y = reference.made(400, 16, n_classes, separation=1.5)
        assert KNOWS_NO_LABELS not in PSMI(256).fit(X, y).warnings_


@settings(max_examples=8, deadline=None, derandomize=True)
@given(d=st.integers(256, 2500))
@example(d=256)  # a square
@example(d=257)
@example(d=269)
@example(d=4097)
def test_each_column_has_the_weight_that_it_has_in_a_uniform_direction(d):
    """Also in one that other rotations made, and also a mean of all columns."""
    rng = np.random.default_rng(d)
    rows = np.eye(d, dtype=np.float32)[[0, d // 2, -2, -1, 0]]
    rows[4] = rng.normal(size=d) / np.sqrt(d)
    rows[4] /= np.linalg.norm(rows[4])
    drawn = [projections.Rotated.drawn(d, 2 * d, s, rows) for s in range(20_000 // d)]
    along = np.concatenate([one.along(rows) for one in drawn]).astype(np.float64)
    square, fourth = (along**2).mean(axis=0), (along**4).mean(axis=0)
    np.testing.assert_allclose(square, 1 / d, rtol=0.04)
    np.testing.assert_allclose(fourth / square**2, 3 * d / (d + 2), atol=0.3)


@pytest.mark.parametrize(("d", "near"), [(256, 0), (300, 0), (257, 0.2), (269, 0.2)])
def test_rotated_directions_have_a_length_of_1_and_are_orthogonal(d, near):
    """Only nearly, where the table has room for more than d columns."""
    theta = projections.Rotated.drawn(d, 2 * d, 0, np.eye(d)).along(
        np.eye(d, dtype=np.float32)
    )
    of_one = theta[:d] @ theta[:d].T
    np.testing.assert_allclose((theta**2).sum(axis=1), 1, atol=1e-5)
    np.testing.assert_allclose(of_one, np.eye(d), atol=near + 1e-5)
    assert np.abs(theta[:256] @ theta[-200:].T).max() < 0.5


def in_the_last_columns(d, n=200):
    """Three classes, of which the last two columns know all, and their exact PSMI."""
    rng = np.random.default_rng(0)
    y = np.arange(n) % 3
    few = rng.normal(size=(n, min(d, 2))) + 2 * rng.normal(size=(3, min(d, 2)))[y]
    X = np.zeros((n, d), dtype=np.float32)
    X[:, -2:] = few
    one = reference.psmi(few, y, [[1.0]]) if d == 1 else exact_in_the_plane(few, y)
    return X, y, one


ODD_WIDTHS = np.random.default_rng(0).integers(3, 900, 4).tolist()


@pytest.mark.parametrize("d", [1, 2, 257, 269, 4097, *ODD_WIDTHS])
def test_errors_are_honest_where_the_last_columns_have_the_signal(d):
    X, y, expected = in_the_last_columns(d)
    fitted = [PSMI(256, random_state=seed).fit(X, y) for seed in range(4)]
    found, error = np.moveaxis(
        [one.score_samples(X, y, return_std=True) for one in fitted], 1, 0
    )
    far = np.abs(found - expected)
    assert not any(one.warnings_ for one in fitted)
    assert np.mean(far < 1.96 * error + 2e-5) > 0.85
    assert np.sqrt(np.mean(far**2)) < 0.02


@pytest.mark.parametrize("column", [0, 252, 266, 268])
def test_a_column_that_knows_all_is_seen_wherever_it_is(column):
    """269 is no product of two numbers that are near its root."""
    X, y, expected = in_the_last_columns(1)
    wide = np.zeros((len(X), 269), dtype=np.float32)
    wide[:, [column]] = X
    np.testing.assert_allclose(score(wide, y), expected, atol=1e-4)


def test_rotated_directions_give_the_scores_of_independent_ones(monkeypatch):
    X, y = reference.made(500, 64, 4)
    X[:, 0] *= 30  # most of it along one axis
    expected, its_error = PSMI(8192).fit(X, y).score_samples(X, y, return_std=True)
    monkeypatch.setattr(fitted, "ROTATED_FROM", 64)
    covered = []
    for seed in range(8):
        found, error = (
            PSMI(256, random_state=seed).fit(X, y).score_samples(X, y, return_std=True)
        )
        covered.append(
            np.mean(np.abs(found - expected) < 1.96 * np.hypot(error, its_error))
        )
    assert 0.9 <= np.mean(covered) <= 0.99


@pytest.mark.parametrize("seed", [0, 1])
def test_directions_are_not_the_data(seed):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((600, 300), dtype=np.float32)
    y = np.arange(600) % 3
    found, error = (
        PSMI(random_state=seed).fit(X, y).score_samples(X, y, return_std=True)
    )
    expected = score(X, y, 4000, "plain", seed=77)
    assert np.mean(np.abs(found - expected) < 2.5 * error + 0.01) > 0.95


def test_the_same_seed_gives_the_same_bits(monkeypatch):
    X, y = reference.made(700, 20, 4)
    first = score(X, y)
    assert np.array_equal(first, score(X, y))
    assert not np.array_equal(first, score(X, y, seed=1))
    monkeypatch.setattr("memowidgets.cores.cores", lambda: 5)
    assert np.array_equal(first, score(X, y))


def test_chunks_do_not_matter(monkeypatch):
    X, y = reference.made(700, 20, 4)
    first = score(X, y)
    monkeypatch.setattr("memowidgets.metrics.arrays.COPIED_BYTES", 2**20)
    monkeypatch.setattr("memowidgets.metrics.arrays.MOST_ROWS", 100)
    monkeypatch.setattr("memowidgets.metrics.fitted._PIECE_ROWS", 100)
    np.testing.assert_allclose(score(X, y), first, atol=1e-5)


@pytest.mark.parametrize(("n_classes", "narrow"), [(3, 1.0), (12, 1.0), (3, 0.25)])
def test_curves_give_what_the_densities_add_up_to(n_classes, narrow, monkeypatch):
    """Also along directions where a class is too narrow for them, and for rows out of reach."""
    X, y = reference.made(500, 8, n_classes)
    X[y == 0] *= np.float32(narrow)
    X[7] *= 20
    expected = score(X, y, method="plain")
    monkeypatch.setattr(fitted, "_CURVES_FROM", 0)
    estimator = PSMI(256, "plain").fit(X, y)
    curves = estimator._fitted.tables.curves
    assert curves.coarse.any() == (narrow < 1)
    assert not curves.coarse.all()
    far, codes = 40 * X[:5], y[:5]
    np.testing.assert_allclose(estimator.score_samples(X, y), expected, atol=2e-5)
    found = estimator.score_samples(far, codes)
    monkeypatch.setattr(fitted, "_CURVES_FROM", 10**9)
    added = PSMI(256, "plain").fit(X, y)
    assert added._fitted.tables.curves is None
    np.testing.assert_allclose(found, added.score_samples(far, codes), rtol=1e-5)


@pytest.mark.parametrize("n_classes", [4, 12])
def test_held_out_samples(n_classes):
    X, y = reference.made(1200, 16, n_classes)
    estimator = PSMI(2048).fit(X[:800], y[:800])
    held_out, error = estimator.score_samples(X[800:], y[800:], return_std=True)
    one = estimator.score_samples(X[807:808], y[807:808])
    assert one == pytest.approx(held_out[7], abs=1e-5)
    plain = PSMI(8000, "plain", random_state=9).fit(X[:800], y[:800])
    other, other_error = plain.score_samples(X[800:], y[800:], return_std=True)
    far = np.abs(held_out - other) / np.hypot(error, other_error)
    assert np.mean(far < 3) > 0.95


@pytest.mark.parametrize("method", ["control-variates", "plain"])
@pytest.mark.parametrize(("n_classes", "rotated_from"), [(3, 256), (3, 16), (12, 256)])
def test_tensors_give_the_same(method, n_classes, rotated_from, monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(fitted, "ROTATED_FROM", rotated_from)
    X, y = reference.made(500, 17, n_classes)  # a table of 18
    expected = score(X, y, 256, method)
    assert np.array_equal(
        score(torch.tensor(X), torch.tensor(y), 256, method), expected
    )
    monkeypatch.setattr("memowidgets.metrics.arrays._ON_THE_CPU", ())
    estimator = PSMI(256, method).fit(torch.tensor(X), y)
    np.testing.assert_allclose(
        estimator.score_samples(torch.tensor(X), y), expected, atol=1e-5
    )
    rough = torch.tensor(X).bfloat16()
    np.testing.assert_allclose(
        score(rough, y), score(rough.float().numpy(), y), atol=1e-6
    )


def layouts(X, tmp_path):
    np.save(tmp_path / "X.npy", X)
    wide = np.zeros((2 * len(X), 2 * X.shape[1]), dtype=X.dtype)
    wide[::2, ::2] = X
    locked = X.copy()
    locked.flags.writeable = False
    return {
        "Fortran": np.asfortranarray(X),
        "strided": wide[::2, ::2],
        "read-only": locked,
        "mapped": np.load(tmp_path / "X.npy", mmap_mode="r"),
        "float64": X.astype(np.float64),
        "list": X.tolist(),
    }


def test_any_layout(tmp_path):
    X, y = reference.made(200, 12, 3)
    expected = score(X, y)
    for name, other in layouts(X, tmp_path).items():
        np.testing.assert_allclose(score(other, y), expected, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("size", [1e-30, 1e-10, 1e10, 1e30])
def test_any_size(size):
    X, y = reference.made(200, 12, 3)
    np.testing.assert_allclose(score(X * np.float32(size), y), score(X, y), atol=1e-4)
    very = X.astype(np.float64) * size**8
    np.testing.assert_allclose(score(very, y), score(X, y), atol=1e-4)


def test_far_from_the_origin():
    X, y = reference.made(200, 12, 3)
    np.testing.assert_allclose(
        score(X.astype(np.float64) + 1e6, y), score(X, y), atol=1e-3
    )
    np.testing.assert_allclose(score(X + np.float32(100), y), score(X, y), atol=2e-3)


def test_unequal_classes():
    rng = np.random.default_rng(0)
    y = np.append(np.zeros(2000, dtype=int), [1, 1])
    X = rng.normal(size=(2002, 10)) + 2 * y[:, None]
    estimator = PSMI().fit(X, y)
    assert np.isfinite(estimator.score_samples(X, y)).all()
    warning, stopped = estimator.warnings_
    assert "1 of 2 classes" in warning
    assert "1 (2)" in warning
    assert "2048 directions leave" in stopped


def test_one_warning_names_all_rows_that_have_most_of_the_variance_of_their_class():
    X, y = reference.made(150, 10, 3)
    rows = [int(np.flatnonzero(y == k)[0]) for k in range(2)]
    X[rows] *= 1e3
    notes = PSMI().fit(X, y).warnings_
    (warning,) = [note for note in notes if note.key == "dominant rows"]
    assert set(warning.names) == {f"row {row}" for row in rows}
    assert all(name in warning for name in warning.names)


def test_one_warning_names_all_small_classes():
    X, y = reference.made(150, 10, 3)
    names = np.array(["ward c", "ward a", "ward b"])[
        np.where(np.arange(150) < 130, 0, y)
    ]
    (warning,) = PSMI().fit(X, names).warnings_
    counts = [(name, int((names == name).sum())) for name in ("ward a", "ward b")]
    assert all(f"'{name}' ({count})" in warning for name, count in counts)
    assert "ward c" not in warning


def test_a_class_without_samples_and_one_with_enough_are_not_small():
    counts = np.array([0, 1, FEW_SAMPLES - 1, FEW_SAMPLES])
    (said,) = small_classes(["empty", "one", "few", "enough"], counts)
    assert [name in said for name in ("empty", "one", "few", "enough")] == [
        False,
        True,
        True,
        False,
    ]
    assert small_classes(["empty", "enough"], counts[[0, 3]]) == ()


def test_two_equal_samples_are_a_class():
    X, y = reference.made(100, 5, 2)
    X = np.vstack([X, X[:1], X[:1]])
    y = np.append(y, [2, 2])
    scores, error = PSMI().fit(X, y).score_samples(X, y, return_std=True)
    assert np.isfinite(scores).all()
    assert np.isfinite(error).all()


def test_no_spread_within_classes():
    X = np.repeat([[0.0, 1.0], [2.0, 5.0]], 5, axis=0)
    y = np.repeat(["a", "b"], 5)
    np.testing.assert_allclose(score(X, y), np.log(2), atol=1e-5)


@pytest.mark.parametrize(("n_classes", "d"), [(2, 12), (9, 12), (8, 2)])
def test_the_mean_is_plain_with_fewer_directions_than_a_regression_needs(n_classes, d):
    X, y = reference.made(200, d, n_classes)
    plain = [np.array_equal(score(X, y, m), score(X, y, m, "plain")) for m in (63, 64)]
    assert plain == [True, False]


def test_few_directions():
    X, y = reference.made(200, 12, 3)
    for m in (2, 7, 63, 65):
        scores, error = PSMI(m).fit(X, y).score_samples(X, y, return_std=True)
        assert np.isfinite(scores).all()
        assert np.isfinite(error).all()
    assert np.isfinite(PSMI(1).fit(X, y).score_samples(X, y)).all()
    with pytest.raises(ValueError, match="n_directions of 2"):
        PSMI(1).fit(X, y).score_samples(X, y, return_std=True)
    alone = X[:, :1]  # all directions of one feature are the same
    assert not PSMI(1).fit(alone, y).score_samples(alone, y, return_std=True)[1].any()


@pytest.mark.slow
def test_a_million_samples():
    rng = np.random.default_rng(0)
    y = np.arange(1_000_000) % 3
    X = rng.standard_normal((1_000_000, 8), dtype=np.float32)
    X += y[:, None]
    scores = score(X, y, m=16)
    assert scores.shape == (1_000_000,)
    assert scores.mean() > 0


@pytest.mark.parametrize(
    ("n", "d", "m", "kind"),
    [
        (20_000, 256, 256, "float32"),
        (6000, 1024, 256, "float64"),
        (6000, 1024, 256, "float16"),
        (6000, 1024, 256, "far"),
        (10_000, 64, 2000, "plain"),
        (1700, 64, 20_000, "plain"),
    ],
)
def test_memory(n, d, m, kind):
    X, y = reference.made(n, d, 8)
    X = (
        X + np.float32(50)
        if kind == "far"
        else X.astype(kind if kind != "plain" else "float32")
    )
    tracemalloc.start()
    score(X, y, m, "plain" if kind == "plain" else "control-variates")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak - 4 * m * d - 16 * n < 160e6


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_not_finite(bad):
    X, y = reference.made(5000, 6, 2)
    X[4321, 3] = bad
    with pytest.raises(ValueError, match=r"1 of 5000 .* row 4321, column 3"):
        PSMI().fit(X, y)
    estimator = PSMI().fit(X[:4000], y[:4000])
    with pytest.raises(ValueError, match="row 4321, column 3"):
        estimator.score_samples(X, y)


@pytest.mark.parametrize("d", [20, 700])
def test_rows_whose_sums_cancel_are_refused_without_a_warning(d):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(6000, d)).astype(np.float32), np.arange(6000) % 4
    X[5], X[4321] = np.inf, -np.inf  # of one class, in two pieces
    with pytest.raises(ValueError, match=r"2 of 6000 .* row 5, column 0"):
        PSMI(256).fit(X, y)


def test_most_rows_of_a_class_are_equal():
    y = np.arange(400) % 4
    X = 3 * np.eye(8)[y]
    X[:30] += np.random.default_rng(0).normal(size=(30, 8))
    estimator = PSMI().fit(X, y)
    assert estimator.n_directions_ == 2048  # their spread is 0
    assert np.isfinite(estimator.score_samples(X, y)).all()


@pytest.mark.parametrize("tol", [None, 0.1])
@pytest.mark.parametrize("value", [0.0, 0.1, 1e30])
def test_rows_that_are_all_equal_say_nothing(value, tol):
    X, y = np.full((50, 3), value), np.arange(50) % 2
    psmi = PSMI(tol=tol).fit(X, y)
    scores, errors = psmi.score_samples(X, y, return_std=True)
    assert not scores.any()
    assert not errors.any()
    (note,) = psmi.warnings_
    assert "all rows of X are equal" in note


def test_bad_shapes_and_labels():
    X, y = reference.made(50, 6, 2)
    known = PSMI().fit(X, y)
    cases = [
        (lambda: PSMI().fit(X[0], y), r"n_features\), but has shape \(6,\)"),
        (lambda: PSMI().fit(X[:0], y[:0]), r"shape \(0, "),
        (lambda: PSMI().fit(X, y[:-1]), "each of the 50 samples"),
        (
            lambda: PSMI().fit(X, np.where(y == 0, np.nan, y)),
            "missing, the first in row",
        ),
        (lambda: PSMI().fit(X, np.zeros(50)), "single class"),
        (lambda: PSMI().fit(X, np.append(y[:-1], 7)), "class 7 has a single sample"),
        (lambda: PSMI().score_samples(X, y), "not fitted"),
        (
            lambda: known.score_samples(X, np.full(50, 9)),
            "label of row 0, 9, is not one of the 2",
        ),
        (
            lambda: known.score_samples(X[:, :3], y),
            "3 features, but the fitted one had 6",
        ),
        (lambda: PSMI(0), "n_directions"),
        (lambda: PSMI(method="exact"), "'control-variates', 'plain'"),
        (lambda: PSMI(256, tol=0.1), "tol"),
        (lambda: PSMI(method="plain", tol=0.1), "tol"),
        (lambda: PSMI("auto", tol=0.0), "tol"),
    ]
    for call, sentence in cases:
        with pytest.raises(ValueError, match=sentence):
            call()
    with pytest.raises(TypeError, match="n_directions"):
        PSMI("many")


def test_a_seed_means_the_same_directions_in_every_version():
    """Kept scores are compared with new ones, and more directions begin with the same ones."""
    found = reference.directions(65, 3)[[0, 64]]
    expected = [[0.2483016, 0.7829708, -0.5703534], [0.0581756, -0.997165, 0.047724]]
    np.testing.assert_allclose(found, expected, atol=1e-6)


@pytest.mark.parametrize("apart", [1e6, 1e8])
def test_classes_that_are_far_apart(apart):
    """Controls are distances to other classes, which float32 rounds by more than a deviation."""
    y = np.arange(300) % 3
    X = np.random.default_rng(0).normal(size=(300, 16)) + apart * y[:, np.newaxis]
    np.testing.assert_allclose(score(X, y), np.log(3), atol=1e-3)


def test_one_feature_has_one_direction_and_an_exact_score():
    rng = np.random.default_rng(0)
    y = np.arange(2000) % 2
    X = (rng.normal(size=2000) + 4 * y)[:, np.newaxis]
    scores, errors = PSMI().fit(X, y).score_samples(X, y, return_std=True)
    density = np.array(
        [norm(X[y == c].mean(), X[y == c].std()).logpdf(X[:, 0]) for c in (0, 1)]
    )
    exact = density[y, np.arange(2000)] - np.logaddexp(*(density + np.log(0.5)))
    np.testing.assert_allclose(scores, exact, atol=1e-4)
    assert errors.max() < 1e-3  # of rounding, which small directions have more of


@pytest.mark.parametrize("n_classes", [3, 12])
def test_held_out_rows_that_are_far_from_every_class(n_classes):
    """The density of each class underflows in float32, and is computed anew."""
    X, y = reference.made(300, 6, n_classes)
    theta = reference.directions(256, 6)
    far, codes = 40 * X[:20], y[:20]
    P = np.concatenate([X, far]).astype(np.float64) @ theta.T
    deviations = [
        (P[: len(X)][y == c].mean(axis=0), P[: len(X)][y == c].std(axis=0))
        for c in range(n_classes)
    ]
    logs = np.array([norm.logpdf(P[len(X) :], *one) for one in deviations])
    prior = np.log(np.bincount(y) / len(y))[:, None, None]
    expected = logs[codes, np.arange(20)] - np.logaddexp.reduce(logs + prior, axis=0)
    found = PSMI(256, "plain").fit(X, y).score_samples(far, codes)
    np.testing.assert_allclose(found, expected.mean(axis=1), rtol=1e-4, atol=1e-3)


def test_rows_for_a_first_look_are_a_share_of_each_class_and_at_least_four():
    codes = np.random.default_rng(0).permutation(
        np.repeat([0, 1, 2, 3], [600, 200, 10, 2])
    )
    rows = fitted.picked_rows(codes, 100)
    assert len(np.unique(rows)) == len(rows)
    assert np.bincount(codes[rows]).tolist() == [73, 24, 4, 2]
    first = np.flatnonzero(codes == 0)
    assert np.diff(np.searchsorted(first, rows[codes[rows] == 0])).max() <= 9  # evenly
    assert len(fitted.picked_rows(codes, 5000)) == len(codes)


@pytest.mark.parametrize("columns", [[0, 1], [0, 3], [3, 4]])
def test_two_raw_columns(columns):
    X, y = load_breast_cancer(return_X_y=True)
    X = X[:, columns]
    expected = exact_in_the_plane(X, y)
    for seed in range(3):
        np.testing.assert_allclose(score(X, y, seed=seed), expected, atol=0.01)


def test_theorem_1_as_an_inequality():
    rng = np.random.default_rng(0)
    n, outlier = 6000, 0.05
    true = rng.integers(2, size=n)
    X = rng.normal(size=(n, 4)) + np.where(true[:, None], 1, -1) * [1.0, 0, 0, 0]
    tossed = rng.random(n) < outlier
    y = np.where(tossed, rng.integers(2, size=n), true)
    scores = score(X, y)
    assert scores[~tossed].mean() > 0.01
    assert scores[tossed].mean() < 0


def test_text_labels():
    X, y = reference.made(100, 5, 3)
    names = np.array(["ward c", "ward a", "ward b"])[y]
    estimator = PSMI().fit(X, names)
    assert estimator.classes_.tolist() == ["ward a", "ward b", "ward c"]
    np.testing.assert_allclose(
        estimator.score_samples(X, names), score(X, y), atol=1e-5
    )
