"""Adapters ``W + R + s B A`` whose weighted mean is exact for any participants, weights and ranks."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from turnout import ALGORITHMS, AdamW, ConfigurationError, Experiment, compose, load, models
from turnout.base.server_step import server_step
from turnout.core.adapter import BASE_OFFSET, Adapter
from turnout.core.types import Federation
from turnout.engine.adapters import adapters_of
from turnout.engine.objective import Objective
from turnout.engine.parameters import Layout
from turnout.pieces.aggregation import FedexLora, FlexLora, Flora, HetLora, RaFlora, WeightedSum
from turnout.pieces.guard import TruncatedRank
from turnout.pieces.local import Scaffold, TailPenalty
from turnout.pieces.personalization import Personal
from turnout.pieces.server_optimizer.sgd import ServerSgd
from turnout.pieces.weighting import ByExamples, DivideByClients, DivideBySum, Participation
from turnout.protocol.pace import Buffered
from turnout.simulation import Simulation

from ...phases import train
from ...tiny import SIZES, LoraLinear, adapted, classification, federation, report

M, K, R, S, B = 4, 5, 4, 0.5, 6
ADAPTER = Adapter("layer", 3, 3 + R * K, R, K, M, S)
P = ADAPTER.up + M * R + 2
KNOWN = replace(federation(8, P), adapters=(ADAPTER,))
DATA = classification(features=10, classes=6)
WEIGHTS = {
    "by examples": (ByExamples(), DivideBySum()),
    "that do not sum to 1": (Participation(3), DivideByClients()),
}
EXACT = {"fedex": FedexLora(), "flora": Flora(), "flexlora of full rank": FlexLora()}


def weight(params, offset=0.0, rank=R):
    """R + s B A."""
    up = params[ADAPTER.up : ADAPTER.up + M * R].view(M, R)[:, :rank]
    down = params[ADAPTER.down : ADAPTER.down + R * K].view(R, K)[:rank]
    return offset + S * up @ down


def steps(algorithm, ranks, rounds=4):
    """Return, per round of random updates, the effective weights of the layer and the weighted mean over clients."""
    rng = np.random.default_rng(3)
    state = algorithm.init(torch.from_numpy(rng.normal(size=P)), KNOWN)
    for version in range(rounds):
        clients = np.sort(rng.permutation(8)[:B])
        delta = torch.from_numpy(rng.normal(size=(B, P)))
        own = np.full(B, R) if ranks is None else np.asarray(ranks)[clients % len(ranks)]
        seen = {} if ranks is None else {"rank": torch.from_numpy(own)}
        one = report(clients, delta, sizes=clients + 3, version=version, seen=seen)
        offset = algorithm.shared(state).get(BASE_OFFSET, torch.zeros(M * K)).view(M, K)
        before = weight(state.params, offset)
        each = torch.stack([weight(state.params + d, offset, rank) for d, rank in zip(delta, own, strict=True)])
        after, info = server_step(algorithm, state, one, KNOWN)
        w = info["weights"]
        expected = (1 - w.sum()) * before + torch.tensordot(w, each, dims=1)
        others = state.params[-2:] + w @ delta[:, -2:]
        torch.testing.assert_close(after.params[-2:], others, rtol=0, atol=1e-10)
        state = after
        yield weight(state.params, algorithm.shared(state).get(BASE_OFFSET, torch.zeros(M * K)).view(M, K)), expected


@pytest.mark.parametrize("ranks", [None, (4, 1, 2)], ids=["equal ranks", "unequal ranks"])
@pytest.mark.parametrize("weights", WEIGHTS.values(), ids=WEIGHTS)
@pytest.mark.parametrize("aggregation", EXACT.values(), ids=EXACT)
def test_weighted_mean_of_products_is_exact(aggregation, weights, ranks):
    for found, expected in steps(compose(*weights, aggregation), ranks):
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-10)


def test_mean_of_factors_is_not_exact():
    assert all((found - expected).abs().max() > 1e-2 for found, expected in steps(compose(), None))


def test_raflora_equals_flexlora_for_equal_ranks():
    one, other = (list(steps(compose(piece), None)) for piece in (RaFlora(), FlexLora()))
    for (found, _), (expected, _) in zip(one, other, strict=True):
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-10)


def test_hetlora_takes_plain_means_if_all_products_are_zero():
    algorithm = compose(HetLora())
    state = algorithm.init(torch.zeros(P, dtype=torch.float64), KNOWN)
    delta = torch.zeros(2, P, dtype=torch.float64)
    delta[:, ADAPTER.down] = torch.tensor([1.0, 3.0])
    state, _ = server_step(algorithm, state, report([0, 1], delta), KNOWN)
    assert state.params[ADAPTER.down] == 2.0


@pytest.mark.parametrize("aggregation", EXACT.values(), ids=EXACT)
def test_overflowing_step_leaves_frozen_weights_unchanged(aggregation):
    known = replace(KNOWN, dtype=torch.float32)
    algorithm = compose(aggregation)
    state = algorithm.init(torch.zeros(P), known)
    state, _ = server_step(algorithm, state, report(range(3), torch.randn(3, P), dtype=torch.float32), known)
    after, info = server_step(algorithm, state, report(range(3), torch.full((3, P), 1e37)), known)
    assert info["num_dropped"] == 3
    assert torch.equal(after.params, state.params)
    for name, value in algorithm.shared(state).items():
        assert torch.equal(algorithm.shared(after)[name], value)


@pytest.mark.parametrize("engine", ["vectorized", "one_by_one"])
def test_traced_steps_use_updated_frozen_weights(engine):
    """Compare gradients of replayed steps with plain calls, also after a change of the frozen weights."""
    objective = Objective(adapted(10, 6), engine=engine, offsets=True)
    x, y = torch.randn(2, 4, 10), torch.randint(0, 6, (2, 4))
    params, key = objective.initial.expand(2, -1).contiguous(), torch.zeros(2, dtype=torch.int64)
    for _ in range(70):
        objective.gradient(params, x, y, None, key)
    offset = torch.randn(sum(each.outputs * each.inputs for each in objective.network.adapters))
    for value in (offset, -offset, torch.zeros_like(offset)):
        objective.network.rebase({BASE_OFFSET: value})
        losses, gradients = objective.gradient(params, x, y, None, key)
        plain = Objective(adapted(10, 6), engine=engine, offsets=True)
        plain.network.rebase({BASE_OFFSET: value})
        expected = plain.gradient(params, x, y, None, key, replay=False)
        assert torch.equal(losses, expected[0])
        assert torch.equal(gradients, expected[1])
    if engine == "vectorized":
        assert sum(objective.backends.values()) >= 1


def run(name="flora", local=None, **options):
    local = local or AdamW(lr=0.02, steps=10, batch_size=4)
    return Experiment(DATA, adapted(10, 6), ALGORITHMS[name](local), rounds=10, evaluate_every=5, **options)


def test_runs_in_one_process_do_not_share_frozen_weights():
    """Traces of the first run must not be replayed with its final weights."""
    one, other = (Simulation(run(engine="one_by_one")) for _ in range(2))
    for _ in range(10):
        one.round()
    for _ in range(10):
        other.round()
    assert one.objective.backends
    assert torch.equal(one.state.params, other.state.params)
    assert torch.equal(*(each.server.shared()[BASE_OFFSET] for each in (one, other)))


@pytest.mark.parametrize("name", ["fedex_lora", "flora", "flexlora"])
def test_trained_model_equals_evaluated_model(name, tmp_path):
    result = run(name).run(tmp_path)
    for found in (result, load(tmp_path, model=adapted(10, 6))):
        assert DATA.test is not None
        with torch.no_grad():
            loss = nn.functional.cross_entropy(found.model(DATA.test.x), DATA.test.y)
        np.testing.assert_allclose(float(loss), result.history.final("test_loss"), rtol=1e-6)
        added = [value for key, value in found.state_dict().items() if key.endswith("base_offset")]
        assert len(added) == (0 if name == "flexlora" else 2)
        assert all(value.abs().max() > 1e-4 for value in added)


def test_bytes_include_additions_to_frozen_weights():
    numbers = {name: Simulation(run(name)) for name in ("fedavg", "fedex_lora", "flora", "flexlora")}
    for simulation in numbers.values():
        simulation.round()
    n, plain = len(SIZES), numbers["fedavg"].row
    for name, simulation in numbers.items():
        offset = 0 if name in ("fedavg", "flexlora") else 4 * (10 * 12 + 12 * 6)
        assert simulation.row["bytes_up"] == plain["bytes_up"]
        assert simulation.row["bytes_down"] == plain["bytes_down"] + n * offset


def test_client_of_small_rank_trains_only_its_part():
    simulation = Simulation(Experiment(DATA, adapted(10, 6), compose(TruncatedRank((1, 3)), AdamW(lr=0.1))))
    sent = train(simulation, np.arange(2))
    assert sent.seen["rank"].tolist() == [1, 3]
    for row, rank in ((0, 1), (1, 3)):
        named = simulation.objective.layout.split(sent.delta[row])
        for layer in "03":
            assert (named[f"{layer}.lora_A"].abs().sum(dim=1) > 0).tolist() == [j < rank for j in range(3)]
            assert (named[f"{layer}.lora_B"].abs().sum(dim=0) > 0).tolist() == [j < rank for j in range(3)]


class Magnitude(LoraLinear):
    """An adapter with a magnitude, as DoRA has it."""

    def __init__(self):
        super().__init__(10, 6, 2)
        self.lora_magnitude_vector = nn.Parameter(torch.ones(6))


class Beside(nn.Module):
    """A model that holds factors beside the layer that they adapt."""

    def __init__(self):
        super().__init__()
        self.base = nn.Linear(10, 6).requires_grad_(False)
        self.lora_A, self.lora_B = nn.Parameter(torch.ones(2, 10)), nn.Parameter(torch.ones(6, 2))

    def forward(self, x):
        return self.base(x) + x @ self.lora_A.T @ self.lora_B.T


class Transposed(LoraLinear):
    """An adapted layer with fewer outputs than its factors."""

    def forward(self, x):
        return super().forward(x)[..., :4]


def start(model, algorithm=None, **options):
    return Simulation(Experiment(DATA, model, algorithm or ALGORITHMS["fedex_lora"](), rounds=1, **options))


NONE = "FedexLora averages products of low-rank factors, and the model has no adapter"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: start(models.Logistic()), NONE),
        (lambda: start(nn.Sequential(Magnitude())), NONE),
        (lambda: start(adapted(10, 6), ALGORITHMS["fedex_lora"](also=(Personal("*lora_B*"),))), NONE),
        (lambda: start(Beside()), "the model holds lora_A and lora_B itself"),
        (lambda: start(nn.Sequential(Transposed(10, 6, 2))), "a Transposed has lora_B of 6 rows and 4 outputs"),
        (lambda: start(adapted(10, 6), pace=Buffered(buffer_size=2)), "start from the same version, and with Buffered"),
        (lambda: compose(Flora(), ServerSgd(0.5)), "Flora determines the model after the step, and ServerSgd"),
        (
            lambda: compose(FlexLora(), Scaffold()),
            "FlexLora replaces the factors in every step, and clients keep memory of the old ones .control",
        ),
        (lambda: compose(RaFlora(), AdamW(keep_state=True)), "RaFlora replaces the factors .* keep_state=False"),
        (lambda: TruncatedRank(()), r"ranks: got \(\), needed whole numbers from 1 on"),
        (lambda: TruncatedRank((2, 0)), r"ranks: got \(2, 0\), needed whole numbers from 1 on"),
        (
            lambda: train(start(adapted(10, 6), compose(TruncatedRank((4,)))), np.arange(2)),
            "got 4, needed at most 3, the rank of the model's adapters",
        ),
        (
            lambda: train(start(models.Logistic(), compose(TruncatedRank((1,)))), np.arange(2)),
            "TruncatedRank needs a model",
        ),
        (lambda: ALGORITHMS["hetlora"](penalty=0.1), r"penalty=0.1 prunes ranks: write hetlora\(ranks="),
        (lambda: ALGORITHMS["hetlora"](ranks=(2,), penalty=-1.0), "penalty: got -1.0"),
        (lambda: ALGORITHMS["hetlora"](ranks=(2,), penalty=0.1, decay=1.5), "decay: got 1.5"),
        (lambda: compose(TailPenalty()), r"no guard prunes: add guard.PrunedRank\(\(8, 4\)\)"),
    ],
)
def test_invalid_arguments_raise(make, message):
    with pytest.raises(ConfigurationError, match=message):
        make()


def test_piece_that_changes_the_base_declares_how():
    class Moves(WeightedSum):
        reads = frozenset({"base"})

    with pytest.raises(
        ConfigurationError, match=r"Moves reads the base, .* state has nothing: return it from init\(\)"
    ):
        compose(Moves()).init(torch.zeros(P), KNOWN)


def test_adapters_of_convolutions_are_refused():
    conv = nn.Module()
    conv.lora_A, conv.lora_B = nn.Conv2d(1, 2, 1), nn.Conv2d(2, 3, 1)
    model = nn.Sequential(conv)
    assert adapters_of(model, Layout.of(model)) == ()
    assert Federation(1, 1).adapters == ()
