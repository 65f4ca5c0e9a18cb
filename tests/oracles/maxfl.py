"""MaxFL and what its paper compares it with, client by client, as plain as the papers write them.

``D[k]`` is the update of client k, ``F[k]`` its whole loss at the model of the round, ``rho[k]`` what it requires. Every rule
returns u of ``w <- w + eta u``.
"""

import math

import numpy as np


def softmax_loss(w, x, y, classes):
    """Mean cross-entropy of logits ``W x + b``; ``w`` is W, row after row, and then b."""
    W, b = w[:-classes].reshape(classes, -1), w[-classes:]
    z = x @ W.T + b
    z = z - z.max(axis=1, keepdims=True)
    return float(np.mean(np.log(np.exp(z).sum(axis=1)) - z[np.arange(len(y)), y]))


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


def maxfl(epsilon, line_8=False):
    """Algorithm 1: the aggregation weights of line 8, or those of eq. 4, and the adaptive server step."""

    def rule(D, F, rho):
        s = {k: sigmoid(F[k] - rho[k]) for k in D}
        q = {k: s[k] if line_8 else s[k] * (1 - s[k]) for k in D}
        return sum(q[k] * D[k] for k in D) / (sum(q.values()) + epsilon) if D else 0.0

    return rule


def qffl(q, lr):
    """q-FedAvg, algorithm 2: with L the inverse of the step size."""

    def rule(D, F, _):
        L, losses = 1 / lr, {k: F[k] + 1e-10 for k in D}
        Dw = {k: -L * D[k] for k in D}
        Delta = {k: losses[k] ** q * Dw[k] for k in D}
        h = {k: q * losses[k] ** (q - 1) * (Dw[k] @ Dw[k]) + L * losses[k] ** q for k in D}
        return -sum(Delta.values()) / sum(h.values()) if D else 0.0

    return rule


def mean(D, *_):
    """Return the mean over available clients."""
    return sum(D.values()) / len(D) if D else 0.0


class Multiplicative:
    """MW-Fed's weights: times 4 for each client that is not content, then divided by their sum."""

    def __init__(self, num_clients, factor):
        self.v, self.factor = [1 / num_clients] * num_clients, factor

    def steps(self, k, tau):
        """Local steps of a client."""
        return max(1, round(self.v[k] * len(self.v) * tau))

    def __call__(self, D, F, rho):
        total = sum(self.v[k] for k in D)
        u = sum(self.v[k] / total * D[k] for k in D) if D else 0.0
        for k in D:
            if F[k] >= rho[k]:
                self.v[k] *= self.factor
        self.v = [v / sum(self.v) for v in self.v]
        return u


def meta_sgd(w, batches, gradient, lr, alpha, delta=None):
    """Per-FedAvg's local steps: `batches` has (D, D') or, with `delta`, (D, D', D'') of each step."""
    start = w
    for step in batches:
        g = gradient(w - alpha * gradient(w, *step[0]), *step[1])
        if delta is not None:
            H_g = (gradient(w + delta * g, *step[2]) - gradient(w - delta * g, *step[2])) / (2 * delta)
            g = g - alpha * H_g
        w = w - lr * g
    return w - start


METHODS = {"maxfl": maxfl, "qffl": qffl, "perfedavg": meta_sgd, "mw_fed": Multiplicative}
"""By the names of the recipes."""
