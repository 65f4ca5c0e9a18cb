"""Selections by past participation, in federations too large to examine every client."""

import numpy as np
import pytest
import torch
from tests.tiny import report

from turnout.core.candidates import Candidates
from turnout.core.types import Federation
from turnout.pieces.selection import LeastServed, LongestAbsent
from turnout.population.availability import Bernoulli, Everyone

N, K = 2000, 150


def rounds(selection, availability, num, num_clients=N):
    """Yield the cohort, the available clients, the ranks of all clients, and the number of queries of each round."""
    bound, state = availability.bind(num_clients), selection.init(Federation(num_clients, 1))
    for version in range(num):
        asked = []

        def available(clients, version=version, asked=asked):
            asked.append(len(clients))
            return bound.available(clients, version)

        everyone = np.arange(num_clients)
        rank = selection.rank(everyone, version, state)
        cohort = selection.select(Candidates(available, num_clients, version, 7, record=state))
        yield cohort, bound.available(everyone, version), rank, sum(asked)
        if len(cohort):
            state = selection.apply(report(cohort, torch.zeros(len(cohort), 1)), version, state)


@pytest.mark.parametrize(
    "selection",
    [LeastServed(K), LeastServed(K, beta=1.0), LeastServed(K, shares=tuple(np.full(N, 1 / N))), LongestAbsent(K)],
)
@pytest.mark.parametrize("availability", [Everyone(), Bernoulli(0.3)])
def test_selected_clients_have_the_lowest_order(selection, availability):
    """From rounds in which few clients have participated to rounds in which all have."""
    for cohort, there, rank, _ in rounds(selection, availability, 40):
        assert there[cohort].all()
        assert len(cohort) == min(K, there.sum())
        assert (np.diff(cohort) > 0).all()
        others = there.copy()
        others[cohort] = False
        if others.any():
            assert rank[cohort].max() - rank[others].min() <= 1e-15


@pytest.mark.parametrize("selection", [LeastServed(10), LongestAbsent(10)])
def test_few_of_a_million_clients_are_examined(selection):
    asked = [number for *_, number in rounds(selection, Bernoulli(0.1), 5, num_clients=1_000_000)]
    assert max(asked) < 1000


@pytest.mark.parametrize("selection", [LeastServed(100), LongestAbsent(100)])
def test_clients_without_participation_are_drawn_uniformly(selection):
    """First cohorts of many seeds, by chi-square over groups of clients."""
    state, seen = selection.init(Federation(N, 1)), np.zeros(N)
    bound = Bernoulli(0.5).bind(N)
    there = bound.available(np.arange(N), 0)
    for seed in range(200):
        cohort = selection.select(Candidates(lambda some: bound.available(some, 0), N, 0, seed, record=state))
        seen[cohort] += 1
    groups = seen[there].reshape(-1)[: there.sum() // 20 * 20].reshape(20, -1).sum(axis=1)
    expected = groups.mean()
    assert seen[there].sum() == 20_000
    square = ((groups - expected) ** 2 / expected).sum()
    assert abs(square - 19) < 4.5 * np.sqrt(2 * 19)
