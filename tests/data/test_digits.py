import sys

import pytest
import torch

from turnout.core.checks import ConfigurationError
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


def test_without_scikit_learn_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'turnout\[digits\]'"):
        digits()
