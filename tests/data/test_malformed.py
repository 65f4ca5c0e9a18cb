"""Malformed files are read or refused with an error of this package."""

import gzip
import json
import pickle
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
import torch
from pyarrow import csv, feather, parquet

from turnout.core.checks import ConfigurationError, DataError, TurnoutError
from turnout.data import from_arrays, from_pfl, from_table, from_tokens
from turnout.data.named.cifar import CIFAR10, cifar10
from turnout.data.named.idx import MNIST, mnist, read_idx
from turnout.data.named.leaf import leaf_characters, leaf_images
from turnout.data.named.sent140 import leaf_tweets
from turnout.data.named.words import read_vectors
from turnout.data.reading import read_table_file
from turnout.data.values import number_clients

TABLE = pa.table({"a": [1.5, 2.0, 3.0], "b": ["x", "y", "x"], "who": [3, 4, 3], "y": [0, 1, 1]})
ODD = [None, True, -1, 1.5, 10**400, 1e400, "x", "", "\ud800", [], [1], [[[1]]], {}, {"x": 1}]
"""Values of types that a field does not have."""


def damages(content: bytes, seed: int = 0, count: int = 60):
    """Yield a file's content cut off, with flipped bits, with other bytes in places, and with more behind it."""
    rng = np.random.default_rng(seed)
    yield from (b"", b"\0", b"\xff\xfe" + content, content + content, content + b"\0" * 9)
    yield from (content[: int(end)] for end in rng.integers(0, len(content), count // 3))
    for _ in range(count):
        flipped = bytearray(content)
        for place in rng.integers(0, len(content), int(rng.integers(1, 4))):
            flipped[place] ^= 1 << int(rng.integers(8))
        yield bytes(flipped)
    for _ in range(count // 3):
        place = int(rng.integers(len(content)))
        yield content[:place] + rng.bytes(4) + content[place + 4 :]


def is_read_or_refused(read, path: Path, contents) -> None:
    """Read a file with each content; an error of any other kind than the package's own fails the test."""
    for content in contents:
        path.write_bytes(content)
        try:
            read()
        except TurnoutError as error:
            str(error).encode()  # can be printed
    path.unlink()
    path.mkdir()
    with pytest.raises(TurnoutError):
        read()


def idx(array: np.ndarray) -> bytes:
    return bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">i4").tobytes() + array.tobytes()


@pytest.mark.parametrize("packed", [False, True])
def test_malformed_idx_files(tmp_path, packed):
    content = idx(np.arange(24, dtype=np.uint8).reshape(4, 3, 2))
    path = tmp_path / ("images.gz" if packed else "images")
    is_read_or_refused(
        lambda: read_idx(path, MNIST, ndim=3), path, damages(gzip.compress(content, mtime=0) if packed else content)
    )


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((-2, -3, 4), "found -2x-3x4 entries, expected dimensions >= 0"),
        ((2**31 - 1,) * 3, "would unpack to 9,903,520,300,447,984,150,353,281,023 or more, needed at most"),
        ((1, 2**31 - 1, 1), "would unpack to 2,147,483,647 or more, needed at most"),
    ],
)
def test_idx_header_sizes_are_verified(tmp_path, shape, message):
    path = tmp_path / "images.gz"
    path.write_bytes(gzip.compress(b"\0\0\x08\x03" + np.array(shape, ">i4").tobytes()))
    with pytest.raises(DataError, match=message):
        read_idx(path, MNIST, ndim=3)


def test_idx_decompression_stops_at_the_announced_size(tmp_path):
    path = tmp_path / "images.gz"
    path.write_bytes(gzip.compress(idx(np.zeros((1, 2, 2), np.uint8)) + bytes(1 << 20)))
    with pytest.raises(DataError, match=r"found 21 bytes, expected 20 bytes, for 1x2x2 entries"):
        read_idx(path, MNIST, ndim=3)


