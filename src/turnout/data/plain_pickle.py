"""Read pickles of dictionaries, lists, numbers, texts and arrays, without running any other code."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np

from turnout.core.checks import DataError


def _bytes(text: str, encoding: str) -> bytes:
    """Encode bytes that a pickle contains as text, in latin1, the only encoding that pickles use for it."""
    if encoding != "latin1":
        raise DataError(f"it encodes bytes by {encoding!r}, needed latin1")
    return text.encode("latin1")


_OF_ARRAYS = {
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("numpy.core.multiarray", "_reconstruct"): np.empty(0).__reduce__()[0],
    ("numpy._core.multiarray", "_reconstruct"): np.empty(0).__reduce__()[0],
    ("_codecs", "encode"): _bytes,
}
"""All classes and functions in a pickle of arrays."""


class _Unpickler(pickle.Unpickler):
    """An unpickler that allows no classes and functions but those of arrays."""

    arrays = False

    def find_class(self, module: str, name: str) -> Any:
        known = _OF_ARRAYS if self.arrays else {}
        if (module, name) not in known:
            read = "dictionaries, lists, numbers and texts" + (" and arrays" if self.arrays else "")
            raise DataError(f"it names {module}.{name}, and only {read} are read")
        return known[module, name]


def read_pickle(path: Path, *, arrays: bool = False) -> Any:
    """Read a pickle, also of Python 2; `arrays` allows arrays.

    Raises:
        DataError: if a pickle is damaged or contains other objects.
    """
    try:
        with path.open("rb") as stream:
            unpickler = _Unpickler(stream, encoding="latin1")
            unpickler.arrays = arrays
            return unpickler.load()
    except DataError as error:
        raise DataError(f"{path}: {error}") from error
    except Exception as error:  # a damaged pickle can raise errors of any kind
        raise DataError(f"{path} is not a pickle that can be read: {error}") from error
