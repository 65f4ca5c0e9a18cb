"""What the server does with a full buffer, one plain function for each method.

A buffer is a list of (client, staleness, update, model it was trained from minus the present one), in the order of arrival;
every function returns u of ``x <- x + eta u``.
"""

import numpy as np


def fair(N, rule="paper", average="window", window=5, rate=0.1):
    """FedStaleWeight: lists of staleness by client, looked through for every report."""
    recorded = {}

    def record(n, tau):
        lags = recorded.setdefault(n, [])
        if average == "authors_window" and len(lags) >= window:
            lags.pop()
        lags.append(tau)
        if average == "window" and len(lags) > window:
            lags.pop(0)

    def mean(n):
        if average != "exponential":
            return sum(recorded[n]) / len(recorded[n])
        value = recorded[n][0]
        for tau in recorded[n][1:]:
            value = (1 - rate) * value + rate * tau
        return value

    def step(buffer):
        for n, tau, _, _ in sorted(buffer, key=lambda report: -report[1]):
            record(n, tau)
        b = len(buffer)
        alpha = {
            "paper": lambda E: (E * b + 1) / N,
            "algorithm_1": lambda E: (E + 1) / N,
            "authors_code": lambda E: E * b / N,
        }[rule]
        weights = [alpha(mean(n)) for n, _, _, _ in buffer]
        total = sum(weights)
        return sum(w / total * D for w, (_, _, D, _) in zip(weights, buffer, strict=True)) if total else 0.0

    return step


def constant(_):
    return 1.0


def discounted(s=constant, by_sum=False):
    """FedBuff: s(tau) of every update, over B or over the sum of all s."""

    def step(buffer):
        weights = [s(tau) for _, tau, _, _ in buffer]
        total = sum(weights) if by_sum else len(buffer)
        return sum(w * D for w, (_, _, D, _) in zip(weights, buffer, strict=True)) / total

    return step


def mixed(s):
    """FedAsync: move toward the mean of the clients' models; with one report, toward its model."""

    def step(buffer):
        return sum(s(tau) * (behind + D) for _, tau, D, behind in buffer) / len(buffer)

    return step


def window(K):
    """FedFa: the mean of the last K models, here as their distances from the present one."""
    behind = []

    def step(buffer):
        behind.append(sum(start + D for _, _, D, start in buffer) / len(buffer))
        if len(behind) < K:
            return 0.0 * behind[-1]
        del behind[:-K]
        u = sum(behind) / K
        behind[:] = [model - u for model in behind]
        return u

    return step


def polynomial(a):
    return lambda tau: 1 / (1 + tau) ** a


def exponential(base):
    return lambda tau: base**tau


def hinge(slope, grace):
    return lambda tau: 1.0 if tau <= grace else 1 / (slope * (tau - grace) + 1)


METHODS = {"fedstaleweight": fair, "fedbuff": discounted, "fedasync": mixed, "fedfa": window}


def buffers(N, P, steps, size, seed):
    """Generate random buffers with bursts of reports, so that some clients occur several times, of small staleness."""
    rng = np.random.default_rng([17, seed])
    pace = rng.choice([0, 1, 3, 8], size=N)
    for _ in range(steps):
        clients = rng.choice(N, size=size, p=(pace + 0.5) / (pace + 0.5).sum())
        taus = np.array([rng.integers(0, 2 + 9 - pace[n]) for n in clients])
        yield clients, taus, rng.normal(size=(size, P)), rng.normal(size=(size, P))
