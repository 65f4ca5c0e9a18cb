"""Tables that a reader could take for something else."""

import decimal
import re
from datetime import UTC, datetime, time
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from pyarrow import parquet

from turnout.core.checks import ConfigurationError, DataError
from turnout.data import from_table

from ..logs import logged

pd = pytest.importorskip("pandas")

FRAME: Any = pd.DataFrame({"at": ["A", "B", "A", "B"], "age": [61.5, 48.0, 55.0, 70.0], "ill": [0, 1, 1, 0]})
OPTIONS: dict[str, Any] = {"label": "ill", "client": "at"}


@pytest.mark.parametrize("written", [False, True])
def test_row_numbers_of_a_shuffled_frame_are_no_input(written, tmp_path):
    frame = FRAME.iloc[[2, 0, 3, 1]]
    table = pa.Table.from_pandas(frame)
    assert "__index_level_0__" in table.column_names
    if written:
        parquet.write_table(table, tmp_path / "t.parquet")
    for given in (tmp_path / "t.parquet",) if written else (frame, table):
        assert from_table(given, **OPTIONS).x.tolist() == [[55.0], [61.5], [70.0], [48.0]]


def test_a_named_index_of_a_frame_is_a_column():
    source = from_table(FRAME.set_index("at"), **OPTIONS)
    assert source.client_names == ("A", "B")
    assert source.x.shape == (4, 1)


@pytest.mark.parametrize("name", ["", "Unnamed: 0"])
def test_row_numbers_in_a_file_are_refused(name, tmp_path):
    frame = FRAME.reset_index(names=name)
    frame.to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(ConfigurationError, match=rf"column '{name}', such as the row numbers .*to_csv\(index=False\)"):
        from_table(tmp_path / "t.csv", **OPTIONS)
    assert from_table(tmp_path / "t.csv", **OPTIONS, features=(name, "age")).x.shape == (4, 2)


@pytest.mark.parametrize("column", ["ill", "kind"])
@pytest.mark.parametrize("pair", [("yes", "yes "), (" yes", "yes "), ("yes", "\tyes")])
def test_texts_that_differ_by_spaces_are_refused(pair, column):
    frame = FRAME.assign(kind=["a", "b", "a", "b"], ill=["u", "v", "v", "u"]).assign(**{column: [*pair, "no", "no"]})
    with pytest.raises(DataError, match=rf"column '{column}': .* differ by spaces alone: strip them"):
        from_table(frame, **OPTIONS, categories=("kind",))


@pytest.mark.parametrize(
    ("classes", "message"),
    [
        (["Yes", "yes", "no", "no"], "the classes 'Yes' and 'yes', which differ by case alone"),
        (["yes", "NA", "no", "no"], "the class 'NA', which many programs write for a missing value"),
    ],
)
def test_classes_that_differ_by_case_or_may_be_missing_are_named(classes, message):
    with logged(message):
        assert from_table(FRAME.assign(ill=classes), **OPTIONS).num_classes == 3


@pytest.mark.parametrize("ending", ["csv", "tsv"])
def test_numbers_with_leading_zeros_are_other_categories_and_labels(ending, tmp_path):
    def write(name, rows):
        cells = [("at", "zip", "age", "ill"), *rows]
        path = tmp_path / f"{name}.{ending}"
        path.write_text("".join({"csv": ",", "tsv": "\t"}[ending].join(row) + "\n" for row in cells))
        return path

    rows = [("A", "01", "1", "01"), ("A", "1", "2", "1"), ("B", "10", "3", "01"), ("B", "01", "4", "1")]
    path = write("codes", rows)
    options: dict[str, Any] = {**OPTIONS, "categories": ("zip",)}
    source = from_table(path, **options)
    assert source.x.tolist() == [[1.0, 0.0, 0.0, 1.0], [0.0, 1.0, 0.0, 2.0], [0.0, 0.0, 1.0, 3.0], [1.0, 0.0, 0.0, 4.0]]
    assert (source.y.tolist(), source.recipe["classes"]) == ([0, 1, 0, 1], ["01", "1"])
    data = source.split(test_fraction=0.0)
    assert data.prepare(write("more", rows[:1])).tolist() == [[1.0, 0.0, 0.0, 1.0]]
    assert data.prepare(write("plain", rows[1:2])).tolist() == [[0.0, 1.0, 0.0, 2.0]]
    declared = from_table(path, **{**options, "categories": {"zip": ("01", "1", "10")}, "classes": ("1", "01")})
    assert (declared.x.tolist(), declared.y.tolist()) == (source.x.tolist(), [1, 0, 1, 0])
    numbers = from_table(path, **options, task="regression")
    assert numbers.y.tolist() == [1.0] * 4