def test_pixels_of_other_dtypes_do_not_wrap(tmp_path):
    folder = tmp_path / "MNIST" / "raw"
    folder.mkdir(parents=True)
    for file, array in zip(MNIST.files, [np.zeros((2, 28, 28)), np.zeros(2)] * 2, strict=True):
        (folder / file).write_bytes(gzip.compress(idx(array.astype(np.uint8))))
    wide = np.full((2, 28, 28), 300, ">i4")
    (folder / MNIST.files[0]).write_bytes(
        gzip.compress(b"\0\0\x0c\x03" + np.array(wide.shape, ">i4").tobytes() + wide.tobytes())
    )
    with pytest.raises(DataError, match=r"found pixels from 300 to 300, expected pixels from 0 to 255"):
        mnist(tmp_path)


def test_malformed_cifar_files(tmp_path):
    row = np.zeros((2, 3073), np.uint8)
    for name, content in (
        ("bin", row.tobytes()),
        ("py", pickle.dumps({"data": row[:, 1:], "labels": [0, 1]}, protocol=2)),
    ):
        folder = tmp_path / f"cifar-10-batches-{name}"
        folder.mkdir()
        for file in CIFAR10.files:
            (folder / (file if name == "bin" else Path(file).stem)).write_bytes(content)
        last = folder / ("test_batch.bin" if name == "bin" else "test_batch")
        is_read_or_refused(lambda folder=folder: cifar10(folder), last, damages(content, count=15))


def leaf(x, y, users=("u",)) -> bytes:
    return json.dumps({"users": list(users), "user_data": {"u": {"x": x, "y": y}}}).encode()


def odd_leaf():
    """Yield LEAF files with values of other types at every position."""
    yield from (json.dumps(odd).encode() for odd in ODD)
    for odd in ODD:
        yield from (leaf(odd, [0]), leaf([odd], [0]), leaf([[odd]], [0]), leaf([[1.0]], odd), leaf([[1.0]], [odd]))
        yield from (leaf([["i", "d", "q", "a", odd]], [0]), leaf([[1.0]], [0], [odd]), leaf([[1.0]], [0], [odd, "u"]))
    yield from (b"[" * 100_000, b'{"users": ' + b"9" * 5000 + b"}", leaf([[1.0]], [0]).decode().encode("utf-16"))
    yield b'{"users": ["u"], "user_data": {"u": {"x": ' + b"[" * 100_000 + b', "y": [0]}}}'


@pytest.mark.parametrize("kind", ["images", "characters", "tweets"])
def test_malformed_leaf_files(tmp_path, kind):
    folder, path = tmp_path / "train", tmp_path / "train" / "a.json"
    folder.mkdir()
    vectors = tmp_path / "vectors.txt"
    vectors.write_text("x 1 2\n")
    read = {
        "images": lambda: leaf_images(folder, shape=(1,)),
        "characters": lambda: leaf_characters(folder, sequence_length=1),
        "tweets": lambda: leaf_tweets(folder, vectors=vectors),
    }[kind]
    content = {
        "images": leaf([[1.0]], [1]),
        "characters": leaf(["x"], ["y"]),
        "tweets": leaf([["i", "d", "q", "a", "x"]], ["4"]),
    }[kind]
    path.write_bytes(content)
    assert len(read().y) == 1
    is_read_or_refused(read, path, [*damages(content), *odd_leaf()])


@pytest.mark.parametrize(
    ("label", "shown"), [(1.5, "1.5"), (True, "True"), ("1.5", "'1.5'"), (10**400, "a number of about 400 digits")]
)
def test_non_integer_leaf_labels_are_refused(tmp_path, label, shown):
    (tmp_path / "a.json").write_bytes(leaf([[1.0]], [label]))
    with pytest.raises(DataError, match=rf"a label of user 'u' is not a class index: got {shown}, needed 0, 1"):
        leaf_images(tmp_path, shape=(1,))


@pytest.mark.parametrize(("value", "message"), [("1.0", "it holds texts"), (True, "it holds true or false")])
def test_non_numeric_leaf_inputs_are_refused(tmp_path, value, message):
    (tmp_path / "a.json").write_bytes(leaf([[value]], [0]))
    with pytest.raises(DataError, match=message):
        leaf_images(tmp_path, shape=(1,))


