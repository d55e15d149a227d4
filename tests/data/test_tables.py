"""Rows of a table as data: kinds of columns, missing values, and scikit-learn's features."""

from __future__ import annotations

import warnings
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.impute import MissingIndicator, SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from memowidgets.data import TableDataset

HOLES = "ignore:.*values are missing:UserWarning"


def frame(n=60, holes=True):
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            "age": rng.integers(20, 80, n),
            "ward": rng.choice(["A", "B", "C"], n),
            "pressure": rng.normal(120, 15, n),
            "sex": rng.choice(["f", "m"], n),
            "insured": rng.random(n) < 0.7,
            "outcome": rng.choice(["ill", "well"], n),
        }
    )
    if holes:
        table.loc[[3, 7], "pressure"] = np.nan
        table.loc[[5], "ward"] = None
    return table


def reference(numeric, texts):
    """The encoding that the documentation names, by scikit-learn."""
    return ColumnTransformer(
        [
            (
                "numbers",
                make_pipeline(SimpleImputer(strategy="median"), StandardScaler()),
                numeric,
            ),
            ("missing", MissingIndicator(error_on_new=False), numeric),
            (
                "categories",
                OneHotEncoder(handle_unknown="ignore", sparse_output=False),
                texts,
            ),
        ]
    )


