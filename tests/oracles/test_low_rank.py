"""LoRA aggregations compared with NumPy, by layer."""

import numpy as np
import pytest
import torch

from turnout import ALGORITHMS, AdamW, Experiment, Population, Sgd
from turnout.population.availability import Trace
from turnout.simulation import Simulation

from ..phases import train
from ..tiny import SIZES, adapted, classification
from . import low_rank

N, T, R = len(SIZES), 8, 3
DATA = classification(features=10, classes=6, dtype=torch.float64)
RANKS = (3, 1, 2)
SCALING = 0.5
LAYERS = ("0", "3")
PRESENT = np.random.default_rng(5).random((T, N)) < 0.4
PRESENT[2] = False


def simulation(algorithm, engine, present, **options):
    rows = tuple((int(n), int(t), int(t) + 1) for t, n in np.argwhere(present))
    population = Population(Trace(rows, repeat=False))
    model = adapted(10, 6).double()
    return Simulation(Experiment(DATA, model, algorithm, population, rounds=T, engine=engine, seed=3, **options))


def factors(layout, vector, layer, rank=R):
    """B and A of a layer in a vector, cut to a rank."""
    named = layout.split(vector)
    return named[f"{layer}.lora_B"].numpy()[:, :rank], named[f"{layer}.lora_A"].numpy()[:rank]


def offsets(run):
    """R of each layer, as clients receive it."""
    shared = run.server.shared()
    if not shared:
        return dict.fromkeys(LAYERS, 0.0)
    parts = zip(run.objective.network.adapters, shared["base_offset"].split([12 * 10, 6 * 12]), strict=True)
    return {each.layer: part.view(each.outputs, each.inputs).numpy().copy() for each, part in parts}


def check_step(name, layer, clients, run, before, residual):
    """Compare a server step of one layer with the transcription."""
    layout = run.objective.layout
    up, down = factors(layout, run.state.params, layer)
    found = offsets(run)[layer]
    if name == "fedex_lora":
        expected = low_rank.fedex_lora(clients, residual[layer], SCALING)
        for ours, theirs in zip((up, down, found), expected, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-10)
    elif name == "flora":
        np.testing.assert_allclose(found, low_rank.flora(clients, residual[layer], SCALING), rtol=0, atol=1e-10)
        assert not up.any()
        assert np.abs(down).max() <= down.shape[1] ** -0.5
        assert not np.allclose(down, factors(layout, before, layer)[1])
    elif name == "hetlora":
        for ours, theirs in zip((up, down), low_rank.hetlora(clients, R), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-10)
    else:
        more = (factors(layout, before, layer),) if name == "raflora" else ()
        expected = getattr(low_rank, name)(clients, *more, R)
        np.testing.assert_allclose(up @ down, expected, rtol=0, atol=1e-10)
        np.testing.assert_allclose(down @ down.T, np.eye(R), rtol=0, atol=1e-10)


@pytest.mark.parametrize("engine", ["vectorized", "one_by_one"])
@pytest.mark.parametrize("name", ["fedex_lora", "flora", "flexlora", "hetlora", "raflora"])
def test_recipe_equals_its_transcription(name, engine):
    """Over rounds with irregular participation."""
    options = {} if name == "fedex_lora" else {"ranks": RANKS}
    run = simulation(
        ALGORITHMS[name](AdamW(lr=0.05, steps=3, batch_size=8, sampling="fresh"), **options), engine, PRESENT
    )
    for t in range(T):
        cohort = np.flatnonzero(PRESENT[t])
        before, residual = run.state.params.clone(), offsets(run)
        report = train(run, cohort) if len(cohort) else None
        run.round()
        if report is None:
            assert torch.equal(run.state.params, before)
            continue
        weights = report.num_examples / report.num_examples.sum()
        if name == "hetlora":
            weights = np.full(len(cohort), 1 / len(cohort))
        ranks = [R if name == "fedex_lora" else RANKS[n % len(RANKS)] for n in cohort]
        for layer in LAYERS:
            cut = [factors(run.objective.layout, before, layer, rank) for rank in ranks]
            moved = [
                factors(run.objective.layout, row, layer, rank) for row, rank in zip(report.delta, ranks, strict=True)
            ]
            sent = zip(weights, cut, moved, strict=True)
            clients = [(w, b + db, a + da) for w, (b, a), (db, da) in sent]
            check_step(name, layer, clients, run, before, residual)


def reference_step(model, offset, examples, lr, rank):
    """One full-batch step of a client by plain autograd, with R in the frozen weights and factors cut to its rank."""
    named = {n: p.detach().clone() for n, p in model.named_parameters()}
    for layer in LAYERS:
        named[f"{layer}.base.weight"] += offset[layer]
        named[f"{layer}.lora_A"][rank:], named[f"{layer}.lora_B"][:, rank:] = 0.0, 0.0
    trained = {n: named[n].requires_grad_() for n, p in model.named_parameters() if p.requires_grad}
    x, y = examples
    loss = torch.nn.functional.cross_entropy(torch.func.functional_call(model, named, (x,)), y)
    return {n: -lr * g for n, g in zip(trained, torch.autograd.grad(loss, list(trained.values())), strict=True)}


