"""AREA, ACED and FADAS: refusals, and clients that enroll later."""

import numpy as np
import pytest
import torch
from tests.tiny import federation, report

from turnout import ALGORITHMS, ConfigurationError, Sgd, aced, area, compose
from turnout.base.server_step import server_step
from turnout.pieces.aggregation import Aced, Area
from turnout.pieces.server_optimizer.amsgrad import ServerAmsgrad
from turnout.pieces.server_optimizer.momentum import ServerMomentum
from turnout.pieces.server_optimizer.sgd import ServerSgd
from turnout.pieces.weighting import DivideByParticipants


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: compose(Sgd(), DivideByParticipants(), Area()), "each of them counted once: use DivideByClients"),
        (
            lambda: compose(Sgd(), DivideByParticipants(), Aced()),
            "weights exist only for participants: use DivideByClients",
        ),
        (lambda: area(also=(ServerMomentum(),)), "Area determines the model after the step, and ServerMomentum"),
        (lambda: area(also=(ServerSgd(0.5),)), "Area determines the model after the step, and ServerSgd"),
        (
            lambda: aced(tau=-1),
            r"tau: got -1, needed a whole number >= 0\. For updates that never expire, write ace",
        ),
        (
            lambda: ALGORITHMS["fadas"](delays="always"),
            "unknown value of delays 'always'",
        ),
        (lambda: ServerAmsgrad(threshold=-1), "threshold: got -1, needed a whole number >= 0"),
        (lambda: ServerAmsgrad(epsilon=0), "epsilon: got 0, needed a finite number > 0"),
        (lambda: ServerAmsgrad(beta2=1.0), "beta2: got 1.0, needed a number >= 0 and < 1"),
    ],
)
def test_invalid_arguments_raise(make, message):
    with pytest.raises(ConfigurationError, match=message):
        make()


def test_area_starts_a_later_enrolled_client_from_the_current_model():
    """The model then remains the mean over all clients."""
    algorithm, few, more = area(), federation(2, 3), federation(5, 3)
    state = algorithm.init(torch.zeros(3, dtype=torch.float64), few)
    state, _ = server_step(algorithm, state, report([0], torch.tensor([[2.0, 4.0, 6.0]], dtype=torch.float64)), few)
    kept = algorithm.aggregation.grow(state.slots["aggregation"], few, more, 1)
    torch.testing.assert_close(kept["table"].mean(dim=0), state.params)
    torch.testing.assert_close(kept["table"][2:], state.params.expand(3, -1))


def test_aced_ignores_a_later_enrolled_client_until_its_first_report():
    piece, few, more = Aced(tau=5), federation(2, 3), federation(4, 3)
    kept = piece.grow(piece.init(few), few, more, 7)
    np.testing.assert_array_equal(kept["heard"].numpy(), [-1, -1, -1, -1])
    assert kept["table"].shape == (4, 3)
    direction, _ = piece.apply(torch.ones(1), report([3], num_params=3), kept, more)
    torch.testing.assert_close(direction, torch.ones(3, dtype=torch.float64))
