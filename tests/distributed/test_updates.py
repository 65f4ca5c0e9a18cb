"""Operations on update matrices give the same results wherever their rows are."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch

from turnout import compose, fedau, fednova, maxfl
from turnout.base import Aggregation
from turnout.base.server_step import server_step
from turnout.core.checks import ConfigurationError
from turnout.core.updates import Dense, Updates, join
from turnout.distributed import collectives
from turnout.distributed.running_sum import RunningSum
from turnout.distributed.sums import LazySum, Summed
from turnout.distributed.updates import Sharded
from turnout.pieces.local import Scaffold
from turnout.pieces.weighting import ByExamples, DivideByClients, DivideBySum, DivideBySumPlus, Participation
from turnout.protocol.streaming import ReportBuffer, StreamingSum

from ..processes import side_by_side
from ..tiny import federation, report

B, P = 37, 9
GENERATOR = torch.Generator().manual_seed(0)
MATRIX = torch.randn(B, P, generator=GENERATOR)
WEIGHTS = torch.rand(B, generator=GENERATOR, dtype=torch.float64)


def share(rank, number=2, matrix=MATRIX):
    """The rows of one of several processes, which have them in no order."""
    place = torch.randperm(B, generator=torch.Generator().manual_seed(1))[rank::number]
    return Sharded(matrix[place], place, B)


OPERATIONS = {
    "weighted_sum": lambda rows: rows.weighted_sum(WEIGHTS),
    "mean": lambda rows: rows.mean(),
    "inner": lambda rows: rows.inner(torch.linspace(-1, 1, rows.shape[1])),
    "norms": lambda rows: rows.norms(),
    "gram": lambda rows: rows.gram(),
    "median": lambda rows: rows.columnwise(lambda columns: columns.median(dim=0).values),
    "counts": lambda rows: rows.columnwise(lambda columns: (columns > 0).sum(dim=0)),
    "gathered": lambda rows: rows.gathered(),
    "rows": lambda rows: rows[torch.tensor([5, 5, 30, 0])].gathered(),
    "where": lambda rows: rows.where(torch.arange(B) % 3 == 0).gathered(),
    "joined": lambda rows: Updates.of(join([rows, rows[torch.tensor([3, 1])]])).gathered(),
    "finite": lambda rows: rows.finite(),
}


@pytest.mark.parametrize("number", [1, 2, 3])
@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)
def test_operations_do_not_depend_on_the_location_of_rows(operation, number, monkeypatch):
    """All processes have equal bits, and equal those of one process except for the order of summation."""
    monkeypatch.setattr("turnout.core.updates._COLUMNS", 2)  # so that there are blocks of columns
    monkeypatch.setattr("turnout.core.updates._BLOCK", 1)
    expected = operation(Dense(MATRIX))
    found = side_by_side(lambda rank: operation(share(rank, number)), number)
    assert all(torch.equal(one, found[0]) for one in found)
    if operation in (OPERATIONS[name] for name in ("weighted_sum", "mean", "gram")):
        torch.testing.assert_close(found[0], expected)
    else:
        assert torch.equal(found[0], expected)
        assert found[0].dtype == expected.dtype


def test_operations_equal_linear_algebra():
    wide, rows = MATRIX.double(), Dense(MATRIX)
    vector = torch.linspace(-1, 1, P)
    torch.testing.assert_close(rows.weighted_sum(WEIGHTS), WEIGHTS @ wide)
    torch.testing.assert_close(rows.mean(), wide.mean(dim=0))
    torch.testing.assert_close(rows.inner(vector), wide @ vector.double())
    torch.testing.assert_close(rows.norms(), wide.norm(dim=1))
    torch.testing.assert_close(rows.gram(), wide @ wide.T)
    assert torch.equal(rows.columnwise(lambda columns: columns.amax(dim=0)), MATRIX.amax(dim=0))
    assert (rows.shape, rows.dim(), rows.element_size(), len(rows)) == (MATRIX.shape, 2, 4, B)


def test_processes_may_have_no_columns():
    narrow = MATRIX[:, :1].contiguous()
    found = side_by_side(lambda rank: share(rank, matrix=narrow).columnwise(lambda columns: columns.amin(dim=0)))
    assert all(torch.equal(one, narrow.amin(dim=0)) for one in found)


OF_TENSORS = {
    "a method": lambda delta: delta.median(dim=0).values,
    "a function": lambda delta: torch.quantile(delta, 0.3, dim=0),
    "a list": lambda delta: torch.cat([delta, delta[:2]]),
    "a keyword": lambda delta: torch.sum(input=delta, dim=0),
    "an operator": lambda delta: (2 * delta - delta / 2) @ torch.ones(P) > 0,
    "the other way": lambda delta: 1 - MATRIX * delta,
    "columns": lambda delta: delta[:, 2:4],
    "one by one": lambda delta: torch.stack([row.abs() for row in delta]),
    "a mask": lambda delta: delta[delta[:, 0] > 0],
}


@pytest.mark.parametrize("rule", OF_TENSORS.values(), ids=OF_TENSORS)
def test_tensor_operations_work_in_every_process(rule):
    for found in side_by_side(lambda rank: rule(share(rank))):
        assert torch.equal(found, rule(MATRIX))


def test_updates_are_not_modified():
    held = share(0)
    with pytest.raises(ConfigurationError, match=r"as mul_\(\) would: write delta = delta.mul\("):
        held.mul_(2)
    with pytest.raises(AttributeError, match="updates have no 'medium', and neither have tensors"):
        held.medium()


@dataclass(frozen=True)
class Median(Aggregation):
    """A user-defined aggregation that treats updates as a tensor."""

    def apply(self, weights, report, state, federation):
        del weights, federation
        return report.delta.median(dim=0).values, state


def test_user_aggregation_works_in_every_process():
    known, algorithm = federation(B, P), compose(Median())
    assert not algorithm.sums_early
    start = algorithm.init(torch.zeros(P, dtype=torch.float64), known)

    def step(rank):
        delta = MATRIX if rank is None else share(rank)
        return server_step(algorithm, start, report(np.arange(B), delta, dtype=torch.float32), known)[0].params

    assert all(torch.equal(found, step(None)) for found in side_by_side(step))
    assert torch.equal(step(None), MATRIX.median(dim=0).values.double())


def test_nan_rows_are_found_in_every_process():
    matrix = MATRIX.clone()
    matrix[4, 2], matrix[7, 0] = torch.nan, torch.inf
    for finite in side_by_side(lambda rank: share(rank, matrix=matrix).finite()):
        assert (~finite).nonzero()[:, 0].tolist() == [4, 7]


@pytest.mark.parametrize("cuts", [(), (1, 2, 3), (16, 32), (15, 31, 33), tuple(range(1, B)), (0, 20, 20, 36)])
def test_running_sum_does_not_depend_on_chunks(cuts):
    whole, parts = RunningSum(), RunningSum()
    whole.add(WEIGHTS, MATRIX)
    for low, high in zip((0, *cuts), (*cuts, B), strict=True):
        parts.add(WEIGHTS[low:high], MATRIX[low:high])
    assert torch.equal(parts.total(), whole.total())
    torch.testing.assert_close(whole.total(), WEIGHTS @ MATRIX.double())


def test_empty_running_sum_is_zero():
    nothing = RunningSum()
    nothing.add(WEIGHTS[:0], MATRIX[:0])
    assert torch.equal(nothing.total(), torch.zeros(P, dtype=torch.float64))


def test_summed_rows_reject_other_weights():
    summed = Summed(WEIGHTS @ MATRIX.double(), WEIGHTS, MATRIX.dtype)
    torch.testing.assert_close(summed.weighted_sum(-3 * WEIGHTS), -3 * summed.sum)
    assert not summed.weighted_sum(0 * WEIGHTS).any()
    with pytest.raises(RuntimeError, match="not to be proportional to the factors"):
        summed.weighted_sum(WEIGHTS.square())
    with pytest.raises(RuntimeError, match="neither doubled nor taken out"):
        summed[torch.tensor([0, 0, 1])]
    with pytest.raises(RuntimeError, match="neither doubled nor taken out"):
        summed[torch.arange(B - 1)]
    assert summed.total() is None
    order = torch.randperm(B, generator=GENERATOR)
    torch.testing.assert_close(summed[order].weighted_sum(WEIGHTS[order]), summed.sum)


def test_unsummed_rows_are_available():
    matrix = MATRIX.clone()
    matrix[4, 2] = torch.inf
    waiting = LazySum(matrix, WEIGHTS)
    assert (waiting.shape, waiting.dtype, len(waiting)) == (MATRIX.shape, MATRIX.dtype, B)
    assert waiting.finite().tolist() == [i != 4 for i in range(B)]
    assert waiting.total().isinf()
    good = waiting.finite().nonzero()[:, 0]
    assert torch.equal(waiting[good].parts[0], matrix[good])
    torch.testing.assert_close(waiting[good].weighted_sum(3 * WEIGHTS[good]), 3 * WEIGHTS[good] @ matrix[good].double())
    with pytest.raises(RuntimeError, match="not to be proportional to the factors"):
        waiting[good].weighted_sum(WEIGHTS[good].square())


@pytest.mark.parametrize("num_rows", [1, 6, 16, 21])
def test_chunked_sum_equals_the_sum_bit_for_bit(monkeypatch, num_rows):
    """For any blocks of columns, which depend on the number of rows, and chunks that end within a block."""
    monkeypatch.setattr("turnout.distributed.sums._CHUNK", 5_000)
    monkeypatch.setattr("turnout.core.updates._COLUMNS", 100)
    monkeypatch.setattr("turnout.core.updates._BLOCK", 3_000)
    matrix = torch.randn(num_rows, 12_345, generator=GENERATOR)
    weights = torch.rand(num_rows, dtype=torch.float64, generator=GENERATOR)
    running = RunningSum()
    running.add(weights, matrix)
    parts = LazySum(matrix[:1], weights[:1])
    if num_rows > 1:
        parts = parts.joined(
            [LazySum(row, weight) for row, weight in zip(matrix[1:, None], weights[1:, None], strict=True)]
        )
    whole = Summed(running.total(), weights, matrix.dtype)
    for rows in (parts, LazySum(matrix, weights)):
        assert torch.equal(rows.weighted_sum(0.3 * weights), whole.weighted_sum(0.3 * weights))
        narrow = rows.weighted_sum(0.3 * weights, torch.float32)
        assert torch.equal(narrow, whole.weighted_sum(0.3 * weights).float())
        assert torch.equal(narrow, whole.weighted_sum(0.3 * weights, torch.float32))
    order = torch.randperm(num_rows, generator=GENERATOR)
    assert torch.equal(torch.cat(parts.take(order).parts), matrix[order])
    kept = torch.arange(num_rows) != 3
    assert torch.equal(torch.cat(parts.where(kept).parts), matrix.where(kept[:, None], 0.0))
    assert parts.finite().all()
    torch.testing.assert_close(parts.total(), matrix.double().sum(), rtol=1e-4, atol=1e-2)


def test_rows_are_zeroed_before_summation_only():
    weights = WEIGHTS.clone()
    kept = torch.tensor([i != 4 for i in range(B)])
    some = LazySum(MATRIX, weights).where(kept)
    assert torch.equal(some.parts[0], MATRIX.where(kept[:, None], 0.0))
    torch.testing.assert_close(some.weighted_sum(some.weights), some.weights @ some.parts[0].double())
    weights[4] = 0.0
    summed = Summed(torch.ones(P, dtype=torch.float64), weights, MATRIX.dtype)
    assert summed.where(kept) is summed
    with pytest.raises(ConfigurationError, match=r"a server rule reads updates .some of them."):
        Summed(summed.sum, WEIGHTS, MATRIX.dtype).where(kept)


READS = {
    "inner products": lambda rows: rows.inner(torch.ones(P)),
    "norms": lambda rows: rows.norms(),
    "inner products of each other": lambda rows: rows.gram(),
    "columns": lambda rows: rows.columnwise(lambda columns: columns.amax(dim=0)),
    "a tensor": lambda rows: rows.median(dim=0),
}


@pytest.mark.parametrize("rows", [Summed(WEIGHTS @ MATRIX.double(), WEIGHTS, MATRIX.dtype), LazySum(MATRIX, WEIGHTS)])
@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_reading_summed_rows_raises(read, rows):
    """Also before the summation: a rule that reads them fails at its first trial."""
    with pytest.raises(ConfigurationError, match="only_sums = True: remove that if the aggregation reads"):
        read(rows)


CHAINS = {
    "fedau": fedau(),
    "fedau of shares": compose(ByExamples(), Participation(3), DivideBySum()),
    "fednova": fednova(),
    "maxfl": maxfl(),
    "maxfl of few": compose(*maxfl().measurements, *maxfl().weighting[:-1], Participation(3), DivideBySumPlus(0.1)),
    "scaffold": compose(Scaffold(), Participation(3), DivideByClients()),
}


@pytest.mark.parametrize("algorithm", CHAINS.values(), ids=CHAINS)
def test_early_summation_equals_late_summation(algorithm):
    """Also with a dropped report and a weight of zero; the same bits if the sum is deferred."""
    known, rng = federation(20, P), np.random.default_rng(3)
    assert algorithm.sums_early
    states = [algorithm.init(torch.zeros(P, dtype=torch.float64), known) for _ in range(4)]
    for version in range(5):
        clients = np.sort(rng.choice(20, 18, replace=False))
        delta = torch.from_numpy(rng.normal(size=(18, P)))
        delta[3, 1] = torch.nan if version % 2 else 0.5
        one = report(clients, delta, sizes=rng.integers(5, 50, 18), version=version)
        one.num_steps[:] = rng.integers(0, 4, 18)
        one.seen["appeal_gap"] = torch.from_numpy(rng.normal(size=18) * 30).clamp(max=800.0)
        one.seen["appeal_gap"][5] = 1e4
        one.extra.update({name: torch.from_numpy(rng.normal(size=(18, P))) for name in algorithm.keeps})
        ways = (
            ReportBuffer(),
            StreamingSum(algorithm, states[1], known),
            StreamingSum(algorithm, states[2], known, deferred=True),
            StreamingSum(algorithm, states[3], known, deferred=True),
        )
        for which, (parts, width) in enumerate(zip(ways, (5, 5, 18, 1), strict=True)):
            for low in range(0, 18, width):
                parts.add(one.take(np.arange(low, min(low + width, 18))))
            states[which], info = server_step(algorithm, states[which], parts.reports(), known)
            assert info["num_dropped"] == version % 2
        torch.testing.assert_close(states[0].params, states[1].params)
        assert torch.equal(states[1].params, states[2].params)
        assert torch.equal(states[1].params, states[3].params)
    assert states[0].params.norm() > 0
    for place in states[0].slots:
        torch.testing.assert_close(states[0].slots[place], states[1].slots[place])
        assert all(torch.equal(value, states[2].slots[place][name]) for name, value in states[1].slots[place].items())


@pytest.mark.parametrize("number", [0, 1, 5, 6, 7, 100])
def test_shares_are_contiguous_and_equal(number, monkeypatch):
    monkeypatch.setattr(collectives, "world_size", lambda: 3)
    found = []
    for rank in range(3):
        monkeypatch.setattr(collectives, "rank", lambda rank=rank: rank)
        mine = collectives.share(number)
        found.append(range(mine.start, mine.stop))
    assert [thing for part in found for thing in part] == list(range(number))
    assert max(map(len, found)) - min(map(len, found)) <= 1


def test_finite_numbers_with_overflowing_sums_are_finite():
    largest = torch.finfo(torch.float32).max
    rows = torch.stack([torch.full((P,), largest), torch.full((P,), torch.inf), torch.ones(P)])
    assert Dense(rows).finite().tolist() == [True, False, True]


@pytest.mark.parametrize("factor", [1e-310, 5e-324])
def test_overflowing_factor_gives_no_finite_sum(factor):
    """As for MaxFL's clients far from their requirement: the step is dropped without an error."""
    tiny = torch.full((3,), factor, dtype=torch.float64)
    summed = Summed(torch.ones(2, dtype=torch.float64), tiny, torch.float32)
    assert not summed.weighted_sum(torch.full((3,), 1 / 3, dtype=torch.float64)).isfinite().any()
    assert (
        not Summed(torch.zeros(2, dtype=torch.float64), tiny, torch.float32).weighted_sum(tiny / tiny).isfinite().any()
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("number", [1, 6, 16, 21])
def test_rows_of_large_models_are_summed_without_concatenation(number, dtype):
    """With the bits of one matrix, processed in several blocks of columns."""
    rows, weights = torch.randn(number, 70_001, dtype=dtype), torch.rand(number, dtype=torch.float64)
    whole, parts = RunningSum(), RunningSum()
    whole.add(weights, rows)
    for row in range(number):
        parts.add(weights[row : row + 1], rows[row : row + 1].clone())
    assert torch.equal(whole.total(), parts.total())
    if number <= 16:
        assert torch.equal(parts.total(), Dense(rows).weighted_sum(weights))
