"""Every step can be saved and resumed from, also one that changes nothing while older versions are still in use."""

import shutil
import zlib
from contextlib import suppress
from dataclasses import replace

import pytest

from turnout import ConfigurationError, Population, delay
from turnout.population.availability import Trace
from turnout.population.speed import Speed
from turnout.protocol.pace import Buffered
from turnout.simulation import Simulation, running, stall

from .recipes import COVERING, DATA, SOME, N, assert_same_bits, experiment

BAD = (3, 4, 5, 6, 7)
"""Clients whose updates overflow, so that every report of theirs is dropped."""

SCHEDULE = (*((client, 0, 2) for client in range(N)), *((client, 3, 5) for client in BAD), (0, 4, 5))
"""All clients are there in two rounds, nobody in the third, clients with bad updates alone in the fourth."""

PACES = {
    "rounds": {"population": Population(Trace(SCHEDULE))},
    "buffered": {
        "population": Population(speed=Speed(compute=delay.Uniform(1, 2), spread=1.0, per="task")),
        "pace": Buffered(2),
    },
}


def data():
    """Return data in which some clients have inputs with which updates overflow."""
    train = DATA.train
    x = train.x.clone()
    for client in BAD:
        x[train.offsets[client] : train.offsets[client + 1]] = 3e38
    return replace(DATA, train=replace(train, x=x))


OVERFLOWING = data()


def simulation_of(name, pace):
    """Return the simulation of a recipe by a pace; None if the pace refuses the recipe."""
    with suppress(ConfigurationError):
        return Simulation(replace(experiment(name, rounds=7), data=OVERFLOWING, **PACES[pace]))


@pytest.mark.parametrize("name", dict.fromkeys([*COVERING, *SOME]))
def test_every_step_of_every_recipe_is_saved_and_resumed_from(name, tmp_path, monkeypatch):
    """What a recipe keeps and what a pace keeps are saved by themselves: a pace for each recipe, and of some recipes both."""
    monkeypatch.setattr(stall, "MOST_STEPS_LOST", 100)
    paces, tried = sorted(PACES, reverse=zlib.crc32(name.encode()) % 2 == 1), 0
    for pace in paces:
        if (tried == 0 or name in SOME) and (whole := simulation_of(name, pace)) is not None:
            check_saving(whole, tmp_path / pace)
            tried += 1
    assert tried


def check_saving(whole, folder):
    """Save a run behind three steps, and go on from the second of them."""
    for version in range(1, 8):
        whole.round()
        if version in (3, 4, 5):  # behind the empty round, the one that changes nothing, and the next
            running.save_simulation(whole, folder / "run")
        if version == 4:
            shutil.copytree(folder / "run", folder / "copy")
    resumed = Simulation(whole.experiment)
    running.restore(resumed, folder / "copy")
    for _ in range(3):
        resumed.round()
    assert_same_bits(resumed, whole)
