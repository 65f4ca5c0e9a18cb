"""SCAFFOLD's control variates."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from turnout import ConfigurationError, Experiment, Population, Sgd, compose, models
from turnout.core.types import Report
from turnout.engine.cohort import Clients
from turnout.engine.full_batch import full_gradient
from turnout.pieces.guard import Clip
from turnout.pieces.local import Inexactness, Prox, Scaffold, UniformWork, Work
from turnout.pieces.selection import Uniform, WithReplacement
from turnout.pieces.server_optimizer.sgd import ServerSgd
from turnout.population.availability import Bernoulli
from turnout.protocol.pace import Gather, Step
from turnout.simulation import Simulation
from turnout.simulation.lockstep import together

from ...phases import ask, train

N, P = 8, 16 * 4 + 4
EVERYONE = np.arange(N)


def simulation_of(data, *pieces, local=None, **options):
    local = local or Sgd(lr=0.2, steps=4, batch_size=8)
    options = {"model": models.Logistic(), "population": Population(Bernoulli(mean=0.5)), "rounds": 20, **options}
    return Simulation(Experiment(data, algorithm=compose(local, *pieces), evaluate_every=20, **options))


def controls(simulation):
    """c_k of all clients ``[N, P]``, and c ``[P]``."""
    own = simulation.memory.gather(EVERYONE)["control"].double()
    return own, simulation.state.slots["controls"]["control"]


def gradients_at(simulation, params):
    clients = Clients(EVERYONE, EVERYONE, simulation.experiment.data.train, simulation.objective)
    return full_gradient(clients, params)[1]


def test_option_two_equals_line_10_of_the_paper(tiny):
    """``c_k - c + (w^t - y_K) / (K lr)``."""
    simulation = simulation_of(tiny, Scaffold())
    for _ in range(3):
        simulation.round()
    own, mean = controls(simulation)
    report = train(simulation, EVERYONE)
    expected = own - mean - report.delta.double() / (4 * 0.2)
    torch.testing.assert_close(controls(simulation)[0], expected, rtol=0, atol=1e-5)
    assert (expected - own).norm() > 0.1


def test_option_one_is_the_full_gradient_at_the_received_model(tiny):
    simulation = simulation_of(tiny, Scaffold("I"))
    for _ in range(3):
        before = simulation.state.params
        train(simulation, EVERYONE)
        torch.testing.assert_close(controls(simulation)[0].float(), gradients_at(simulation, before))
        simulation.round()


def test_initial_gradients_are_of_all_clients_at_the_first_model(tiny):
    """With full-batch minibatches, one gradient; the model does not move."""
    simulation = simulation_of(tiny, Scaffold(initial="gradients"), local=Sgd(batch_size=64, steps=3))
    first = simulation.state.params.clone()
    gather = simulation.driver.advance()
    assert isinstance(gather, Gather)
    assert gather.phase == "prepare"
    batch = simulation.coordinator.batch(gather)
    (reports,) = together([simulation.workers.reports_of(simulation.coordinator, batch)])
    simulation.coordinator.gathered(batch, reports)
    own, mean = controls(simulation)
    torch.testing.assert_close(own.float(), gradients_at(simulation, first), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(mean, own.mean(dim=0), rtol=0, atol=1e-6)
    assert torch.equal(simulation.state.params, first)
    simulation.round()
    assert isinstance(simulation.driver.advance(), Step)
    assert isinstance(simulation_of(tiny, Scaffold()).driver.advance(), Step)


def test_initial_gradients_cost_one_message_each_way_per_client(tiny):
    with_gradients, without = (simulation_of(tiny, Scaffold(initial=i)) for i in ("gradients", "zeros"))
    for simulation in (with_gradients, without):
        simulation.round()
    rows = [simulation.history.rounds.to_pylist()[0] for simulation in (with_gradients, without)]
    assert rows[0]["bytes_down"] - rows[1]["bytes_down"] == N * (4 * P + 8)
    assert rows[0]["bytes_up"] - rows[1]["bytes_up"] == N * (4 * P + 24)
    n = rows[1]["num_participants"]
    assert rows[1]["bytes_down"] == n * (2 * 4 * P + 8)  # the model and c
    assert rows[1]["bytes_up"] == n * (2 * 4 * P + 4 + 24)
    assert rows[1]["server_bytes"] == 4 * P + 8 * P


CHAINS = {
    "plain": (Scaffold(),),
    "option I": (Scaffold("I"),),
    "from gradients": (Scaffold(initial="gradients"),),
    "clipped": (Scaffold(), Clip(0.05)),
    "three at a time": (Scaffold(), Uniform(3)),
    "drawn with replacement": (Scaffold(), WithReplacement(6)),
    "with the proximal term": (Prox(0.5), Scaffold()),
}


@pytest.mark.parametrize(
    ("name", "engine"),
    [*((name, "vectorized") for name in CHAINS), ("plain", "one_by_one"), ("option I", "one_by_one")],
)
def test_c_equals_the_mean_of_all_c_k_after_every_round(tiny, name, engine):
    local = Sgd(lr=0.2, steps=UniformWork(1, 6), batch_size=8, momentum=0.3)
    simulation = simulation_of(tiny, *CHAINS[name], local=local, engine=engine, rounds=6)
    own = mean = torch.zeros(())
    for _ in range(6):
        simulation.round()
        own, mean = controls(simulation)
        torch.testing.assert_close(mean, own.mean(dim=0), rtol=0, atol=1e-6)
    assert mean.norm() > 0.01


def broken(data, client):
    """The same data, on which a client's training overflows."""
    data = replace(data, train=replace(data.train, x=data.train.x.clone()))
    data.train.client(client)[0].fill_(3e38)
    return data


