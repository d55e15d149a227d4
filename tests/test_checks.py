"""Labels as strings, sparse features and absent classes, wherever they go in."""

from __future__ import annotations

import sys
import types
import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

import memowidgets as mw
from memowidgets import checks
from memowidgets.metrics import PSMI, logit_gap, loss
from memowidgets.metrics.logits import other_columns

N = 90
NUMBERS = np.arange(N) % 3
WORDS = np.array(["loan", "card", "cash"])[NUMBERS]  # sorted: card, cash, loan
CODES = np.array([2, 0, 1])[NUMBERS]
X = np.random.default_rng(0).normal(size=(N, 6)) + CODES[:, None]
PIXELS = np.random.default_rng(2).random((N, 8, 8))
LOGITS = np.random.default_rng(1).normal(size=(N, 3))
TEXTS = [f"{i}" for i in range(N)]
FORMS = [WORDS, WORDS.tolist(), pd.Series(WORDS), pd.Series(WORDS, dtype="category"),
         pd.Series(WORDS, dtype="string"), WORDS.astype(object)]  # fmt: skip


@pytest.mark.parametrize(
    "labels", FORMS, ids=lambda form: str(getattr(form, "dtype", "list"))
)
def test_strings_in_any_form_are_the_sorted_classes(labels):
    scores = PSMI(64, random_state=0).fit(X, CODES).score_samples(X, CODES)
    fitted = PSMI(64, random_state=0).fit(X, labels)
    np.testing.assert_array_equal(fitted.score_samples(X, labels), scores)
    assert fitted.classes_.tolist() == ["card", "cash", "loan"]
    np.testing.assert_array_equal(loss(LOGITS, labels), loss(LOGITS, CODES))
    np.testing.assert_array_equal(logit_gap(LOGITS, labels), logit_gap(LOGITS, CODES))
    audit = mw.Audit.from_arrays(labels, representations=X, logits=LOGITS)
    assert audit.data.class_names == ("card", "cash", "loan")
    np.testing.assert_array_equal(audit.labels, CODES)
    data = mw.data.ImageDataset.from_arrays(PIXELS, labels)
    np.testing.assert_array_equal(data.labels, CODES)
    assert data.class_names == ("card", "cash", "loan")
    np.testing.assert_array_equal(data.with_labels(labels).labels, CODES)