def test_missing_values_among_numbers_with_leading_zeros_stay_missing(tmp_path):
    path = tmp_path / "codes.csv"
    path.write_text("at,zip,ill\nA,01,0\nA,NA,1\nB,,0\nB,10,1\n")
    with pytest.raises(DataError, match="column 'zip' has 2 missing values in 4 rows, first in row 2"):
        from_table(path, **OPTIONS, categories=("zip",))


@pytest.mark.parametrize(
    ("one", "other"),
    [("250.0", "250.00"), ("1e3", "1000"), ("+5", "5"), ("12345678901234567890", "12345678901234567891")],
)
def test_two_spellings_of_one_number_as_a_category_are_refused(one, other, tmp_path):
    path = tmp_path / "codes.csv"
    path.write_text(f"at,code,ill\nA,{one},0\nA,7,1\nB, {one},0\nB,{other},1\n")
    message = (
        rf"'code' has {re.escape(one)} in row 1 and {other} in row 4, which are one number: .*dtype=\{{'code': str\}}"
    )
    for categories in ("code",), {"code": (one, other, "7")}:
        with pytest.raises(DataError, match=message):
            from_table(path, **OPTIONS, categories=categories)
    assert from_table(path, **OPTIONS).x.shape == (4, 1)
    frame = pd.read_csv(path, dtype={"code": str}, skipinitialspace=True)
    assert from_table(frame, **OPTIONS, categories=("code",)).x.shape == (4, 3)


def test_numbers_without_leading_zeros_keep_their_order(tmp_path):
    path = tmp_path / "codes.csv"
    path.write_text("at,zip,ill\nA,9,0\nA,10,2\nB,0,0\nB,10,1\n")
    source = from_table(path, **OPTIONS, categories=("zip",))
    assert (source.x.argmax(1).tolist(), source.y.tolist(), source.num_classes) == ([1, 2, 0, 2], [0, 2, 0, 1], 3)


def test_decimals_are_numbers():
    money = [decimal.Decimal("1.25"), decimal.Decimal("2.50"), decimal.Decimal("3"), decimal.Decimal("4")]
    assert from_table(FRAME.assign(age=money), **OPTIONS).x.flatten().tolist() == [1.25, 2.5, 3.0, 4.0]
    source = from_table(FRAME.assign(ill=money), **OPTIONS)
    assert (source.num_classes, source.y.tolist()) == (None, [1.25, 2.5, 3.0, 4.0])


@pytest.mark.parametrize(
    ("values", "different"),
    [
        (1_700_000_000 + np.arange(4), 1),
        (pd.Timestamp("2026-01-05 12:00") + pd.to_timedelta(np.arange(4) * 20, unit="s"), 2),  # days since 1970
        (1e8 + np.arange(4) / 8, 1),
    ],
)
def test_numbers_that_inputs_round_are_named(values, different):
    frame = FRAME.assign(age=values)
    with logged(r"column 'age' has numbers from [\d.]+ to [\d.]+, which inputs in float32 round: write scale=True"):
        assert len(torch.unique(from_table(frame, **OPTIONS).x)) <= different
    assert len(torch.unique(from_table(frame, **OPTIONS, scale=True).x)) == 4


def test_numbers_to_predict_that_float32_rounds_are_named():
    with logged(
        r"column 'ill' has numbers from 100000000 to 100000000.375, whose differences float32 rounds: subtract"
    ):
        assert len(torch.unique(from_table(FRAME.assign(ill=1e8 + np.arange(4) / 8), **OPTIONS).y)) == 1


def test_a_column_of_several_types_says_what_to_write():
    with pytest.raises(DataError, match=r"cannot be read: .*: give each column one type, such as frame\[column\]"):
        from_table(FRAME.assign(age=[1, "x", 2.5, None]), **OPTIONS)


class Labeled:
    """The used interface of a `datasets.Dataset` whose column y is a ``ClassLabel``."""

    def __init__(self, names, rows):
        self.table, self.features = pa.table({"x": [0.5] * len(rows), "y": rows}), {"y": SimpleNamespace(names=names)}
        self.column_names = self.table.column_names

    def with_format(self, kind):
        return self

    def __getitem__(self, rows):
        return self.table