@pytest.mark.parametrize("engine", ["vectorized", "one_by_one"])
@pytest.mark.parametrize("name", ["fedex_lora", "flora"])
def test_clients_train_on_frozen_weights_with_their_additions(name, engine):
    """One full-batch step per client, after some rounds, equals plain autograd at ``W + R + s B A``."""
    local = Sgd(lr=2.0, steps=1, batch_size=64)
    ranks = {} if name == "fedex_lora" else {"ranks": RANKS}
    run = simulation(ALGORITHMS[name](local, **ranks), engine, np.ones((T, N), dtype=bool))
    for _ in range(3):
        run.round()
    offset = {layer: torch.from_numpy(value) for layer, value in offsets(run).items()}
    assert all(value.abs().max() > 1e-4 for value in offset.values())
    report, model = train(run, np.arange(N)), adapted(10, 6).double()
    run.objective.layout.load(model, run.state.params)
    for n in range(N):
        rank = R if name == "fedex_lora" else RANKS[n % len(RANKS)]
        expected = reference_step(model, offset, DATA.train.client(n), 2.0, rank)
        for key, value in run.objective.layout.split(report.delta[n]).items():
            torch.testing.assert_close(value, expected[key], rtol=0, atol=1e-10)


def penalized_steps(model, examples, lr, steps, rank, penalty, decay):
    """Full-batch steps of a client with HetLoRA's penalty, by plain autograd; the trained tensors afterwards."""
    named = {n: p.detach().clone() for n, p in model.named_parameters()}
    for layer in LAYERS:
        named[f"{layer}.lora_A"][rank:], named[f"{layer}.lora_B"][:, rank:] = 0.0, 0.0
    trained = [n for n, p in model.named_parameters() if p.requires_grad]
    x, y = examples
    for _ in range(steps):
        here = named | {n: named[n].detach().requires_grad_() for n in trained}
        loss = torch.nn.functional.cross_entropy(torch.func.functional_call(model, here, (x,)), y)
        for layer in LAYERS:
            up, down, _ = low_rank.tail((here[f"{layer}.lora_B"], here[f"{layer}.lora_A"]), decay, rank)
            loss = loss + penalty * up.norm() * down.norm()
        gradients = torch.autograd.grad(loss, [here[n] for n in trained])
        named |= {n: here[n].detach() - lr * g for n, g in zip(trained, gradients, strict=True)}
    return {n: named[n] for n in trained}


@pytest.mark.parametrize("engine", ["vectorized", "one_by_one"])
def test_hetlora_prunes_ranks_with_small_tails(engine):
    """Local steps, sent factors and resulting ranks, with irregular participation."""
    penalty, decay, lr, steps = 0.6, 0.7, 0.3, 3
    local = Sgd(lr=lr, steps=steps, batch_size=64)
    run = simulation(ALGORITHMS["hetlora"](local, ranks=(3, 2), penalty=penalty, decay=decay), engine, PRESENT)
    ranks, pruned = {n: (3, 2)[n % 2] for n in range(N)}, 0
    for t in range(T):
        cohort, model = np.flatnonzero(PRESENT[t]), adapted(10, 6).double()
        run.objective.layout.load(model, run.state.params)
        before, report = run.state.params.clone(), run.step().reports
        for row, n in enumerate(cohort.tolist()):
            after = penalized_steps(model, DATA.train.client(n), lr, steps, ranks[n], penalty, decay)
            received = [factors(run.objective.layout, before, layer, ranks[n]) for layer in LAYERS]
            trained = [(after[f"{layer}.lora_B"].numpy(), after[f"{layer}.lora_A"].numpy()) for layer in LAYERS]
            if low_rank.tail_norms(trained, decay, ranks[n]) < low_rank.tail_norms(received, decay, ranks[n]):
                pruned, ranks[n] = pruned + 1, low_rank.tail(trained[0], decay, ranks[n])[2]
            assert report.seen["rank"][row] == ranks[n]
            for layer, (up, down), (old_up, old_down) in zip(LAYERS, trained, received, strict=True):
                sent, r = factors(run.objective.layout, report.delta[row], layer), ranks[n]
                np.testing.assert_allclose(sent[0][:, :r], up[:, :r] - old_up[:, :r], rtol=0, atol=1e-10)
                np.testing.assert_allclose(sent[1][:r], down[:r] - old_down[:r], rtol=0, atol=1e-10)
                assert not sent[0][:, r:].any()
                assert not sent[1][r:].any()
    assert pruned >= 3
    assert min(ranks.values()) == 1
