"""Convert images of Pillow of any mode to numbers in [0, 1]: the only place that reads pixels, for all readers of images."""

from __future__ import annotations

from typing import Any

import numpy as np

from turnout.core.checks import ConfigurationError, DataError
from turnout.core.extras import imported

_GRAY = {"1", "L", "LA", "La"}
"""Modes with 8 bits or less and without colors."""

_DEEP = {"I;16", "I;16L", "I;16B", "I;16N", "I"}
"""Modes of 16-bit gray values; Pillow has them in 32 bits as well, in mode I."""

_WHITE = 65_535

_ORIENTATION = 0x0112
"""The EXIF tag of a photograph's orientation; 1 is upright."""


def mode_of(colors: int) -> str:
    """Return Pillow's mode of images with 1 or 3 colors; raise an error for other numbers."""
    if colors not in (1, 3):
        raise ConfigurationError(f"colors: got {colors}, needed 3, or 1 for gray")
    return "RGB" if colors == 3 else "L"


def unit_pixels(image: Any, name: str) -> np.ndarray:
    """Return an image of Pillow as float32 ``[C, H, W]`` in [0, 1]: C is 1 for modes without colors, and 3 for the others.

    Raises:
        DataError: if its mode has no conversion to RGB, or its values have another range than the mode.
    """
    image = _upright(image)
    deep = _deep(image, name)
    if deep is not None:
        return deep[None]
    pixels = _eight_bits(image, "L" if image.mode in _GRAY else "RGB", None, name)
    return pixels.astype(np.float32) / np.float32(255.0)


def byte_pixels(image: Any, mode: str, size: int | None, name: str) -> np.ndarray:
    """Return an image of Pillow as uint8 ``[C, H, W]``, with 16-bit and floating-point values in proportion.

    Args:
        image: the image.
        mode: ``"RGB"``, or ``"L"`` for gray.
        size: height and width to which it is scaled; None keeps its own.
        name: name of the image in errors.

    Raises:
        DataError: if its mode has no conversion, or its values have another range than the mode.
    """
    image = _upright(image)
    deep = _deep(image, name)
    if deep is None:
        return _eight_bits(image, mode, size, name)
    if size is not None:
        scaled = _resized(pillow().fromarray(deep), size)
        deep = np.asarray(scaled, dtype=np.float32).clip(0.0, 1.0)
    gray = np.rint(deep * 255.0).astype(np.uint8)
    return np.repeat(gray[None], 3 if mode == "RGB" else 1, axis=0)


def _upright(image: Any) -> Any:
    """Return an image turned as its EXIF orientation says, as programs show it."""
    if not hasattr(image, "getexif") or image.getexif().get(_ORIENTATION, 1) == 1:
        return image
    return pillow("PIL.ImageOps").exif_transpose(image)


def pillow(module: str = "PIL.Image") -> Any:
    """Import a module of Pillow.

    Raises:
        ConfigurationError: if it is not installed.
    """
    return imported(module, "reading images", "pillow", "Pillow")


def _resized(image: Any, size: int) -> Any:
    """Return an image of Pillow, scaled to a square."""
    return image.resize((size, size), pillow().Resampling.BILINEAR)


def _eight_bits(image: Any, mode: str, size: int | None, name: str) -> np.ndarray:
    """Return an image whose values have 8 bits or less, converted to a mode."""
    # Pillow converts these to RGB, or to gray, only by another mode.
    by = {"La": "LA", "RGBa": "RGBA", "LAB": "RGB", "P": "RGBA" if "transparency" in image.info else None}.get(
        image.mode
    )
    try:
        converted = (image if by is None else image.convert(by)).convert(mode)
    except ValueError as error:
        raise DataError(
            f"{name} has mode {image.mode}, which Pillow does not convert to {mode} ({error}): convert it to RGB first"
        ) from error
    pixels = np.asarray(converted if size is None else _resized(converted, size))
    return pixels[None].copy() if pixels.ndim == 2 else pixels.transpose(2, 0, 1).copy()


def _deep(image: Any, name: str) -> np.ndarray | None:
    """Return gray values of more than 8 bits, float32 ``[H, W]`` in [0, 1]; None for other images."""
    if image.mode not in {*_DEEP, "F"}:
        return None
    values = np.asarray(image)
    low, high = values.min(initial=0), values.max(initial=0)
    largest = 1 if image.mode == "F" else _WHITE
    if not (low >= 0 and high <= largest):  # which is false for NaN
        raise DataError(
            f"{name} has mode {image.mode} with values from {low:g} to {high:g}, needed 0 to {largest}, black to white: "
            "scale them to that range, or give arrays instead of images, which are not scaled"
        )
    return (values / np.float64(largest)).astype(np.float32)
