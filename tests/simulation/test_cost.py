"""The cost of a round is independent of the number of clients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import turnout as to
from turnout.algorithms import ALGORITHMS
from turnout.data.shards import Shards
from turnout.simulation import Simulation

from ..tiny import LOW_RANK, classification, recipe

PACED = ("fedstaleweight", "fedbuff", "fedasync")


@pytest.mark.parametrize("name", [name for name in ALGORITHMS if name not in PACED and name not in LOW_RANK])
def test_rounds_do_not_read_the_sizes_of_all_clients(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    data: Any = {"data": classification(), "model": to.models.Mlp(hidden=(8,)), "rounds": 10, "evaluate_every": 10}
    algorithm = to.fedbn(personal="head") if name == "fedbn" else recipe(name)  # there is no BatchNorm here
    simulation = Simulation(to.Experiment(**data, algorithm=algorithm))
    simulation.round()

    def sizes(_: Shards) -> np.ndarray:
        raise AssertionError("a round went over all clients")

    monkeypatch.setattr(Shards, "sizes", property(sizes))
    simulation.round()
    assert simulation.state.version == 2
