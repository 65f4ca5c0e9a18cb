"""FOLB, what its paper weighs it against, and FedNova, client by client, as plain as the papers write them.

A cohort is a list of clients, who may be in it several times. ``G[k]`` is the gradient of client k's whole loss at the
model of the round, ``D[k]`` its update, ``gamma[k]`` its inexactness, ``steps[k]`` how many local steps it did, ``n[k]`` how
many examples it has. Every function returns u of ``w <- w + eta u``.
"""

from types import SimpleNamespace

import numpy as np


def mean(vectors):
    return np.sum(vectors, axis=0) / len(vectors)


def over(numerator, denominator):
    """A fraction, and zero where its denominator is."""
    return numerator / denominator if denominator != 0 else 0.0 * numerator


def single_set(round, psi=0.0):
    """Eq. 13, and with psi eq. 18."""
    if not round.S1:
        return 0.0
    f1 = mean([round.G[k] for k in round.S1])
    worth = [f1 @ round.G[k] - psi * round.gamma[k] * (f1 @ f1) for k in round.S1]
    return sum(over(i, sum(abs(j) for j in worth)) * round.D[k] for i, k in zip(worth, round.S1, strict=True))


def two_set(round):
    """Eq. 9 and 10."""
    if not round.S1 or not round.S2:
        return 0.0
    f1, f2 = (mean([round.G[k] for k in S]) for S in (round.S1, round.S2))
    denominator = sum(round.G[k] @ f2 for k in round.S2)
    return sum(over(round.G[k] @ f1, denominator) * round.D[k] for k in round.S1)


def simple_mean(round):
    """FedNu, line 6, and the comparison's FedAvg and FedProx."""
    return mean([round.D[k] for k in round.S1]) if round.S1 else 0.0


def signed_mean(round):
    """Eq. 5; the gradient of the global loss from all available clients."""
    if not round.S1:
        return 0.0
    f = mean([round.G[k] for k in round.S2])
    return mean([np.sign(f @ round.G[k]) * round.D[k] for k in round.S1])


def signed_mean_by_examples(round):
    """Eq. 5 with the gradient of ``sum_k p_k F_k``."""
    if not round.S1:
        return 0.0
    f = mean([round.G[k] for k in round.S2 for _ in range(round.n[k])])
    return mean([np.sign(f @ round.G[k]) * round.D[k] for k in round.S1])


def by_examples(round):
    """FedProx as its authors average."""
    return sum(round.n[k] * round.D[k] for k in round.S1) / sum(round.n[k] for k in round.S1) if round.S1 else 0.0


def fednova(round):
    """Normalized averaging: the mean direction of a step, times the mean number of steps."""
    if not round.S1:
        return 0.0
    p = [round.n[k] / sum(round.n[j] for j in round.S1) for k in round.S1]
    steps = [round.steps[k] for k in round.S1]
    direction = sum(p_k * round.D[k] / s for p_k, s, k in zip(p, steps, round.S1, strict=True))
    return sum(p_k * s for p_k, s in zip(p, steps, strict=True)) * direction


def data_weighted(round, psi=0.0):
    """Eq. 13 and 18 with ``p_k = n_k / n`` instead of 1/K."""
    often = [k for k in round.S1 for _ in range(round.n[k])]
    return single_set(SimpleNamespace(**{**vars(round), "S1": often}), psi)


def data_weighted_two_set(round):
    """Eq. 9 likewise, both cohorts."""
    if not round.S1 or not round.S2:
        return 0.0
    first, second = ([k for k in S for _ in range(round.n[k])] for S in (round.S1, round.S2))
    f1, f2 = (mean([round.G[k] for k in S]) for S in (first, second))
    # Per example of the first cohort, as eq. 9 has it per draw of two cohorts of one size.
    return sum(over(round.G[k] @ f1, len(first) * (f2 @ f2)) * round.D[k] for k in first)


def probabilities(G, by, gamma=None, psi=0.0, n=None, scores_by_examples=True):
    """With which each client is drawn: eq. 7, the estimate by norms, eq. 16, or uniform; also if all are zero.

    With sizes n it is as if everyone were there once for each of its examples, and drawn as each of them; or drawn as
    eq. 7 has it as written, with no size in it but that of grad f.
    """
    if n is not None and not scores_by_examples:
        f = mean([G[k] for k in range(len(G)) for _ in range(n[k])])
        scores = {
            "alignment": [abs(f @ g) for g in G],
            "norm": [np.sqrt(g @ g) for g in G],
            "alignment_and_inexactness": [
                abs(f @ g - psi * c * (f @ f)) for g, c in zip(G, gamma if gamma is not None else [], strict=False)
            ],
        }[by]
        return np.array(scores) / sum(scores)
    if n is not None:
        of = [k for k in range(len(G)) for _ in range(n[k])]
        each = probabilities([G[k] for k in of], by, None if gamma is None else [gamma[k] for k in of], psi)
        return np.bincount(of, weights=each)
    f, N = mean(G), len(G)
    scores = {
        "alignment": [abs(f @ g) for g in G],
        "norm": [np.sqrt(g @ g) for g in G],
        "uniform": [1.0] * N,
        "alignment_and_inexactness": [
            abs(f @ g - psi * c * (f @ f)) for g, c in zip(G, gamma if gamma is not None else [0.0] * N, strict=True)
        ],
    }[by]
    return np.array([s / sum(scores) if sum(scores) > 0 else 1 / N for s in scores])


def inexactness(gradient, w, delta, mu):
    """``||grad h(w + delta)|| / ||grad h(w)||``, ``h`` the loss whose gradient is given and the proximal term."""
    start, end = np.linalg.norm(gradient(w)), np.linalg.norm(gradient(w + delta) + mu * delta)
    return float(end / start) if start > 0 else 0.0


def uniform_work(bits, least, most):
    """A whole number from 64 random bits, as `turnout.core.random.below` makes it."""
    return least + ((int(bits) >> 31 & (2**32 - 1)) * (most - least + 1) >> 32)


METHODS = {
    "folb": single_set,
    "folb_heterogeneous": single_set,
    "folb_two_set": two_set,
    "fednu": simple_mean,
    "fedprox": by_examples,
    "fednova": fednova,
}
"""By the names of the recipes."""