@pytest.mark.filterwarnings(HOLES)
def test_features_are_scikit_learns():
    table, rows = frame(), np.arange(0, 60, 2)
    # a row that it is not fitted on
    table.loc[1, ["ward", "pressure"]] = [
        "unknown",
        9e9,
    ]
    data = TableDataset.from_frame(table, "outcome").fitted(rows)
    theirs = reference(["age", "pressure", "insured"], ["ward", "sex"])
    numbers = table.astype({"insured": float})
    theirs.fit(numbers.iloc[rows])
    expected = theirs.transform(numbers)
    ours = data.encoded()
    np.testing.assert_allclose(ours, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(data.take([5, 3]).encoded(), ours[[5, 3]])


def test_columns_may_be_numbered():
    # as read_csv(header=None) gives
    frame = pd.DataFrame([[7, 1.5, 0, "p"], [8, 2.0, 1, "q"]])
    data = TableDataset.from_frame(frame, label=2, drop=[0], ids=3)
    assert (data[1].id, data[1].label, data[1].values) == ("q", 1, {"1": 2.0})


def test_values_keep_their_kinds():
    data = TableDataset.from_frame(frame(holes=False), "outcome", categorical=["age"])
    sample = data[4]
    row = frame(holes=False).iloc[4]
    assert sample.values == {
        "age": str(row["age"]), "ward": row["ward"], "pressure": row["pressure"],
        "sex": row["sex"], "insured": float(row["insured"]),
    }  # fmt: skip
    assert data.class_names == ("ill", "well")
    assert (
        repr(data) == "TableDataset(60 rows of 2 numbers and 3 categories, 2 classes)"
    )


def test_missing_values_are_said_and_shown():
    said = r"3 values are missing, in 'ward' \(1\), 'pressure' \(2\)"
    with pytest.warns(UserWarning, match=said):
        data = TableDataset.from_frame(frame(), "outcome")
    assert data[5].values["ward"] is None
    assert data[3].values["pressure"] is None
    assert "3 missing values" in repr(data)


@pytest.mark.filterwarnings(HOLES)
def test_a_csv_file_is_the_frame_that_pandas_reads(tmp_path):
    path = tmp_path / "patients.csv"
    # pandas 2 reads the last of 17 digits otherwise
    frame().astype({"insured": int}).round({"pressure": 6}).to_csv(path, index=False)
    data = TableDataset.from_csv(path, label="outcome")
    same = TableDataset.from_frame(pd.read_csv(path), label="outcome")
    assert data.content_hashes() == same.content_hashes()
    np.testing.assert_array_equal(data.labels, same.labels)


def test_a_word_for_no_number_is_a_missing_number(tmp_path):
    path = tmp_path / "patients.csv"
    path.write_text("age,label\n31,0\nNA,1\n45,0\n")
    with pytest.warns(UserWarning, match="1 value is missing"):
        data = TableDataset.from_csv(path)
    assert data[1].values == {"age": None}


def changed(**columns):
    return frame(6, holes=False).assign(**columns)


@pytest.mark.parametrize(
    ("table", "arguments", "message"),
    [
        (frame(), {"label": "label"}, "no column 'label'; its columns: 'age', .*label="),
        (frame(), {"ids": "name"}, "no column 'name'.*ids="),
        (frame(), {"categorical": ["code"]}, "no column 'code'.*categorical="),
        (changed(age=None), {}, "the column 'age' has no value"),
        (changed(age=[1, "a"] * 3), {}, "'age' has a value of type int"),
        (frame()[["outcome"]], {}, "no column besides the label"),
        (frame().iloc[:0], {}, "the table is empty"),
        (changed(ward=pd.Series([*"abcde", "x\ud800"], dtype=object)), {}, "'ward'.*D800"),
        (changed(id=[1, 1, 2, 3, 4, 5]), {}, "row 1: the id '1' is already used in row 0"),
        (changed(id=["a", None, "b", "c", "d", "e"]), {}, "row 1: the id is missing"),
    ],
)  # fmt: skip
def test_bad_input_gets_one_clear_sentence(table, arguments, message):
    with pytest.raises(ValueError, match=message):
        TableDataset.from_frame(table, **{"label": "outcome"} | arguments)


def test_what_is_no_frame_and_what_is_not_fitted_is_refused():
    with pytest.raises(TypeError, match="must be a pandas DataFrame, not list"):
        TableDataset.from_frame([{"age": 3}])
    with pytest.raises(ValueError, match=r"no column 'well'.*label="):
        TableDataset.from_frame(frame(holes=False), frame()["outcome"])
    data = TableDataset.from_frame(frame(holes=False), "outcome")
    with pytest.raises(ValueError, match=r"data\.fitted\(rows\)"):
        data.encoded()


def test_codes_of_a_file_stay_as_they_are_written(tmp_path):
    file = tmp_path / "codes.csv"
    file.write_text(
        "zip,age,label\n007,1,a\n7,2,b\n1e1,3,a\n10,4,b\nNA,5,a\n", encoding="utf-8"
    )
    with pytest.warns(UserWarning, match="1 value is missing, in 'zip'"):
        data = TableDataset.from_csv(file, categorical=["zip"])
    assert data.columns["zip"].tolist() == ["007", "7", "1e1", "10", None]


@pytest.mark.parametrize("value", [1e300, -2e101, np.inf])
def test_a_number_that_no_scale_can_hold_is_refused(value):
    frame = pd.DataFrame({"dose": [1.0, value, 2.0], "label": [0, 1, 0]}, dtype=object)
    with pytest.raises(ValueError, match=r"'dose' is .* in row 1.*1e\+100"):
        TableDataset.from_frame(frame)


DAYS = [f"2024-0{1 + i % 3}-{1 + i % 28:02d}" for i in range(60)]
REFUSED = {  # values, and what the message says besides the column's name
    "visit": (DAYS, ["60", "drop"]),
    "seen": (list(pd.date_range("2024-01-01", periods=60)), ["drop", "Timestamp"]),
    "code": ([f"c{i % 40}" for i in range(60)], ["40", "drop", "categorical"]),
    "name": ([f"n{i}" for i in range(60)], ["60", "drop", "ids"]),
}


def frame_of(names):
    columns = {name: REFUSED[name][0] for name in names}
    return pd.DataFrame(
        columns | {"age": [i % 50 for i in range(60)], "label": [0, 1] * 30}
    )


@pytest.mark.parametrize("name", REFUSED)
def test_a_column_that_names_or_dates_rows_is_refused_with_what_to_pass(name):
    with pytest.raises(ValueError, match=name) as error:
        TableDataset.from_frame(frame_of([name]))
    assert all(fact in str(error.value) for fact in REFUSED[name][1])


def test_all_columns_with_problems_are_in_one_message_and_can_be_dropped(tmp_path):
    frame = frame_of(REFUSED)
    with pytest.raises(ValueError, match="visit") as error:
        TableDataset.from_frame(frame)
    assert all(repr(name) in str(error.value) for name in REFUSED)
    assert list(TableDataset.from_frame(frame, drop=list(REFUSED)).columns) == ["age"]
    frame.to_csv(tmp_path / "t.csv", index=False)
    data = TableDataset.from_csv(tmp_path / "t.csv", drop=list(REFUSED))
    assert list(data.columns) == ["age"]
    assert data.source["arguments"]["drop"] == list(REFUSED)
    with pytest.raises(ValueError, match=r"nothing.*drop="):
        TableDataset.from_frame(frame, drop=["nothing"])


def test_numbers_that_are_written_as_texts_are_no_categories_in_silence(tmp_path):
    table = frame(holes=False)[["age", "pressure", "outcome"]].round(1)
    path = tmp_path / "ages.csv"
    table.to_csv(path, sep=";", decimal=",", index=False)
    with pytest.raises(
        ValueError, match=r"column 'pressure' has numbers .*texts.*decimal=','"
    ):
        TableDataset.from_csv(path, label="outcome", sep=";")
    data = TableDataset.from_csv(path, label="outcome", sep=";", decimal=",")
    np.testing.assert_array_equal(data.columns["pressure"], table["pressure"])
    texts = pd.DataFrame(
        {"x": ["1 000", "12", "€ 3.50", "unknown"] * 10, "label": [0, 1] * 20}
    )
    with pytest.raises(
        ValueError, match=r"column 'x' has numbers .*categorical=\['x'\]"
    ):
        TableDataset.from_frame(texts)
    assert len(set(TableDataset.from_frame(texts, categorical=["x"]).columns["x"])) == 4


def test_whole_numbers_that_rise_from_row_to_row_are_said():
    table = frame(holes=False).assign(number=np.arange(60) * 7)
    with pytest.warns(
        UserWarning, match=r"'number' rise from row to row.*drop=\['number'\]"
    ):
        TableDataset.from_frame(table, "outcome")
    TableDataset.from_frame(table.assign(number=table["number"] % 100), "outcome")


# Columns of any kind, written and read again

DAY = pd.Timestamp("2024-02-29 12:30")
HUGE = 10**30 + 7
KINDS = {  # values of a column, and what a model reads of it: a message where it is nothing
    "whole": (pd.Series([3, 1, 2, 2**53]), "number"),
    "tiny": (pd.Series([5e-324, -1.5e-310, 0.1 + 0.2, 1e100]), "number"),
    "halves": (pd.Series([0.5, np.nan, -0.0, 1 / 3], dtype="float32"), "number"),
    "truth": (pd.Series([True, False, True, True]), "number"),
    "nullable whole": (pd.Series([1, None, 3, 2**53 + 1], dtype="Int64"), "number"),
    "nullable truth": (pd.Series([True, None, False, None], dtype="boolean"), "number"),
    "arrow whole": (pd.Series([4, None, 6, 7], dtype="int64[pyarrow]"), "number"),
    "arrow truth": (pd.Series([True, None, True, False], dtype="bool[pyarrow]"), "number"),
    "object numbers": (pd.Series([1, 2.5, None, HUGE], dtype=object), "number"),
    "digits": (pd.Series([10**400, 1, 2, 3], dtype=object), "'digits' is inf in row 0"),
    "infinite": (pd.Series([1.0, 2.0, -np.inf, 3.0]), "'infinite' is -inf in row 2"),
    "complex": (pd.Series([1j, 2, 3, 4]), "type complex in row 0"),
    "texts": (pd.Series(["a", None, " b ", "a"]), "category"),
    "nullable texts": (pd.Series(["a", None, "NA", "a"], dtype="string"), "category"),
    "arrow texts": (pd.Series(["nan", None, "x", "y"], dtype="string[pyarrow]"), "category"),
    "categories": (pd.Series(["x", "y", None, "x"], dtype="category"), "category"),
    "codes": (pd.Series([7, 8, None, 7], dtype="category"), "category"),
    "free": (pd.Series(['=1+1, "so"', "a\rb", "c\r\nd\n", "e\u2028f\0g"]), "category"),
    "mixed": (pd.Series([1, "a", None, 2.5], dtype=object), "type int in row 0"),
    "dates": (pd.Series([DAY, pd.NaT, DAY, DAY]), "type Timestamp in row 0"),
    "zoned": (pd.Series([DAY, DAY, DAY, DAY]).dt.tz_localize("Asia/Kolkata"), "Timestamp"),
    "days": (pd.Series([None, DAY.date(), DAY.date(), None]), "type date in row 1"),
    "dated categories": (pd.Series([DAY, DAY, None, DAY], dtype="category"), "Timestamp"),
    "spans": (pd.Series(pd.to_timedelta(["1h", None, "2h", "3h"])), "type Timedelta"),
    "periods": (pd.Series(pd.period_range("2024-01", periods=4)), "type Period"),
    "intervals": (pd.Series(pd.interval_range(0, 4)), "type Interval"),
    "money": (pd.Series([Decimal("0.10"), None, Decimal(3), None]), "type Decimal in row 0"),
    "arrow dates": (pd.Series([DAY] * 4, dtype="timestamp[us][pyarrow]"), "Timestamp"),
    "lists": (pd.Series([[1], [2, 3], None, []]), "type list in row 0"),
    "half": (pd.Series(["a", "b\ud83d", "c", "d"], dtype=object), "half a character"),
}  # fmt: skip
NEVER = {"half"}  # not even shown


def written_again(data, how, folder):
    again = getattr(data, how)(folder / how, overwrite=True)
    name = again.source["loader"].partition(".")[2]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of missing values, as when they entered
        return getattr(TableDataset, name)(**again.source["arguments"])


def same_rows(one, other):
    assert one.to_frame().equals(other.to_frame())
    assert (one.shown, one.class_names) == (other.shown, other.class_names)
    assert one.content_hashes() == other.content_hashes()
    if one.shown != tuple(one.columns):
        rows = range(len(one))
        features = (data.fitted(rows).encoded() for data in (one, other))
        np.testing.assert_array_equal(*features)


@pytest.mark.parametrize("how", ["to_csv", "to_jsonl"])
@pytest.mark.parametrize("name", KINDS)
@pytest.mark.filterwarnings("ignore:.* missing, in:UserWarning")
def test_a_column_of_any_kind_is_read_and_written_or_refused_by_its_row(
    name, how, tmp_path
):
    values, kind = KINDS[name]
    table = pd.DataFrame({name: values, "age": [31, 45, 62, 28], "label": [0, 1, 0, 1]})
    if kind in ("number", "category"):
        data = TableDataset.from_frame(table)
        assert (data.columns[name].dtype == np.float64) == (kind == "number")
        same_rows(written_again(data, how, tmp_path), data)
    else:
        with pytest.raises(ValueError, match=name) as error:
            TableDataset.from_frame(table)
        assert kind in str(error.value)
    if name in NEVER:
        with pytest.raises(ValueError, match=rf"'{name}' in row 1.*{kind}"):
            TableDataset.from_frame(table, shown=[name])
        return
    data = TableDataset.from_frame(table, shown=[name])
    same_rows(written_again(data, how, tmp_path), data)
    assert data.fitted(range(4)).encoded().shape == (4, 1)
    gaps = pd.isna(values).tolist()
    assert [value is None or value != value for value in data.columns[name]] == gaps


def test_what_is_only_shown_is_no_feature():
    notes = [f"note {i}" for i in range(60)]
    table = frame_of([]).assign(note=notes)
    data = TableDataset.from_frame(table, shown=["note"])
    assert "1 number and 1 column to show" in repr(data)
    assert data[3].values == {"age": 3.0, "note": "note 3"}
    without = TableDataset.from_frame(table, drop=["note"])
    assert data.content_hashes() == without.content_hashes()
    only = TableDataset.from_frame(table, shown=["note", "age"])
    with pytest.raises(ValueError, match=r"only shown.*nothing to read"):
        only.fitted(range(60))
