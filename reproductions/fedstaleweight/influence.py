"""Who gains from being slow: a client's influence against the speed it reports (FedStaleWeight, sections 3.2 and 4.2.1).

A client whose mean rate is r_i (tasks a second) can report a lower one by pausing, but no higher one. Its utility is its
share of what the server's steps are made of::

    u_i = b p_i E[w_i / (w_i + sum of the other b - 1 weights in the buffer)]      p_i = r_i / sum_j r_j  (equation 2)

which is b times equation (9), averaged over buffers in place of one that is given, so that all clients' utilities sum to 1
and the fair share is 1 / n. Where clients are memoryless (exponential delays) and go on at once, the reports in a buffer
are independent draws in proportion to the rates, the staleness of a client has mean ``(sum_j r_j / r_i - 1) / b``
(equation 6) and a known distribution, and the expectation is an integral::

    E[w / (w + W)] = int_0^inf E[w exp(-w t)] E[exp(-w_j t)]^(b-1) dt

For weights that depend on a client's mean staleness that is exact; for weights by the staleness of each report it takes
the staleness of the reports in one buffer as independent.

Reference: Ma et al., "FedStaleWeight: buffered asynchronous federated learning with fair aggregation via staleness
reweighting", 2024.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch

from turnout.base.algorithm import Algorithm
from turnout.core.checks import ConfigurationError, count
from turnout.core.types import Federation, Report
from turnout.protocol.client_arrays import Influence
from turnout.simulation.schedule import Timeline

Weigh = Callable[[np.ndarray], np.ndarray]
"""Weights before normalization, from staleness; same shape."""

_STEP, _MARGIN = 0.2, 36.0  # of ln t, where the trapezoidal rule errs by e^-(10 / step); the integrand ends at e^-36
_TAIL = 1e-12  # probability of staleness that is left out
_LIGHTEST = 1e-280  # of weights relative to the heaviest: what is lighter counts as nothing


def _checked(rates: Sequence[float] | np.ndarray, buffer_size: int) -> np.ndarray:
    """Return the rates as float64 ``[n]``."""
    found = np.asarray(rates, dtype=np.float64)
    if found.ndim != 1 or not len(found) or not (np.isfinite(found) & (found > 0)).all():
        raise ConfigurationError(f"rates: got {found.tolist()}, needed a number > 0 for each client, in tasks a second")
    count("buffer_size", buffer_size)
    return found


def expected_staleness(rates: Sequence[float] | np.ndarray, buffer_size: int) -> np.ndarray:
    """Mean staleness of each client, ``(sum_j r_j / r_i - 1) / b``, equation (6); float64 ``[n]``.

    Raises:
        ConfigurationError: for rates that are not > 0.
    """
    rates = _checked(rates, buffer_size)
    return (rates.sum() / rates - 1.0) / buffer_size


def staleness_distribution(rate_share: float, buffer_size: int) -> np.ndarray:
    """P(staleness = 0, 1, ...) of a memoryless client with so large a share p of all reports, up to a tail of 1e-12.

    Others report K times meanwhile, ``P(K >= k) = (1 - p)^k``, from a place in the buffer that is uniform, so that
    ``P(staleness >= k) = (1 - p)^(b (k - 1) + 1) (1 - (1 - p)^b) / (b p)`` for k >= 1.
    """
    stay, b = 1.0 - rate_share, buffer_size
    if stay == 0.0:  # alone: its reports are never stale
        return np.ones(1)
    most = int(np.ceil(np.log(_TAIL) / (b * np.log(stay)))) + 2
    at_least = stay ** (b * np.arange(most) + 1.0) * (1.0 - stay**b) / (b * rate_share)
    whole = np.concatenate([[1.0], at_least])
    return whole - np.append(whole[1:], 0.0)


def utilities(
    rates: Sequence[float] | np.ndarray, buffer_size: int, weigh: Weigh, *, by_mean: bool = True
) -> np.ndarray:
    """Every client's utility u_i, its expected share of the weights in a buffer; float64 ``[n]``.

    Args:
        rates: reported speeds, tasks a second, ``[n]``.
        buffer_size: b.
        weigh: weights from staleness.
        by_mean: whether a client's weight comes from its mean staleness (FedStaleWeight), or that of each report from the
            report's own (FedBuff's and FedAsync's discounts).

    Raises:
        ConfigurationError: for rates that are not > 0.
    """
    rates = _checked(rates, buffer_size)
    each, kind, many = np.unique(rates, return_inverse=True, return_counts=True)  # those with the same rate are alike
    share = each / rates.sum()
    chances = [np.ones(1) if by_mean else staleness_distribution(p, buffer_size) for p in share]
    means = expected_staleness(rates, buffer_size)[np.unique(kind, return_index=True)[1]]
    found = [weigh(mean[None]) if by_mean else weigh(np.arange(len(q))) for mean, q in zip(means, chances, strict=True)]
    heaviest = max(float(weights.max()) for weights in found)
    if heaviest == 0.0:
        return np.zeros(len(rates))
    weights = [np.where(w / heaviest > _LIGHTEST, w / heaviest, 0.0) for w in found]
    lightest = min(float(w[w > 0].min(initial=1.0)) for w in weights)
    log_t = np.arange(-_MARGIN, -np.log(lightest) + np.log(_MARGIN) + _STEP, _STEP)
    fading = [np.exp(-np.outer(w, np.exp(log_t))) for w in weights]
    other = sum(p * m * (q @ f) for p, m, q, f in zip(share, many, chances, fading, strict=True))
    rest = other ** (buffer_size - 1) * np.exp(log_t) * _STEP
    per_kind = [p * ((q * w) @ f @ rest) for p, q, w, f in zip(share, chances, weights, fading, strict=True)]
    return buffer_size * np.array(per_kind)[kind]


def utility_in(rates: Sequence[float] | np.ndarray, buffer: Sequence[int], client: int) -> float:
    """Equation (9): the utility of a client in one given buffer of different clients, with FedStaleWeight's weights.

    ``u = alpha_norm p_i = 1 / (b + D + A / r_i + C r_i)``, with A the sum of the others' rates, C that of ``1 / r_j`` over
    the others in the buffer, and D that of ``(sum_k r_k - r_j - r_i) / r_j`` over the same.

    Raises:
        ConfigurationError: for rates that are not > 0, or a buffer in which the client is not, or somebody is twice.
    """
    a, b, c, d = _constants(rates, buffer, client)
    own = float(np.asarray(rates)[client])
    return 1.0 / (b + d + a / own + c * own)


def best_speed(rates: Sequence[float] | np.ndarray, buffer: Sequence[int], client: int) -> float:
    """Return the speed that serves a client best there: ``sqrt(A / C)``, where the derivative of equation (9) is zero.

    Below it a client gains by being faster. A client that is faster than that gains by pausing, which the paper holds to be
    impossible because rates could be rescaled; but A / C grows with the square of the scale, as r_i^2 does.
    """
    a, _, c, _ = _constants(rates, buffer, client)
    return float(np.sqrt(a / c)) if c else float("inf")


def _constants(
    rates: Sequence[float] | np.ndarray, buffer: Sequence[int], client: int
) -> tuple[float, int, float, float]:
    """Return a, b, C and D of section 4.2.1."""
    given = _checked(rates, len(buffer))
    if client not in buffer or len(set(buffer)) < len(buffer):
        raise ConfigurationError(f"buffer: got {list(buffer)}, needed different clients, client {client} among them")
    beside = given[[j for j in buffer if j != client]]
    total, own = given.sum(), given[client]
    return total - own, len(buffer), float((1.0 / beside).sum()), float(((total - beside - own) / beside).sum())


def shares(algorithm: Algorithm, timeline: Timeline, warm_up: int = 0) -> np.ndarray:
    """Every client's share of the weights over a timeline, as an algorithm weighs its reports; float64 ``[n]``.

    Nothing is trained, so weights must come from who reports, how late, and how often; by loss or gradient they cannot.

    Args:
        algorithm: whose weighting.
        timeline: what `turnout.schedule` gave.
        warm_up: steps at the start that do not count, while what the server knows of clients settles.

    Raises:
        ConfigurationError: for an algorithm whose weights need training, or a timeline that ends within the warm-up.
    """
    if algorithm.measurements:
        needed = "weights that come from who reports, when and how often"
        raise ConfigurationError(f"{algorithm.name} weighs by what clients measure while they train, needed {needed}")
    if len(timeline.steps) <= warm_up:
        raise ConfigurationError(
            f"timeline: got {len(timeline.steps)} steps, needed more than the warm-up of {warm_up}"
        )
    tasks, used = timeline.tasks, timeline.used
    client, version, stepped = (tasks[name][used] for name in ("client", "version", "stepped"))
    n, size = timeline.num_clients, np.bincount(stepped)
    ends = np.cumsum(size)
    federation = Federation(num_clients=n, num_params=0, dtype=torch.float64)
    states = [piece.init(federation) for piece in algorithm.weighting]
    influence = Influence(n)
    for step, (end, b) in enumerate(zip(ends.tolist(), size.tolist(), strict=True)):
        who, trained = client[end - b : end], version[end - b : end]
        ones = np.ones(b, dtype=np.int64)
        report = Report(who, trained, ones, ones, torch.zeros((b, 0), dtype=torch.float64))
        weights = torch.ones(b, dtype=torch.float64)
        for i, piece in enumerate(algorithm.weighting):
            weights, states[i] = piece.apply(weights, report, step, states[i], federation)
        if step >= warm_up:
            influence.add(who, step - trained, weights.numpy())
    return influence.columns()["influence"]
