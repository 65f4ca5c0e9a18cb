"""Parquet files, read one client at a time by row groups."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import turnout as to
from turnout.core.checks import ConfigurationError, DataError
from turnout.data import ParquetClients

X = np.random.default_rng(0).normal(size=(30, 4)).astype(np.float32)
Y = np.arange(30) % 3
WHO = np.repeat(["ann", "bob", "cyd", "dan"], [5, 13, 2, 10])


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Two files of row groups of four rows, over whose borders clients go."""
    whole = pa.table(
        {"who": WHO, "x": list(X), "y": Y, "text": [f"c{y}" for y in Y], **dict(zip("abcd", X.T, strict=True))}
    )
    (tmp_path / "table").mkdir()
    pq.write_table(whole.slice(0, 11), tmp_path / "table/1.parquet", row_group_size=4)
    pq.write_table(whole.slice(11), tmp_path / "table/2.parquet", row_group_size=4)
    return tmp_path / "table"


@pytest.mark.parametrize(
    "options", [{"inputs": "x", "label": "y"}, {"inputs": list("abcd"), "label": "text", "classes": ("c0", "c1", "c2")}]
)
def test_clients_equal_those_of_the_whole_table(table: Path, options: dict[str, Any]) -> None:
    clients = ParquetClients(table, client="who", **options)
    assert (len(clients), clients.clients) == (4, ("ann", "bob", "cyd", "dan"))
    for name, (x, y) in zip(clients.clients, clients, strict=True):
        assert torch.equal(x, torch.from_numpy(X[name == WHO]))
        assert y.tolist() == Y[name == WHO].tolist()


def test_training_from_a_store_equals_training_in_memory(table: Path, tmp_path: Path) -> None:
    clients = ParquetClients(table, client="who", label="y", inputs="x")
    to.data.store(tmp_path / "store", {"train": clients}, client_names=clients.clients)
    stored = to.data.stored(tmp_path / "store")
    memory = to.data.from_arrays(X, Y, client_ids=WHO).split(test_fraction=0.0)
    one, two = (
        to.Experiment(data=data, model=to.models.Logistic(), rounds=3).run().state_dict() for data in (stored, memory)
    )
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_clients_of_one_row_group_share_its_memory(table: Path, monkeypatch) -> None:
    clients, read = ParquetClients(table, client="who", label="y", inputs="x"), []
    original = pq.ParquetFile.read_row_group

    def watched(self, group: int, columns: list[str]) -> pa.Table:
        read.append((group, tuple(columns)))
        return original(self, group, columns=columns)

    monkeypatch.setattr(pq.ParquetFile, "read_row_group", watched)
    next(iter(clients))
    assert len(read) <= 5  # of ann and, ahead, of bob; of eight
    read.clear()
    list(clients)
    assert {columns for _, columns in read} == {("x", "y")}
    assert len(read) <= 8


@pytest.mark.parametrize("nested", [False, True])
def test_encoded_images_are_decoded(tmp_path: Path, nested: bool) -> None:
    image = pytest.importorskip("PIL.Image", reason="images need Pillow: pip install pillow")

    def encoded(shade: int) -> bytes:
        file = io.BytesIO()
        image.new("RGB", (6, 6), (shade, 0, 0)).save(file, "png")
        return file.getvalue()

    shades = [10, 20, 30]
    cells = [{"bytes": encoded(shade), "path": ""} if nested else encoded(shade) for shade in shades]
    pq.write_table(pa.table({"who": ["a", "a", "b"], "image": cells, "label": [0, 1, 1]}), tmp_path / "i.parquet")
    with pytest.raises(ConfigurationError, match=r"size: column 'image' holds encoded images: write size=32"):
        ParquetClients(tmp_path / "i.parquet", client="who", label="label", inputs="image")
    clients = list(ParquetClients(tmp_path / "i.parquet", client="who", label="label", inputs="image", size=4))
    assert [tuple(x.shape) for x, _ in clients] == [(2, 3, 4, 4), (1, 3, 4, 4)]
    assert [shade for x, _ in clients for shade in x[:, 0, 0, 0].tolist()] == shades
    pq.write_table(pa.table({"who": ["a"], "image": [b"no image"], "label": [0]}), tmp_path / "i.parquet")
    with pytest.raises(DataError, match=r"image 0 of client 'a' cannot be decoded"):
        list(ParquetClients(tmp_path / "i.parquet", client="who", label="label", inputs="image", size=4))