def test_duplicate_leaf_user_is_refused(tmp_path):
    (tmp_path / "a.json").write_bytes(leaf([[1.0]], [0], ["u", "u"]))
    with pytest.raises(DataError, match="user 'u' is listed twice, and its examples would count twice"):
        leaf_images(tmp_path, shape=(1,))
    (tmp_path / "a.json").write_bytes(
        b'{"users": ["u"], "user_data": {"u": {"x": [], "y": []}, "u": {"x": [], "y": []}}}'
    )
    with pytest.raises(DataError, match="the key 'u' appears twice"):
        leaf_images(tmp_path, shape=(1,))


@pytest.mark.parametrize("ending", ["csv", "tsv", "parquet", "feather", "arrow", "jsonl"])
def test_malformed_tables(tmp_path, ending):
    path = tmp_path / f"table.{ending}"
    if ending in ("csv", "tsv"):
        csv.write_csv(TABLE, path, csv.WriteOptions(delimiter="\t" if ending == "tsv" else ","))
    elif ending == "jsonl":
        path.write_text("\n".join(map(json.dumps, TABLE.to_pylist())))
    elif ending == "parquet":
        parquet.write_table(TABLE, path)
    else:
        feather.write_feather(TABLE, str(path), compression="zstd")

    def read():
        return from_table(path, label="y", client="who", categories=("b",), missing="fill")

    assert len(read().y) == 3
    contents = [*damages(path.read_bytes(), count=90)]
    if ending == "jsonl":
        contents += [json.dumps({"a": odd, "b": odd, "who": odd, "y": odd}).encode() for odd in ODD]
        contents += [b"[" * 10_000, b'{"a": ' * 1000, b'{"a": 1, "a": 2}']
    is_read_or_refused(read, path, contents)


@pytest.mark.parametrize("odd", ODD, ids=range(len(ODD)))
def test_table_values_of_any_type(odd):
    for column in ("a", "b", "who", "y"):
        table = TABLE.to_pydict() | {column: [odd, odd, odd]}
        for missing in ("refuse", "drop", "fill"):
            try:
                from_table(table, label="y", client="who", categories=("b",), missing=missing)
            except TurnoutError as error:
                str(error).encode()


@pytest.mark.parametrize("kind", ["parquet", "feather"])
def test_compressed_table_respects_the_size_limit(tmp_path, kind, monkeypatch):
    path = tmp_path / f"bomb.{kind}"
    zeros = pa.table({"a": np.zeros(200_000), "y": np.zeros(200_000, np.int64)})
    if kind == "parquet":
        parquet.write_table(zeros, path, compression="zstd")
    else:
        feather.write_feather(zeros, str(path), compression="zstd")
    assert len(read_table_file(path)) == 200_000
    monkeypatch.setattr("turnout.data.reading.UNPACKED_BYTES", 100_000)
    monkeypatch.setattr("turnout.data.reading.UNPACKED_RATIO", 1)
    with pytest.raises(
        DataError, match=r"it has .* bytes and would unpack to .* or more, needed at most .*unpack it first"
    ):
        read_table_file(path)


@pytest.mark.parametrize("kind", ["numbers", "categories"])
@pytest.mark.parametrize("compression", ["zstd", "lz4"])
def test_batch_that_expands_is_refused_by_its_headers(tmp_path, monkeypatch, compression, kind):
    """The attack: a table of one batch, which Arrow decompresses as a whole before its size can be looked at."""
    zeros = pa.array(np.zeros(1 << 20)) if kind == "numbers" else pa.array(["x" * (1 << 20)]).dictionary_encode()
    path = tmp_path / "bomb.feather"
    feather.write_feather(pa.table({"a": zeros}), str(path), compression=compression, chunksize=1 << 20)
    assert len(read_table_file(path)) == len(zeros)
    del zeros
    monkeypatch.setattr("turnout.data.reading.UNPACKED_BYTES", 100_000)
    monkeypatch.setattr("turnout.data.reading.UNPACKED_RATIO", 1)
    opened = pa.ipc.open_file

    @contextmanager
    def headers_alone(source):
        with opened(source) as reader:
            yield SimpleNamespace(schema=reader.schema, num_record_batches=reader.num_record_batches)

    monkeypatch.setattr(pa.ipc, "open_file", headers_alone)
    with pytest.raises(DataError, match=r"would unpack to .* or more"):
        read_table_file(path)