def test_class_names_say_which_column_is_whose():
    names = ["loan", "card", "cash"]
    audit = mw.Audit.from_arrays(WORDS, logits=LOGITS, class_names=names)
    np.testing.assert_array_equal(audit.labels, NUMBERS)
    texts = mw.data.TextDataset.from_texts(TEXTS, WORDS, names)
    given = mw.Audit.from_arrays(WORDS, logits=LOGITS, samples=texts)
    np.testing.assert_array_equal(given.labels, NUMBERS)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: loss(LOGITS[:, :2], WORDS), "3 different strings for 2 columns"),
        (
            lambda: PSMI().fit(X, [*WORDS[:-1], None]),
            "1 of 90 labels are missing, .* row 89",
        ),
        (
            lambda: PSMI().fit(X, WORDS).score_samples(X, ["x", *WORDS[1:]]),
            "row 0, 'x', is not",
        ),
        (
            lambda: mw.Audit.from_arrays(WORDS, X, class_names=["card", "cash"]),
            "not one of the 2",
        ),
        (
            lambda: mw.widgets.SampleInspector(["a", "b"], labels=["x", None]),
            "labels are missing",
        ),
    ],
)
def test_what_strings_do_not_say_is_an_error(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_sparse_features_are_made_dense_and_their_size_is_said():
    thin = sparse.coo_array(X)
    size = r"sparse and is made dense, which takes 0\.0 MB of memory.*TruncatedSVD"
    with pytest.warns(UserWarning, match=size):
        fitted = PSMI(64, random_state=0).fit(thin, CODES)
    scores = PSMI(64, random_state=0).fit(X, CODES).score_samples(X, CODES)
    with pytest.warns(UserWarning, match=size):
        np.testing.assert_array_equal(fitted.score_samples(thin, CODES), scores)
    with pytest.warns(UserWarning, match=r"representations is sparse.*0\.0 MB") as said:
        audit = mw.Audit.from_arrays(CODES, representations=thin)
    assert len(said) == 1
    whole = mw.Audit.from_arrays(CODES, representations=X)
    pd.testing.assert_series_equal(audit.score("psmi"), whole.score("psmi"))


@pytest.mark.parametrize("samples", [None, TEXTS, PIXELS])
def test_a_class_that_never_occurs_is_said_once(samples):
    with pytest.warns(
        UserWarning, match="1 of 4 classes never occur in the labels: 0;"
    ) as said:
        mw.Audit.from_arrays(CODES + 1, representations=X, samples=samples)
    assert len(said) == 1


def test_a_column_of_logits_without_a_label_is_no_reason_to_warn():
    wide = np.column_stack([LOGITS, LOGITS[:, 0]])
    assert len(mw.Audit.from_arrays(CODES, logits=wide).data.class_names) == 4


@pytest.mark.parametrize(
    "names", [{"x", "y"}, {0: "x", 1: "y"}, "xy"], ids=["set", "dict", "str"]
)
def test_names_without_an_order_of_their_own_are_refused(names):
    with pytest.raises(
        TypeError, match=f"class 0 first, not of type {type(names).__name__}"
    ):
        mw.data.TextDataset.from_texts(["a", "b"], ["x", "y"], class_names=names)


def test_classes_that_are_written_almost_alike_are_said():
    with pytest.warns(
        UserWarning, match="' Spam' and 'spam' differ only in capitals, spaces"
    ):
        data = mw.data.TextDataset.from_texts(["a", "b", "c"], ["spam", "ham", " Spam"])
    assert len(data.class_names) == 3
    letters = mw.data.TextDataset.from_texts(["a", "b"], ["A", "a"])  # of an alphabet
    assert letters.class_names == ("A", "a")
    with pytest.warns(UserWarning, match="' x' and 'x' differ only in"):
        mw.data.TextDataset.from_texts(["a", "b"], [" x", "x"])
    for twin in ("cafe\u0301", "caf\u200bé", "ca\u00adfé"):  # NFD, and what nobody sees
        with pytest.warns(UserWarning, match=r"NFC and NFD.*two classes"):
            mw.data.TextDataset.from_texts(["a", "b"], ["café", twin])


def test_categories_of_pandas_number_the_classes_in_their_own_order():
    names = ["loan", "card", "cash"]
    for labels in (
        pd.Categorical(WORDS, names),
        pd.Series(pd.Categorical(WORDS, names)),
    ):
        audit = mw.Audit.from_arrays(labels, logits=LOGITS)
        assert audit.data.class_names == tuple(names)
        np.testing.assert_array_equal(audit.labels, NUMBERS)
        np.testing.assert_array_equal(loss(LOGITS, labels), loss(LOGITS, NUMBERS))
        texts = mw.data.TextDataset.from_texts(TEXTS, labels)
        np.testing.assert_array_equal(texts.labels, NUMBERS)
        table = mw.data.TableDataset.from_frame(
            pd.DataFrame({"x": X[:, 0], "label": labels})
        )
        np.testing.assert_array_equal(table.labels, NUMBERS)
        assert table.class_names == tuple(names)
    years = pd.Categorical(2024 - NUMBERS, [2024, 2023, 2022])
    np.testing.assert_array_equal(
        mw.Audit.from_arrays(years, logits=LOGITS).labels, NUMBERS
    )
    with pytest.raises(ValueError, match=r"1 of 90 labels are missing, .* row 3"):
        mw.Audit.from_arrays(pd.Series(labels).where(np.arange(N) != 3), logits=LOGITS)


def test_logits_that_fit_in_another_order_of_columns_are_said():
    fitting = LOGITS + 6 * np.eye(3)[NUMBERS]  # columns: loan, card, cash
    with pytest.warns(UserWarning, match=r"for 3 of 3 classes: .* class 0 in column 1"):
        mw.Audit.from_arrays(WORDS, logits=fitting)
    mw.Audit.from_arrays(WORDS, logits=fitting, class_names=["loan", "card", "cash"])


@pytest.mark.parametrize("seed", range(5))
def test_weak_or_constant_logits_are_in_no_other_order(seed):
    rng = np.random.default_rng(seed)
    labels = rng.integers(9, size=200)
    for logits in (rng.normal(size=(200, 9)), np.tile(rng.normal(size=9), (200, 1))):
        assert not other_columns(logits, labels)
        assert not other_columns(logits + np.eye(9)[labels], labels)
    unlike = np.where(np.arange(200) % 5 < 2, labels, (labels + 1) % 9)
    assert not other_columns(np.eye(9)[unlike], labels)  # two of five are right


MASK = np.arange(N) == 4
IMAGES = np.broadcast_to(MASK[:, None, None], PIXELS.shape)
MASKED = [
    lambda: mw.Audit.from_arrays(np.ma.array(NUMBERS, mask=MASK), X),
    lambda: mw.Audit.from_arrays(
        NUMBERS, np.ma.array(X, mask=MASK[:, None] & (X == X))
    ),
    lambda: mw.Audit.from_arrays(NUMBERS, X, log_lira=np.ma.array(X[:, 0], mask=MASK)),
    lambda: mw.Audit.from_arrays(NUMBERS, X, canaries=np.ma.array(MASK, mask=MASK)),
    lambda: mw.Audit.from_arrays(NUMBERS, X).score(
        lambda representations: np.ma.array(representations[:, 0], mask=MASK)
    ),
    lambda: mw.Audit.from_arrays(NUMBERS, X).evaluate(
        "psmi", truth=np.ma.array(MASK, mask=MASK)
    ),
    lambda: mw.data.ImageDataset.from_arrays(np.ma.array(PIXELS, mask=IMAGES), NUMBERS),
    lambda: mw.data.TextDataset.from_texts(
        TEXTS, WORDS, ids=np.ma.array(np.arange(N), mask=MASK)
    ),
]


@pytest.mark.parametrize("call", MASKED)
def test_masked_values_are_refused_wherever_they_enter(call):
    with pytest.raises(ValueError, match=r"values are masked, the first at \[4"):
        call()


@pytest.mark.parametrize("kind", ["Float64", "double[pyarrow]", "object"])
def test_numbers_of_pandas_in_any_type_are_numbers(kind):
    table, plain = (
        pd.DataFrame(X).astype(kind),
        mw.Audit.from_arrays(NUMBERS, X, LOGITS),
    )
    audit = mw.Audit.from_arrays(NUMBERS, table, pd.DataFrame(LOGITS).astype(kind))
    np.testing.assert_array_equal(
        audit.representation("last"), plain.representation("last")
    )
    np.testing.assert_array_equal(audit.score("loss"), plain.score("loss"))
    rows = mw.data.TableDataset.from_frame(table.assign(label=NUMBERS))
    np.testing.assert_array_equal(rows.columns["0"], X[:, 0])
    if kind != "object":
        table.iloc[7, 2] = pd.NA
        with pytest.raises(ValueError, match="row 7, column 2"):
            mw.Audit.from_arrays(NUMBERS, table)


def test_warnings_are_of_the_line_that_called():
    """Not of a line inside of this package, however deep the warning is."""
    words = np.array(["x", "y"] * 10)
    table = pd.DataFrame({"a": [1, None], "b": [0, 1], "label": [0, 1]})
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        mw.Audit.from_arrays(words, sparse.csr_matrix(X[:20]))
        mw.Audit.from_arrays(words, {"a": sparse.csr_array(X[:20])})
        PSMI(16, random_state=0).fit(sparse.csr_matrix(X[:20]), words)
        mw.data.TextDataset.from_texts(["a", "b"], [1, 2])
        mw.data.TableDataset.from_frame(table)
    assert [w.filename for w in said] == [__file__] * 5


def test_scores_are_computed_while_another_thread_imports_torch(monkeypatch):
    scores = PSMI(64, random_state=0).fit(X, CODES).score_samples(X, CODES)
    monkeypatch.setitem(sys.modules, "torch", types.ModuleType("torch"))
    meanwhile = PSMI(64, random_state=0).fit(X, CODES).score_samples(X, CODES)
    np.testing.assert_array_equal(meanwhile, scores)


ROWS = [f"row-{i}" for i in range(N)]
SHUFFLED = pd.Series(CODES, ROWS).sample(frac=1, random_state=0)
GAPS = pd.DataFrame(np.random.default_rng(2).normal(size=(12, N)), columns=ROWS)
INSIDE = GAPS.sample(frac=1, axis=1, random_state=0) > 0


@pytest.mark.parametrize(
    "call",
    [
        lambda: PSMI(64).fit(pd.DataFrame(X, ROWS), SHUFFLED),
        lambda: PSMI(64).fit(X, CODES).score_samples(pd.DataFrame(X, ROWS), SHUFFLED),
        lambda: loss(pd.DataFrame(LOGITS, ROWS), SHUFFLED),
        lambda: mw.data.TextDataset.from_texts(pd.Series(ROWS, ROWS), SHUFFLED),
        lambda: mw.data.TextDataset.from_texts(ROWS, SHUFFLED, ids=ROWS),
        lambda: mw.data.ImageDataset.from_arrays(PIXELS, SHUFFLED, ids=ROWS),
        lambda: mw.memorization.log_lira(GAPS, INSIDE, np.zeros(N), variance="global"),
        lambda: mw.memorization.log_lira(GAPS, GAPS > 0, SHUFFLED, variance="global"),
        lambda: mw.memorization.counterfactual(GAPS, INSIDE),
        lambda: mw.widgets.ThresholdExplorer(
            pd.Series(X[:, 0], ROWS), log_lira=SHUFFLED
        ),
        lambda: mw.widgets.SampleInspector(
            ROWS, pd.Series(X[:, 0], ROWS), SHUFFLED > 0
        ),
        lambda: mw.widgets.SampleInspector(pd.Series(ROWS, ROWS), SHUFFLED),
    ],
)
def test_names_of_rows_in_another_order_are_refused(call):
    with pytest.raises(ValueError, match="in another order"):
        call()


def test_names_of_rows_in_one_order_or_of_other_rows_are_taken():
    mine = loss(pd.DataFrame(LOGITS, ROWS), pd.Series(CODES, ROWS))
    assert np.array_equal(mine, loss(LOGITS, CODES))
    assert np.array_equal(mine, loss(pd.DataFrame(LOGITS), pd.Series(CODES, ROWS)))
    differences = mw.memorization.counterfactual(GAPS, INSIDE[GAPS.columns])
    assert np.array_equal(
        differences, mw.memorization.counterfactual(GAPS.to_numpy(), GAPS > 0)
    )


@pytest.mark.parametrize("at_once", [8, 2**22])
@given(st.integers(0, 8), st.integers(0, 3), st.sampled_from([np.nan, np.inf, -np.inf]))
def test_the_place_of_any_bad_number_is_named(at_once, row, column, value):
    table = np.zeros((10, 4), np.float32)
    table[row, column] = table[9, 3] = value
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checks, "_AT_ONCE", at_once)
        with pytest.raises(
            ValueError, match=rf"2 of 10 .* row {row}, column {column}$"
        ):
            checks.check_finite(table, "numbers")
        checks.check_finite(
            np.where(np.isfinite(table), 0, -np.inf), "it", allowed=-np.inf
        )


def test_rows_of_several_lengths_are_named():
    with pytest.raises(ValueError, match="X must have rows of one length"):
        PSMI().fit([[1, 2], [3]], [0, 1])
