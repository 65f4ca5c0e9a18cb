"""A client that is drawn twice counts twice; it trains once, remembers once and sends once."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from turnout import Experiment, Population, compose, fednu, folb, folb_two_set, models
from turnout.base.server_step import server_step
from turnout.engine.objective import Objective
from turnout.pieces.aggregation import FedVarp, Mifa
from turnout.pieces.local import Inexactness
from turnout.pieces.selection import WithReplacement
from turnout.pieces.weighting import DivideByClients, Participation
from turnout.population.availability import Everyone, Trace
from turnout.simulation import Simulation

from ..phases import measure, next_cohort, train
from ..tiny import federation, report
from .recipes import DATA, LOCAL, RECIPES, N, experiment

P = 16 * 16 + 16
FLOAT = 4


def simulation_of(algorithm, population=None, **options):
    population = population or Population(Everyone())
    return Simulation(Experiment(DATA, models.Logistic(), algorithm, population, rounds=5, seed=4, **options))


def test_rows_of_a_repeated_client_are_equal_and_in_the_order_of_the_cohort():
    simulation = simulation_of(folb(LOCAL, cohort_size=3))
    cohort = np.array([1, 1, 3, 6, 6, 6])
    found = train(simulation, cohort)
    once = train(simulation_of(folb(LOCAL, cohort_size=3)), np.array([1, 3, 6]))
    assert list(found.client) == list(cohort)
    for row, of in enumerate([0, 0, 1, 2, 2, 2]):
        assert torch.equal(found.delta[row], once.delta[of])
        for name in ("loss", "start_gradient"):
            assert torch.equal(found.seen[name][row], once.seen[name][of])
        assert found.num_examples[row] == once.num_examples[of]
        assert found.num_steps[row] == once.num_steps[of]


def test_repeated_client_trains_once_and_advances_its_pass_once():
    simulation = simulation_of(fednu(LOCAL, by="uniform"))
    train(simulation, np.array([2, 2, 2, 5]))
    memory = simulation.memory.state()
    assert memory["clients"].tolist() == [2, 5]
    assert memory["table.steps_done"].tolist() == [LOCAL.steps] * 2


@pytest.mark.parametrize("lanes", [1, 2, 100])
def test_repeated_client_trains_once_with_few_lanes(lanes):
    cohort, simulation = np.array([0, 2, 2, 5, 5]), simulation_of(fednu(LOCAL, by="uniform"))
    expected = train(simulation_of(fednu(LOCAL, by="uniform")), cohort)
    simulation.workspace.lanes = lanes
    found = train(simulation, cohort)
    assert torch.equal(found.updates.gathered(), expected.updates.gathered())
    assert simulation.memory.state()["table.steps_done"].tolist() == [LOCAL.steps] * 3


def test_measuring_does_not_change_client_memory():
    """Also for measurements of training, which train a copy."""
    simulation = simulation_of(fednu(LOCAL, by="alignment_and_inexactness", cohort_size=2))
    measured = measure(simulation)
    assert measured is not None
    assert set(measured.seen) == {"start_gradient", "inexactness"}
    assert len(simulation.memory.state()["clients"]) == 0
    trained = train(simulation, np.arange(N))
    fresh = train(simulation_of(fednu(LOCAL, by="alignment_and_inexactness", cohort_size=2)), np.arange(N))
    assert torch.equal(trained.updates.gathered(), fresh.updates.gathered())
    assert simulation.memory.state()["table.steps_done"].tolist() == [LOCAL.steps] * N


def test_measurements_before_selection_equal_those_during_training():
    simulation = simulation_of(fednu(LOCAL, by="alignment_and_inexactness", cohort_size=2, also=(Inexactness(),)))
    train(simulation, np.array([1, 4]))  # in the middle of a pass by now
    measured = measure(simulation)
    assert measured is not None
    trained = train(simulation, np.arange(N))
    assert torch.equal(measured.seen["inexactness"], trained.seen["inexactness"])


@pytest.mark.parametrize("name", [name for name in RECIPES if name.startswith(("folb", "fednu"))])
def test_repeated_clients_weigh_once_per_row(name):
    """A repeated report has the effect of the same report of as many different clients."""
    rng, known = np.random.default_rng(3), federation(N, 5)
    gradient = torch.from_numpy(rng.normal(size=(N, 5)))
    seen = {"start_gradient": gradient, "inexactness": torch.from_numpy(rng.random(N))}
    all_ = report(range(N), torch.from_numpy(rng.normal(size=(N, 5))), sizes=range(3, 3 + N), seen=seen)
    draws, second = np.array([1, 1, 4, 6, 6, 6]), np.array([0, 2, 2, 5])
    one = replace(all_.take(draws), measured=all_.take(second))
    other = replace(one, client=np.array([1, 0, 4, 6, 3, 2]))
    algorithm, start = RECIPES[name](LOCAL), torch.zeros(5, dtype=torch.float64)
    steps = [server_step(algorithm, algorithm.init(start, known), r, known)[0].params for r in (one, other)]
    assert torch.equal(*steps)
    assert steps[0].norm() > 0


def test_fedau_counts_a_repeat_as_one_participation():
    algorithm, known = compose(LOCAL, WithReplacement(3), Participation(50), DivideByClients()), federation(N, 5)
    states = []
    for clients in ([1, 4], [1, 1, 1, 4]):
        state = algorithm.init(torch.zeros(5, dtype=torch.float64), known)
        for _ in range(3):
            state, info = server_step(algorithm, state, report(clients), known)
            assert (info["weights"] == 1 / N).all()  # in every one of the rounds
        states.append(state.slots["weighting.0"])
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


@pytest.mark.parametrize("aggregation", [FedVarp(), Mifa()], ids=["fedvarp", "mifa"])
def test_tables_of_updates_hold_a_repeat_once(aggregation):
    known, rng = federation(N, 5), np.random.default_rng(0)
    state, all_ = aggregation.init(known), report(range(N), torch.from_numpy(rng.normal(size=(N, 5))))
    for draws in ([0, 0, 0, 3], [3, 3, 5, 5, 5], [0, 1, 1, 5]):
        one = all_.take(np.array(draws))
        weights = torch.full((len(draws),), 1 / len(draws), dtype=torch.float64)
        before = state["table"].clone()
        direction, state = aggregation.apply(weights, one, state, known)
        expected = state["table"].mean(dim=0)
        if isinstance(aggregation, FedVarp):  # a repeat counts twice among those who are there
            expected = before.mean(dim=0) + (one.delta - before[draws]).mean(dim=0)
        torch.testing.assert_close(direction, expected, rtol=0, atol=1e-14)
        torch.testing.assert_close(state["mean"], state["table"].mean(dim=0), rtol=0, atol=1e-14)
        assert torch.equal(state["table"][draws], one.updates.gathered())


@pytest.mark.parametrize("aggregation", [FedVarp(), Mifa()], ids=["fedvarp", "mifa"])
@pytest.mark.parametrize("order", [[0, 1, 2, 3], [3, 2, 1, 0], [2, 0, 3, 1]])
def test_tables_keep_the_update_of_the_latest_version_in_any_order_of_reports(aggregation, order):
    """A buffer holds two reports of client 2, trained from versions 4 and 6."""
    known = federation(N, 5)
    updates = torch.arange(4).double()[:, None].expand(4, 5)
    both = replace(report([2, 2, 1, 7], updates), version=np.array([6, 4, 5, 5]))
    _, state = aggregation.apply(
        torch.full((4,), 0.25).double(), both.take(np.array(order)), aggregation.init(known), known
    )
    assert state["table"][:, 0].tolist() == [0, 2, 0, 0, 0, 0, 0, 3]
    torch.testing.assert_close(state["mean"], state["table"].mean(dim=0))


MODEL, SENT = FLOAT * P, 24 + FLOAT  # a report: two whole numbers and a version, and the loss


@pytest.mark.parametrize(
    ("algorithm", "draws", "down", "up", "measured"),
    [
        # clients 2 and 5 are there, and both are among the draws
        (fednu(LOCAL, by="uniform", cohort_size=9), 9, 2 * (MODEL + 8), 2 * (MODEL + SENT), None),
        (folb(LOCAL, cohort_size=3), 2, 2 * (MODEL + 8), 2 * (2 * MODEL + SENT), None),
        (folb_two_set(LOCAL, cohort_size=9), 9, 2 * 8, 2 * (2 * MODEL + SENT), 2 * (MODEL + 8 + MODEL + 24)),
        (fednu(LOCAL, by="alignment", cohort_size=40), 40, 2 * 8, 2 * (MODEL + SENT), 2 * (MODEL + 8 + MODEL + 24)),
        (fednu(LOCAL, by="norm", cohort_size=40), 40, 2 * 8, 2 * (MODEL + SENT), 2 * (MODEL + 8 + 8 + 24)),
        (
            fednu(LOCAL, by="alignment_and_inexactness", psi=0.1, cohort_size=40),
            40, 2 * 8, 2 * (MODEL + SENT), 2 * (MODEL + 8 + MODEL + 8 + 24),
        ),
    ],
    ids=["uniform", "folb", "two sets", "alignment", "norm", "inexactness"],
)  # fmt: skip
def test_bytes_are_counted_per_client_not_per_draw(algorithm, draws, down, up, measured):
    """Clients that measured have the model already; an update and a gradient have the size of a model."""
    simulation = simulation_of(algorithm, Population(Trace(((2, 0, 9), (5, 0, 9)))))
    assert len(next_cohort(simulation, measure(simulation))) == draws
    simulation.round()
    (row,) = simulation.history.rounds.to_pylist()
    assert simulation.history.participation["client"].to_pylist() == [2, 5]
    assert row["num_participants"] == 2
    assert row["bytes_down"] == down
    assert row["bytes_up"] == up
    assert row.get("bytes_measured") == measured


def test_bytes_of_two_disjoint_cohorts_are_added():
    """A client in both cohorts receives the model once."""
    simulation = simulation_of(folb_two_set(LOCAL, cohort_size=3))
    for _ in range(5):
        measured, trained = measure(simulation), np.unique(next_cohort(simulation))
        assert measured is not None
        asked = np.unique(measured.client)
        simulation.round()
        row = simulation.history.rounds.to_pylist()[-1]
        assert row["bytes_down"] == len(np.setdiff1d(trained, asked)) * MODEL + 8 * len(trained)
        assert row["bytes_up"] == len(trained) * (2 * MODEL + SENT)
        assert row["bytes_measured"] == len(asked) * (2 * MODEL + 8 + 24)
        assert 0 < len(asked) <= 3


def test_round_without_measuring_clients_costs_no_bytes_and_changes_no_parameter():
    for name in ("folb_two_set", "fednu", "fednu with signs", "fednu by norm"):
        simulation = Simulation(experiment(name, population=Population(Trace(((0, 4, 5),)))))
        start = simulation.state.params.clone()
        simulation.round()
        (row,) = simulation.history.rounds.to_pylist()
        assert torch.equal(simulation.state.params, start)
        assert row["bytes_measured"] == row["bytes_up"] == row["bytes_down"] == row["num_participants"] == 0


def test_repeated_client_computes_its_gradient_once(monkeypatch):
    counted = []
    gradient = Objective.gradient

    def count(self, params, *arguments, **options):
        counted.append(len(params))
        return gradient(self, params, *arguments, **options)

    monkeypatch.setattr(Objective, "gradient", count)
    simulation = simulation_of(folb(LOCAL, cohort_size=3))
    counted.clear()  # of trying the model
    train(simulation, np.array([1, 1, 1, 1]))
    assert counted == [1] * (1 + 2)  # the full gradient, and LOCAL's two steps