def test_batch_behind_the_end_of_its_stream_is_refused(tmp_path):
    """The footer leads to the mark of the end in place of the batch, at which Arrow raises an `EOFError`."""
    path = tmp_path / "end.feather"
    feather.write_feather(pa.table({"a": np.zeros(9)}), str(path), compression="zstd")
    content, mark = path.read_bytes(), b"\xff" * 4
    batch, end = (place.to_bytes(8, "little") for place in (content.index(mark, 12), content.rindex(mark + bytes(4))))
    path.write_bytes(end.join(content.rsplit(batch, 1)))
    with pytest.raises(DataError, match=r"end.feather: cannot be read: End of Arrow stream"):
        read_table_file(path)


def test_malformed_word_vectors(tmp_path):
    path = tmp_path / "vectors.txt"
    content = "the 1 2 3\ncaf\u00e9 0.5 -1e-3 4\n".encode()
    odd = [
        content.decode().encode("latin-1"),
        content.decode().encode("utf-16"),
        b"x" * (1 << 20),
        b"the " + b"9" * 400,
    ]
    is_read_or_refused(lambda: read_vectors(path, {"the", "caf\u00e9"}), path, [*damages(content), *odd])


def test_word_vectors_in_another_encoding_are_refused_with_the_line(tmp_path):
    path = tmp_path / "vectors.txt"
    path.write_bytes("the 1 2 3\ncaf\u00e9 1 2 3\n".encode("latin-1"))
    with pytest.raises(DataError, match=r"vectors.txt: line 2: 'utf-8' codec .*; needed a file in GloVe's text form"):
        read_vectors(path, {"the"})
    path.write_bytes(b"x" * (2 << 20))
    with pytest.raises(DataError, match=r"line 1: it has 1,048,576 bytes or more"):
        read_vectors(path, {"the"})


def test_arrays_of_any_dtype():
    arrays = [np.array(odd, dtype=object) for odd in ODD] + [
        np.zeros(2, kind) for kind in ("V2", "S2", "M8[s]", "c8", "g")
    ]
    arrays += [*ODD, np.zeros(2, "u8") - np.uint64(1), torch.zeros(2).to_sparse(), torch.zeros(2, device="meta")]
    for odd in arrays:
        for x, y, ids in ((odd, [0, 1], None), ([1.0, 2.0], odd, None), ([1.0, 2.0], [0, 1], odd)):
            try:
                from_arrays(x, y, client_ids=ids)
            except TurnoutError as error:
                str(error).encode()


def test_arrays_of_another_byte_order_are_read():
    source = from_arrays(np.array([[1.5], [2.5]], ">f8"), np.array([1, 0], ">i4"), client_ids=np.array([7, 8], ">u2"))
    assert (source.x.tolist(), source.y.tolist(), source.client_names) == ([[1.5], [2.5]], [1, 0], ("7", "8"))


