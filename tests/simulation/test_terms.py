"""Terms of the loss are tried before the first round."""

from dataclasses import replace

import pytest

import turnout as to
from turnout import ConfigurationError
from turnout.pieces.local import Contrastive
from turnout.simulation import Simulation

from ..tiny import classification


class Forgotten(Contrastive):
    """Begins with a correction that is no term of the loss."""

    def begin(self, task, memory, clients, lanes):
        return to.local.Prox(self.mu)


class Slopeless(to.pieces.LossTerm):
    """Has a begin, and no slope."""

    def begin(self, task, memory, clients, lanes):
        return self


def test_terms_of_the_loss_that_begin_as_other_corrections_are_explained():
    algorithm = to.compose(to.Sgd(), Forgotten())
    run = to.Experiment(classification(), to.models.Mlp(hidden=(4,)), algorithm, rounds=1)
    with pytest.raises(ConfigurationError, match=r"Forgotten is a LossTerm, .* derive Prox from LossTerm, too"):
        Simulation(run)
    with pytest.raises(NotImplementedError, match=r"Slopeless is a LossTerm: it has to define slope\(\)"):
        Simulation(replace(run, algorithm=to.compose(to.Sgd(), Slopeless())))
