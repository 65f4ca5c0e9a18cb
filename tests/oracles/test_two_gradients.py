"""A solver with two gradients a step, as the guide writes it, compared with NumPy."""

import re
from pathlib import Path

import numpy as np
import pytest

from turnout import average_participating

from ..tiny import presence
from . import rules
from .rules import softmax_gradient
from .test_rules import N, T, ours, theirs

GUIDE = (Path(__file__).parents[2] / "docs/guides/pieces.md").read_text("utf-8")


@pytest.fixture(scope="module")
def sam():
    """The solver of the guide."""
    (source,) = re.findall(r"```python\n(@dataclass\(frozen=True\)\nclass Ascended.*?)```", GUIDE, re.DOTALL)
    names: dict = {}
    exec("from dataclasses import dataclass\nimport turnout as to\n" + source, names)
    return names["Sam"]


@pytest.mark.parametrize("engine", ["vectorized", "one_by_one"])
def test_sharpness_aware_steps_equal_their_transcription(sam, engine, monkeypatch):
    rho, present = 0.3, presence(T, N, seed=3)

    def ascended(w, x, y, classes):
        g = softmax_gradient(w, x, y, classes)
        return softmax_gradient(w + rho * g / np.linalg.norm(g), x, y, classes)

    algorithm = average_participating(sam(lr=0.2, steps=3, batch_size=16, rho=rho))
    found = ours(algorithm, present, engine)
    plain = theirs(rules.average_participating(), present, lambda _: 0.2, 3, 16)
    monkeypatch.setattr(rules, "softmax_gradient", ascended)
    expected = theirs(rules.average_participating(), present, lambda _: 0.2, 3, 16)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9)
    assert np.abs(expected - plain).max() > 1e-2
