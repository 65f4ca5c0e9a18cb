"""Simulated clients at a real server: one length of a round of availability."""

import pytest

import turnout as to
from turnout.deployment.client.join import Connection
from turnout.deployment.client.swarm import Swarm
from turnout.deployment.client.worker import Computer

from ..tiny import classification


def swarm(availability, **options):
    experiment = to.Experiment(classification(), to.models.Logistic(), population=to.Population(availability))
    return Swarm(Computer(experiment), Connection("http://127.0.0.1:1"), 4, speedup=10.0, **options)


def test_availability_by_the_clock_passes_at_the_speed_of_the_clock():
    assert swarm(to.availability.Diurnal(seconds_per_round=300))._round == 30.0
    assert swarm(to.availability.Markov())._round == 6.0
    assert swarm(to.availability.Markov(), seconds_per_round=20.0)._round == 2.0
    with pytest.raises(
        to.ConfigurationError, match=r"seconds_per_round: got 60 beside Diurnal\(seconds_per_round=300\)"
    ):
        swarm(to.availability.Diurnal(seconds_per_round=300), seconds_per_round=60.0)
