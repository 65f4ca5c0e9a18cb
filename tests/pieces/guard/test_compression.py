"""Compressions: decoded values, sizes, and error feedback."""

import math
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.laws.recipes import LOCAL, experiment, trained
from tests.tiny import report

from turnout import ConfigurationError, Population, average_participating, compose, fedau, scaffold
from turnout.core.types import Task
from turnout.engine.cohort import Clients
from turnout.pieces.guard import BFloat16, Clip, PowerSgd, Qsgd, RandomK, Sign, TopK
from turnout.pieces.guard.quantized import pack, unpack
from turnout.pieces.guard.sparse import permuted
from turnout.pieces.personalization import Personal
from turnout.population.availability import Everyone
from turnout.simulation import Simulation

from ...phases import train

LOW_RANK = PowerSgd(rank=2).for_shapes(((40, 5, 5), (3,)))
EVERY = [TopK(share=0.1), RandomK(share=0.1), Sign(), Qsgd(), Qsgd(bits=2, norm="l2"), BFloat16(), LOW_RANK]
NOBODY = cast("Clients", None)
P = 1003
BYTES = [100 * 8, 100 * 4, 126 + 4, 502 + 2 * 4, 251 + 2 * 4, 2 * P, 4 * (2 * (40 + 25) + 3)]


def sent(guard, rows, memory=None, version=0, dtype=torch.float32):
    """Return the decoded report, and the clients' memory."""
    rows = torch.as_tensor(rows, dtype=dtype)
    guard_memory = guard.memory(rows.shape[1], rows.dtype)
    memory = memory or {k: torch.zeros(len(rows), *shape, dtype=dtype) for k, (shape, dtype) in guard_memory.items()}
    task = Task(torch.zeros(rows.shape[1]), version=version, seed=0)
    found = guard.apply(report(range(len(rows)), rows), task, memory, NOBODY)
    guard.settle(memory, found, torch.from_numpy(found.finite())[:, None])
    return found, memory


def random_rows(n=4, number=P, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).normal(size=(n, number))).float()


@pytest.mark.parametrize(("guard", "nbytes"), list(zip(EVERY, BYTES, strict=True)), ids=map(str, EVERY))
def test_bytes_equal_those_of_the_code(guard, nbytes):
    found, _ = sent(guard, random_rows())
    assert found.vector_bytes == nbytes
    assert found.nbytes == 24 + nbytes
    keys = torch.arange(4)
    code = guard.encode(random_rows(), keys)
    assert sum(value[0].numel() * value.element_size() for value in code.values()) == nbytes


@pytest.mark.parametrize("guard", EVERY, ids=str)
def test_error_feedback_sends_losses_later(guard):
    """The sum of decoded updates equals the sum of updates, except for the remembered error."""
    guard = guard if guard.error_feedback else replace(guard, error_feedback=True)
    memory: Any = {}
    arrived, made = torch.zeros(1), torch.zeros(1)
    for t in range(6):
        rows = random_rows(seed=t)
        found, memory = sent(guard, rows, memory, version=t)
        arrived, made = arrived + found.updates.gathered().double(), made + rows.double()
    torch.testing.assert_close(arrived + memory["error"].double(), made, rtol=0, atol=1e-3)
    assert memory["error"].norm() > 0


@pytest.mark.parametrize("guard", EVERY, ids=str)
def test_result_does_not_depend_on_other_clients(guard):
    rows = random_rows()
    together, alone = sent(guard, rows)[0], []
    for i in range(4):
        one = report([i], rows[i : i + 1])
        memory = {k: torch.zeros(1, *s, dtype=d) for k, (s, d) in guard.memory(P, rows.dtype).items()}
        task = Task(torch.zeros(P), version=0, seed=0)
        alone.append(guard.apply(one, task, memory, NOBODY).updates.gathered())
    assert torch.equal(torch.cat(alone), together.updates.gathered())


@pytest.mark.parametrize("guard", EVERY, ids=str)
def test_zeros_stay_zero_and_nan_stays_nan(guard):
    """NaN is left for the server to drop, and does not change the memory."""
    rows = torch.zeros(3, P)
    rows[1, 7] = float("nan")
    rows[2] = 1.0
    found, memory = sent(guard, rows)
    assert (found.delta[0] == 0).all()
    assert found.finite().tolist() == [True, False, True]
    if "error" in memory:
        assert (memory["error"][:2] == 0).all()
    nothing, _ = sent(guard, torch.zeros(3, 0))
    assert nothing.delta.shape == (3, 0)


