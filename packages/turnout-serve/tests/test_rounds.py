"""Rounds that do not wait for everybody: cohorts that are asked too large, and deadlines."""

import pytest
import torch
from tests.laws.recipes import DATA

from turnout import Experiment, Population, fedau, fedavg
from turnout.core.checks import ConfigurationError
from turnout.models import Mlp
from turnout.pieces.selection import Uniform, WithReplacement
from turnout.population.availability import Everyone
from turnout.protocol.pace import Rounds
from turnout_serve.server.journal.replay import replay

from .world import LOCAL


def run_with(algorithm, pace):
    return Experiment(DATA, Mlp(hidden=(4,)), algorithm, Population(Everyone()), pace=pace, rounds=2, evaluate_every=2)


def at_work(deployed):
    """The clients who have a task, each with its report in hand."""
    for home in deployed.homes:
        home.train(deployed.host)
    return [home for home in deployed.homes if home.has_report]


def by_round(deployed):
    table = deployed.host.driver.ledger.history.participation
    clients, rounds = table["client"].to_numpy(), table["round"].to_numpy()
    return [clients[rounds == r].tolist() for r in sorted(set(rounds.tolist()))]


def test_over_selection_uses_the_first_reports(world):
    """Six are asked and four are enough; the last two are told why theirs are not, remember nothing, and go on."""
    deployed = world(run_with(fedavg(LOCAL, also=(Uniform(4),)), Rounds(over_selection=1.5)))
    for home in deployed.homes:
        home.step(deployed.host)
    fastest = []
    for version in (0, 1):
        asked = at_work(deployed)
        assert len(asked) == 6
        fast, slow = asked[2:], asked[:2]
        for home in fast:
            assert deployed.host.driver.version == version
            home.step(deployed.host)
        assert deployed.host.driver.version == version + 1
        for home in slow:
            assert deployed.host.call(home.action).table()["reason"] == "late"
            done = home.client.done
            home.step(deployed.host)
            assert (home.client.done, home.state.pending) == (done, None)
        fastest.append(sorted(home.state.client for home in fast))
    assert by_round(deployed) == fastest
    assert deployed.host.driver.ledger.dropped["late"] == 4
    deployed.host.service.writer.checkpoint()
    assert replay(deployed.setting, deployed.folder).same is True


@pytest.mark.parametrize("restarts", [False, True])
def test_deadline_ends_a_round(world, restarts):
    """Five of eight report in time; a restart neither forgets the deadline nor puts it off. Nobody at all is a step, too."""
    deployed = world(run_with(fedau(LOCAL), Rounds(deadline=30.0)))
    for home in deployed.homes:
        home.step(deployed.host)
    asked = at_work(deployed)
    for home in asked[:5]:
        home.step(deployed.host)
    deployed.clock.now += 29.0
    deployed.host.pump()
    if restarts:
        deployed.restart()
    assert deployed.host.driver.version == 0
    deployed.clock.now += 1.5
    deployed.host.pump()
    assert deployed.host.driver.version == 1
    assert {deployed.host.call(home.action).status for home in asked[5:]} == {410}
    before = deployed.host.driver.params
    deployed.clock.now += 31.0
    deployed.host.pump()
    assert deployed.host.driver.version == 2
    assert torch.equal(deployed.host.driver.params, before)
    assert by_round(deployed) == [list(range(5))]
    deployed.host.service.writer.checkpoint()
    assert replay(deployed.setting, deployed.folder).same is True


def test_over_selection_of_a_fixed_cohort_is_refused():
    """Refused at the start, and not when the first round begins."""
    with pytest.raises(ConfigurationError, match="over_selection: WithReplacement cannot be enlarged"):
        run_with(fedavg(LOCAL, also=(WithReplacement(4),)), Rounds(over_selection=1.5))
