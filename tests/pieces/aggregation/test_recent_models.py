"""FedFa's window: refusals, and full participation."""

import numpy as np
import pytest
import torch

from turnout import ConfigurationError, fedadam, fedfa
from turnout.base.server_step import server_step
from turnout.pieces.aggregation import RecentModels

from ...tiny import federation, report


def test_model_waits_for_a_full_window_and_forgets_older_models():
    algorithm, known = fedfa(window=3), federation(8, 2)
    state = algorithm.init(torch.zeros(2, dtype=torch.float64), known)
    models = np.arange(12.0).reshape(6, 2)
    for step, model in enumerate(models):
        delta = torch.from_numpy(model)[None] - state.params
        state, _ = server_step(algorithm, state, report([step], delta, version=step), known)
        expected = models[step - 2 : step + 1].mean(axis=0) if step >= 2 else np.zeros(2)
        np.testing.assert_allclose(state.params, expected, rtol=0, atol=1e-12)


def test_overflowing_model_leaves_the_window_unchanged():
    algorithm, known = fedfa(window=1), federation(8, 2, dtype=torch.float32)
    largest = torch.finfo(torch.float32).max
    state = algorithm.init(torch.full((2,), largest), known)
    for size, taken in ((largest, False), (-1.0, True)):
        delta = torch.full((1, 2), size, dtype=torch.float32)
        after, info = server_step(algorithm, state, report([0], delta, dtype=torch.float32), known)
        assert info["num_dropped"] == (not taken)
        assert after.slots["aggregation"]["filled"] == taken
        assert after.params.isfinite().all()


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: RecentModels(window=0), "window: got 0"),
        (lambda: fedadam(also=(RecentModels(),)), "RecentModels determines the model after the step, and ServerAdam"),
    ],
)
def test_weights_that_are_no_mean_of_models_are_refused(make, why):
    with pytest.raises(ConfigurationError, match=why):
        make()
