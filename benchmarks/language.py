"""Time rounds of LoRA with AdamW: vectorized, one by one, and in a plain loop over clients with `torch.optim.AdamW`.

The model is a random GPT-2 of two layers, width 32, with adapters of rank 8. Rounds take turns; the first ones, which trace
steps, do not count. The packages are an extra: pip install '.[transformers]'.

    python benchmarks/language.py                       # 20 clients, 5 steps of 2 texts of 16 tokens
    python benchmarks/language.py --batch-size 8 --rounds 20
"""

from __future__ import annotations

import argparse
import json
import statistics
import time

import numpy as np
import torch

import turnout as to
from turnout.core.types import Task
from turnout.engine.cohort import Clients
from turnout.simulation import Simulation

GPT2 = {
    "model_type": "gpt2", "n_layer": 2, "n_embd": 32, "n_head": 2, "vocab_size": 128, "n_positions": 64,
    "bos_token_id": 0, "eos_token_id": 0,
}  # fmt: skip
_FIRST = 25
"""Number of rounds that do not count; a step is traced after 64 calls."""


def simulation_of(options: argparse.Namespace, engine: str) -> Simulation:
    """Return a simulation on random texts, in which all clients take part."""
    rng = np.random.default_rng(0)
    tokens = rng.integers(1, 128, (options.clients * 40, options.length + 1)).tolist()
    owners = [i % options.clients for i in range(len(tokens))]
    data = to.data.from_tokens({"input_ids": tokens, "client": owners}, client_id="client", num_classes=128)
    experiment = to.Experiment(
        data=data.split(test_fraction=0.0),
        model=to.models.HuggingFace(json.dumps(GPT2), lora=8),
        algorithm=to.average_participating(to.AdamW(lr=1e-3, steps=options.steps, batch_size=options.batch_size)),
        rounds=10**6,
        evaluate_every=10**6,
        engine=engine,  # type: ignore[arg-type]
    )
    return Simulation(experiment)


def plain_round(simulation: Simulation, module: torch.nn.Module) -> None:
    """Train client after client from the present model, each with its own optimizer."""
    state, local = simulation.state, simulation.experiment.algorithm.local
    assert isinstance(local, to.AdamW)
    ids = np.arange(simulation.experiment.data.num_clients)
    clients = Clients(ids, ids, simulation.experiment.data.train, simulation.objective)
    planned = local.plan(Task(state.params, state.version, 0), simulation.memory.gather(ids), clients)
    minibatches, shards = torch.from_numpy(planned.examples), simulation.experiment.data.train
    layout = simulation.objective.layout
    trained = [p for p in module.parameters() if p.requires_grad]
    for client in range(len(ids)):
        layout.load(module, state.params)
        optimizer = torch.optim.AdamW(trained, lr=1e-3)
        for rows in minibatches[client]:
            optimizer.zero_grad()
            simulation.objective.loss(module(shards.x[rows]), shards.y[rows]).mean().backward()
            optimizer.step()
        layout.flatten(module)


def main() -> None:
    """Time all ways, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=20)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=2)
    parser.add_argument("--length", type=int, default=16, help="tokens of a text")
    parser.add_argument("--rounds", type=int, default=20, help="timed rounds of each (default: 20)")
    options = parser.parse_args()
    together, apart = simulation_of(options, "vectorized"), simulation_of(options, "one_by_one")
    module = together.experiment.build_model().train()
    ways = {
        "side by side": together.round,
        "one by one": apart.round,
        "plain loop": lambda: plain_round(together, module),
    }
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(_FIRST + options.rounds):
        for name, way in ways.items():
            if name == "plain loop" and turn < _FIRST - 2:
                continue
            begin = time.perf_counter()
            way()
            if turn >= _FIRST:
                seconds[name].append(time.perf_counter() - begin)
    print(f"| {options.clients} clients, {options.steps} steps of {options.batch_size} texts of {options.length} tokens, "
          f"{torch.get_num_threads()} threads | ms a round | ratio to side by side, median (quartiles) |")  # fmt: skip
    print("|---|---:|---:|")
    for name, own in seconds.items():
        low, middle, high = statistics.quantiles(
            (a / b for a, b in zip(own, seconds["side by side"], strict=True)), n=4
        )
        print(f"| {name} | {1e3 * statistics.median(own):.1f} | {middle:.2f} ({low:.2f} to {high:.2f}) |")


if __name__ == "__main__":
    main()
