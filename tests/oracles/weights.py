"""FedAU's weights, client by client and round by round, as plain as the paper writes them."""

import numpy as np


def counted(present, cutoff):
    """Weights by the per-round counter: the mean of the intervals that ended before each round, 1 if none has.

    Args:
        present: who took part, bool ``[T, N]``.
        cutoff: K, or None.

    Returns:
        omega ``[T + 1, N]``; the last row is of the round to come.
    """
    T, N = present.shape
    omega = np.empty((T + 1, N))
    for n in range(N):
        intervals, rounds_away = [], 0
        for t in range(T + 1):
            omega[t, n] = sum(intervals) / len(intervals) if intervals else 1.0
            if t == T:
                break
            if present[t, n]:
                intervals.append(rounds_away + 1)
                rounds_away = 0
            else:
                rounds_away += 1
                if cutoff is not None and rounds_away == cutoff:
                    intervals.append(cutoff)
                    rounds_away = 0
    return omega


def mean(omega, M, S):
    """Algorithm 2's update of omega by an interval of length S, after M others."""
    return S if M == 0 else (M * omega + S) / (M + 1)


def exponential(rate):
    """The variant that forgets: the first interval replaces omega, each further one moves it by `rate`."""
    return lambda omega, M, S: S if M == 0 else omega + rate * (S - omega)


def algorithm_2(present, cutoff, groups=None, update=mean):
    """Weights by Algorithm 2's recursion on (M, S, omega); clients of a group run it on the same three variables.

    Within a round the members of a group run one after another, in the order of their numbers.
    """
    T, N = present.shape
    groups = range(N) if groups is None else groups
    M, S = dict.fromkeys(groups, 0), dict.fromkeys(groups, 0)
    omega = dict.fromkeys(groups, 1.0)
    weights = np.ones((T + 1, N))
    for t in range(1, T + 1):
        for n, g in enumerate(groups):
            S[g] += 1
            if present[t - 1, n] or S[g] == cutoff:
                omega[g] = update(omega[g], M[g], S[g])
                M[g] += 1
                S[g] = 0
        weights[t] = [omega[g] for g in groups]
    return weights
