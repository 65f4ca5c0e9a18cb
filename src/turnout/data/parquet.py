"""Read clients from Parquet files, one at a time, for tables and encoded images that do not fit into memory."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import lru_cache
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from turnout.core.checks import ConfigurationError, DataError, count, known_name, refuse
from turnout.data.images import decoded, one_ahead
from turnout.data.labels import Task, whole_floats
from turnout.data.pixels import mode_of
from turnout.data.values import different_names


class _Stretch(NamedTuple):
    """Rows of one client in one row group of one file."""

    file: int
    group: int
    start: int
    stop: int


class ParquetClients:
    """Clients with rows in Parquet files, for `turnout.data.store`, which writes them one by one.

    Iterating yields inputs and targets of each client, in the order of the files. Only the necessary columns of the row
    groups of a client are read; a thread reads the next client in advance. The rows of a client must be contiguous, as in a
    table that is sorted by client.

    Args:
        path: a file, or a folder of ``.parquet`` files, which are read in the order of their names.
        client: the column with the client of each row.
        label: the column with the targets: integers, truth values or text are classes, floats are numbers to predict, in the
            type of floating-point inputs, else float32. Floats that are a few whole numbers may be either, see `task`.
        inputs: the column of encoded images (bytes, or a struct with a field ``bytes``), or of lists of numbers of one
            length, which keep their type; or the numeric columns of a table, which become float32.
        size: height and width to which images are scaled; required for images.
        colors: number of colors of images, 3, or 1 for gray.
        classes: texts of the labels, in the order of their numbers; required for labels of text.
        task: ``"classification"`` or ``"regression"``; None goes by the type of the column of targets.

    Attributes:
        clients: names of the clients, in order.

    Raises:
        ConfigurationError: if images have no size, labels of text have no classes, or a task is unknown or has no classes.
        DataError: if a column is missing, whole numbers as floats could be labels, the rows of a client are not contiguous
            or, during iteration, data cannot be read.

    Example:
        >>> import tempfile, pyarrow as pa, pyarrow.parquet as pq
        >>> table = pa.table({"user": ["a", "a", "b"], "x": [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], "y": [0, 1, 1]})
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     pq.write_table(table, f"{folder}/part.parquet")
        ...     [x.tolist() for x, _ in ParquetClients(folder, client="user", label="y", inputs="x")]
        [[[1.0, 2.0], [3.0, 4.0]], [[5.0, 6.0]]]
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        client: str,
        label: str,
        inputs: str | Sequence[str],
        size: int | None = None,
        colors: int = 3,
        classes: Sequence[str] | None = None,
        task: Task | None = None,
    ) -> None:
        if task is not None:
            known_name("task", task, ("classification", "regression"))
        if task == "regression" and classes is not None:
            raise refuse("classes", given=classes, needed="none beside task='regression'")
        if size is not None:
            count("size", size)
        self._size, self._mode, self._label = size or 0, mode_of(colors), label
        self._inputs = [inputs] if isinstance(inputs, str) else list(inputs)
        self._classes = None if classes is None else {name: i for i, name in enumerate(classes)}
        self._paths = _paths(Path(path))
        self._files = list(map(_opened, self._paths))
        self._check_columns(client)
        self._images, self._task = self._holds_images(), task
        self._check_floats()
        self._stretches = self._located(client)
        self.clients = tuple(self._stretches)
        # The clients of a row group are consecutive, so caching the last group serves several of them.
        self._group = lru_cache(maxsize=1)(self._read)

    def _check_columns(self, client: str) -> None:
        """Check that all files have the columns, with the same types."""
        for path, file in zip(self._paths, self._files, strict=True):
            names = file.schema_arrow.names
            for name in (client, self._label, *self._inputs):
                if name not in names:
                    raise DataError(f"{path} has no column {name!r}; it has {', '.join(names)}")
                first, kind = (one.schema_arrow.field(name).type for one in (self._files[0], file))
                if kind != first:
                    raise DataError(
                        f"column {name!r} is {first} in {self._paths[0]} and {kind} in {path}: write one type in all files"
                    )

    def _holds_images(self) -> bool:
        """Return whether inputs are encoded images; check that they have a size, and labels of text classes."""
        schema = self._files[0].schema_arrow
        images = _is_one_of(schema.field(self._inputs[0]).type, "binary", "large_binary", "struct")
        if images and not self._size:
            raise ConfigurationError(f"size: column {self._inputs[0]!r} holds encoded images: write size=32")
        texts = _is_one_of(schema.field(self._label).type, "string", "large_string", "dictionary")
        if texts and self._classes is None:
            raise ConfigurationError(f"classes: column {self._label!r} holds text: write classes=('cat', 'dog')")
        return images

    def _check_floats(self) -> None:
        """Refuse floats that are a few whole numbers, as labels become beside missing values, without a task."""
        if self._task is not None or not pa.types.is_floating(self._files[0].schema_arrow.field(self._label).type):
            return
        distinct, whole = np.zeros(0), None
        for _, _, column in self._groups(self._label):
            distinct = np.union1d(distinct, column.to_numpy())
            if (whole := whole_floats([distinct])) is None:
                return
        if whole is not None:
            raise DataError(
                f"column {self._label!r} holds whole numbers as floats ({whole}), as labels become beside missing values: "
                "write task='classification' for classes, or task='regression' for numbers to predict"
            )

    def _groups(self, column: str) -> Iterator[tuple[int, int, pa.ChunkedArray]]:
        """Yield the number of a file and of its row group, with a column, for all row groups."""
        for number, file in enumerate(self._files):
            for group in range(file.num_row_groups):
                yield number, group, file.read_row_group(group, columns=[column])[column]

    def __len__(self) -> int:
        return len(self.clients)

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        return one_ahead(self._client, self.clients)

    def _located(self, column: str) -> dict[str, list[_Stretch]]:
        """Return the stretches of each client, by reading only the column of clients."""
        stretches: dict[str, list[_Stretch]] = {}
        last = None
        for number, group, values in self._groups(column):
            names = np.asarray(values.to_pylist(), dtype=object)
            bounds = [0, *(np.flatnonzero(names[1:] != names[:-1]) + 1).tolist(), len(names)]
            for start, stop in pairwise(bounds if len(names) else ()):
                if names[start] is None or names[start] != names[start]:  # NaN is unequal to itself
                    raise DataError(f"{self._paths[number]}: row {start + 1} of row group {group} has no {column!r}")
                name = str(names[start])
                if name != last and name in stretches:
                    raise DataError(f"{self._paths[number]}: rows of client {name!r} lie apart: sort by {column!r}")
                stretches.setdefault(name, []).append(_Stretch(number, group, start, stop))
                last = name
        if not stretches:
            raise DataError(f"{self._paths[0]} has no rows")
        different_names(f"{self._paths[0]}: column {column!r}", stretches)
        return stretches

    def _read(self, file: int, group: int) -> pa.Table:
        """Read the necessary columns of one row group."""
        try:
            return self._files[file].read_row_group(group, columns=[*self._inputs, self._label])
        except (OSError, pa.ArrowException) as error:
            raise DataError(f"{self._paths[file]}: row group {group} cannot be read ({error})") from error

    def _client(self, name: str) -> tuple[torch.Tensor, torch.Tensor]:
        """Return inputs and targets of a client."""
        parts = [
            self._group(file, group).slice(start, stop - start) for file, group, start, stop in self._stretches[name]
        ]
        table = pa.concat_tables(parts)
        x = self._decoded(table, name)
        return torch.from_numpy(x), torch.from_numpy(self._targets(table, name, x.dtype))

    def _decoded(self, table: pa.Table, client: str) -> np.ndarray:
        """Return inputs ``[n, ...]``."""
        values = table[self._inputs[0]]
        if self._images:
            return self._decoded_images(values.to_pylist(), client)
        if len(self._inputs) > 1 or not pa.types.is_nested(values.type):
            columns = [_numbers(table[name], name, client) for name in self._inputs]
            return np.stack(columns, axis=1).astype(np.float32)
        return _numbers(values, self._inputs[0], client)

    def _decoded_images(self, cells: list[Any], client: str) -> np.ndarray:
        """Return the images of cells that hold bytes, or a struct with a field ``bytes``."""
        encoded = [cell["bytes"] if isinstance(cell, dict) else cell for cell in cells]
        return np.stack(
            [
                decoded(BytesIO(image or b""), self._size, self._mode, f"image {i} of client {client!r}")
                for i, image in enumerate(encoded)
            ]
        )

    def _targets(self, table: pa.Table, client: str, inputs: np.dtype) -> np.ndarray:
        """Return labels int64 ``[n]``, or numbers to predict in the type of floating-point inputs."""
        if self._classes is None:
            values = table[self._label]
            values = values.cast(pa.int64()) if pa.types.is_boolean(values.type) else values
            array = _numbers(values, self._label, client)
            if self._task == "classification" and (array != np.rint(array)).any():
                raise DataError(
                    f"column {self._label!r} holds fractions, which are no classes: write task='regression'"
                )
            is_number = self._task == "regression" or (self._task is None and array.dtype.kind == "f")
            return array.astype((inputs if inputs.kind == "f" else np.float32) if is_number else np.int64)
        values = table[self._label].to_pylist()
        if unknown := [value for value in values if value not in self._classes]:
            names = ", ".join(self._classes)
            raise DataError(f"{self._label}: client {client!r} has {unknown[0]!r}, which is none of {names}")
        return np.array([self._classes[value] for value in values], dtype=np.int64)