@pytest.mark.parametrize(
    ("x", "y", "ids", "message"),
    [
        (
            np.ma.array([[1.0], [2.0]], mask=[[False], [True]]),
            [0, 1],
            None,
            r"inputs are masked in 1 places: write x\.filled",
        ),
        ([np.ma.array([1.0], mask=[True]), np.array([1.0])], [0, 1], None, "inputs are masked in 1 places"),
        ([[1.0], [2.0]], np.ma.array([0, 1], mask=[False, True]), None, "targets are masked in 1 places"),
        ([[1.0], [2.0]], [0, 1], np.ma.array([0, 1], mask=[False, True]), "client_ids are masked in 1 places"),
        (3.0, [0, 1], None, "inputs: got the number 3.0, needed one entry for each example"),
        ([[1.0], [2.0]], 1, None, "targets: got the number 1, needed one entry for each example"),
        ([[1.0], [2.0]], np.array([0, 2**63], np.uint64), None, r"got a label >= 2\*\*63"),
        ([[1.0], [2.0]], [0, 1], np.array([0, 2**63], np.uint64), r"client_ids: got 9223372036854775808, needed less"),
        ([[1.0], [2.0]], [0, 1], ["a", None], "client_ids: that of example 1 is None: leave out examples whose client"),
        ([[1.0], [2.0]], [0, 1], ["a", ""], "client_ids: that of example 1 is empty"),
        (
            torch.eye(2).to_sparse(),
            [0, 1],
            None,
            r"inputs are a sparse tensor \(torch.sparse_coo\), needed a dense one: write x.to_dense",
        ),
        (np.zeros((2, 1), np.longdouble), [0, 1], None, "inputs are float128, which torch does not have"),
        ([torch.zeros(1, requires_grad=True)] * 2, [0, 1], None, "inputs cannot be made an array"),
    ],
)
def test_mistyped_arrays_are_refused(x, y, ids, message):
    with pytest.raises(DataError, match=message):
        from_arrays(x, y, client_ids=ids)


def test_training_and_test_clients_must_have_one_type():
    numbers, test, names = number_clients(np.array([1, 2], np.uint64), np.array([2, 3], np.int64))
    assert (numbers.tolist(), names) == ([0, 1], ("1", "2", "3"))
    assert test is not None
    assert test.tolist() == [1, 2]
    with pytest.raises(
        DataError, match="client_ids are int64, test_client_ids <U1: give whole numbers or texts for both"
    ):
        number_clients([1, 2], ["1"])


def test_unsigned_labels_are_accepted():
    train = {"a": [1.0, 2.0], "y": pa.array([0, 1], pa.uint64())}
    source = from_table(pa.table(train), label="y", test=pa.table({"a": [3.0], "y": pa.array([1], pa.int64())}))
    assert (source.num_classes, source.y.dtype) == (2, torch.int64)
    for kind in (torch.uint8, torch.uint16, torch.uint32, torch.uint64):
        assert from_arrays([[1.0], [2.0]], torch.tensor([0, 1], dtype=kind)).num_classes == 2


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"input_ids": [[1.5, 2]]}, r"text 0 is float64 \[2\], needed a list of whole numbers"),
        ({"input_ids": [["a", "b"]]}, "text 0 is <U1"),
        ({"input_ids": [[1, 2], 3]}, r"text 1 is int64 \[\]"),
        ({"input_ids": [[1, -2]]}, "text 0 has the token -2, needed numbers >= 0"),
        ({"input_ids": [[1, 10**30]]}, "text 0 is object"),
        (
            {"input_ids": [[1, 2]], "attention_mask": [[1]]},
            "text 0 has 2 tokens in 'input_ids' and 1 in 'attention_mask'",
        ),
        ({"input_ids": [[1, 2]], "attention_mask": []}, "'input_ids' has 1 text and 'attention_mask' has 0"),
        (
            {"input_ids": [[1, 2]], "labels": [[1, 2, 3]], "attention_mask": [[1, 1]]},
            "text 0 has 3 tokens in 'labels' and 2 in 'attention_mask'",
        ),
        ({"input_ids": [[1, 2]], "labels": []}, "'input_ids' has 1 text and 'labels' has 0"),
    ],
)
def test_non_integer_tokens_are_refused(columns, message):
    with pytest.raises(DataError, match=message):
        from_tokens(columns)


def test_duplicate_pfl_user_is_refused():
    class Federation:
        make_dataset_fn = staticmethod(lambda user: (np.zeros((2, 1), np.float32), np.array([0, user])))

    assert len(from_pfl(Federation(), [0, 1]).y) == 4
    with pytest.raises(DataError, match="user_ids: user '1' is there twice"):
        from_pfl(Federation(), [0, 1, 1])


