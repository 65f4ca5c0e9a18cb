"""Work by share: the server's share times the common amount of work."""

import numpy as np
import pytest
import torch
from tests.laws.recipes import experiment, trained

from turnout import ConfigurationError, Sgd, average_participating, mw_fed
from turnout.core.types import Task
from turnout.pieces.local import ShareOfWork, UniformWork


def amounts(work, share, clients=None):
    task = Task(torch.zeros(1), 3, 0, own={"share": torch.tensor(share, dtype=torch.float64)})
    return work.amount(task, clients).tolist()


def test_amount_is_the_rounded_share_of_at_least_one_step():
    assert amounts(ShareOfWork(5), [1.0, 0.5, 0.0, 3.3, 0.29]) == [5, 2, 1, 16, 1]
    assert amounts(ShareOfWork(5, most=2), [1.0, 3.3, 100.0]) == [5, 10, 10]


def test_share_multiplies_other_work():
    simulation = trained(experiment("fedavg", rounds=1))
    clients = simulation.workspace.clients(np.arange(4))
    drawn = UniformWork(1, 20).amount(Task(torch.zeros(1), 3, 0), clients)
    assert amounts(ShareOfWork(UniformWork(1, 20)), [2.0] * 4, clients) == (2 * drawn).tolist()


def test_share_multiplies_epochs():
    local = mw_fed(Sgd(steps=None, epochs=2)).local
    assert isinstance(local, Sgd)
    assert local.epochs == ShareOfWork(2)
    assert local.steps is None


def test_share_without_a_sender_is_refused():
    run = experiment("fedavg", rounds=1)
    alone = type(run)(**{**vars(run), "algorithm": average_participating(Sgd(steps=ShareOfWork(5)))})
    with pytest.raises(ConfigurationError, match=r"ShareOfWork scales work by a share .*: add MultiplicativeWe"):
        trained(alone)


@pytest.mark.parametrize(
    ("options", "message"),
    [({"of": 0}, "of: got 0, needed a whole number >= 1"), ({"most": 0}, "most: got 0, needed a finite number > 0")],
)
def test_invalid_options_raise(options, message):
    with pytest.raises(ConfigurationError, match=message):
        ShareOfWork(**options)
