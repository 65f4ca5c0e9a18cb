"""Digits: real scanned handwriting that comes inside scikit-learn, for first experiments without any download."""

from __future__ import annotations

import torch

from turnout.core.checks import ConfigurationError
from turnout.data.source import Source


def digits() -> Source:
    """1,797 scanned digits of 8x8 pixels, 10 classes; inside scikit-learn, so nothing is downloaded.

    Inputs are flat, float32 ``[1797, 64]``, pixels scaled to [0, 1]. There is no official test split and no writer.

    Raises:
        ConfigurationError: if scikit-learn is not installed.

    Reference: E. Alpaydin and C. Kaynak, "Optical Recognition of Handwritten Digits", UCI Repository, 1998.
    """
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise ConfigurationError("digits come with scikit-learn: pip install 'turnout[digits]'") from error
    pixels, labels = load_digits(return_X_y=True)
    return Source(
        name="digits",
        x=torch.tensor(pixels / 16.0, dtype=torch.float32),
        y=torch.tensor(labels, dtype=torch.int64),
        num_classes=10,
        recipe={"source": "digits"},
    )