def test_pfl_users_of_several_types_are_refused():
    """Concatenated, labels would be numbers to predict, and pixels of 0 to 255 stand beside those of 0 to 1."""

    def read(users):
        class Federation:
            make_dataset_fn = staticmethod(lambda user: users[user])

        return from_pfl(Federation(), range(len(users)))

    x, y = np.zeros((2, 1), np.float32), np.array([0, 1])
    with pytest.raises(
        DataError, match=r"the users' targets are torch.float32 and torch.int64: convert them to one type"
    ):
        read([(x, y), (x, y.astype(np.float32))])
    with pytest.raises(
        DataError, match=r"the users' inputs are torch.float32 and torch.uint8: convert them to one type"
    ):
        read([(x, y), (x.astype(np.uint8), y)])


GAPS = {
    "a": [1.0, None, 3.0, 5.0],
    "b": ["x", "y", " ", "x"],
    "who": ["p", "q", "p", ""],
    "y": ["no", "yes", "no", "yes"],
}


def test_missing_values_are_refused_by_default():
    for features, column, row in ((("a",), "who", 4), (("b",), "who", 4)):
        with pytest.raises(
            DataError, match=rf"column '{column}' has 1 missing values in 4 rows, first in row {row}: write"
        ):
            from_table(
                GAPS, label="y", client="who", features=features, categories=[*features] if "b" in features else ()
            )
    with pytest.raises(DataError, match=r"column 'b' .* first in row 3: write missing='drop' .*missing='fill' to fill"):
        from_table(GAPS, label="y", features=("b",), categories=("b",))


def test_rows_with_missing_values_are_dropped_on_request():
    source = from_table(GAPS, label="y", client="who", categories=("b",), missing="drop")
    assert (source.x.tolist(), source.y.tolist(), source.client_names) == ([[1, 1]], [0], ("p",))
    assert source.recipe["missing"] == "drop"
    with pytest.raises(DataError, match="every one of 1 rows has a missing value"):
        from_table({"a": [None], "y": [0]}, label="y", missing="drop")


def test_missing_inputs_are_filled_in_on_request():
    table = {name: GAPS[name] for name in ("a", "b", "y")}
    test = {"a": [None], "b": ["y"], "y": ["no"]}
    source = from_table(table, label="y", categories=("b",), missing="fill", test=test)
    assert source.x.tolist() == [[1, 1, 0], [3, 0, 1], [3, 0, 0], [5, 1, 0]]
    assert source.test_x is not None
    assert source.test_x.tolist() == [[3, 0, 1]]
    with pytest.raises(DataError, match=r"column 'who' .*which cannot be filled in: write missing='drop'"):
        from_table(GAPS, label="y", client="who", categories=("b",), missing="fill")
    with pytest.raises(ConfigurationError, match="unknown value of missing 'guess'"):
        from_table(table, label="y", missing="guess")  # type: ignore[arg-type]


def test_empty_cell_is_not_a_class(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("a,who,ill\n1,p,yes\n2,,no\n3,q,\n")
    with pytest.raises(
        DataError, match=r"in row 3: write missing='drop' to leave these rows out, or correct the table$"
    ):
        from_table(path, label="ill", client="who")
    source = from_table(path, label="ill", features=("a",), missing="drop")
    assert source.recipe["classes"] == ["no", "yes"]


@pytest.mark.parametrize(
    ("table", "options", "error", "message"),
    [
        (pa.table([[1], [2], [0]], ["a", "a", "y"]), {}, DataError, "the table: 2 columns are called 'a'"),
        (pa.table({"y": [0]}), {}, ConfigurationError, "a table of 'y' alone has no inputs"),
        (
            pa.table({"a": [[1]], "y": [0]}),
            {},
            ConfigurationError,
            "column 'a' holds list<.*needed numbers, texts or truth",
        ),
        (
            pa.table({"a": [1], "y": [1.5]}),
            {"test": pa.table({"a": [1], "y": [1]})},
            DataError,
            "holds double and int64",
        ),
        (
            pa.table({"a": pa.array([None], pa.float64()), "y": [0]}),
            {"missing": "fill"},
            DataError,
            "no value in the",
        ),
    ],
)
def test_unusable_tables_are_refused(table, options, error, message):
    with pytest.raises(error, match=message):
        from_table(table, label="y", **options)