def test_unsupported_files_are_refused(table: Path, tmp_path: Path) -> None:
    options: dict[str, Any] = {"client": "who", "label": "y", "inputs": "x"}
    with pytest.raises(DataError, match="holds no Parquet files"):
        ParquetClients(tmp_path / "nowhere", **options)
    with pytest.raises(DataError, match=r"has no column 'z'; it has who, x, y"):
        ParquetClients(table, **dict(options, inputs="z"))
    with pytest.raises(ConfigurationError, match=r"classes: column 'text' holds text"):
        ParquetClients(table, **dict(options, label="text"))
    with pytest.raises(ConfigurationError, match="colors: got 2"):
        ParquetClients(table, **options, colors=2)
    with pytest.raises(DataError, match=r"text: client 'ann' has 'c2', which is none of c0, c1"):
        list(ParquetClients(table, **dict(options, label="text"), classes=("c0", "c1")))
    (tmp_path / "bad.parquet").write_bytes(b"nothing")
    with pytest.raises(DataError, match=r"bad.parquet is no Parquet file"):
        ParquetClients(tmp_path / "bad.parquet", **options)
    apart = pa.table({"who": ["a", "b", "a"], "x": [[1.0]] * 3, "y": [0, 0, 0]})
    pq.write_table(apart, tmp_path / "bad.parquet")
    with pytest.raises(DataError, match="rows of client 'a' lie apart: sort by 'who'"):
        ParquetClients(tmp_path / "bad.parquet", **options)
    pq.write_table(pa.table({"who": ["a", "a"], "x": [[1.0], [1.0, 2.0]], "y": [0, 0]}), tmp_path / "bad.parquet")
    with pytest.raises(DataError, match="client 'a' has lists of several lengths"):
        list(ParquetClients(tmp_path / "bad.parquet", **options))
    pq.write_table(apart.slice(0, 0), tmp_path / "bad.parquet")
    with pytest.raises(DataError, match="has no rows"):
        ParquetClients(tmp_path / "bad.parquet", **options)


@pytest.mark.parametrize(
    ("kind", "read"),
    [
        (pa.float64(), torch.float64),
        (pa.float32(), torch.float32),
        (pa.float16(), torch.float16),
        (pa.uint8(), torch.uint8),
        (pa.uint16(), torch.int32),
        (pa.uint32(), torch.int64),
        (pa.int16(), torch.int16),
        (pa.int64(), torch.int64),
        (pa.bool_(), torch.float32),
    ],
)
@pytest.mark.parametrize("of", [pa.list_, lambda kind: pa.list_(kind, 2), lambda kind: pa.list_(pa.list_(kind))])
def test_lists_keep_their_type(tmp_path: Path, kind, read, of) -> None:
    nested = of is not pa.list_ and str(of(kind)).count("list<") == 2
    number = np.float16 if kind == pa.float16() else bool if kind == pa.bool_() else int
    rows: list[Any] = [[number(1), number(0)], [number(0), number(1)]]
    cells = pa.array([[row] for row in rows] if nested else rows, of(kind))
    pq.write_table(pa.table({"who": ["a", "a"], "x": cells, "y": [0.5, 1.5]}), tmp_path / "t.parquet")
    ((x, y),) = ParquetClients(tmp_path / "t.parquet", client="who", label="y", inputs="x")
    assert x.dtype == read
    assert x.tolist() == ([[row] for row in rows] if nested else rows)
    assert y.dtype == (read if read.is_floating_point else torch.float32)
    assert y.tolist() == [0.5, 1.5]


def test_digits_beyond_float32_are_read(tmp_path: Path) -> None:
    pq.write_table(pa.table({"who": ["a"], "x": [[1.0 + 1e-12]], "y": [1.0 + 1e-12]}), tmp_path / "t.parquet")
    ((x, y),) = ParquetClients(tmp_path / "t.parquet", client="who", label="y", inputs="x")
    assert x.item() == y.item() == 1.0 + 1e-12


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"x": [[1.0, None]]}, "column 'x': client 'a' has a missing value: drop or fill it"),
        ({"x": [["word"]]}, "column 'x' holds string, needed numbers"),
        ({"x": ["7"]}, "column 'x' holds string, needed numbers"),
        ({"x": pa.array([0], pa.timestamp("ms"))}, r"column 'x' holds timestamp\[ms\], needed numbers"),
        ({"y": pa.array([None], pa.int64())}, "column 'y': client 'a' has a missing value"),
        ({"x": pa.array([[2**63]], pa.list_(pa.uint64()))}, r"has a number above 2\^63 - 1"),
    ],
)
def test_cells_that_are_no_numbers_are_named(tmp_path: Path, columns: dict[str, Any], message: str) -> None:
    pq.write_table(pa.table({"who": ["a"], "x": [[1.0]], "y": [0]} | columns), tmp_path / "t.parquet")
    with pytest.raises(DataError, match=message):
        list(ParquetClients(tmp_path / "t.parquet", client="who", label="y", inputs="x"))


