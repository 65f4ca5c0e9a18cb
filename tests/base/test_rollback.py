"""Server steps that are taken before their validity is known, and undone."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from tests.laws.recipes import LOCAL, RATES, RECIPES, N
from tests.tiny import federation, report

from turnout import compose, fedau
from turnout.base import MutatesRows, Stateful, Weighting
from turnout.base import server_step as step
from turnout.base.piece import mutated_rows
from turnout.base.rollback import Rollback
from turnout.base.server_step import server_step
from turnout.core.adapter import Adapter
from turnout.distributed.updates import Sharded
from turnout.pieces.aggregation import FedVarp
from turnout.pieces.weighting import DivideByParticipants, Participation

P = 5
KNOWN = federation(num_params=P)
KNOWN_RATES = replace(federation(N, P, RATES), adapters=(Adapter("layer", 0, 2, 1, 2, 2, 0.5),))
GOOD = torch.linspace(0.1, 1.0, 3 * P, dtype=torch.float64).view(3, P)
BAD = GOOD.clone()
BAD[1, 2] = torch.nan


@dataclass(frozen=True)
class Counting(Weighting, MutatesRows):
    """Count reports of each client in place, declared or not."""

    says: bool = True
    most: float = float("inf")

    def init(self, federation):
        return {"times": torch.zeros(federation.num_clients, dtype=torch.int64)}

    def apply(self, weights, report, version, state, federation):
        del version, federation
        state["times"][torch.from_numpy(report.client)] += 1
        if int(100 * report.delta.sum()) > self.most:  # of NaN there is no whole number
            raise OverflowError("more than that")
        return weights, state

    def mutated_rows(self, report, state) -> dict[str, np.ndarray] | None:
        return {"times": report.client} if self.says else None


@pytest.fixture
def steps(monkeypatch):
    """How many reports each attempt to step had."""
    found, take = [], step._step

    def taken(algorithm, state, reports, known):
        found.append(len(reports))
        return take(algorithm, state, reports, known)

    monkeypatch.setattr(step, "_step", taken)
    return found


def stepped(algorithm, delta=GOOD, state=None):
    state = state or algorithm.init(torch.zeros(P, dtype=torch.float64), KNOWN)
    return server_step(algorithm, state, report([0, 3, 6], delta), KNOWN)


@pytest.mark.parametrize(("delta", "expected"), [(GOOD, [3]), (BAD, [3, 2])])
@pytest.mark.parametrize("algorithm", [compose(), fedau(), compose(FedVarp(), DivideByParticipants())])
def test_step_is_repeated_only_after_an_invalid_report(algorithm, delta, expected, steps):
    after, info = stepped(algorithm, delta)
    assert steps == expected
    assert info["num_dropped"] == 3 - expected[-1]
    assert torch.isfinite(after.params).all()


def test_large_finite_numbers_with_an_overflowing_sum_are_accepted(steps):
    algorithm, known = compose(), replace(KNOWN, dtype=torch.float32)
    state = algorithm.init(torch.zeros(P), known)
    delta = torch.full((2, P), 1e38)
    after, info = server_step(algorithm, state, report([0, 1], delta), known)
    assert steps == [2, 2]
    assert info["num_dropped"] == 0
    assert torch.equal(after.params, delta[0])


def test_invalid_measured_report_is_detected(steps):
    silent = report([5], torch.zeros(1, 0).double(), seen={"start_gradient": torch.full((1, P), torch.inf)})
    algorithm = compose()
    state = algorithm.init(torch.zeros(P, dtype=torch.float64), KNOWN)
    server_step(algorithm, state, replace(report([0], GOOD[:1]), measured=silent), KNOWN)
    assert steps == [1, 1]


@pytest.mark.parametrize("says", [True, False])
def test_in_place_changes_are_undone(says, steps):
    """The whole state is copied for a piece that does not declare its changes."""
    after, info = stepped(compose(Counting(says), DivideByParticipants()), BAD)
    assert after.slots["weighting.0"]["times"].tolist() == [1, 0, 0, 0, 0, 0, 1, 0]
    assert steps == [3, 2]
    assert info["num_dropped"] == 1


def test_pieces_never_receive_nan():
    after, _ = stepped(compose(Counting(most=1e4), DivideByParticipants()), BAD)
    assert after.slots["weighting.0"]["times"].tolist() == [1, 0, 0, 0, 0, 0, 1, 0]
    with pytest.raises(OverflowError, match="more than that"):
        stepped(compose(Counting(most=1.0), DivideByParticipants()))


def test_checked_reports_are_not_checked_again(steps):
    algorithm = compose()
    state = algorithm.init(torch.zeros(P, dtype=torch.float64), KNOWN)
    known = replace(report([0, 3, 6], BAD), good=np.array([True, False, True]))
    assert known.sums() is None
    server_step(algorithm, state, known, KNOWN)
    assert steps == [2]


def test_sums_held_by_other_processes_are_unknown():
    sharded = Sharded(GOOD, torch.arange(3), 3)
    assert replace(report([0, 3, 6], GOOD), delta=sharded).sums() is None
    alone = report([0, 3, 6], GOOD, seen={"loss": torch.tensor([1.0, 2.0, 4.0])}).sums()
    assert alone is not None
    assert [float(total) for total in alone] == pytest.approx([float(GOOD.sum()), 7.0])


def test_cost_of_undoing_is_that_of_the_cohort():
    algorithm = compose(Participation(3), DivideByParticipants())
    state = algorithm.init(torch.zeros(P, dtype=torch.float64), federation(10**6, P))
    undo = Rollback.of(algorithm, state, report([0, 3, 6]))
    assert [len(rows) for *_, rows in undo._rows] == [3] * 3


def test_declaration_of_a_parent_does_not_cover_its_subclass(steps):
    class Twice(Counting):
        def apply(self, weights, report, version, state, federation):
            state["other"][:] += 1
            return super().apply(weights, report, version, state, federation)

        def init(self, federation):
            return super().init(federation) | {"other": torch.zeros(1)}

    class Told(Twice):
        def mutated_rows(self, report, state) -> dict[str, np.ndarray] | None:
            return {name: np.array([0]) if name == "other" else report.client for name in state}

    for piece in (Twice(), Told()):
        steps.clear()
        after, _ = stepped(compose(piece, DivideByParticipants()), BAD)
        assert steps == [3, 2]
        assert after.slots["weighting.0"]["other"].item() == 1
        assert after.slots["weighting.0"]["times"].tolist()[:7] == [1, 0, 0, 0, 0, 0, 1]


@pytest.mark.parametrize("says", [True, False])
def test_step_that_raises_leaves_the_state_unchanged(says):
    """Also if reports were checked before, as with summed reports."""
    algorithm = compose(Counting(says, most=1.0), DivideByParticipants())
    for reports in (report([0, 3, 6], GOOD), replace(report([0, 3, 6], GOOD), good=np.ones(3, dtype=bool))):
        state = algorithm.init(torch.zeros(P, dtype=torch.float64), KNOWN)
        with pytest.raises(OverflowError):
            server_step(algorithm, state, reports, KNOWN)
        assert not state.slots["weighting.0"]["times"].any()


def test_pieces_declare_the_rows_they_change():
    """A step copies the rows of its cohort, for any number of clients."""
    for name, make in RECIPES.items():
        algorithm, known = make(LOCAL), replace(KNOWN_RATES, dtype=torch.float32)
        state = algorithm.init(torch.zeros(P), known)
        for slot, piece in algorithm.pieces().items():
            if isinstance(piece, Stateful):
                assert mutated_rows(piece, report([0, 3, 6], GOOD), state.slots[slot]) is not None, (name, slot)
