"""The data of a cohort."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch

from turnout.core.random import uniform
from turnout.data.transforms import Transform
from turnout.engine.cohort import Clients
from turnout.engine.objective import Objective
from turnout.models import Logistic


def clients_of(data, ids, transforms=(), rows=None):
    ids = np.asarray(ids)
    objective = Objective(Logistic(zero=True).build((16,), 4))
    return Clients(ids, ids if rows is None else rows, data.train, objective, transforms)


def test_sizes_and_minibatches_of_a_cohort(tiny):
    clients = clients_of(tiny, [1, 3])
    assert len(clients) == 2
    assert list(clients.num_examples) == [5, 33]
    examples = torch.tensor([[40, 44], [61, 62]])
    x, y = clients.minibatch(examples, torch.zeros(2, dtype=torch.int64))
    assert x.shape == (2, 2, 16)
    assert torch.equal(x, tiny.train.x[examples])
    assert torch.equal(y, tiny.train.y[examples])


def test_keys_depend_only_on_purpose_seed_version_and_client(tiny):
    versions = np.array([3, 3, 4])
    keys = clients_of(tiny, [0, 1, 0]).keys("a", 5, versions)
    assert len(set(keys.tolist())) == 3
    assert clients_of(tiny, [1]).keys("a", 5, np.array([3]))[0] == keys[1]
    assert clients_of(tiny, [1]).keys("b", 5, np.array([3]))[0] != keys[1]
    assert clients_of(tiny, [1]).keys("a", 6, np.array([3]))[0] != keys[1]
    assert clients_of(tiny, [0, 1, 0]).keys("a", 5, versions, np.array([1]))[0] == keys[1]
    on_its_own_machine = clients_of(tiny, [1], rows=np.array([0]))  # its number counts, not where its data lie
    assert on_its_own_machine.keys("a", 5, np.array([3]))[0] == keys[1]


@dataclass(frozen=True)
class Noise(Transform):
    """Adds a random number to each sample."""

    random: ClassVar[bool] = True

    def apply(self, x, keys):
        assert keys is not None
        return x + uniform(keys).to(x.dtype)[:, None]


def test_transforms_are_random_per_example_and_reproducible(tiny):
    examples = torch.tensor([[0, 0, 1], [45, 45, 45]])
    keys = torch.tensor([11, 12])
    clients = clients_of(tiny, [0, 2], (Noise(),))
    x, _ = clients.minibatch(examples, keys)
    noise = (x - tiny.train.x[examples]).mean(dim=2)
    assert len(set(noise.flatten().tolist())) == 6
    alone, _ = clients_of(tiny, [2], (Noise(),)).minibatch(examples[1:], keys[1:])
    assert torch.equal(alone[0], x[1])
    shorter, _ = clients.minibatch(examples[:, :2], keys)
    assert torch.equal(shorter, x[:, :2])
