"""Idle lanes round cohorts up to few sizes, and change no bit of a result."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch

import turnout as to
from turnout.base import Correction, Outcome
from turnout.data.federated import FederatedData
from turnout.data.shards import Shards
from turnout.engine import threads
from turnout.engine.compile import compiled as replay
from turnout.engine.padding import LaneSizes
from turnout.pieces.local.minibatches import Plan
from turnout.simulation import Simulation, workspace

NONE, MANY = LaneSizes(1 << 20, cheap=0), LaneSizes(1, spare=10**9)
EPOCHS = {"lr": 0.05, "steps": None, "epochs": 1, "batch_size": 8}
SGD = to.Sgd(**EPOCHS)


class Ordered(Correction):
    """Scales the i-th step of a client by i, which it counts in a list."""

    def __init__(self, steps=()):
        self.steps = list(steps)

    def begin(self, task, memory, clients, lanes):
        del task, memory, clients
        return Ordered([0] * len(lanes.order))

    def correct(self, gradient, params, start):
        for lane in range(len(gradient)):
            self.steps[lane] += 1
        return gradient * torch.tensor(self.steps[: len(gradient)])[:, None]


@dataclass(frozen=True)
class Noted(Correction):
    """Remembers the number of steps of a client, which it counts in place."""

    steps: torch.Tensor | None = None

    def memory(self, num_params, dtype):
        return {"noted": ((1,), dtype)}

    def begin(self, task, memory, clients, lanes):
        return Noted(task.params.new_zeros(len(lanes.order), 1))

    def correct(self, gradient, params, start):
        assert self.steps is not None
        self.steps[: len(gradient)].add_(1)
        return gradient

    def outcome(self, delta):
        assert self.steps is not None
        return Outcome(remembered={"noted": self.steps})


ALGORITHMS = {
    "sgd": to.fedau(local=SGD),
    "equal steps": to.fedau(local=to.Sgd(lr=0.05, steps=3, batch_size=8)),
    "momentum": to.fedau(local=to.Sgd(**EPOCHS, momentum=0.9, keep_state=True)),
    "adamw": to.fedau(local=to.AdamW(**{**EPOCHS, "lr": 0.01}, keep_state=True)),
    "accumulate": to.fedau(local=to.Sgd(**EPOCHS, accumulate=2)),
    "work": to.fedau(local=to.Sgd(lr=0.05, steps=to.local.UniformWork(1, 9), batch_size=8)),
    "scaffold": to.scaffold(local=SGD),
    "scaffold I": to.scaffold(local=SGD, option="I"),
    "scaffold_p": to.scaffold_p(local=SGD),
    "fednova": to.fednova(local=SGD),
    "feddyn": to.feddyn(local=SGD),
    "moon": to.moon(local=SGD),
    "ditto": to.ditto(local=SGD),
    "fedprox": to.fedprox(local=SGD),
    "folb": to.folb(local=SGD),
    "perfedavg": to.perfedavg(local=to.Sgd(lr=0.05, steps=3, batch_size=8)),
    "counts in a list": to.fedau(local=SGD, also=(Ordered(),)),
    "counts in place": to.fedau(local=SGD, also=(Noted(),)),
}


def data(number=30, smallest=1):
    rng = np.random.default_rng(0)
    sizes = np.maximum(smallest, rng.lognormal(3.0, 0.8, number).astype(int))
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(int(offsets[-1]), 6, generator=generator)
    return FederatedData("x", Shards(x, torch.randint(3, (len(x),), generator=generator), offsets), 3)


def simulation(algorithm, population=None, rounds=6, **more):
    population = population or to.Population(availability=to.availability.Bernoulli(mean=0.3))
    more = {"data": data(), "model": to.models.Mlp(hidden=(5,)), "engine": "vectorized", **more}
    return Simulation(
        to.Experiment(algorithm=algorithm, population=population, rounds=rounds, evaluate_every=100, **more)
    )


def trained(algorithm, sizes, crew=None):
    """All that a run leaves: the model, the clients' memory, and a row for each round."""
    run = simulation(algorithm)
    run.objective.lane_sizes, run.objective.threads = sizes, crew or run.objective.threads
    rows = []
    for _ in range(5):
        run.round()
        rows.append({name: value for name, value in run.row.items() if name != "seconds"})
    return run, run.state.params, run.memory.gather(np.arange(30)), rows


def assert_same(one, other):
    (_, params, memory, rows), (_, of_params, of_memory, of_rows) = one, other
    assert torch.equal(params, of_params)
    assert memory.keys() == of_memory.keys()
    assert all(torch.equal(memory[name], of_memory[name]) for name in memory)
    assert str(rows) == str(of_rows)


