"""PowerSGD compared with a transcription of Algorithms 1 and 2, and the matrices that it compresses."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from tests.laws.recipes import LOCAL, experiment
from tests.pieces.guard.test_compression import sent

from turnout import ConfigurationError, Population, scaffold
from turnout.models import Mlp
from turnout.pieces.guard import PowerSgd
from turnout.pieces.personalization import Personal
from turnout.population.availability import Everyone
from turnout.simulation import Simulation

from ...phases import train

SHAPES = ((7, 3, 2), (5,), (4, 6), (2, 2))


def orthogonalized(matrix):
    """The Gram-Schmidt procedure, column by column."""
    columns = []
    for column in matrix.T:
        for before in columns:
            column = column - (before @ column) * before
        columns.append(column / np.linalg.norm(column))
    return np.stack(columns, axis=1)


@pytest.mark.parametrize("rank", [1, 2])
def test_equals_algorithms_1_and_2(rank):
    """Three clients, six rounds, with error feedback and warm-started factors, one client at a time."""
    guard, rng = PowerSgd(rank=rank).for_shapes(SHAPES), np.random.default_rng(0)
    memory: Any = None
    kept: Any = {}
    # Sides that are no larger than their factors (2 x 2; 4 x 6 with rank 3) and vectors are not compressed.
    pieces = [(0, 42, 7, 6), (47, 71, 4, 6)]
    for t in range(6):
        rows = rng.normal(size=(3, 75))
        found, memory = sent(guard, torch.from_numpy(rows), memory, version=t, dtype=torch.float64)
        for b in range(3):
            delta = rows[b] + kept.get((b, "error"), 0.0)
            expected = delta.copy()
            for begin, end, n, m in pieces:
                matrix = delta[begin:end].reshape(n, m)
                code = (found.codes or {})[""]
                left, right = (0, 0) if begin == 0 else (7 * rank, 6 * rank)
                ours = code["left"][b, left : left + n * rank].reshape(n, rank).numpy()
                if t == 0:  # the first Q is random; a client's first P spans what its matrix makes of it
                    p = ours
                    np.testing.assert_allclose(p.T @ p, np.eye(rank), atol=1e-12)
                else:
                    p = orthogonalized(matrix @ kept[b, begin])
                q = matrix.T @ p
                expected[begin:end] = (p @ q.T).ravel()
                kept[b, begin] = q
                assert code["right"][b, right : right + m * rank].numel() == m * rank
            kept[b, "error"] = delta - expected
            np.testing.assert_allclose(found.delta[b].numpy(), expected, rtol=0, atol=1e-10)
            np.testing.assert_allclose(memory["error"][b].numpy(), kept[b, "error"], rtol=0, atol=1e-10)


def test_low_rank_matrix_is_exact():
    u, v = torch.randn(3, 7, 2, dtype=torch.float64), torch.randn(3, 2, 6, dtype=torch.float64)
    rows = torch.cat([(u @ v).flatten(1), torch.randn(3, 33, dtype=torch.float64)], dim=1)
    arrived, _ = sent(PowerSgd(rank=2).for_shapes(SHAPES), rows, dtype=torch.float64)
    torch.testing.assert_close(arrived.delta[:, :47], rows[:, :47])
    assert not torch.allclose(arrived.delta[:, 47:71], rows[:, 47:71])


def test_zero_matrix_restarts_the_factors():
    """A factor of zeros would never grow: the next update starts with new factors."""
    guard = replace(PowerSgd(rank=1), error_feedback=False).for_shapes(SHAPES)
    rows = torch.outer(torch.tensor([0.0] * 6 + [1.0]), torch.arange(1.0, 7.0)).flatten()
    rows = torch.cat([torch.zeros(42), torch.ones(33)])[None], torch.cat([rows, torch.ones(33)])[None]
    _, memory = sent(guard, rows[0])
    assert (memory["power"][:, 6:] != 0).all()
    arrived, _ = sent(guard, rows[1], memory, version=1)
    torch.testing.assert_close(arrived.delta, rows[1])


def test_zero_and_non_finite_updates_leave_the_factors_unchanged():
    guard = PowerSgd(rank=2, error_feedback=False).for_shapes(SHAPES)
    rows = torch.randn(3, 75, generator=torch.Generator().manual_seed(3))
    _, memory = sent(guard, rows)
    before = memory["power"].clone()
    rows[0], rows[1, 7] = 0.0, torch.nan
    _, memory = sent(guard, rows, memory, version=1)
    assert (memory["power"] == before).all(dim=1).tolist() == [True, True, False]


def test_factors_of_a_known_client_go_on_beside_a_new_one():
    guard = PowerSgd(rank=2, error_feedback=False).for_shapes(SHAPES)
    rows = torch.randn(2, 75, generator=torch.Generator().manual_seed(4))
    _, memory = sent(guard, rows)
    memory["power"][1] = 0.0  # the second client is new
    alone, _ = sent(guard, rows[:1], {name: value[:1].clone() for name, value in memory.items()}, version=1)
    beside, _ = sent(guard, rows, memory, version=1)
    assert torch.equal(beside.delta[0], alone.delta[0])


def test_only_shared_matrices_of_a_personal_model_are_factored():
    """The bias is sent unchanged, and the head not at all."""
    run = experiment("average_participating", rounds=1)
    algorithm = scaffold(LOCAL, cohort_size=4, also=(Personal(), PowerSgd(rank=2)))
    run = replace(run, model=Mlp(hidden=(20,)), algorithm=algorithm, population=Population(Everyone()))
    simulation = Simulation(run)
    found, features = train(simulation, np.arange(4)), simulation.objective.layout.shapes[0][1]
    assert found.vector_bytes == 2 * 4 * (2 * (20 + features) + 20)
    assert simulation.memory.gather(np.arange(4))["power"].shape == (4, 2 * features)
    simulation.round()
    assert simulation.row["bytes_up"] == 4 * (found.nbytes)


def test_invalid_arguments_raise():
    with pytest.raises(ConfigurationError, match="rank: got 0, needed a whole number >= 1"):
        PowerSgd(rank=0)
