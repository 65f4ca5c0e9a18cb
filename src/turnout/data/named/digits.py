"""Load the digits of scikit-learn, for first experiments without a download."""

from __future__ import annotations

import importlib.util
import os
from functools import cache
from pathlib import Path

import numpy as np
import torch

from turnout.core.checks import ConfigurationError, DataError
from turnout.data.directory import Place, declare
from turnout.data.reading import UNPACKING_ERRORS
from turnout.data.source import SOURCES, Source

_FILE = Path("datasets", "data", "digits.csv.gz")


def scikit_learn() -> Path | None:
    """Return the folder of scikit-learn, None if it is not installed, without importing it, which is slow."""
    spec = importlib.util.find_spec("sklearn")
    return None if spec is None or spec.origin is None else Path(spec.origin).parent


class _InScikitLearn(Place):
    """The location of the digits: where scikit-learn is installed."""

    def candidates(self, directory: str | os.PathLike[str] | None = None) -> list[Path]:
        """Return the folder of scikit-learn, if it is installed."""
        return [inside] if (inside := scikit_learn()) else []


DIGITS = _InScikitLearn("digits", (str(_FILE),), ())
declare("digits", DIGITS, elsewhere="inside scikit-learn: pip install '.[digits]'")


@SOURCES.register
def digits() -> Source:
    """1,797 scanned digits of 8x8 pixels, 10 classes; part of scikit-learn, so nothing is downloaded.

    Inputs are flat, float32 ``[1797, 64]``, with pixels in [0, 1]. There is no official test split, and writers are unknown.

    Raises:
        ConfigurationError: if scikit-learn is not installed.
        DataError: if its installation lacks the file.

    Reference: E. Alpaydin and C. Kaynak, "Optical Recognition of Handwritten Digits", UCI Repository, 1998.
    """
    if (inside := scikit_learn()) is None:
        raise ConfigurationError("digits come with scikit-learn: pip install '.[digits]' in a clone of turnout")
    if not (inside / _FILE).is_file():
        raise DataError(f"scikit-learn is in {inside}, but {_FILE} is not: install it anew, with pip")
    pixels, labels = np.split(_read(inside / _FILE), [64], axis=1)
    return Source(
        name="digits",
        x=torch.tensor(pixels / 16.0, dtype=torch.float32),
        y=torch.tensor(labels[:, 0], dtype=torch.int64),
        num_classes=10,
        recipe={"source": "digits"},
    )


@cache
def _read(path: Path) -> np.ndarray:
    """Read the rows of the file; cached, because every run of a comparison loads them."""
    try:
        rows = np.loadtxt(path, delimiter=",", dtype=np.uint8)
    except (ValueError, *UNPACKING_ERRORS) as error:
        raise DataError(f"{path} is damaged ({error}): install scikit-learn anew, with pip") from error
    rows.flags.writeable = False
    return rows
