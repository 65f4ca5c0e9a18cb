"""Rules that keep something of every client, one plain function for each: the server's step with a full buffer.

A buffer is as in `asynchronous`: (client, staleness, update, model it was trained from minus the present one), in the order
of arrival; every function returns what is added to the model.
"""

import numpy as np


def ca2fl(N, P, eta=1.0):
    """Algorithm 2; h_t is the table at the beginning of the step."""
    h = np.zeros((N, P))

    def step(buffer):
        v = h.mean(axis=0) + sum(D - h[n] for n, _, D, _ in buffer) / len(buffer)
        for n, _, D, _ in buffer:
            h[n] = D
        return eta * v

    return step


def ace(N, P, eta=1.0):
    """Algorithm 1: U is averaged anew in every step."""
    U = np.zeros((N, P))

    def step(buffer):
        for n, _, D, _ in buffer:
            U[n] = D
        return eta * sum(U) / N

    return step


def aced(N, tau, eta=1.0):
    """The authors' loop: start[n] is the version with which n was sent off, and all clients are looked at in every step."""
    U, start, t = [None] * N, [0] * N, 0

    def step(buffer):
        nonlocal t
        for n, _, D, _ in buffer:
            U[n], start[n] = D, t + 1
        active = [n for n in range(N) if U[n] is not None and (t + 1) - start[n] <= tau]
        t += 1
        return eta * sum(U[n] for n in active) / len(active)

    return step


def area(N, P):
    """The first author's simulator: a client sends how far it got from where it was, the server adds up 1/N of that."""
    x, memory = np.zeros(P), [np.zeros(P)] * N  # all of them minus the first model

    def step(buffer):
        nonlocal x
        aggregator = np.zeros(P)
        for n, _, D, behind in buffer:
            trained = x + behind + D
            aggregator += (trained - memory[n]) / N
            memory[n] = trained
        x = x + aggregator
        return aggregator

    return step


def fadas(eta, beta1=0.9, beta2=0.99, epsilon=1e-8, delays="ignored", threshold=1, corrected=False):
    """AMSGrad on the mean of the buffer, parameter by parameter."""
    m = v = v_max = 0.0
    t = 0

    def step(buffer):
        nonlocal m, v, v_max, t
        t += 1
        u = sum(D for _, _, D, _ in buffer) / len(buffer)
        m = beta1 * m + (1 - beta1) * u
        v = beta2 * v + (1 - beta2) * u * u
        v_max = np.maximum(v_max, v)
        tau, lr = max(tau for _, tau, _, _ in buffer), eta
        if tau > threshold and delays == "paper":
            lr = min(eta, 1 / tau)
        if tau > threshold and delays == "authors_code":
            lr = eta / tau
        if corrected:
            return lr / (1 - beta1**t) * m / (np.sqrt(v_max) / np.sqrt(1 - beta2**t) + epsilon)
        return lr * m / (np.sqrt(v_max) + epsilon)

    return step


METHODS = {"ca2fl": ca2fl, "ace": ace, "aced": aced, "area": area, "fadas": fadas}