@pytest.mark.parametrize("names", [["1", "2", "3"], ["2", "0", "1"], ["cat", "dog", "eel"]])
def test_class_labels_are_numbered_by_their_names(names):
    """Names may look like numbers, and a test or a declaration may have them in another order."""
    train, test = Labeled(names, [0, 2, 1]), Labeled(names[::-1], [0, 2, 1])
    source = from_table(train, label="y", test=test)
    assert source.test_y is not None
    assert (source.y.tolist(), source.test_y.tolist()) == ([0, 2, 1], [2, 0, 1])
    assert from_table(train, label="y", task="classification").y.tolist() == [0, 2, 1]
    assert from_table(train, label="y", classes=names[::-1]).y.tolist() == [2, 0, 1]


def test_unknown_number_of_a_class_label_is_named():
    with pytest.raises(
        DataError, match=r"the labels -1, which are not among the declared classes cat, dog \(first in row 2"
    ):
        from_table(Labeled(["cat", "dog"], [0, -1]), label="y")


@pytest.mark.parametrize(
    "cells", [[datetime(2020, 1, 2, tzinfo=UTC), datetime(2020, 1, 1, tzinfo=UTC)], [time(2), time(1)]]
)
def test_categories_of_times_are_told_apart(cells):
    source = from_table(FRAME.assign(age=cells * 2), **OPTIONS, categories=("age",))
    assert source.x.tolist() == [[0.0, 1.0], [1.0, 0.0]] * 2


@pytest.mark.parametrize(
    ("train", "test", "inputs"),
    [
        ([10, 9, 10, 2], ["9", "10", "2", "2"], [2, 0, 1, 1]),  # sorted as texts
        ([10, 9, 10, 2], [9.0, 2.5, 2.0, 10.0], [2, 1, 0, 3]),
        ([2**60, 2**60 + 1] * 2, np.array([2**60 + 1, 2**60] * 2, dtype=np.uint64), [1, 0, 1, 0]),
    ],
)
def test_categories_of_training_and_test_are_those_of_both(train, test, inputs):
    source = from_table(FRAME.assign(age=train), **OPTIONS, categories=("age",), test=FRAME.assign(age=test))
    assert source.test_x is not None
    assert source.test_x.argmax(dim=1).tolist() == inputs
    assert source.test_x.sum(dim=1).tolist() == [1.0] * 4
    assert len(source.x.unique(dim=0)) == len(set(train))


def test_categories_of_truth_values_and_numbers_are_refused():
    test = FRAME.assign(age=[1, 0, 1, 0])
    with pytest.raises(
        DataError, match="column 'age' holds bool and int64 in training and test: give both the same type"
    ):
        from_table(FRAME.assign(age=[True, False] * 2), **OPTIONS, categories=("age",), test=test)


def test_label_is_no_input():
    with pytest.raises(
        ConfigurationError, match="features: 'ill' is the label, which a model would copy: leave it out"
    ):
        from_table(FRAME, **OPTIONS, features=("age", "ill"))


def test_number_of_classes_is_that_of_their_names():
    frame = FRAME.assign(ill=["no", "yes"] * 2)
    assert from_table(frame, **OPTIONS, num_classes=2).num_classes == 2
    with pytest.raises(
        ConfigurationError, match=r"num_classes: got 3, needed 2, as column 'ill' has the classes no, yes. Write"
    ):
        from_table(frame, **OPTIONS, num_classes=3)


@pytest.mark.parametrize(
    "levels", [[1.0, 0.0], [True, False], [5, 3], ["no", "yes"], [pd.Timestamp(1), pd.Timestamp(0)]]
)
def test_categories_of_pandas_of_any_type_are_classes_in_their_order(levels):
    ill = pd.Categorical([*levels, *levels], categories=levels)
    for task in (None, "classification"):
        assert from_table(FRAME.assign(ill=ill), **OPTIONS, task=task).y.tolist() == [0, 1, 0, 1]


@pytest.mark.parametrize("column", ["ill", "age", "at"])
@pytest.mark.parametrize("kind", ["interval", "category", "period"])
def test_intervals_and_periods_of_pandas_say_what_to_write(column, kind):
    intervals = pd.cut([1.0, 5.0, 9.0, 5.0], 3)
    values = {"interval": intervals.astype(object), "category": intervals}
    frame = FRAME.assign(**{column: values.get(kind, pd.period_range("2020-01", periods=4, freq="M"))})
    frame[column] = frame[column].infer_objects()
    options: dict[str, Any] = {**OPTIONS, "categories": ("age",)}
    instead = rf"write frame\['{column}'\].astype\(str\)"
    with pytest.raises(
        ConfigurationError, match=rf"column '{column}' holds extension.*, needed numbers, .*: {instead}"
    ):
        from_table(frame, **options)
    assert from_table(frame.assign(**{column: frame[column].astype(str)}), **options).x.shape[0] == 4
