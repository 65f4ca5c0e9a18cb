"""Bernoulli availability."""

import numpy as np
import pytest

from turnout.population import Bernoulli


def test_rounds_and_clients_are_independent():
    p, num_clients = 0.3, 100_000
    bound = Bernoulli(mean=p).bind(num_clients, None, 1)
    here = np.stack([bound.available(np.arange(num_clients), t) for t in (0, 1, 1000)])
    spread = 4.5 * np.sqrt(p**2 * (1 - p**2) / num_clients)
    assert (here[0] & here[1]).mean() == pytest.approx(p**2, abs=spread)
    assert (here[0] & here[2]).mean() == pytest.approx(p**2, abs=spread)
    assert (here[:, ::2] & here[:, 1::2]).mean() == pytest.approx(p**2, abs=spread)
    assert (here[0, ::2] & here[1, 1::2]).mean() == pytest.approx(p**2, abs=2 * spread)
    assert (here[1, ::2] & here[0, 1::2]).mean() == pytest.approx(p**2, abs=2 * spread)


def test_each_client_has_its_own_rate():
    rates = (0.0, 0.2, 0.7, 1.0)
    bound = Bernoulli(rates=rates).bind(4, None, 0)
    num_rounds = 4000
    realized = np.mean([bound.available(np.arange(4), t) for t in range(num_rounds)], axis=0)
    assert realized[0] == 0
    assert realized[3] == 1
    np.testing.assert_allclose(realized, rates, atol=4.5 * np.sqrt(0.21 / num_rounds))
