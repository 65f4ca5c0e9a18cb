"""Folders of images, read one client at a time."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import turnout as to
from turnout.core.checks import ConfigurationError, DataError
from turnout.data import Iid, ImageFolder, from_dataset, from_images, images

from ..logs import logged

Image = pytest.importorskip("PIL.Image", reason="images need Pillow: pip install pillow")


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Three clients with cats and dogs, whose images are of one color, and a file that is none."""
    for k, client in enumerate(("ann", "bob", "eve")):
        for c, kind in enumerate(("cat", "dog")):
            (tmp_path / "photos" / client / kind).mkdir(parents=True)
            for number in range(2 + k):
                color = (10 * k, 100 * c, 20 * number)
                Image.new("RGB", (12, 8), color).save(tmp_path / "photos" / client / kind / f"{number}.png")
    (tmp_path / "photos/ann/cat/notes.txt").write_text("no image")
    (tmp_path / "photos/nobody").mkdir()
    return tmp_path / "photos"


def test_clients_are_decoded_in_order_and_stored(photos: Path, tmp_path: Path) -> None:
    images = ImageFolder(photos, size=4)
    assert (len(images), images.clients, images.classes) == (3, ("ann", "bob", "eve"), ("cat", "dog"))
    for k, (x, y) in enumerate(images):
        assert (x.dtype, tuple(x.shape)) == (torch.uint8, (2 * (2 + k), 3, 4, 4))
        assert y.tolist() == [0] * (2 + k) + [1] * (2 + k)
        assert x[:, :, 2, 1].tolist() == [[10 * k, 100 * c, 20 * n] for c in (0, 1) for n in range(2 + k)]
    to.data.store(tmp_path / "store", {"train": images}, num_classes=2, client_names=images.clients)
    data = to.data.stored(tmp_path / "store", transforms=(to.data.Normalize(0.5, 0.25),))
    assert data.client_names == images.clients
    run = to.Experiment(data=data, model=to.models.Logistic(), rounds=20)
    assert run.run().summary()["train_accuracy"] == 1.0
    gray = next(iter(ImageFolder(photos, size=4, colors=1)))[0]
    assert tuple(gray.shape[1:]) == (1, 4, 4)


def test_only_one_client_is_decoded_ahead(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    decoded, lock = [], threading.Lock()
    original = images.decoded

    def watched(path: Path, **options: Any) -> np.ndarray:
        with lock:
            decoded.append(path.parts[-3])
        return original(path, **options)

    monkeypatch.setattr(images, "decoded", watched)
    clients = iter(ImageFolder(photos, size=4))
    next(clients)
    assert "eve" not in decoded
    next(clients)
    assert list(clients)
    assert len(decoded) == 2 * (2 + 3 + 4)


def test_folder_without_images_is_refused(photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataError, match=r"holds no images: needed files such as CLIENT/CLASS/1.png"):
        ImageFolder(tmp_path / "nowhere", size=4)
    with pytest.raises(ConfigurationError, match="colors: got 4, needed 3, or 1 for gray"):
        ImageFolder(photos, size=4, colors=4)
    with pytest.raises(ConfigurationError, match="size: got 0"):
        ImageFolder(photos, size=0)
    with pytest.raises(DataError, match="has images of class 'dog', which is none of cat"):
        ImageFolder(photos, size=4, classes=("cat",))
    (photos / "bob/dog/0.png").write_bytes(b"no png")
    with pytest.raises(DataError, match=r"0.png cannot be decoded \(.*\): replace or delete it"):
        list(ImageFolder(photos, size=4))
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(
        ConfigurationError, match="reading images needs Pillow, which is not installed: pip install 'pillow'"
    ):
        ImageFolder(photos, size=4)


def test_folders_of_classes_are_a_source_that_a_partition_splits(tmp_path: Path) -> None:
    for name, values in {"cat/ann_1": 10, "cat/bob_1": 20, "dog/ann_2": 30, "dog/bob_2": 40}.items():
        path = tmp_path / f"{name}.png"
        path.parent.mkdir(exist_ok=True)
        Image.new("RGB", (6, 6), (values, values, values)).save(path)
    source = from_images(tmp_path, size=4)
    assert (source.x.shape, source.y.tolist()) == ((4, 3, 4, 4), [0, 0, 1, 1])
    assert source.x[:, 0, 0, 0].tolist() == [10, 20, 30, 40]
    assert source.split(Iid(), num_clients=2, test_fraction=0.0).num_clients == 2
    natural = from_images(tmp_path, size=4, client=lambda path: path.stem.split("_")[0]).split(test_fraction=0.0)
    assert natural.client_names == ("ann", "bob")
    with pytest.raises(
        DataError, match=r"needed files such as CLIENT/CLASS/1.png; to.data.from_images\(.*, size=4\) reads CLASS/1"
    ):
        ImageFolder(tmp_path, size=4)
    with pytest.raises(DataError, match=r"holds no images: needed files such as CLASS/1.png"):
        from_images(tmp_path / "nowhere", size=4)


def test_hidden_folders_are_no_classes_and_files_elsewhere_are_named(photos: Path) -> None:
    """Notebooks write copies to ``.ipynb_checkpoints``, and torchvision reads images in further folders as well."""
    copy = (photos / "ann/cat/0.png").read_bytes()
    for hidden in ("ann/.ipynb_checkpoints/0.png", ".trash/cat/0.png", "ann/cat/._0.png"):
        (photos / hidden).parent.mkdir(exist_ok=True, parents=True)
        (photos / hidden).write_bytes(copy)
    with logged(
        r"photos: 1 files are not read, such as ann/cat/notes.txt, as they are not \*/\*/\* with one of the endings"
    ):
        assert (ImageFolder(photos, size=4).clients, ImageFolder(photos, size=4).classes) == (
            ("ann", "bob", "eve"),
            ("cat", "dog"),
        )
    (photos / "ann/cat/notes.txt").unlink()
    (photos / "ann/cat/more").mkdir()
    (photos / "ann/cat/more/1.png").write_bytes(copy)
    with logged(r"ann: 1 files are not read, such as cat/more/1.png, as they are not \*/\* with"):
        source = from_images(photos / "ann", size=4)
    assert (len(source.x), source.num_classes) == (4, 2)


def test_a_dataset_of_triples_says_what_to_write() -> None:
    triples = [(torch.zeros(2), 0, "ann"), (torch.zeros(2), 1, "bob")]
    with pytest.raises(
        ConfigurationError, match=r"is a tuple of 3, needed .* write to.data.from_arrays\(x, y, client_ids=clients\)"
    ):
        from_dataset(triples)