@pytest.mark.parametrize("calls", [0, 10**9], ids=["traced", "by Python"])
@pytest.mark.parametrize("name", ALGORITHMS)
def test_idle_lanes_change_no_bit(name, calls, monkeypatch):
    monkeypatch.setattr(replay, "_CALLS", calls)
    expected = trained(ALGORITHMS[name], NONE)
    assert_same(trained(ALGORITHMS[name], MANY), expected)
    assert_same(trained(ALGORITHMS[name], LaneSizes(2)), expected)


@pytest.mark.parametrize("name", ["sgd", "scaffold", "momentum"])
def test_idle_lanes_of_several_threads_change_no_bit(name, monkeypatch):
    monkeypatch.setattr(threads, "_LEAST", 1)
    monkeypatch.setattr(threads, "num_processors", lambda: 3)
    several = trained(ALGORITHMS[name], MANY, crew=threads.ClientThreads(3))
    assert several[0].objective.threads.is_split
    assert_same(several, trained(ALGORITHMS[name], NONE))


def shapes(run):
    """The number of shapes of the local steps."""
    return sum(len(compiled._calls) for compiled in run.objective._compiled.values())


@pytest.mark.parametrize(
    ("algorithm", "most"),
    [
        (ALGORITHMS["sgd"], 5),
        (ALGORITHMS["equal steps"], 4),
        (to.scaffold(local=SGD, also=(to.selection.AllAvailable(),)), 12),
    ],
)
def test_cohorts_of_many_sizes_have_few_shapes(algorithm, most):
    sizes, run = set(), simulation(algorithm, rounds=25)
    for _ in range(24):
        run.round()
        sizes.add(run.row["num_participants"])
    assert len(sizes) > 8
    assert shapes(run) <= most


def test_one_pass_over_unequal_data_has_few_shapes():
    run = simulation(
        to.fedau(local=SGD, also=(to.selection.Uniform(14),)), population=to.Population(), rounds=25, data=data()
    )
    for _ in range(24):
        run.round()
    assert shapes(run) <= 5  # of 14 lanes, as many as clients, and multiples of four


def test_mask_is_contiguous(monkeypatch):
    seen = []
    monkeypatch.setattr(Plan, "full", property(lambda self: seen.append(self) or False))
    run = simulation(to.fedau(local=to.Sgd(lr=0.05, steps=3, batch_size=8)), data=data(smallest=8))
    run.round()
    ((shape, _),) = next(iter(run.objective._compiled.values()))._calls
    assert seen
    examples, mask, keys, _ = shape[-4:]
    assert [part[2] for part in (examples, mask, keys)] == [True] * 3


@pytest.mark.parametrize(
    ("selection", "pace", "world", "usual"),
    [
        (to.selection.Uniform(14), to.pace.Rounds(), 1, {14, 30}),
        (to.selection.Uniform(14), to.pace.Rounds(), 4, {3, 4, 7, 8}),
        (to.selection.AllAvailable(), to.pace.Buffered(buffer_size=7, concurrency=9), 1, {7, 30}),
    ],
)
def test_usual_cohorts_have_no_idle_lanes(selection, pace, world, usual, monkeypatch):
    run = to.Experiment(data(), to.models.Logistic(), to.fedavg(local=SGD, also=(selection,)), pace=pace, rounds=2)
    monkeypatch.setattr(workspace, "world_size", lambda: world)
    sizes = workspace.workspace_of(run).objective.lane_sizes
    assert sizes.usual == usual
    assert [sizes.of_part(5, cohort, 1000) for cohort in (max(usual), 5)] == [5, 8]


def test_usual_cohort_in_chunks_has_no_idle_lanes(monkeypatch):
    monkeypatch.setattr(workspace, "lanes_per_chunk", lambda *_: 12)
    run = to.Experiment(data(), to.models.Logistic(), to.fedavg(), rounds=2)
    assert workspace.workspace_of(run).objective.lane_sizes.usual == {12, 6}


@pytest.mark.parametrize("products", [1, 77_000, 300_000, 1_500_000, 10**8])
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_sizes_are_few_and_waste_is_bounded(products, device):
    sizes = LaneSizes.of(torch.device(device))
    rounded = [sizes.rounded(lanes, products) for lanes in range(1, 200)]
    assert rounded == sorted(rounded)
    assert rounded[0] == 1
    for lanes, number in enumerate(rounded, 1):
        assert lanes <= number <= max(1.5 * lanes, lanes + 3)
        assert (number - lanes) * products <= sizes.spare
        assert sizes.rounded(number, products) == number
    if products == 1:
        assert len(set(rounded)) <= {"cpu": 13, "cuda": 21}[device]
