"""What the server does with the updates of a round, one plain function for each method, and softmax regression.

``D`` maps the clients who are there to their updates; every function returns u of ``x <- x + eta u``.
"""

import numpy as np


def fedavg(sizes):
    def rule(D):
        total = sum(sizes[n] for n in D)
        return sum(sizes[n] * D[n] for n in D) / total if D else 0.0

    return rule


def average_participating():
    return lambda D: sum(D.values()) / len(D) if D else 0.0


def amplified_fedavg(period, gamma):
    """Keeps all updates of a period, and adds (gamma - 1) times their sum at its end."""
    mean, moves = average_participating(), []

    def rule(D):
        moves.append(mean(D))
        ends = len(moves) % period == 0
        return moves[-1] + ((gamma - 1) * sum(moves[-period:]) if ends else 0.0)

    return rule


def average_all(N):
    return lambda D: sum(D.values()) / N if D else 0.0


def known_statistics(p):
    return lambda D: sum(D[n] / p[n] for n in D) / len(p) if D else 0.0


def fedau(N, cutoff):
    """Keeps a list of intervals for each client and looks at every client in every round."""
    intervals, away = [[] for _ in range(N)], [0] * N

    def rule(D):
        u = 0.0
        for n in range(N):
            if n in D:
                omega = sum(intervals[n]) / len(intervals[n]) if intervals[n] else 1.0
                u = u + omega * D[n] / N
            away[n] += 1
            if n in D or away[n] == cutoff:
                intervals[n].append(away[n])
                away[n] = 0
        return u

    return rule


def fedvarp(N, P):
    Y = np.zeros((N, P))

    def rule(D):
        if not D:
            return 0.0
        u = Y.mean(axis=0) + sum(D[n] - Y[n] for n in D) / len(D)
        for n in D:
            Y[n] = D[n]
        return u

    return rule


def fedstale(N, P, beta, p=None, cutoff=None, alpha=None):
    """(1 - beta) unbiased FedAvg + beta FedVARP for unequal rates: true ones p, or those that FedAU learns.

    alpha is what each client counts in the objective, 1/N if it is None.
    """
    alpha = np.full(N, 1 / N) if alpha is None else np.array(alpha)
    Y, learned = np.zeros((N, P)), fedau(N, cutoff)

    def rule(D):
        inverse = np.zeros(N) + learned({n: np.eye(N)[n] for n in D}) * N if p is None else 1 / np.array(p)
        weights = alpha * inverse
        if not D:
            return 0.0
        fresh = sum(weights[n] * D[n] for n in D)
        varp = alpha @ Y + sum(weights[n] * (D[n] - Y[n]) for n in D)
        for n in D:
            Y[n] = D[n]
        return (1 - beta) * fresh + beta * varp

    return rule


def mifa(N, P):
    Y = np.zeros((N, P))

    def rule(D):
        for n in D:
            Y[n] = D[n]
        return Y.mean(axis=0)

    return rule


def softmax_gradient(w, x, y, classes):
    """Gradient of the mean cross-entropy of logits ``W x + b``; ``w`` is W, row after row, and then b."""
    W, b = w[:-classes].reshape(classes, -1), w[-classes:]
    z = x @ W.T + b
    p = np.exp(z - z.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    p[np.arange(len(y)), y] -= 1
    return np.concatenate([(p.T @ x).ravel(), p.sum(axis=0)]) / len(y)


def local_sgd(w, batches, gradient, lr, momentum=0.0, weight_decay=0.0, mu=0.0):
    """The update of one client after a step on each of `batches`."""
    start, v = w, np.zeros_like(w)
    for x, y in batches:
        v = momentum * v + gradient(w, x, y) + weight_decay * w + mu * (w - start)
        w = w - lr * v
    return w - start
