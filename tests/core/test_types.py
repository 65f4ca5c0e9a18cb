"""Reports, tasks and candidates."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from turnout.core.candidates import Candidates
from turnout.core.checks import ConfigurationError
from turnout.core.types import Report, Task
from turnout.core.updates import Updates

from ..tiny import report


def full(clients, value=1.0):
    n = len(clients)
    return report(clients, torch.full((n, 5), value).double(), seen={"loss": torch.arange(n).double()})


def test_take_and_cat_are_inverse():
    one = full([3, 1, 4, 0])
    rows = [np.array(part, dtype=np.int64) for part in ([0, 1], [2], [], [3])]
    parts = [one.take(part) for part in rows]
    both = Report.cat(parts)
    for name in ("client", "version", "num_examples", "num_steps"):
        np.testing.assert_array_equal(getattr(both, name), getattr(one, name))
    assert torch.equal(both.updates.gathered(), one.updates.gathered())
    assert torch.equal(both.seen["loss"], one.seen["loss"])
    assert len(both) == 4
    assert Report.cat([one]) is one


def test_take_reorders_all_fields():
    taken = full([3, 1, 4]).take(np.array([2, 0]))
    assert list(taken.client) == [4, 3]
    assert taken.seen["loss"].tolist() == [2.0, 0.0]


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_finite_checks_all_tensors(bad, dtype):
    delta, extra, seen = torch.ones(4, 5, dtype=dtype), torch.ones(4, 2, 3, dtype=dtype), torch.ones(4, dtype=dtype)
    delta[0, 4], extra[1, 1, 2], seen[2] = bad, bad, bad
    ids = np.arange(4)
    one = Report(ids, ids, ids, ids, delta, {"c": extra}, {"loss": seen})
    assert list(one.finite()) == [False, False, False, True]


def test_opposite_infinities_are_detected_and_large_numbers_are_finite():
    delta = torch.tensor([[torch.inf, -torch.inf], [3e38, 3e38], [-3e38, 3e38]])
    assert list(report([0, 1, 2], delta).finite()) == [False, True, True]


def test_empty_report_is_finite():
    assert full([]).finite().shape == (0,)


def test_screening_includes_measured_reports():
    one, measured = full([3, 1, 4]), full([0, 5])
    one.updates.gathered()[1, 2], measured.seen["loss"][0] = torch.nan, torch.inf
    both = replace(one, measured=measured)
    kept, num_dropped = both.screened()
    assert list(kept.client) == [3, 4]
    assert num_dropped == 1  # of those who trained
    assert kept.measured is not None
    assert list(kept.measured.client) == [5]
    assert full([1, 2]).screened()[0].measured is None
    fine = full([1, 2])
    assert fine.screened() == (fine, 0)


def test_measured_reports_follow_the_selected_ones():
    both = replace(full([3, 1, 4]), measured=full([0, 5]))
    assert both.take(np.array([2])).measured is both.measured
    assert Report.cat([both]).measured is both.measured


def test_bytes_of_a_report():
    """Three integers and all tensors, without those of other clients."""
    ids = np.arange(4)
    delta, extra = torch.ones(4, 5), {"c": torch.ones(4, 2, 3)}
    seen = {"loss": torch.ones(4), "inexactness": torch.ones(4).double(), "start_gradient": torch.ones(4, 5)}
    assert Report(ids, ids, ids, ids, delta, extra, seen).nbytes == 24 + 4 * 5 + 4 * 6 + 4 + 8 + 4 * 5
    assert Report(ids, ids, ids, ids, delta[:, :0], seen={"loss": torch.ones(4)}).nbytes == 24 + 4
    assert replace(full([1, 2]), measured=full([3])).nbytes == full([]).nbytes == 24 + 5 * 8 + 8


def test_candidates_query_availability():
    asked = []

    def available(clients):
        asked.append(clients.tolist())
        return clients % 2 == 1

    assert Candidates(available, 5, 0, 0).everyone().tolist() == [1, 3]
    assert asked == [[0, 1, 2, 3, 4]]


def test_versions_of_a_task_are_per_client():
    assert list(Task(torch.zeros(3), 7, seed=0).versions(3)) == [7, 7, 7]
    assert list(Task(torch.zeros(3), np.array([4, 5]), seed=0).versions(2)) == [4, 5]


def test_weighted_sum_accumulates_in_float64(monkeypatch):
    weights, rows = torch.tensor([1.0, -1.0, 0.5]), torch.tensor([[1e8, 1.0], [1e8 - 8, 2.0], [2.0, 4.0]])
    assert Updates.of(rows).weighted_sum(weights).tolist() == [9.0, 1.0]
    monkeypatch.setattr("turnout.core.updates._BLOCK", 1)
    monkeypatch.setattr("turnout.core.updates._COLUMNS", 1)
    assert Updates.of(rows).weighted_sum(weights).tolist() == [9.0, 1.0]
    assert Updates.of(rows[:0]).weighted_sum(weights[:0]).tolist() == [0.0, 0.0]


def test_updates_are_not_changed_in_place():
    with pytest.raises(
        ConfigurationError, match=r"cannot be changed in place, as clamp_\(\) would: write delta = delta.clamp\(...\)"
    ):
        Updates.of(torch.ones(2, 3)).clamp_(0)
