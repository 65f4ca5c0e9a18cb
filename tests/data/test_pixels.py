"""Images of every mode of Pillow, read by every reader."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import turnout as to
from turnout.core.checks import DataError
from turnout.data.pixels import byte_pixels, unit_pixels

Image = pytest.importorskip("PIL.Image", reason="images need Pillow: pip install pillow")

RAMP = np.linspace(0, 65_535, 64).round().astype(np.uint16).reshape(8, 8)
IN_PROPORTION = RAMP / 65_535

COLORS = Image.fromarray(np.random.default_rng(0).integers(0, 256, (8, 8, 3), dtype=np.uint8))
"""An image with different values everywhere."""


def deep(mode: str) -> Any:
    """Return the ramp from black to white in a mode with more than 8 bits."""
    if mode in ("I;16B", "I;16"):
        kind = {"I;16B": ">u2", "I;16": "<u2"}[mode]
        return Image.frombytes(mode, (8, 8), RAMP.astype(kind).tobytes())
    return Image.fromarray(RAMP.astype(np.int32) if mode == "I" else IN_PROPORTION.astype(np.float32))


@pytest.mark.parametrize("mode", ["I;16", "I;16B", "I", "F"])
def test_deep_images_are_in_proportion(mode: str) -> None:
    image = deep(mode)
    assert image.mode == mode
    x = unit_pixels(image, "it")
    assert (x.shape, x.dtype) == ((1, 8, 8), np.float32)
    np.testing.assert_allclose(x[0], IN_PROPORTION, atol=1e-7)
    for wanted, colors in (("L", 1), ("RGB", 3)):
        gray = byte_pixels(image, wanted, None, "it")
        assert (gray.shape, gray.dtype) == ((colors, 8, 8), np.uint8)
        np.testing.assert_allclose(gray, np.broadcast_to(IN_PROPORTION * 255, gray.shape), atol=0.501)
        small = byte_pixels(image, wanted, 4, "it")
        assert abs(small.mean() - 127.5) < 1
        assert len(np.unique(small)) == 16


@pytest.mark.parametrize(
    "mode", ["1", "L", "LA", "La", "P", "RGB", "RGBX", "RGBA", "RGBa", "CMYK", "YCbCr", "HSV", "LAB"]
)
def test_modes_of_eight_bits_have_the_values_that_one_sees(mode: str) -> None:
    image = {"La": "LA", "RGBa": "RGBA"}.get(mode)
    image = COLORS.convert(mode) if image is None else COLORS.convert(image).convert(mode)
    is_gray = mode in ("1", "L", "LA", "La")
    if mode == "1":
        right = np.asarray(image, dtype=np.float64)[None]
    elif is_gray:
        right = np.asarray(COLORS.convert("L"))[None] / 255
    else:
        right = np.asarray(image.convert("RGBA" if mode == "RGBa" else "RGB"))[..., :3].transpose(2, 0, 1) / 255
    np.testing.assert_allclose(unit_pixels(image, "it"), right, atol=1e-6)
    np.testing.assert_allclose(byte_pixels(image, "L" if is_gray else "RGB", None, "it") / 255, right, atol=1e-6)
    if mode in ("RGBA", "RGBX"):
        np.testing.assert_array_equal(byte_pixels(image, "RGB", None, "it"), np.asarray(COLORS).transpose(2, 0, 1))


def test_palette_with_transparent_entries_has_its_colors() -> None:
    image = Image.new("P", (2, 1))
    image.putpalette([255, 0, 0, 0, 0, 255])
    image.putdata([0, 1])
    image.info["transparency"] = b"\x00\xff"
    assert byte_pixels(image, "RGB", None, "it")[:, 0].T.tolist() == [[255, 0, 0], [0, 0, 255]]


def test_every_reader_gives_the_same_values(tmp_path: Path) -> None:
    for client in "ab":
        (tmp_path / client / "x").mkdir(parents=True)
        for name in ("1.png", "2.tif"):
            deep("I;16").save(tmp_path / client / "x" / name)
    for x, _ in to.data.ImageFolder(tmp_path, size=8, colors=1):
        np.testing.assert_array_equal(x[0, 0], np.rint(IN_PROPORTION * 255))
        np.testing.assert_array_equal(x[1], x[0])
    file = io.BytesIO()
    deep("I;16").save(file, "png")
    pq.write_table(pa.table({"who": ["a"], "image": [file.getvalue()], "y": [0]}), tmp_path / "i.parquet")
    ((x, _),) = to.data.ParquetClients(tmp_path / "i.parquet", client="who", label="y", inputs="image", size=8)
    np.testing.assert_array_equal(x[0], np.broadcast_to(np.rint(IN_PROPORTION * 255), (3, 8, 8)))
    source = to.data.from_dataset([(deep("I;16"), 0), (deep("I"), 1)])
    np.testing.assert_allclose(source.x[:, 0], np.stack([IN_PROPORTION] * 2), atol=1e-7)
    datasets = pytest.importorskip("datasets", reason="needs the extra huggingface")
    table = datasets.Dataset.from_dict({"image": [deep("I;16")], "label": [0]})
    np.testing.assert_allclose(to.data.from_huggingface(table).x[0, 0], IN_PROPORTION, atol=1e-7)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (np.full((2, 2), 70_000, np.int32), "example 0 has mode I with values from 0 to 70000, needed 0 to 65535"),
        (np.full((2, 2), -1, np.int32), "mode I with values from -1 to 0, needed 0 to 65535"),
        (
            np.full((2, 2), 255.0, np.float32),
            "mode F with values from 0 to 255, needed 0 to 1, black to white: scale them",
        ),
        (np.full((2, 2), np.nan, np.float32), "mode F with values from nan to nan"),
    ],
)
def test_values_of_an_unknown_range_are_refused(values: np.ndarray, message: str) -> None:
    with pytest.raises(DataError, match=message):
        to.data.from_dataset([(Image.fromarray(values), 0)])


def test_mode_without_a_conversion_is_refused() -> None:
    class Spectral:
        mode, info, getbands = "MS", {}, None

        def convert(self, mode: str) -> None:
            raise ValueError(f"conversion from {self.mode} to {mode} not supported")

    with pytest.raises(
        DataError, match=r"example 0 has mode MS, which Pillow does not convert to RGB .*: convert it to RGB"
    ):
        to.data.from_dataset([(Spectral(), 0)])


@pytest.mark.parametrize(("orientation", "corner"), [(1, (0, 0)), (3, (3, 3)), (6, (0, 3)), (8, (3, 0))])
def test_photographs_are_turned_as_their_orientation_says(tmp_path, orientation, corner):
    """A mark at the top left of the stored pixels is where a viewer shows it, in files and in images of a data set."""
    stored = np.zeros((4, 4, 3), np.uint8)
    stored[0, 0] = 255
    image = Image.fromarray(stored)
    exif = image.getexif()
    exif[0x0112] = orientation
    (tmp_path / "me" / "x").mkdir(parents=True)
    image.save(tmp_path / "me" / "x" / "1.png", exif=exif)
    x, _ = next(iter(to.data.ImageFolder(tmp_path, size=4)))
    with Image.open(tmp_path / "me" / "x" / "1.png") as opened:
        opened.load()
        source = to.data.from_dataset([(opened, 0), (opened, 1)])
    for pixels in (x[0, 0].float() / 255, source.x[0, 0]):
        assert [tuple(at) for at in (pixels == 1).nonzero().tolist()] == [corner]
