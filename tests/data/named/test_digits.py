"""Scanned digits of scikit-learn."""

import gzip
import importlib.util
import sys
from importlib.machinery import ModuleSpec

import pytest
import torch

from turnout.core.checks import ConfigurationError, DataError
from turnout.data.named.digits import digits


def test_digits_are_flat_scaled_and_complete():
    pytest.importorskip("sklearn")
    source = digits()
    assert source.x.shape == (1797, 64)
    assert source.x.dtype == torch.float32
    assert (source.x.min(), source.x.max()) == (0, 1)
    assert torch.bincount(source.y).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    assert source.test_x is None
    assert source.client_ids is None


def test_equal_those_of_scikit_learn():
    pixels, labels = pytest.importorskip("sklearn.datasets").load_digits(return_X_y=True)
    source = digits()
    assert torch.equal(source.x, torch.tensor(pixels / 16.0, dtype=torch.float32))
    assert source.y.tolist() == labels.tolist()


def test_loading_does_not_import_scikit_learn(monkeypatch):
    if importlib.util.find_spec("sklearn") is None:
        pytest.skip("scikit-learn is not installed")
    for name in [name for name in sys.modules if name.partition(".")[0] == "sklearn"]:
        monkeypatch.delitem(sys.modules, name)
    digits()
    assert "sklearn" not in sys.modules


def test_missing_scikit_learn_names_the_package_to_install(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(ConfigurationError, match=r"pip install '\.\[digits\]'"):
        digits()


def test_missing_file_is_named(monkeypatch, tmp_path):
    spec = ModuleSpec("sklearn", None, origin=str(tmp_path / "__init__.py"))
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: spec)
    with pytest.raises(DataError, match=rf"scikit-learn is in {tmp_path}, but datasets.data.digits.csv.gz is not"):
        digits()


def test_damaged_file_is_named(monkeypatch, tmp_path):
    spec = ModuleSpec("sklearn", None, origin=str(tmp_path / "__init__.py"))
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: spec)
    file = tmp_path / "datasets" / "data" / "digits.csv.gz"
    file.parent.mkdir(parents=True)
    file.write_bytes(gzip.compress(b"1,2,many"))
    with pytest.raises(DataError, match=r"digits.csv.gz is damaged \(.*many.*: install scikit-learn anew, with pip"):
        digits()
