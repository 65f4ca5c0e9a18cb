"""Bring a network and a trace from another framework, and compare two rules under the participation that was recorded.

    pip install '.[digits]'                                 # in a clone of turnout
    python examples/journeys/own_model_and_trace.py
    python examples/journeys/own_model_and_trace.py --rounds 300 --seeds 5

The network is a `torch.nn.Module` as a client of Flower or PFLlib has it, and the partition a list with the owner of each
example. The trace is a CSV with a row for each time that a device was there. The figure that is wanted: by how much FedAU
differs from the plain average of the participants, with the p-value of a paired test.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

import turnout as to
from turnout.results.formats import markdown
from turnout.results.table import comparison

NUM_CLIENTS = 20
SECONDS_PER_ROUND = 600


class Net(nn.Module):
    """A small convolutional network."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 8, 3, padding=1)
        self.head = nn.Linear(8 * 4 * 4, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the logits of images, ``[b, 10]``."""
        x = nn.functional.max_pool2d(self.conv(x).relu(), 2)
        return self.head(x.flatten(1))


def federation() -> to.data.FederatedData:
    """Return the digits, of which each client owns two classes."""
    images, labels = load_digits(return_X_y=True)
    images = images.reshape(-1, 1, 8, 8).astype(np.float32) / 16
    rng = np.random.default_rng(0)
    owners = (labels % 10) * 2 + rng.integers(0, 2, len(labels))  # two clients for each digit
    owners = np.where(rng.random(len(labels)) < 0.5, owners, (owners + 2) % NUM_CLIENTS)  # and half of the next one's
    return to.data.from_arrays(images, labels, client_ids=owners).split(test_fraction=0.2, validation_fraction=0.1)


def write_trace(path: Path, rounds: int) -> None:
    """Write a trace in which clients with high digits are rarely there, in sessions of a few rounds."""
    rng = np.random.default_rng(1)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["client", "from", "to"])
        for client in range(NUM_CLIENTS):
            share = 0.6 if client < NUM_CLIENTS // 2 else 0.1
            now = 2400 * rng.exponential(1 - share)
            while now < rounds * SECONDS_PER_ROUND:
                stays = 600 + rng.exponential(1800)
                writer.writerow([client, round(now), round(now + stays)])
                now += stays + 2400 * rng.exponential((1 - share) / share)


def main() -> None:
    """Compare the rules, and print the difference."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("runs/own-model-and-trace"))
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--budget", type=int, default=3000, help="client updates with which each rule's lr is chosen")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    trace = options.folder / "trace.csv"
    write_trace(trace, options.rounds)
    data = federation()
    population = to.Population(availability=to.availability.TimedTrace(trace, seconds_per_round=SECONDS_PER_ROUND))

    def experiment(seed: int, recipe: Callable[..., to.Algorithm], lr: float = 0.1) -> to.Experiment:
        torch.manual_seed(seed)
        algorithm = recipe(to.Sgd(lr=lr, steps=5, batch_size=16))
        return to.Experiment(data, Net(), algorithm, population, rounds=options.rounds, evaluate_every=10, seed=seed)

    experiments = {
        "average_participating": partial(experiment, recipe=to.average_participating),
        "fedau": partial(experiment, recipe=to.fedau),
    }
    steps = {name: {"lr": (0.05, 0.1, 0.2)} for name in experiments}
    tune = to.Tune(budget=options.budget, axes=steps, seeds=(100,))
    records = to.compare(experiments, options.seeds, options.folder / "runs", jobs=1, tune=tune)
    print(markdown(comparison(records), ["test_accuracy", "test_loss"], interval=True))


if __name__ == "__main__":
    main()
