"""Set the rates of availability of clients: one rate for all, a list of rates, or FedAU's label-dependent rates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

import numpy as np

from turnout.core.checks import ConfigurationError, count, not_negative, positive, probability, refuse
from turnout.core.random import generator
from turnout.core.ranges import Probability
from turnout.population.availability.base import Availability


def _correlation(name: str, value: float | Sequence[float]) -> None:
    """Check a correlation: a number > 0, or numbers >= 0 that are not all zero."""
    if not isinstance(value, Sequence):
        positive(name, value)
        return
    for index, number in enumerate(value):
        not_negative(f"{name}[{index}]", number)
    if not sum(value):
        raise refuse(name, given=value, needed="a number > 0 for at least one class")


LabelCorrelation = Annotated[float | tuple[float, ...], _correlation]
"""The concentration alpha_p of `label_correlated_rates`, or its q, one number per class."""


def label_correlated_rates(
    label_counts: np.ndarray, mean: float, alpha: LabelCorrelation, floor: float, seed: int = 0
) -> np.ndarray:
    """Draw FedAU's participation probabilities p_n, float64 ``[N]``, which depend on the classes that a client holds.

    With h_n the class proportions of client n's data and one draw of q per seed::

        q ~ Dir(alpha * 1_C),    p_n = min(1, max(floor, <h_n, q> * C * mean))

    E[q_c] = 1/C, so E[p_n] = mean before the floor. h_n are the proportions of the client's actual examples, as in the
    authors' code; the text of the paper can also be read as the distribution from which the examples were drawn. The authors
    have no upper bound, without which p_n exceeds 1 where C * mean > 1.

    Args:
        label_counts: number of examples of each class at each client, ``[N, C]``.
        mean: mean rate mu.
        alpha: concentration alpha_p; the smaller, the more the rates differ. Several numbers, one per class, are q up to a
            factor.
        floor: least rate.
        seed: seed of the run.

    Raises:
        ConfigurationError: if a client has no examples, so that its proportions are 0/0, or the number of q is not C.

    Reference: Wang and Ji, "A lightweight method for tackling unknown participation statistics in federated averaging",
    ICLR 2024, appendix C.6.1.
    """
    totals = label_counts.sum(axis=1)
    if (totals == 0).any():
        client = int(np.flatnonzero(totals == 0)[0])
        raise ConfigurationError(
            f"client {client} has no examples, so its rate cannot follow its labels: drop empty clients, or write "
            "correlated_with_labels=None"
        )
    num_classes = label_counts.shape[1]
    if isinstance(alpha, tuple):
        if len(alpha) != num_classes:
            needed = f"one number, or one for each of the {num_classes} classes"
            raise refuse("correlated_with_labels", given=alpha, needed=needed)
        q = np.array(alpha) / sum(alpha)
    else:
        q = generator("participation rates", seed).dirichlet(np.full(num_classes, alpha))
    return np.clip(label_counts @ q / totals * (num_classes * mean), floor, 1.0)


def rank_by_labels(label_counts: np.ndarray | None, num_clients: int, alpha: LabelCorrelation, seed: int) -> np.ndarray:
    """Return the rank of each client, int64 ``[N]``, by ascending ``<h_n, q>`` of `label_correlated_rates`.

    Raises:
        ConfigurationError: if the data have no classes, or for a client without examples.
    """
    counts = needed_labels(label_counts, num_clients, alpha)
    rank = np.empty(num_clients, dtype=np.int64)
    rank[np.argsort(label_correlated_rates(counts, 1 / counts.shape[1], alpha, 0.0, seed), kind="stable")] = np.arange(
        num_clients
    )
    return rank


def needed_labels(label_counts: np.ndarray | None, num_clients: int, alpha: LabelCorrelation) -> np.ndarray:
    """Return the class counts of every client, ``[N, C]``; raise an error for data without classes."""
    if label_counts is None:
        raise ConfigurationError(
            f"correlated_with_labels={alpha} needs the class counts of every client, but these data have none: "
            "write correlated_with_labels=None, or rates=(...)"
        )
    if label_counts.ndim != 2 or len(label_counts) != num_clients:
        needed = f"the shape ({num_clients}, number of classes)"
        raise refuse("label_counts", given=label_counts.shape, needed=needed)
    return label_counts


def everyone_at(rate: float, num_clients: int) -> np.ndarray:
    """Return the same rate for N clients, ``[N]``, read-only, in the memory of one number."""
    return np.broadcast_to(np.float64(rate), (num_clients,))


def mapped(function: Callable[[np.ndarray], Any], rates: np.ndarray) -> np.ndarray:
    """Apply an elementwise function to rates ``[N]``; to rates in the memory of one number it is applied once."""
    return np.broadcast_to(function(rates[:1]), rates.shape) if rates.strides == (0,) else function(rates)


@dataclass(frozen=True)
class RatedAvailability(Availability):
    """Base class of patterns with a rate p_n for each client.

    Attributes:
        mean: p_n of all clients, or the mean of p_n before the floor if they depend on labels.
        correlated_with_labels: None; the concentration alpha_p of `label_correlated_rates`, in the paper 0.1; or its q, one
            number per class: with ``(1, 1, 0.1)`` clients that hold only the third class are available a tenth as often.
        floor: least p_n of rates that depend on labels.
        rates: None, or p_n of each client, in place of the three options above.

    Raises:
        ConfigurationError: if a probability is outside [0, 1], the mean is 0, or rates are both listed and drawn.
    """

    mean: Probability = 0.1
    correlated_with_labels: LabelCorrelation | None = None
    floor: Probability = 0.02
    rates: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.mean == 0:
            raise refuse(
                "mean", given=self.mean, needed="a probability > 0", instead="At 0 no client is ever available"
            )
        if self.rates is None:
            return
        object.__setattr__(self, "rates", tuple(float(rate) for rate in self.rates))
        for client, rate in enumerate(self.rates):
            probability(f"rates[{client}]", rate)
        if self.correlated_with_labels is not None:
            raise ConfigurationError(
                "rates are both given (rates) and drawn (correlated_with_labels): write correlated_with_labels=None"
            )

    def client_rates(self, num_clients: int, label_counts: np.ndarray | None, seed: int) -> np.ndarray:
        """Return p_n of N clients, float64 ``[N]``, read-only.

        Raises:
            ConfigurationError: if labels are missing, or a list of rates has another length.
        """
        count("num_clients", num_clients)
        alpha = self.correlated_with_labels
        if self.rates is not None:
            rates = np.array(self.rates, dtype=np.float64)
            if len(rates) != num_clients:
                raise refuse("rates", given=len(rates), needed=f"one rate for each of {num_clients} clients")
        elif alpha is None:
            return everyone_at(self.mean, num_clients)
        else:
            counts = needed_labels(label_counts, num_clients, alpha)
            rates = label_correlated_rates(counts, self.mean, alpha, self.floor, seed)
        rates.setflags(write=False)
        return rates


@dataclass(frozen=True, kw_only=True)
class TimedAvailability(Availability):
    """Base class of patterns that follow a clock.

    Attributes:
        seconds_per_round: length of a round. Where the population has a speed, it is that length on its clock.
        correlated_with_labels: None assigns rates to clients at random. A number is the concentration alpha_p of
            `label_correlated_rates`, and several are its q, one per class: clients with a lower rate by their labels get a
            lower rate.

    Raises:
        ConfigurationError: if rounds last less than a second, or a correlation is invalid.
    """

    seconds_per_round: Annotated[int, partial(count, instead="A round lasts whole seconds")] = 600
    correlated_with_labels: LabelCorrelation | None = None

    @property
    def round_seconds(self) -> float:
        """Length of a round in seconds."""
        return self.seconds_per_round
