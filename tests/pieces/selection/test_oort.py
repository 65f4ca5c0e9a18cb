"""Oort with utilities that no honest client has."""

import numpy as np
import pytest
import torch
from tests.tiny import report

from turnout.core.candidates import Candidates
from turnout.core.types import Federation
from turnout.pieces.selection import Oort

N, K = 8, 3
MOST = torch.finfo(torch.float64).max


@pytest.mark.parametrize(
    "losses", [[MOST], [MOST, -MOST], [MOST] * N, [-MOST] * N], ids=["one", "two", "all", "negative"]
)
def test_extreme_losses_leave_a_cohort_to_choose(losses):
    """The attack: finite numbers of one step whose products are infinite, so that no later score is a number."""
    selection, everyone = Oort(K, exploration=0.0), np.arange(N)
    said = torch.tensor([*losses, *[0.5] * (N - len(losses))], dtype=torch.float64)
    lies = report(everyone, torch.zeros(N, 1), sizes=[2**40] * N, seen={"start_loss_rms": said})
    state = selection.apply(lies, 0, selection.init(Federation(N, 1)))
    assert all(value.isfinite().all() for value in state.values())
    for version in range(1, 6):
        cohort = selection.select(Candidates(lambda some: np.ones(len(some), dtype=bool), N, version, 7, record=state))
        assert len(cohort) == K
        honest = report(cohort, torch.zeros(K, 1), seen={"start_loss_rms": torch.full((K,), 0.5)})
        state = selection.apply(honest, version, state)
