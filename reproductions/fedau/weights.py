"""FedAU's aggregation weights over rounds, beside those that would follow from known rates (FedAU, appendix D.4).

Weights depend on participation alone, so nothing is trained: 250 clients hold the labels of CIFAR-10, 5,000 of each of ten
classes, by the Dirichlet partition of the paper, and take part as they do in Table 1.

Reference: Wang and Ji, "A lightweight method for tackling unknown participation statistics in federated averaging", ICLR
2024.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

import turnout as to
from turnout.core.checks import known_name
from turnout.core.types import Federation, Report
from turnout.population import BoundAvailability
from turnout.reporting.style import INK, SIZE, dress, legend, looks_of, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PATTERNS = {"bernoulli": to.availability.Bernoulli, "cyclic": to.availability.Cyclic}
RARE, FREQUENT = 0.02, 0.2
"""The floor of the rates, and a rate that is ten times as large."""

_CLASSES, _EXAMPLES = 10, 5_000


def population(pattern: str, seed: int, num_clients: int = 250) -> BoundAvailability:
    """Return who takes part when, with rates that follow the labels of the clients as in Table 1.

    Args:
        pattern: ``"bernoulli"`` or ``"cyclic"``.
        seed: draws the partition, the rates and the participation.
        num_clients: those without examples are left out.
    """
    kind = PATTERNS[known_name("pattern", pattern, PATTERNS)]
    labels = np.arange(_CLASSES * _EXAMPLES) % _CLASSES
    source = to.data.from_arrays(np.zeros((len(labels), 1), np.float32), labels)
    data = source.split(to.partition.Dirichlet(alpha=0.1), num_clients=num_clients, empty="drop", seed=seed)
    availability = kind(mean=0.1, correlated_with_labels=0.1, floor=RARE)
    return availability.bind(data.num_clients, data.label_counts(), seed)


def weights(bound: BoundAvailability, rounds: Sequence[int], cutoff: int | None = None) -> np.ndarray:
    """Return the weights of all clients after the given numbers of rounds, in ascending order, float64 ``[R, N]``."""
    clients = np.arange(bound.num_clients)
    federation = Federation(bound.num_clients, num_params=1)
    piece = to.weighting.Participation(cutoff)
    state, rows = piece.init(federation), []
    for round in range(max(rounds) + 1):
        if round in rounds:
            rows.append(piece.client_weights(round, state, federation))
        present = clients[bound.available(clients, round)]
        _, state = piece.apply(
            torch.ones(len(present), dtype=torch.float64), _report(present), round, state, federation
        )
    return np.array(rows)


def weight_numbers(seed: int) -> dict[str, dict[str, dict[str, float]]]:
    """Return the median over clients of ``|omega_n p_n - 1|``, the relative error of weights, after some rounds."""
    numbers = {}
    for pattern in PATTERNS:
        bound = population(pattern, seed)
        rates = bound.rates
        assert rates is not None
        groups = {"all": rates > 0, "rare": rates <= RARE, "frequent": rates >= FREQUENT}
        after = (1_000, 10_000)
        for rounds, omega in zip(after, weights(bound, after), strict=True):
            error = np.abs(omega * rates - 1)
            medians = {name: float(np.median(error[group])) for name, group in groups.items()}
            numbers[f"{pattern}_{rounds}"] = {"relative error of weights": medians}
    return numbers


def weight_figure(seed: int = 0, rounds: int = 10_000, points: int = 200) -> Figure:
    """Draw weights over rounds, as Figures D.4.1 (first row, Bernoulli) and D.4.2 (second row, cyclic) do.

    From the left: means over all clients, the client with the highest rate, and the first three clients with the lowest. The
    dashed lines are the weights from known rates, 1 / p_n.
    """
    at = np.unique(np.linspace(1, rounds, points).astype(int)).tolist()
    figure, looks = new_figure(3 * SIZE[0], 2 * SIZE[1]), looks_of(("fedau_inf", "known_statistics"))
    grid = figure.subplots(len(PATTERNS), 3)
    for row, pattern in zip(grid, PATTERNS, strict=True):
        bound = population(pattern, seed)
        assert bound.rates is not None
        omega, order = weights(bound, at), np.argsort(bound.rates, kind="stable")
        groups = {
            "mean over clients": np.arange(bound.num_clients)[:, None],
            "the most frequent client": order[-1:, None],
            "three rare clients": order[None, :3],
        }
        for axes, (title, columns) in zip(row, groups.items(), strict=True):
            axes.plot(at, omega[:, columns].mean(axis=1), linewidth=1.2, color=looks["fedau_inf"]["color"])
            for known in np.unique((1 / bound.rates)[columns].mean(axis=0)):
                axes.axhline(known, linewidth=1, color=INK, linestyle=(0, (4, 3)))
            dress(axes, "round", "weight", title=f"{pattern.capitalize()}, {title}")
    legend(figure, {"fedau_inf": looks["fedau_inf"]})
    return figure


def _report(clients: np.ndarray) -> Report:
    """Return reports of clients without an update, from which weights take who takes part."""
    ones = np.ones(len(clients), dtype=np.int64)
    return Report(clients, ones, ones, ones, torch.zeros(len(clients), 1))