def test_top_k_sends_the_largest_values_with_their_positions():
    rows = torch.tensor([[0.1, -3.0, 2.0, 0.2, -0.3]])
    found, memory = sent(TopK(share=0.4), rows)
    assert found.delta.tolist() == torch.tensor([[0.0, -3.0, 2.0, 0.0, 0.0]]).tolist()
    torch.testing.assert_close(memory["error"], torch.tensor([[0.1, 0.0, 0.0, 0.2, -0.3]]))
    assert sent(TopK(share=0.01), rows)[0].vector_bytes == 8  # at least one


def test_signs_are_scaled_by_the_mean_magnitude():
    found, _ = sent(Sign(), torch.tensor([[1.0, -2.0, 3.0]]))
    assert found.delta.tolist() == [[2.0, -2.0, 2.0]]


@pytest.mark.parametrize(
    "guard", [RandomK(error_feedback=False, share=0.25), Qsgd(bits=2), Qsgd(bits=4, norm="l2", bucket=7)], ids=str
)
def test_unbiased_codes_equal_the_update_in_expectation(guard):
    row, T = random_rows(1, 24), 3000
    keys = torch.randint(-(2**62), 2**62, (T,), generator=torch.Generator().manual_seed(1))
    code = guard.encode(row.expand(T, -1), keys)
    arrived = guard.decode(code, 24, keys, torch.float32).double()
    error = (arrived.mean(dim=0) - row[0].double()) / (arrived.std(dim=0) / math.sqrt(T)).clamp(min=1e-6)
    assert error.abs().max() < 4.5
    if isinstance(guard, Qsgd):
        size = row.abs().max() if guard.norm == "max" else row.norm()
        assert (arrived[0] - row[0]).abs().max() <= size / (2 ** (guard.bits - 1) - 1)


@pytest.mark.parametrize(("norm", "size"), [("max", 1.0), ("l2", 1.0), ("max", 2e38)])
def test_qsgd_is_unbiased_for_tiny_numbers(norm, size):
    """Numbers of about 2^-18 of a level, of both signs, beside one as large as the bucket: 16 of 4 million."""
    number = 1 << 22
    row = torch.full((1, number), size * 2.0**-18)
    row[0, ::2] *= -1
    row[0, 0] = size
    code = Qsgd(bits=2, norm=norm, bucket=number).encode(row, torch.tensor([5]))
    assert code["level"].nbytes == number // 4
    level = unpack(code["level"], 2, number)[0, 1:].long() - 1
    expected = float((row[0, 1:].double().abs() / code["size"].double()).sum())
    assert abs(level.abs().sum() - expected) < 3.5 * expected**0.5
    assert abs(level.sum()) < 3.5 * expected**0.5


@pytest.mark.parametrize("guard", EVERY, ids=str)
@pytest.mark.parametrize("size", [1e-44, 1e-30, 1e18, 1e30], ids=str)
def test_small_and_large_numbers_are_decoded(guard, size):
    found, _ = sent(guard, random_rows() * size)
    assert found.delta.isfinite().all()
    if size > 1e-40:
        assert (found.delta != 0).any()


def test_random_positions_differ_by_round_and_client():
    rows = torch.ones(2, 100)
    first, later = (sent(RandomK(share=0.1), rows, version=t)[0].updates.gathered() for t in (0, 1))
    assert (first.count_nonzero(dim=1) == 10).all()
    assert not torch.equal(first[0], first[1])
    assert not torch.equal(first, later)


def test_random_positions_are_uniform_and_pairwise_independent():
    """Chi-square test of the first of 13 positions, and of the second given it, over keys."""
    T, n = 40_000, 13
    keys = torch.randint(-(2**62), 2**62, (T, 1), generator=torch.Generator().manual_seed(2))
    places = permuted(torch.arange(2), keys, n)
    assert (places[:, 0] != places[:, 1]).all()
    for counts in (
        torch.bincount(places[:, 0], minlength=n),
        torch.bincount(places @ torch.tensor([n, 1]), minlength=n * n),
    ):
        cells = counts[counts > 0].double()
        assert len(cells) == (n if len(counts) == n else n * (n - 1))
        square = float(((cells - T / len(cells)) ** 2 / (T / len(cells))).sum())
        assert abs(square - len(cells)) < 5 * math.sqrt(2 * len(cells))


@given(st.sampled_from([1, 2, 4, 8]), st.integers(1, 40), st.integers(0, 2**31))
@settings(max_examples=40, deadline=None, derandomize=True)
def test_packing_is_lossless(bits, number, seed):
    codes = torch.randint(0, 2**bits, (3, number), generator=torch.Generator().manual_seed(seed), dtype=torch.uint8)
    packed = pack(codes, bits)
    assert packed.shape == (3, math.ceil(number * bits / 8))
    assert torch.equal(unpack(packed, bits, number), codes)


