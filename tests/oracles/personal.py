"""FedAvg-P, Scaffold-P, SCAFFOLD and company, client by client, as the papers write them.

A model is one vector whose last ``d`` numbers are personal; for Ditto, u and v are both whole models. ``next(n)`` gives
client n's next minibatch, ``gradient(w, batch)`` the gradient there, ``full(w, n)`` the one of all of its examples. Every
method is a function of (u, S) that returns u after a round with the clients S; what clients keep it has for itself, ``v``
and ``c`` among it.
"""

from types import SimpleNamespace
from typing import Any

import numpy as np


class FedAvgP:
    """Algorithm 1."""

    def __init__(self, problem, u, v, K, gamma_u, gamma_v, eta_u=1.0, eta_v=1.0):
        self.p, self.K, self.num_shared = problem, K, len(u)
        self.gamma_u, self.gamma_v, self.eta_u, self.eta_v = gamma_u, gamma_v, eta_u, eta_v
        self.v = [v.copy() for _ in range(problem.n)]

    def gradients(self, i, u, v):
        """Both gradients on one minibatch, at one point."""
        g = self.p.gradient(np.concatenate([u, v]), self.p.next(i))
        return g[: self.num_shared], g[self.num_shared :]

    def weights(self, S):
        return {i: 1 / len(S) for i in S}

    def local(self, i, u0):
        u, v = u0, self.v[i]
        for _ in range(self.K):
            g_u, g_v = self.gradients(i, u, v)
            u, v = u - self.gamma_u * g_u, v - self.gamma_v * g_v
        return u, v

    def round(self, u, S):
        if not S:
            return u
        ends, w = {}, self.weights(S)
        for i in S:
            ends[i], v = self.local(i, u)
            self.v[i] = (1 - self.eta_v) * self.v[i] + self.eta_v * v
        return (1 - self.eta_u) * u + self.eta_u * sum(w[i] * ends[i] for i in S)


class FedPer(FedAvgP):
    def weights(self, S):
        total = sum(self.p.sizes[i] for i in S)
        return {i: self.p.sizes[i] / total for i in S}


class FedBabu(FedPer):
    """The head stays as it was."""

    def local(self, i, u0):
        u = u0
        for _ in range(self.K):
            u = u - self.gamma_u * self.gradients(i, u, self.v[i])[0]
        return u, self.v[i]


class FedAlt(FedAvgP):
    """v first, with u frozen; then u, with the new v frozen."""

    def __init__(self, *args, share, **kwargs):
        super().__init__(*args, **kwargs)
        self.first = int(share * self.K)

    def local(self, i, u0):
        u, v = u0, self.v[i]
        for _ in range(self.first):
            v = v - self.gamma_v * self.gradients(i, u, v)[1]
        for _ in range(self.K - self.first):
            u = u - self.gamma_u * self.gradients(i, u, v)[0]
        return u, v


class Ditto(FedAvgP):
    """Algorithm 1, with the plain mean: the same minibatches for the shared model w and the personal models v."""

    def __init__(self, *args, proximal, **kwargs):
        super().__init__(*args, **kwargs)
        self.proximal = proximal

    def local(self, i, u0):
        u, v = u0, self.v[i]
        for _ in range(self.K):
            batch = self.p.next(i)
            u = u - self.gamma_u * self.p.gradient(u, batch)
            v = v - self.gamma_v * (self.p.gradient(v, batch) + self.proximal * (v - u0))
        return u, v


class ScaffoldP(FedAvgP):
    """Algorithm 2, with line 10 as it is printed."""

    def __init__(self, problem, u, v, K, *steps, initial, **kwargs):
        super().__init__(problem, u, v, K, *steps, **kwargs)
        self.c_i = np.zeros((problem.n, len(u)))
        if initial == "gradients":
            for i in range(problem.n):
                self.c_i[i] = sum(self.gradients(i, u, v)[0] for _ in range(K)) / K
        self.c = sum(self.c_i) / problem.n

    def local(self, i, u0):
        u, v = u0, self.v[i]
        for _ in range(self.K):
            g_u, g_v = self.gradients(i, u, v)
            u, v = u - self.gamma_u * (g_u - self.c_i[i] + self.c), v - self.gamma_v * g_v
        return u, v

    def moved(self, i, u0, u):
        return self.c_i[i] - self.c + (u0 - u) / (self.K * self.gamma_u)

    def round(self, u, S):
        before, after = self.c_i.copy(), {}
        kept, self.local = self.local, lambda i, u0: after.setdefault(i, kept(i, u0))
        new = super().round(u, S)
        self.local = kept
        for i in S:
            self.c_i[i] = self.moved(i, u, after[i][0])
        self.c = self.c + sum((self.c_i[i] - before[i] for i in S), np.zeros_like(u)) / self.p.n
        return new


class OptionOne(ScaffoldP):
    """SCAFFOLD's option I: the gradient at the server's model."""

    def moved(self, i, u0, u):
        del u
        return self.p.full(np.concatenate([u0, self.v[i]]), i)


def problem(n, sizes, gradient, next, full):
    return SimpleNamespace(n=n, sizes=sizes, gradient=gradient, next=next, full=full)


METHODS: dict[str, tuple[type[FedAvgP], dict[str, Any]]] = {
    "fedavg_p": (FedAvgP, {}),
    "scaffold_p": (ScaffoldP, {"initial": "gradients"}),
    "fedsim": (FedAvgP, {}),
    "fedalt": (FedAlt, {"share": 0.5}),
    "fedrep": (FedAlt, {"share": 0.8}),
    "fedper": (FedPer, {}),
    "fedbabu": (FedBabu, {}),
    "ditto": (Ditto, {"proximal": 0.1}),
    "scaffold": (ScaffoldP, {"initial": "zeros"}),
}
"""Every recipe's transcription and what is its own."""
