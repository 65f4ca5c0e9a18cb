"""Data sets from tables and files."""

import json

import numpy as np
import pyarrow as pa
import pytest
import torch
from pyarrow import csv, feather, parquet

import turnout as to
from turnout.core.checks import ConfigurationError, DataError
from turnout.data import from_table

PATIENTS = {
    "age": [61, 48, 55, 70, 33, 42],
    "pressure": [1.5, 2.0, 0.5, 1.0, 2.5, 3.0],
    "smokes": [True, False, False, True, True, False],
    "hospital": ["B", "A", "B", "C", "A", "C"],
    "ill": [0, 1, 1, 0, 2, 1],
}
INPUTS = [[61, 1.5, 1], [48, 2.0, 0], [55, 0.5, 0], [70, 1.0, 1], [33, 2.5, 1], [42, 3.0, 0]]


def rows(table):
    names = list(table)
    return [dict(zip(names, row, strict=True)) for row in zip(*table.values(), strict=True)]


def write(table, path):
    """Write a table in the form that the file's name says."""
    arrow = pa.table(table)
    if path.suffix in (".csv", ".tsv"):
        delimiter = "\t" if path.suffix == ".tsv" else ","
        csv.write_csv(arrow, path, csv.WriteOptions(delimiter=delimiter))
    elif path.suffix == ".jsonl":
        path.write_text("\n".join(json.dumps(row) for row in rows(table)))
    else:
        (parquet.write_table if path.suffix == ".parquet" else feather.write_feather)(arrow, path)
    return path


def pandas_frame(table):
    return pytest.importorskip("pandas").DataFrame(table)


def hugging_face(table):
    return pytest.importorskip("datasets").Dataset.from_dict(table)


@pytest.mark.parametrize("kind", [dict, pa.table, pandas_frame, hugging_face], ids=lambda kind: kind.__name__)
def test_supported_tables(kind):
    source = from_table(kind(PATIENTS), label="ill", client="hospital")
    assert source.x.tolist() == INPUTS
    assert (source.x.dtype, source.y.tolist(), source.num_classes) == (torch.float32, PATIENTS["ill"], 3)
    assert (source.client_names, source.client_ids.tolist()) == (("A", "B", "C"), [1, 0, 1, 2, 0, 2])  # type: ignore[union-attr]


@pytest.mark.parametrize("ending", ["csv", "tsv", "parquet", "feather", "arrow", "jsonl"])
def test_supported_files(ending, tmp_path):
    path = write(PATIENTS, tmp_path / f"patients.{ending}")
    source = from_table(path, label="ill", client="hospital", test=str(path))
    assert (source.name, source.x.tolist()) == ("patients", INPUTS)
    assert source.test_x is not None
    assert source.test_client_ids is not None
    assert torch.equal(source.test_x, source.x)
    assert source.test_client_ids.tolist() == [1, 0, 1, 2, 0, 2]


def test_natural_clients_train():
    rng = np.random.default_rng(0)
    table = {"a": rng.normal(size=90), "b": rng.normal(size=90), "at": [f"h{i % 5}" for i in range(90)]}
    table["ill"] = (table["a"] > 0).astype(int)
    data = from_table(table, label="ill", client="at").split(test_fraction=0.0, client_test_fraction=0.2)
    assert (data.num_clients, data.client_names) == (5, ("h0", "h1", "h2", "h3", "h4"))
    to.Experiment(data=data, model=to.models.Logistic(), rounds=1).run()


def test_texts_have_equal_categories_in_training_and_test():
    table = {"sex": ["f", "m", "f"], "dose": [1, 2, 3], "well": ["yes", "no", "yes"]}
    source = from_table(table, label="well", categories=("sex",), test={"sex": ["x"], "dose": [4], "well": ["maybe"]})
    assert source.x.tolist() == [[1, 0, 0, 1], [0, 1, 0, 2], [1, 0, 0, 3]]
    assert source.test_x is not None
    assert source.test_x.tolist() == [[0, 0, 1, 4]]
    assert (source.y.tolist(), source.num_classes) == ([2, 1, 2], 3)
    assert source.recipe["classes"] == ["maybe", "no", "yes"]


def test_numeric_targets_and_selected_inputs():
    source = from_table(PATIENTS, label="pressure", features=("smokes",))
    assert (source.num_classes, source.x.tolist()) == (None, [[1], [0], [0], [1], [1], [0]])
    assert source.y.dtype == torch.float32


@pytest.mark.parametrize(
    ("table", "options", "error", "message"),
    [
        (PATIENTS, {"label": "sick"}, ConfigurationError, "unknown column 'sick'"),
        (PATIENTS, {"label": "ill", "client": "hospitl"}, ConfigurationError, "did you mean 'hospital'"),
        (
            PATIENTS,
            {"label": "ill"},
            ConfigurationError,
            r"column 'hospital' holds string, .*categories=\('hospital',\)",
        ),
        (
            PATIENTS,
            {"label": "ill", "features": ("age",), "categories": ("smokes",)},
            ConfigurationError,
            "'smokes' is none",
        ),
        (
            {"a": [1, None], "y": [0, 1]},
            {"label": "y"},
            DataError,
            "in 2 rows, first in row 2: write missing='drop' to leave these .*'fill' to",
        ),
        ({"a": [1, 2], "y": [0]}, {"label": "y"}, DataError, "the table cannot be read"),
        (3, {"label": "y"}, ConfigurationError, "table: got int, needed a file"),
        ("patients.xlsx", {"label": "y"}, ConfigurationError, r"ends in '\.xlsx', needed one of \.csv"),
        ("nowhere.csv", {"label": "y"}, DataError, r"table nowhere\.csv: no such file"),
    ],
)
def test_unsupported_tables_are_refused(table, options, error, message):
    with pytest.raises(error, match=message):
        from_table(table, **options)


def test_damaged_file_is_named(tmp_path):
    path = tmp_path / "patients.parquet"
    path.write_bytes(b"no parquet")
    with pytest.raises(DataError, match=r"patients\.parquet: cannot be read"):
        from_table(path, label="y")