def with_guards(name, *guards, **options):
    run = experiment(name, **options)
    return replace(run, algorithm=replace(run.algorithm, guard=guards))


def test_traffic_counts_both_directions():
    everyone = Population(Everyone())
    rows = {}
    for guards in ((), (TopK(share=0.1),), (BFloat16(),), (BFloat16(down=False),)):
        simulation = trained(with_guards("average_participating", *guards, rounds=1, population=everyone))
        rows[guards] = simulation.row
    p = simulation.server.federation.num_params
    k = round(0.1 * p)
    up = [(row["bytes_up"] // 8 - 28, row["bytes_down"] // 8 - 8) for row in rows.values()]
    assert up == [(4 * p, 4 * p), (8 * k, 4 * p), (2 * p, 2 * p), (2 * p, 4 * p)]


@pytest.mark.parametrize("guard", [TopK(share=0.2), Qsgd(), BFloat16()], ids=str)
def test_control_variates_remain_the_mean_over_clients(guard):
    """SCAFFOLD's invariant, with compressed changes of control variates."""
    run = with_guards("scaffold", guard, rounds=4)
    simulation = trained(run)
    kept = simulation.memory.gather(np.arange(8))["control"]
    mean = simulation.state.slots["controls"]["control"]
    torch.testing.assert_close(kept.double().mean(dim=0), mean, rtol=0, atol=1e-5)
    assert kept.norm() > 0


def test_late_client_keeps_its_memory():
    run = with_guards("average_participating", TopK(share=0.05), rounds=2)
    simulation = Simulation(run)
    train(simulation, np.array([3]))
    error = simulation.memory.gather(np.array([3]))["error"].clone()
    assert error.norm() > 0
    assert (simulation.memory.gather(np.array([2]))["error"] == 0).all()
    report_of_two = train(simulation, np.array([2, 3]))
    plain = Simulation(with_guards("average_participating", rounds=2))
    train(plain, np.array([3]))
    made = train(plain, np.array([2, 3])).updates.gathered()
    after = simulation.memory.gather(np.array([2, 3]))["error"]
    torch.testing.assert_close(
        report_of_two.updates.gathered() + after, made + torch.stack([torch.zeros_like(error[0]), error[0]])
    )


@pytest.mark.parametrize("guard", [TopK(share=0.1), RandomK(share=0.1), Sign(), Qsgd(bits=4)], ids=str)
def test_compressed_training_learns_and_lanes_change_no_bit(guard):
    run = with_guards("average_participating", guard, rounds=6)
    one, other = trained(run), trained(run, lanes=3)
    assert torch.equal(one.state.params, other.state.params)
    losses = one.history.column("train_loss")[1]
    assert losses[-1] < losses[0] or len(losses) == 1


def test_personal_parameters_are_not_compressed():
    algorithm = average_participating(LOCAL, also=(Personal(), TopK(share=0.1)))
    simulation = Simulation(replace(experiment("average_participating", rounds=1), algorithm=algorithm))
    found = train(simulation, np.arange(4))
    assert found.vector_bytes == 8 * round(0.1 * simulation.server.federation.num_params)
    assert simulation.memory.gather(np.arange(4))["error"].shape[1] == simulation.server.federation.num_params


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: TopK(share=0.0), "share: got 0.0, needed a number > 0 and <= 1"),
        (lambda: RandomK(share=True), "share: got True"),
        (lambda: Sign(error_feedback=1), "error_feedback: got 1, needed true or false"),  # type: ignore[arg-type]
        (lambda: Qsgd(bits=cast("Any", 3)), "unknown value of bits 3: known: 2, 4, 8"),
        (lambda: Qsgd(bucket=0), "bucket: got 0"),
        (lambda: Qsgd(norm="l1"), "unknown value of norm 'l1'"),  # type: ignore[arg-type]
        (lambda: compose(TopK(), Sign()), "TopK and Sign both code the same vectors"),
    ],
)
def test_invalid_arguments_raise(make, message):
    with pytest.raises(ConfigurationError, match=message):
        make()


def test_compressions_combine_with_recipes():
    assert fedau(also=(Clip(1.0), TopK())).guard == (Clip(1.0), TopK())
    assert scaffold(also=(Sign(),)).keeps


def test_places_that_do_not_fit_into_four_bytes_are_refused():
    """They would be negative, or those of other parameters."""
    rows = torch.empty(1, 2**31, device="meta")
    with pytest.raises(ConfigurationError, match=r"top_k: indices of 4 bytes .* model of 2,147,483,648 parameters"):
        TopK().encode(rows, torch.zeros(1))
    assert TopK(share=1e-9).encode(rows[:, 1:], torch.zeros(1))["place"].shape == (1, 2)
