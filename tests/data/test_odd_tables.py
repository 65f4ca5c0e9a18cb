"""Tables that a reader could take for something else."""

import decimal
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


def test_decimals_are_numbers():
    money = [decimal.Decimal("1.25"), decimal.Decimal("2.50"), decimal.Decimal("3"), decimal.Decimal("4")]
    assert from_table(FRAME.assign(age=money), **OPTIONS).x.flatten().tolist() == [1.25, 2.5, 3.0, 4.0]
    source = from_table(FRAME.assign(ill=money), **OPTIONS)
    assert (source.num_classes, source.y.tolist()) == (None, [1.25, 2.5, 3.0, 4.0])


def test_whole_numbers_that_inputs_round_are_named():
    frame = FRAME.assign(age=1_700_000_000 + np.arange(4))
    with logged("column 'age' has numbers above 16777216, which inputs in float32 round: write scale=True"):
        assert len(torch.unique(from_table(frame, **OPTIONS).x)) == 1
    assert len(torch.unique(from_table(frame, **OPTIONS, scale=True).x)) == 4


def test_a_column_of_several_types_says_what_to_write():
    with pytest.raises(DataError, match=r"cannot be read: .*: give each column one type, such as frame\[column\]"):
        from_table(FRAME.assign(age=[1, "x", 2.5, None]), **OPTIONS)
