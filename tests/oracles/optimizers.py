"""Server optimizers in plain NumPy: each maps the mean of a round's updates, and their lengths, to a step."""

import numpy as np


def fedavgm(lr=0.3, beta=0.9):
    v = 0.0

    def step(u, _):
        nonlocal v
        v = beta * v + u
        return lr * v

    return step


def fedexp(epsilon=1e-3):
    def step(u, lengths):
        M = len(lengths)
        return u * max(1.0, sum(length**2 for length in lengths) / (2 * M * (u @ u + epsilon)))

    return step


def adaptive(second, lr, beta1, tau):
    """Algorithm 2 of Reddi et al., line by line."""
    m, v = 0.0, None

    def step(u, _):
        nonlocal m, v
        v = np.full(len(u), tau**2) if v is None else v
        m = beta1 * m + (1 - beta1) * u
        v = np.array([second(v[i], u[i] ** 2) for i in range(len(u))])
        return lr * m / (np.sqrt(v) + tau)

    return step


def fedadagrad(lr=0.1, tau=1e-3):
    return adaptive(lambda v, square: v + square, lr, 0.0, tau)


def fedadam(lr=0.01, beta1=0.9, tau=1e-3, beta2=0.99):
    return adaptive(lambda v, square: beta2 * v + (1 - beta2) * square, lr, beta1, tau)


def fedyogi(lr=0.01, beta1=0.9, tau=1e-3, beta2=0.99):
    return adaptive(lambda v, square: v - (1 - beta2) * square * np.sign(v - square), lr, beta1, tau)


METHODS = {
    "fedavgm": fedavgm,
    "fedexp": fedexp,
    "fedadagrad": fedadagrad,
    "fedadam": fedadam,
    "fedyogi": fedyogi,
}
