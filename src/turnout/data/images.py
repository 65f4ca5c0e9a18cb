"""Read images from folders, one client at a time, for data that do not fit into memory."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch

from turnout.core.checks import DataError, count
from turnout.core.earlier_names import takes_earlier_names
from turnout.core.other_names import explains_arguments
from turnout.data.arrays import from_arrays
from turnout.data.names import note_classes
from turnout.data.pixels import byte_pixels, mode_of, pillow
from turnout.data.source import Source
from turnout.data.values import different_names

LOG = logging.getLogger("turnout.data")

_ENDINGS = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".ppm", ".pgm", ".tif", ".tiff"}


Name = TypeVar("Name")
Client = TypeVar("Client")


def one_ahead(load: Callable[[Name], Client], clients: Iterable[Name]) -> Iterator[Client]:
    """Yield the result of `load` for each client, while a thread loads the next one."""
    with ThreadPoolExecutor(1) as pool:
        following = None
        for client in clients:
            current, following = following, pool.submit(load, client)
            if current is not None:
                yield current.result()
        if following is not None:
            yield following.result()


@takes_earlier_names
class ImageFolder:
    """Clients with images in ``FOLDER/CLIENT/CLASS/NAME.png``, for `turnout.data.store`, which writes them one by one.

    Iterating yields the images of each client, uint8 ``[n, C, size, size]``, and their labels, int64 ``[n]``. Threads decode
    the next client in advance, so that two clients are in memory. Images may have any mode of Pillow; 16-bit values become
    8-bit values in proportion. Hidden folders and files are left out, and others that are not read are named in the log.

    Args:
        folder: folder with a folder for each client. Clients, and the images of a client, are in the order of their
            names.
        size: height and width to which images are scaled.
        colors: 3, or 1 for gray.
        classes: names of the folders of classes; None is those of all clients in sorted order.
        threads: number of threads for decoding.

    Raises:
        ConfigurationError: if the size is below 1, the number of colors is neither 1 nor 3, or Pillow is not
            installed.
        DataError: if there are no images, a class is not among `classes` or, during iteration, a file cannot be
            decoded.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        size: int,
        *,
        colors: int = 3,
        classes: Sequence[str] | None = None,
        threads: int = 2,
    ) -> None:
        count("size", size)
        count("threads", threads)
        self._size, self._mode, self._threads, root = size, mode_of(colors), threads, Path(folder)
        pillow()
        files: dict[str, list[Path]] = {}
        for path in _images(root, "*/*/*"):
            files.setdefault(path.parts[-3], []).append(path)
        if not files:
            classes_only = any(path.suffix.lower() in _ENDINGS for path in root.glob("*/*"))
            instead = f"; to.data.from_images({str(root)!r}, size={size}) reads CLASS/1.png" if classes_only else ""
            raise DataError(f"{root} holds no images: needed files such as CLIENT/CLASS/1.png{instead}")
        self._files = list(files.values())
        self.clients = tuple(files)
        different_names(f"{root}: clients", self.clients)
        names = sorted({path.parent.name for files in self._files for path in files})
        different_names(f"{root}: classes", names)
        self.classes = tuple(names if classes is None else classes)
        if unknown := [name for name in names if name not in self.classes]:
            raise DataError(f"{root} has images of class {unknown[0]!r}, which is none of {', '.join(self.classes)}")
        note_classes("folders of classes", self.classes)

    def __len__(self) -> int:
        return len(self.clients)

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        with ThreadPoolExecutor(self._threads) as pool:
            yield from one_ahead(lambda files: self._client(files, pool), self._files)

    def _client(self, files: list[Path], pool: ThreadPoolExecutor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the images of a client and their labels."""
        images = list(pool.map(partial(decoded, size=self._size, mode=self._mode), files))
        labels = [self.classes.index(path.parent.name) for path in files]
        return torch.from_numpy(np.stack(images)), torch.tensor(labels)


@explains_arguments
def from_images(
    folder: str | os.PathLike[str],
    size: int,
    *,
    colors: int = 3,
    client: Callable[[Path], object] | None = None,
    threads: int = 2,
    name: str = "images",
) -> Source:
    """Make a source from images in ``FOLDER/CLASS/NAME.png``, the layout of `torchvision.datasets.ImageFolder`.

    The classes are the folders in sorted order, without hidden ones. Images of any mode of Pillow become uint8 ``[n, C, size,
    size]``, in memory. Files that are not read, such as those in further folders, are named in the log.

    Args:
        folder: the folder with a folder for each class.
        size: height and width to which images are scaled.
        colors: 3, or 1 for gray.
        client: a function from the path of an image to its client, such as ``lambda path: path.stem.split("_")[0]``; None for
            a partition in `split`, such as ``Dirichlet(0.1)``.
        threads: number of threads for decoding.
        name: name of the data in reports.

    Raises:
        ConfigurationError: if the size is below 1, the number of colors is neither 1 nor 3, or Pillow is not installed.
        DataError: if there are no images, or a file cannot be decoded.
    """
    count("size", size)
    count("threads", threads)
    mode, root = mode_of(colors), Path(folder)
    files = _images(root, "*/*")
    if not files:
        raise DataError(f"{root} holds no images: needed files such as CLASS/1.png")
    classes = sorted({path.parent.name for path in files})
    different_names(f"{root}: classes", classes)
    note_classes("folders of classes", tuple(classes))
    with ThreadPoolExecutor(threads) as pool:
        pixels = list(pool.map(partial(decoded, size=size, mode=mode), files))
    labels = torch.tensor([classes.index(path.parent.name) for path in files])
    owners = None if client is None else [str(client(path)) for path in files]
    return from_arrays(
        torch.from_numpy(np.stack(pixels)), labels, client_ids=owners, num_classes=len(classes), name=name
    )


def _images(root: Path, form: str) -> list[Path]:
    """Return the images of this form below a folder in order, without hidden ones, and note the files that are left out."""

    def visible(path: Path) -> bool:
        return not any(part.startswith(".") for part in path.relative_to(root).parts)

    found = [path for path in sorted(root.glob(form)) if path.suffix.lower() in _ENDINGS and visible(path)]
    others = set(root.rglob("*")).difference(found)
    if found and (left := sorted(path for path in others if visible(path) and path.is_file())):
        LOG.warning("%s: %d files are not read, such as %s, as they are not %s with one of the endings %s",
                    root, len(left), left[0].relative_to(root), form, ", ".join(sorted(_ENDINGS)))  # fmt: skip
    return found


def decoded(file: Path | BytesIO, size: int | None, mode: str, name: str | None = None) -> np.ndarray:
    """Decode an image of any mode to uint8 ``[C, size, size]``; see `turnout.data.pixels`.

    Args:
        file: file with the encoded image.
        size: height and width to which it is scaled; None keeps its own.
        mode: ``"RGB"``, or ``"L"`` for gray.
        name: name of the image in errors; None is the path.

    Raises:
        DataError: if it cannot be decoded, or its mode has no conversion.
    """
    name = name or str(file)
    image = pillow()
    try:
        with image.open(file) as opened:
            return byte_pixels(opened, mode, size, name)
    except DataError:
        raise
    except (OSError, ValueError, SyntaxError) as error:
        raise DataError(f"{name} cannot be decoded ({error}): replace or delete it") from error
