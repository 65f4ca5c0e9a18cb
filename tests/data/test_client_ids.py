"""Ids of clients are names: which ones are one client, in every reader."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import turnout as to
from turnout.core.checks import DataError
from turnout.data.values import number_clients

COMPOSED, DECOMPOSED = "Jos\u00e9", "Jose\u0301"


def csv(folder: Path, text: str, encoding: str = "utf-8", name: str = "t.csv") -> Path:
    (folder / name).write_bytes(text.encode(encoding))
    return folder / name


@pytest.mark.parametrize("ending", ["csv", "tsv"])
def test_clients_of_a_csv_file_are_texts(tmp_path: Path, ending: str) -> None:
    names = ("001", "01", "1", "1.0", "NA", "2020-01-01", "true", "1e3", "1000")
    text = "age,who,ill\n" + "".join(f"{k},{name},{k % 2}\n" for k in range(4) for name in names)
    path = csv(tmp_path, text.replace(",", "," if ending == "csv" else "\t"), name=f"t.{ending}")
    source = to.data.from_table(path, label="ill", client="who", test=str(path))
    assert source.client_names == tuple(sorted(names))
    assert source.client_ids is not None
    assert source.test_client_ids is not None
    assert np.bincount(source.client_ids).tolist() == [4] * len(names)
    assert np.array_equal(source.test_client_ids, source.client_ids)
    assert source.split(test_fraction=None).client_names == tuple(sorted(names))


def test_dates_are_clients() -> None:
    table = pa.table({"x": [1.0, 2.0], "day": pa.array([0, 1], pa.date32()), "y": [0, 1]})
    assert to.data.from_table(table, label="y", client="day").client_names == ("1970-01-01", "1970-01-02")


@pytest.mark.parametrize(
    ("text", "encoding", "message"),
    [
        ("a,who,y\n1,K\u00f6ln,0\n2,Bonn,1\n", "latin1", r"t\.csv: not UTF-8 .*: convert it, such as `iconv -f latin1"),
        ("a,who,y,town\n1,x,0,Bonn\n2,y,1,K\u00f6ln\n", "latin1", r"row 2 of column 'town' is b'K\\xf6ln'"),
        ("\u00e4,who,y\n1,x,0\n", "latin1", "not UTF-8 .names of columns are"),
        ("a,who,y\n1,x,0\n", "utf-16", "not UTF-8 .its first bytes are those of UTF-16"),
    ],
)
def test_another_encoding_is_an_error_that_names_it(tmp_path: Path, text: str, encoding: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        to.data.from_table(csv(tmp_path, text, encoding), label="y", client="who")


def test_byte_order_mark_of_utf8_is_skipped(tmp_path: Path) -> None:
    path = csv(tmp_path, f"who,a,y\n{COMPOSED},1,0\n{DECOMPOSED},2,1\n", "utf-8-sig")
    assert to.data.from_table(path, label="y", client="who").client_names == (COMPOSED,)


def test_equal_texts_of_unicode_are_one_client_and_one_class() -> None:
    for ids in ([COMPOSED, DECOMPOSED], np.array([COMPOSED, DECOMPOSED]), np.array([COMPOSED, DECOMPOSED], object)):
        numbers, _, names = number_clients(ids)
        assert (numbers.tolist(), names) == ([0, 0], (COMPOSED,))
    assert number_clients([COMPOSED], [DECOMPOSED])[1].tolist() == [0]  # type: ignore[union-attr]
    source = to.data.from_table(
        {"at": [COMPOSED, DECOMPOSED], "y": [COMPOSED, DECOMPOSED]}, label="y", categories=("at",)
    )
    assert (source.num_classes, source.x.tolist()) == (1, [[1.0], [1.0]])


def test_equal_texts_of_unicode_in_folders_and_files_are_refused(tmp_path: Path) -> None:
    pytest.importorskip("PIL.Image").new("L", (2, 2)).save(tmp_path / "1.png")
    for name in (COMPOSED, DECOMPOSED):
        (tmp_path / "photos" / name / "cat").mkdir(parents=True)
        (tmp_path / "photos" / name / "cat/1.png").write_bytes((tmp_path / "1.png").read_bytes())
    with pytest.raises(DataError, match=r"clients: 'Jose\\u0301' and 'Jos\\xe9' are one text in two forms of Unicode"):
        to.data.ImageFolder(tmp_path / "photos", size=2)
    pq.write_table(pa.table({"who": [COMPOSED, DECOMPOSED], "x": [1.0, 2.0], "y": [0, 1]}), tmp_path / "t.parquet")
    with pytest.raises(DataError, match=r"column 'who': .* are one text in two forms of Unicode"):
        to.data.ParquetClients(tmp_path / "t.parquet", client="who", label="y", inputs="x")
    pq.write_table(pa.table({"who": ["a", None], "x": [1.0, 2.0], "y": [0, 1]}), tmp_path / "t.parquet")
    with pytest.raises(DataError, match=r"t\.parquet: row 2 of row group 0 has no 'who'"):
        to.data.ParquetClients(tmp_path / "t.parquet", client="who", label="y", inputs="x")


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([1, "1"], "that of example 1 is the text '1', of example 0 the number 1: give whole numbers or texts for all"),
        ([1.0, 2.0], r"client_ids are float64, needed whole numbers or texts: write ids\.astype\(int\)"),
        ([1.0, float("nan")], "become floats beside missing ones, the first in example 1: leave such examples out"),
        ([b"K\xf6ln", b"x"], r"that of example 0 is b'K\\xf6ln', which is not UTF-8: decode it"),
        (["a", None], "that of example 1 is None"),
        (np.array(["a", "a\0"], object), "NumPy drops zeros at the end"),
    ],
)
def test_ids_that_are_no_names_are_refused(ids: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        number_clients(ids)


def test_bytes_are_names() -> None:
    assert set(number_clients(np.array([DECOMPOSED.encode(), b"x"]))[2]) == {COMPOSED, "x"}


def leaf(folder: Path, **files: list[str]) -> Path:
    for name, users in files.items():
        entry = {"x": [[0.0] * 4] * 5, "y": [1] * 5}
        content = {"users": users, "num_samples": [5] * len(users), "user_data": dict.fromkeys(users, entry)}
        (folder / f"{name}.json").write_text(json.dumps(content))
    return folder


def test_user_in_two_files_is_refused_with_both(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"two\.json: user 'f1' is in one\.json as well, .*: keep the files of one run"):
        to.data.leaf_images(leaf(tmp_path, one=["f1", "f2"], two=["f3", "f1"]), shape=(4,))


def test_user_in_two_spellings_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is listed twice"):
        to.data.leaf_images(leaf(tmp_path, one=[COMPOSED, DECOMPOSED]), shape=(4,))


def test_different_users_in_two_files_count_once(tmp_path: Path) -> None:
    assert len(to.data.leaf_images(leaf(tmp_path, one=["f1", "f2"], two=["f3"]), shape=(4,)).x) == 15


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (
            [[1.0, 2.0], [3.0, None]],
            r"inputs: got None in row 1, column 1 \(from 0\), which is a missing value: leave such",
        ),
        ([[1.0, 2.0], [3.0, "x"]], "inputs must be numbers"),
        (np.array([[1.0, "x"]], object), r"inputs: got 'x' in row 0, column 1 \(from 0\), which is no number"),
    ],
)
def test_entries_that_are_no_numbers_are_named(x: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        to.data.from_arrays(x, [0, 1])


def test_frames_name_the_column_of_a_missing_value() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"age": [1, 2], "dose": np.array([0.5, None], object)})
    with pytest.raises(DataError, match=r"inputs: got None in row 1, column dose \(from 0\)"):
        to.data.from_arrays(frame, [0, 1])


def test_sparse_matrices_say_how_to_make_them_dense() -> None:
    sparse = pytest.importorskip("scipy.sparse")
    with pytest.raises(DataError, match=r"inputs are a sparse csr_matrix, needed a dense array: write x\.toarray\(\)"):
        to.data.from_arrays(sparse.csr_matrix(np.eye(2)), [0, 1])
    with pytest.raises(DataError, match=r"sparse coo_array.*x\.toarray\(\)"):
        to.data.from_arrays([sparse.coo_array(np.eye(1))], [0])


@pytest.mark.parametrize(
    ("text", "encoding", "message"),
    [
        ("age;who;ill\n1,5;a;0\n", "utf-8", r"columns are separated by ';', needed ',': .*sep=';', decimal=','\)"),
        ("age\twho\till\n1\ta\t0\n", "utf-8", r"columns are separated by '\\t', needed ','"),
        ("age,who,ill\n1,a,0\n", "utf-16", r"`iconv -f utf-16 -t utf-8 t.csv`, or give pandas.*encoding='utf-16'"),
        ("age,who,ill\n1,a,0\n2,a ,1\n", "utf-8", "'a' and 'a ' differ by spaces alone: strip them"),
    ],
)
def test_files_of_other_programs_are_refused_with_the_remedy(tmp_path, text, encoding, message):
    (tmp_path / "t.csv").write_bytes(text.encode(encoding))
    with pytest.raises(DataError, match=message):
        to.data.from_table(tmp_path / "t.csv", label="ill", client="who")
