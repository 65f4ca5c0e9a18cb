import importlib.util
import sys
from importlib.machinery import ModuleSpec

import pytest
import torch

from turnout.core.checks import ConfigurationError, DataError
from turnout.data.digits import digits


def test_digits_are_flat_scaled_and_complete():
    pytest.importorskip("sklearn")
    source = digits()
    assert source.x.shape == (1797, 64)
    assert source.x.dtype == torch.float32
    assert (source.x.min(), source.x.max()) == (0, 1)
    assert torch.bincount(source.y).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    assert source.test_x is None
    assert source.client_ids is None


def test_digits_are_those_that_scikit_learn_gives():
    pixels, labels = pytest.importorskip("sklearn.datasets").load_digits(return_X_y=True)
    source = digits()
    assert torch.equal(source.x, torch.tensor(pixels / 16.0, dtype=torch.float32))
    assert source.y.tolist() == labels.tolist()


def test_scikit_learn_is_not_imported_for_them(monkeypatch):
    if importlib.util.find_spec("sklearn") is None:
        pytest.skip("scikit-learn is not installed")
    for name in [name for name in sys.modules if name.partition(".")[0] == "sklearn"]:
        monkeypatch.delitem(sys.modules, name)
    digits()
    assert "sklearn" not in sys.modules


def test_without_scikit_learn_it_says_what_to_install(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(ConfigurationError, match=r"pip install 'turnout\[digits\]'"):
        digits()


def test_without_the_file_it_says_where_it_should_be(monkeypatch, tmp_path):
    spec = ModuleSpec("sklearn", None, origin=str(tmp_path / "__init__.py"))
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: spec)
    with pytest.raises(DataError, match=rf"scikit-learn is in {tmp_path}, but datasets.data.digits.csv.gz is not"):
        digits()