def test_files_of_different_types_are_refused(tmp_path: Path) -> None:
    for name, kind in (("1", pa.int32()), ("2", pa.float64())):
        columns = {"who": [name], "x": [[1.0]], "y": pa.array([1], kind)}
        pq.write_table(pa.table(columns), tmp_path / f"{name}.parquet")
    with pytest.raises(
        DataError, match=r"column 'y' is int32 in .*1.parquet and double in .*2.parquet: write one type"
    ):
        ParquetClients(tmp_path, client="who", label="y", inputs="x")


def test_every_file_has_all_columns(tmp_path: Path) -> None:
    columns = {"who": ["a"], "x": [1.0], "y": [0]}
    for i, table in enumerate((columns, columns | {"who": ["b"]}, {"who": ["c"], "y": [0]}, columns | {"x": ["1"]})):
        pq.write_table(pa.table(table), tmp_path / f"{i}.parquet")
    with pytest.raises(DataError, match=r"2\.parquet has no column 'x'; it has who, y"):
        ParquetClients(tmp_path, client="who", label="y", inputs="x")


def test_labels_that_are_truth_values_are_classes(tmp_path: Path) -> None:
    pq.write_table(
        pa.table({"who": ["a", "a", "b"], "x": [1.0, 2.0, 3.0], "y": [True, False, True]}), tmp_path / "t.parquet"
    )
    clients = ParquetClients(tmp_path, client="who", label="y", inputs="x")
    assert [(y.dtype, y.tolist()) for _, y in clients] == [(torch.int64, [1, 0]), (torch.int64, [1])]


def test_clients_that_are_missing_or_of_two_types_are_refused(tmp_path: Path) -> None:
    def written(*columns: list[Any]) -> ParquetClients:
        for i, who in enumerate(columns):
            pq.write_table(pa.table({"who": who, "x": [1.0, 2.0], "y": [0, 1]}), tmp_path / f"{i}.parquet")
        return ParquetClients(tmp_path, client="who", label="y", inputs="x")

    with pytest.raises(DataError, match="row 2 of row group 0 has no 'who'"):
        written([1.0, float("nan")])
    with pytest.raises(
        DataError, match=r"column 'who' is int64 in .*0.parquet and string in .*: write one type in all files"
    ):
        written([1, 2], ["1", "2"])


def test_whole_numbers_as_floats_need_a_task(tmp_path: Path) -> None:
    path = tmp_path / "floats.parquet"
    pq.write_table(pa.table({"user": ["a", "b", "b"], "x": [0.5, 1.5, 2.5], "y": [1.0, 0.0, 2.0]}), path)
    columns: dict[str, Any] = {"client": "user", "label": "y", "inputs": ("x", "x")}
    tasks: tuple[Any, ...] = ("classification", "regression")
    with pytest.raises(
        DataError, match=r"holds whole numbers as floats \(0\.0, 1\.0, 2\.0\).* write task='classification'"
    ):
        ParquetClients(path, **columns)
    read = {task: [y for _, y in ParquetClients(path, task=task, **columns)] for task in tasks}
    assert [(y.tolist(), y.dtype) for y in read["classification"]] == [([1], torch.int64), ([0, 2], torch.int64)]
    assert [(y.tolist(), y.dtype) for y in read["regression"]] == [([1.0], torch.float32), ([0.0, 2.0], torch.float32)]
    pq.write_table(pa.table({"user": ["a", "b", "b"], "x": [0.5, 1.5, 2.5], "y": [1.0, 0.5, 2.0]}), path)
    assert [y.tolist() for _, y in ParquetClients(path, **columns)] == [[1.0], [0.5, 2.0]]
    with pytest.raises(DataError, match=r"column 'y' holds fractions, which are no classes: write task='regression'"):
        list(ParquetClients(path, task="classification", **columns))
    pq.write_table(pa.table({"user": ["a", "b"], "x": [0.5, 1.5], "y": [70, 80]}), path)
    assert [y.dtype for _, y in ParquetClients(path, task="regression", **columns)] == [torch.float32] * 2
    with pytest.raises(ConfigurationError, match=r"classes: got \('a',\), needed none beside task='regression'"):
        ParquetClients(path, task="regression", classes=("a",), **columns)
    with pytest.raises(ConfigurationError, match=r"unknown task 'regresion'"):
        ParquetClients(path, **columns, **dict[str, Any](task="regresion"))
