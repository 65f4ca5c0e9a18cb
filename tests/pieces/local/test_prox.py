"""The proximal term."""

import math

import pytest
import torch
from tests.pieces.local.test_sgd import trained

from turnout import ConfigurationError, Sgd
from turnout.core.checks import TurnoutError
from turnout.pieces.local import Prox


def test_pulls_toward_the_start():
    gradient, params, start = torch.ones(2, 3), torch.full((2, 3), 5.0), torch.full((2, 3), 3.0)
    assert torch.equal(Prox(0.5).correct(gradient, params, start), torch.full((2, 3), 2.0))


def test_zero_mu_changes_nothing(tiny):
    local = Sgd(lr=0.3, steps=6, momentum=0.5)
    plain, _ = trained(local, tiny, [0, 1, 7])
    prox, _ = trained(local, tiny, [0, 1, 7], corrections=(Prox(0.0),))
    assert torch.equal(plain.updates.gathered(), prox.updates.gathered())


def test_larger_mu_stays_closer(tiny):
    norms = [
        trained(Sgd(lr=0.1, steps=20), tiny, [7], corrections=(Prox(mu),))[0].delta.norm() for mu in (0.0, 0.5, 5.0)
    ]
    assert norms[0] > norms[1] > norms[2] > 0


def test_first_step_equals_sgd(tiny):
    """At the start the proximal gradient is zero."""
    plain, _ = trained(Sgd(steps=1), tiny, [7])
    prox, _ = trained(Sgd(steps=1), tiny, [7], corrections=(Prox(5.0),))
    assert torch.equal(plain.updates.gathered(), prox.updates.gathered())


@pytest.mark.parametrize("mu", [-0.1, math.nan, "1", None])
def test_invalid_arguments_raise(mu):
    with pytest.raises(ConfigurationError, match=r"mu: got .*, needed a finite number >= 0"):
        Prox(mu)
    assert issubclass(ConfigurationError, TurnoutError)
