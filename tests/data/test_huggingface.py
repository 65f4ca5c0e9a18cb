"""Data sets of Hugging Face."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from turnout.core.checks import ConfigurationError, DataError
from turnout.data.huggingface import from_huggingface
from turnout.data.table import from_table
from turnout.data.tokens import from_tokens


class Split:
    """The used interface of a `datasets.Dataset`: columns by name, column names, length, features."""

    def __init__(self, features=None, **columns):
        self.columns = columns
        self.column_names = list(columns)
        self.features = features

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def __getitem__(self, column: str):
        return self.columns[column]


def test_columns_become_inputs_labels_and_clients():
    train = Split(tokens=[[1, 2], [3, 4], [5, 6]], label=[0, 1, 0], user=["b", "a", "b"])
    test = Split(tokens=[[7, 8]], label=[1], user=["c"])
    source = from_huggingface(train, input="tokens", client_id="user", test=test)
    assert source.x.tolist() == [[1, 2], [3, 4], [5, 6]]
    assert source.x.dtype == torch.int64
    assert source.client_names == ("a", "b", "c")
    assert source.client_ids is not None
    assert source.client_ids.tolist() == [1, 0, 1]
    assert source.test_client_ids is not None
    assert source.test_client_ids.tolist() == [2]
    assert source.num_classes == 2


def test_label_column_may_define_the_number_of_classes():
    features = {"image": SimpleNamespace(), "label": SimpleNamespace(num_classes=62)}
    assert from_huggingface(Split(features, image=[[0.5]], label=[3])).num_classes == 62


@pytest.mark.parametrize("num_classes", [None, 2])
def test_classes_of_a_test_in_another_order_are_refused(num_classes):
    train, test = (
        Split(
            {"label": SimpleNamespace(names=names, num_classes=2)}, image=[[0.5]] * 2, label=[0, 1], input_ids=[[1]] * 2
        )
        for names in (["cat", "dog"], ["dog", "cat"])
    )
    assert from_huggingface(train, test=train, num_classes=num_classes).num_classes == 2
    readers: list[tuple[Any, dict[str, Any]]] = [(from_huggingface, {}), (from_tokens, {"label": "label"})]
    for read, options in readers:
        with pytest.raises(
            DataError, match=r"has the classes cat, dog, and that of the test dog, cat: write test.align_labels"
        ):
            read(train, test=test, num_classes=num_classes, **options)


def test_images_become_scaled_channels():
    image = pytest.importorskip("PIL.Image")
    pixels = np.arange(8, dtype=np.uint8).reshape(2, 4)
    source = from_huggingface(Split(image=[image.fromarray(pixels)] * 2, label=[0, 1]))
    assert source.x.shape == (2, 1, 2, 4)
    assert torch.equal((source.x[1, 0] * 255).round().to(torch.uint8), torch.from_numpy(pixels))


@pytest.mark.parametrize("kind", [None, "numpy", "torch", "pandas"])
def test_images_of_any_format_are_scaled_channels(kind):
    datasets = pytest.importorskip("datasets")
    image = pytest.importorskip("PIL.Image").new("RGB", (2, 4), (255, 51, 0))
    features = datasets.Features({"image": datasets.Image(), "label": datasets.Value("int64")})
    split = datasets.Dataset.from_dict({"image": [image, image], "label": [0, 1]}, features=features)
    source = from_huggingface(split.with_format(kind), input="image")
    assert (source.x.shape, source.x.dtype) == ((2, 3, 4, 2), torch.float32)
    np.testing.assert_allclose(source.x[0, :, 0, 0], [1.0, 0.2, 0.0])
    transformed = split.with_transform(
        lambda rows: rows | {"image": [[1.0, 2.0]] * len(rows["image"])} if "image" in rows else rows
    )
    assert from_huggingface(transformed, input="image").x.tolist() == [[1.0, 2.0]] * 2


def test_table_with_a_transform_is_refused():
    datasets = pytest.importorskip("datasets")
    split = datasets.Dataset.from_dict({"age": [1.0, 2.0], "ill": [0, 1]})
    assert from_table(split.with_format("numpy"), label="ill").x.tolist() == [[1.0], [2.0]]
    with pytest.raises(
        ConfigurationError, match=r"set_transform of the data set would be left out: write dataset\.map"
    ):
        from_table(split.with_transform(lambda rows: rows), label="ill")


def test_unknown_column_suggests_the_nearest():
    with pytest.raises(ConfigurationError, match="unknown column 'writer': did you mean 'writer_id'"):
        from_huggingface(Split(image=[[0.5]], label=[0], writer_id=[1]), client_id="writer")


def test_dictionary_of_splits_is_refused():
    with pytest.raises(ConfigurationError, match=r"splits \('train', 'test'\): give one, e.g. dataset\['train'\]"):
        from_huggingface({"train": Split(image=[[0.5]], label=[0]), "test": None})


def test_streaming_data_set_is_refused():
    with pytest.raises(ConfigurationError, match=r"generator is no Hugging Face dataset .*streaming=False"):
        from_huggingface(row for row in [])


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (
            {"image": ["to be"], "label": [0]},
            "column 'image' holds text: tokenize it into indices, or use to.data.from_tokens, first",
        ),
        (
            {"image": [[0.5]], "label": ["cat"]},
            r"column 'label' holds text: use dataset.class_encode_column\('label'\)",
        ),
        ({"image": [[1, 2], [1]], "label": [0, 1]}, r"example 1 has shape \[1\]"),
        ({"image": [[1]] * 2, "label": [0, None]}, "column 'label', example 1 is None, a missing value: leave"),
        ({"image": [[1], None], "label": [0, 1]}, "column 'image', example 1 is None, a missing value"),
    ],
)
def test_non_numeric_columns_are_refused(columns, message):
    with pytest.raises(DataError, match=message):
        from_huggingface(Split(**columns))


def test_numeric_targets_keep_the_declared_dtype():
    declared = {
        "image": SimpleNamespace(feature=SimpleNamespace(dtype="float64")),
        "label": SimpleNamespace(dtype="float64"),
    }
    columns = {"image": [[0.1], [0.2]], "label": [1 / 3, 2 / 3]}
    source = from_huggingface(Split(declared, **columns))
    assert source.x.dtype == torch.float64
    assert source.y.tolist() == columns["label"]
    plain = from_huggingface(Split(**columns))
    assert plain.x.dtype == plain.y.dtype == torch.float32
    assert plain.num_classes is None


def test_installed_datasets_library_works():
    datasets = pytest.importorskip("datasets")
    image = pytest.importorskip("PIL.Image")
    pixels = np.arange(16, dtype=np.uint8).reshape(4, 4)
    features = datasets.Features(
        {"image": datasets.Image(), "label": datasets.ClassLabel(num_classes=3), "writer_id": datasets.Value("string")}
    )
    columns = {"image": [image.fromarray(pixels)] * 3, "label": [0, 1, 0], "writer_id": ["b", "a", "b"]}
    source = from_huggingface(datasets.Dataset.from_dict(columns, features=features), client_id="writer_id")
    assert source.x.shape == (3, 1, 4, 4)
    assert torch.equal((source.x[0, 0] * 255).round().to(torch.uint8), torch.from_numpy(pixels))
    assert source.num_classes == 3
    assert source.client_names == ("a", "b")


@pytest.mark.parametrize("name", ["uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64"])
def test_declared_types_of_lists_are_kept(name):
    datasets = pytest.importorskip("datasets", reason="needs the extra huggingface")
    features = datasets.Features({"x": datasets.Sequence(datasets.Value(name)), "label": datasets.Value("uint8")})
    table = datasets.Dataset.from_dict({"x": [[1, 2], [3, 4]], "label": [0, 1]}, features=features)
    source = from_huggingface(table, input="x")
    assert (source.x.dtype, source.y.dtype) == (getattr(torch, name), torch.int64)
    assert source.x.tolist() == [[1, 2], [3, 4]]
