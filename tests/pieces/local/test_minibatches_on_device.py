"""Plans of minibatches that a device shuffles have the bits of the host's."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.laws.recipes import experiment

from turnout import Sgd
from turnout.core.types import Task
from turnout.pieces.local import minibatches, solver
from turnout.pieces.local.minibatches import Sampling, plan
from turnout.simulation import Simulation

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def few(monkeypatch):
    """Let the device plan few numbers, too."""
    monkeypatch.setattr(minibatches, "_LEAST_ON_DEVICE", 1)


cohorts = st.lists(st.tuples(st.integers(1, 40), st.integers(0, 60), st.integers(0, 9)), min_size=1, max_size=6)


def both(cohort, batch_size, sampling: Sampling = "pass", drop_last=True, seed=0):
    """The plans of a cohort of (examples, minibatches used before, minibatches), by the host and by a device."""
    sizes, done, num_steps = map(np.array, zip(*cohort, strict=True))
    return [
        plan(
            offsets=np.cumsum(sizes) - sizes, sizes=sizes, clients=3 * np.arange(len(sizes)), done=done,
            versions=np.arange(len(sizes)), num_steps=num_steps, batch_size=batch_size, sampling=sampling,
            drop_last=drop_last, seed=seed, device=device,
        )
        for device in (None, CPU)
    ]  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(cohorts, st.integers(1, 50), st.sampled_from(["pass", "fresh"]), st.booleans(), st.integers(0, 2**40))
def test_bits_are_those_of_the_host(cohort, batch_size, sampling, drop_last, seed):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(minibatches, "_WASTE_ON_DEVICE", 10**6)
        host, device = both(cohort, batch_size, sampling, drop_last, seed)
    assert isinstance(device.examples, torch.Tensor)
    assert np.array_equal(host.examples, device.examples.numpy())
    assert np.array_equal(host.counts, device.counts)
    assert host.full == device.full
    order = np.random.default_rng(seed).permutation(len(cohort))
    assert torch.equal(host.on(CPU, order), device.on(CPU, order))
    assert device.on(CPU, order).is_contiguous()


def test_host_plans_clients_of_too_different_sizes():
    even, uneven = both([(9, 0, 2)] * 30, 4)[1], both([(900, 0, 2)] + [(9, 0, 2)] * 30, 4)[1]
    assert isinstance(even.examples, torch.Tensor)
    assert isinstance(uneven.examples, np.ndarray)


def test_host_plans_what_would_fill_a_device(monkeypatch):
    monkeypatch.setattr(minibatches, "_MOST_ON_DEVICE", 30 * 9 - 1)
    assert isinstance(both([(9, 0, 2)] * 30, 4)[1].examples, np.ndarray)
    assert isinstance(both([(9, 0, 2)] * 29, 4)[1].examples, torch.Tensor)


def test_host_plans_few_numbers(monkeypatch):
    monkeypatch.setattr(minibatches, "_LEAST_ON_DEVICE", 30 * 9)
    assert isinstance(both([(9, 0, 2)] * 29, 4)[1].examples, np.ndarray)
    assert isinstance(both([(9, 0, 2)] * 30, 4)[1].examples, torch.Tensor)


def test_host_draws_with_replacement_and_plans_nobody():
    assert isinstance(both([(9, 0, 2)] * 30, 4, "replacement")[1].examples, np.ndarray)
    nothing = np.zeros(0, dtype=np.int64)
    empty = plan(
        offsets=nothing, sizes=nothing, clients=nothing, versions=nothing, done=nothing, num_steps=nothing,
        batch_size=2, sampling="pass", drop_last=True, seed=0, device=CPU,
    )  # fmt: skip
    assert len(empty.examples) == 0


@pytest.mark.parametrize(("kind", "expected"), [("cpu", None), ("meta", torch.device("meta"))])
def test_device_of_the_parameters_plans(kind, expected, monkeypatch):
    seen, simulation, ids = [], Simulation(experiment("fedavg")), np.arange(2)
    monkeypatch.setattr(solver, "plan", lambda **given: seen.append(given["device"]))
    task = Task(simulation.state.params.to(kind), 0, 0)
    Sgd(lr=0.1, steps=2).plan(task, simulation.memory.gather(ids), simulation.workspace.clients(ids))
    assert seen == [expected]
