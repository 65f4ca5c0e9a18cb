"""`client_step` and `server_step`."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from tests.tiny import federation, report

from turnout import Sgd, compose, fedau, models
from turnout.base import Aggregation, Guard, Server, Weighting
from turnout.base.client_step import client_step
from turnout.base.server_step import StepOverflows, server_step
from turnout.core.checks import ConfigurationError
from turnout.core.types import Task
from turnout.engine.cohort import Clients
from turnout.engine.objective import Objective
from turnout.pieces.guard import Clip
from turnout.pieces.selection import ByAlignmentAndInexactness, ByGradientNorm
from turnout.pieces.server_optimizer.adaptive import ServerAdagrad, ServerAdam, ServerYogi
from turnout.pieces.server_optimizer.amsgrad import ServerAmsgrad
from turnout.pieces.server_optimizer.sgd import ServerSgd
from turnout.pieces.weighting import DivideBySum
from turnout.protocol.streaming import product_of_factors

P = 5


def state_of(algorithm):
    return algorithm.init(torch.zeros(P, dtype=torch.float64), federation(num_params=P))


@dataclass(frozen=True)
class Scale(Guard):
    factor: float = 2.0

    def apply(self, report, task, memory, clients):
        del memory, clients
        return replace(report, delta=report.delta * self.factor + task.version)


def test_client_applies_guards_in_order_after_training(tiny):
    objective = Objective(models.Logistic(zero=True).build((16,), 4))
    clients = Clients(np.array([2]), np.array([2]), tiny.train, objective)
    task = Task(objective.initial, 3, seed=0)

    def delta(*guards):
        memory = {"steps_done": torch.zeros(1, dtype=torch.int64)}
        sent, after = client_step(compose(Sgd(), *guards), task, memory, clients)
        assert after["steps_done"].tolist() == [5]
        return sent.updates.gathered()

    assert torch.equal(delta(Scale(2.0), Scale(10.0)), (delta() * 2 + 3) * 10 + 3)


def test_guards_apply_to_measurements(tiny):
    """Guards apply to everything a client sends; a clip has nothing to shorten."""

    @dataclass(frozen=True)
    class Seal(Guard):
        def apply(self, report, task, memory, clients):
            del memory, clients
            assert task.phase == "measure"
            return replace(report, seen={name: -value for name, value in report.seen.items()})

    objective = Objective(models.Logistic().build((16,), 4))
    clients = Clients(np.array([2, 5]), np.array([2, 5]), tiny.train, objective)
    task = Task(objective.initial, 3, seed=0, phase="measure")
    found = [
        client_step(compose(ByGradientNorm(), *guards), task, {"steps_done": torch.zeros(2)}, clients)[0]
        for guards in ((Clip(0.1),), (Clip(0.1), Seal()))
    ]
    for one in found:
        assert one.delta.shape == (2, 0)
    assert torch.equal(found[0].seen["start_gradient_norm"], -found[1].seen["start_gradient_norm"])


def test_weightings_are_not_called_for_an_empty_cohort():
    @dataclass(frozen=True)
    class Picky(Weighting):
        def apply(self, weights, report, version, state, federation):
            raise AssertionError(f"there is nobody to weigh: {weights}, {report}, {version}, {state}, {federation}")

    algorithm = compose(Picky(), DivideBySum())
    after, info = server_step(algorithm, state_of(algorithm), report([]), federation())
    assert after.version == 1
    assert len(info["weights"]) == 0


def test_server_adds_the_mean_and_increments_the_version():
    algorithm = compose(ServerSgd(2.0))
    reports = report([1, 4], torch.tensor([[1.0] * P, [3.0] * P]).double())
    before = state_of(algorithm)
    after, info = server_step(algorithm, before, reports, federation())
    assert after.params.tolist() == [4.0] * P
    assert before.params.tolist() == [0.0] * P  # a new vector: what others hold stays what it was
    assert after.version == 1
    assert info["num_participants"] == 2
    assert info["num_dropped"] == 0
    assert info["weights"].tolist() == [0.5, 0.5]
    assert info["update_norm"] == pytest.approx(4 * P**0.5)


def test_weights_are_float64_and_updates_keep_their_dtype():
    algorithm = fedau()
    state = algorithm.init(torch.zeros(P), federation(dtype=torch.float32))
    state, info = server_step(algorithm, state, report([0], torch.ones(1, P)), federation(dtype=torch.float32))
    assert info["weights"].dtype == torch.float64
    assert state.params.dtype == torch.float32


def test_round_of_invalid_reports_is_an_empty_round():
    algorithm = compose()
    after, info = server_step(algorithm, state_of(algorithm), report([0], torch.full((1, P), torch.nan)), federation())
    assert info["num_dropped"] == 1
    assert info["num_participants"] == 0
    assert after.params.tolist() == [0.0] * P


class Momentum(Server):
    """A server that remembers its direction."""

    def init(self, federation):
        return {"velocity": torch.zeros(federation.num_params, dtype=federation.dtype)}

    def apply(self, params, direction, version, state):
        del version
        velocity = 0.5 * state["velocity"] + direction
        return params + velocity, {"velocity": velocity}


def test_overflow_does_not_remain_in_the_server_state():
    algorithm, known = compose(Momentum()), federation(dtype=torch.float32)
    state = algorithm.init(torch.full((P,), 3e38), known)
    for value in (1.0, 1e38, 1.0):
        state, _ = server_step(algorithm, state, report([0], torch.full((1, P), value)), known)
    assert state.slots["server"]["velocity"].tolist() == [1.5] * P
    assert torch.isfinite(state.params).all()


@pytest.mark.parametrize(
    "server", [ServerAdam(), ServerYogi(), ServerAdagrad(), ServerAmsgrad()], ids=lambda it: type(it).__name__
)
def test_update_whose_square_overflows_does_not_freeze_the_model(server):
    """Divided by the root of an infinite second moment, this step and every later one is zero."""
    algorithm, known = compose(server), federation(dtype=torch.float32)
    state = algorithm.init(torch.zeros(P), known)
    state, info = server_step(algorithm, state, report([0], torch.full((1, P), 1e25)), known)
    assert info["num_dropped"] == 1
    assert all(value.isfinite().all() for value in state.slots["server"].values())
    with pytest.raises(StepOverflows):
        server_step(algorithm, state, report([0], torch.full((1, P), 1e25)), known, refuses_overflow=True)
    for value in (1.0, 1e19):  # the squares of the latter are finite, and their sum is not
        after, info = server_step(algorithm, state, report([0], torch.full((1, P), value)), known)
        assert info["num_dropped"] == 0
        assert not torch.equal(after.params, state.params)


def test_overflow_counts_as_a_round_of_dropped_reports():
    algorithm = compose(ServerSgd(1e10))
    state = algorithm.init(torch.ones(P), federation(dtype=torch.float32))
    after, info = server_step(
        algorithm, state, report([0, 1], torch.full((2, P), 1e30)), federation(dtype=torch.float32)
    )
    assert info["num_dropped"] == 2
    assert "update_norm" not in info
    assert after.params.tolist() == [1.0] * P
    assert after.version == 1


@pytest.mark.parametrize("method", ["apply", "factors"])
def test_weights_of_wrong_length_are_refused_with_the_name_of_the_piece(method):
    class OneTooMany(Weighting):
        if method == "apply":

            def apply(self, weights, report, version, state, federation):
                del report, version, federation
                return torch.ones(len(weights) + 1, dtype=torch.float64), state
        else:

            def factors(self, report, version, state, federation):
                del version, state, federation
                return torch.ones(len(report) + 1, dtype=torch.float64)

    algorithm = compose(OneTooMany(), DivideBySum())
    message = r"OneTooMany made weights of shape \(3,\): needed a tensor of shape \(2,\), one weight for each report"
    with pytest.raises(ConfigurationError, match=message):
        server_step(algorithm, state_of(algorithm), report([0, 1]), federation(num_params=P))


def test_trial_before_selection_leaves_client_memory_unchanged(tiny):
    objective = Objective(models.Logistic(zero=True).build((16,), 4))
    clients = Clients(np.array([2, 3]), np.array([2, 3]), tiny.train, objective)
    memory = {"steps_done": torch.tensor([4, 0])}
    asked = Task(objective.initial, 0, seed=0, phase="measure")
    report, memory = client_step(compose(Sgd(), ByAlignmentAndInexactness()), asked, memory, clients)
    assert (report.seen["inexactness"] < 1).all()
    assert memory["steps_done"].tolist() == [4, 0]


class ListOfWeights(Weighting):
    def factors(self, report, version, state, federation):
        del version, state, federation
        weights: Any = [1.0] * len(report)  # what a weighting must not return
        return weights


class ByUnknown(Weighting):
    def factors(self, report, version, state, federation):
        del version, state, federation
        return report.seen["acuracy"]


class OneNumber(Aggregation):
    def apply(self, weights, report, state, federation):
        del report, federation
        return weights.sum(), state


class Half(Server):
    def apply(self, params, direction, version, state):
        del direction, version
        return params[:2], state


@pytest.mark.parametrize(
    ("piece", "message"),
    [
        (
            ListOfWeights(),
            r"ListOfWeights made weights of type list: needed a tensor of shape \(2,\), one weight for each report",
        ),
        (ByUnknown(), r"report.seen has no 'acuracy': clients send loss. Write needs = \('acuracy',\)"),
        (OneNumber(), r"OneNumber made a direction of shape \(\): needed a tensor of shape \(5,\), like the model"),
        (Half(), r"Half made parameters of shape \(2,\): needed a tensor of shape \(5,\)"),
    ],
)
def test_return_values_of_pieces_are_validated(piece, message):
    also = (piece, DivideBySum()) if isinstance(piece, Weighting) else (piece,)
    algorithm = compose(*also)
    reports = report([0, 1], seen={"loss": torch.ones(2)})
    with pytest.raises(ConfigurationError, match=message):
        server_step(algorithm, state_of(algorithm), reports, federation(num_params=P))
    if isinstance(piece, Weighting):  # summed as they come in
        with pytest.raises(ConfigurationError, match=message):
            product_of_factors(algorithm.weighting, state_of(algorithm), federation(num_params=P), reports)


@pytest.mark.parametrize("broken", [False, True])
def test_mean_local_loss_is_of_all_clients_that_took_steps(broken):
    algorithm = fedau(Sgd())
    reports = replace(
        report([0, 1, 2, 3], torch.ones(4, P, dtype=torch.float64)),
        num_steps=np.array([5, 0, 5, 5]),
        seen={"loss": torch.tensor([1.0, 7.0, 2.0, torch.nan if broken else 6.0])},
    )
    _, info = server_step(algorithm, state_of(algorithm), reports, federation(num_params=P))
    assert info["num_dropped"] == broken
    assert info["local_loss"] == (1.5 if broken else 3.0)
    idle = replace(reports, num_steps=np.zeros(4, dtype=np.int64))
    _, info = server_step(algorithm, state_of(algorithm), idle, federation(num_params=P))
    assert "local_loss" not in info