@pytest.mark.parametrize("initial", ["zeros", "gradients"])
def test_c_stays_the_mean_if_reports_are_dropped(tiny, initial):
    simulation = simulation_of(broken(tiny, 4), Scaffold(initial=initial))
    own = mean = torch.zeros(())
    for _ in range(10):
        simulation.round()
        own, mean = controls(simulation)
        torch.testing.assert_close(mean, own.mean(dim=0), rtol=0, atol=1e-6)
    assert simulation.history.total("num_dropped") > 2
    assert not own[4].any()
    assert mean.norm() > 0.01


def test_c_stays_the_mean_if_the_server_step_overflows(tiny):
    """The clients have changed c_k by then, so the server changes c as well."""
    simulation = simulation_of(tiny, Scaffold(), ServerSgd(3e38), local=Sgd(lr=50.0, steps=1))
    start = simulation.state.params
    simulation.round()
    own, mean = controls(simulation)
    assert torch.equal(simulation.state.params, start)
    assert mean.norm() > 0.01
    torch.testing.assert_close(mean, own.mean(dim=0), rtol=0, atol=1e-6)


def test_client_drawn_twice_sends_its_change_once(tiny):
    simulation = simulation_of(tiny, Scaffold())
    once = train(simulation_of(tiny, Scaffold()), np.array([1, 5]))
    report = train(simulation, np.array([1, 1, 5, 5, 5]))
    assert torch.equal(report.updates.gathered(), once.updates.gathered()[[0, 0, 1, 1, 1]])
    assert report.extra["control"].norm(dim=1).bool().tolist() == [True, False, True, False, False]
    assert torch.equal(report.extra["control"].sum(dim=0), once.extra["control"].sum(dim=0))


def test_absent_clients_keep_their_control_variate(tiny):
    simulation = simulation_of(tiny, Scaffold())
    train(simulation, EVERYONE)
    before = controls(simulation)[0]
    train(simulation, np.array([2, 3]))
    changed = (controls(simulation)[0] != before).any(dim=1)
    assert changed.tolist() == [k in (2, 3) for k in range(N)]


def test_measuring_before_selection_changes_no_control_variate(tiny):
    simulation = simulation_of(tiny, Scaffold())
    train(simulation, EVERYONE)
    before = simulation.memory.state()
    ask(simulation, EVERYONE, "measure")
    after = simulation.memory.state()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_inexactness_includes_the_control_variates(tiny):
    """``h_k(w) = F_k(w) + <c - c_k, w>``: with c_k the gradient of k, all gradients are c at the start."""
    local = Sgd(lr=0.1, steps=1, batch_size=64)
    simulation = simulation_of(tiny, Scaffold("I"), Inexactness(), local=local)
    train(simulation, EVERYONE)  # every c_k is the gradient at the model now
    own, _ = controls(simulation)
    slots = simulation.state.slots | {"controls": {"control": own.mean(dim=0)}}
    simulation.server.state = replace(simulation.state, slots=slots)
    report = train(simulation, EVERYONE)
    moved = gradients_at(simulation, simulation.state.params + report.delta) - own + own.mean(dim=0)
    expected = moved.norm(dim=1) / own.mean(dim=0).norm()
    torch.testing.assert_close(report.seen["inexactness"], expected, rtol=1e-4, atol=0)


def test_lanes_use_the_c_of_their_own_version(tiny):
    """In a buffer, clients start from different versions."""
    from turnout.base.client_step import client_step
    from turnout.core.types import Task

    simulation = simulation_of(tiny, Scaffold())
    algorithm, params = simulation.experiment.algorithm, simulation.state.params
    c = torch.randn(2, P)
    clients = simulation.workspace.clients(np.array([0, 7]))

    def delta(rows, params, c):
        ids = clients.ids[rows]
        memory = simulation.memory.gather(ids)
        task = Task(params, np.zeros(len(ids), dtype=np.int64), 0, shared={"control": c})
        report, _ = client_step(algorithm, task, memory, simulation.workspace.clients(ids))
        assert isinstance(report, Report)
        return report.delta

    together = delta(slice(0, 2), params.expand(2, -1), c)
    for k in range(2):
        torch.testing.assert_close(delta(slice(k, k + 1), params, c[k])[0], together[k])


class NoTime(Work):
    """Odd clients do no step."""

    def amount(self, task, clients):
        del task
        return np.where(clients.ids % 2 == 1, 0, 2)


def test_client_without_steps_keeps_its_control_variate(tiny):
    simulation = simulation_of(tiny, Scaffold(), local=Sgd(lr=0.2, steps=NoTime(), batch_size=8))
    change = train(simulation, EVERYONE).extra["control"]
    assert (change[1::2] == 0).all()
    assert (change[::2].norm(dim=1) > 0).all()


def test_two_scaffold_corrections_are_refused():
    with pytest.raises(ConfigurationError, match="Scaffold and Scaffold both keep 'control' at every client"):
        compose(Scaffold(), Scaffold("I"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"option": "III"}, "unknown value of option 'III'"),
        ({"initial": "ones"}, "unknown value of initial 'ones'"),
    ],
)
def test_invalid_options_raise(options, message):
    with pytest.raises(ConfigurationError, match=message):
        Scaffold(**options)