def _numbers(values: pa.ChunkedArray, column: str, client: str) -> np.ndarray:
    """Return numbers, or lists of numbers of one length, in the type of the column; booleans become float32.

    Unsigned types of more than 8 bits, with which torch does not compute, become the next larger signed type.
    """
    kind = values.type
    while pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        kind = kind.value_type
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
        raise DataError(f"column {column!r} holds {kind}, needed numbers: cast it before, or leave it out")
    dtype = np.dtype(np.float32 if pa.types.is_boolean(kind) else kind.to_pandas_dtype())
    wider = {"uint16": np.int32, "uint32": np.int64, "uint64": np.int64}.get(dtype.name, dtype)
    try:
        array = np.array(values.to_pylist(), dtype=wider)
        if np.isnan(array).any():  # as which NumPy reads None among floats
            raise TypeError
        return array
    except TypeError as error:
        raise DataError(f"column {column!r}: client {client!r} has a missing value: drop or fill it before") from error
    except OverflowError as error:
        raise DataError(f"column {column!r}: client {client!r} has a number above 2^63 - 1, needed int64") from error
    except ValueError as error:
        raise DataError(f"column {column!r}: client {client!r} has lists of several lengths, needed one") from error


def _is_one_of(kind: pa.DataType, *names: str) -> bool:
    """Return whether a type is one of these types of Arrow."""
    return any(getattr(pa.types, f"is_{name}")(kind) for name in names)


def _paths(path: Path) -> list[Path]:
    """Return a file, or the Parquet files of a folder in the order of their names."""
    paths = sorted(path.glob("*.parquet")) if path.is_dir() else [path]
    if not paths or not all(part.is_file() for part in paths):
        raise DataError(f"{path} holds no Parquet files")
    return paths


def _opened(path: Path) -> pq.ParquetFile:
    """Open a Parquet file, which reads only its schema."""
    try:
        return pq.ParquetFile(path)
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"{path} is no Parquet file ({error})") from error
