"""The weights of FedAU's appendix D.4."""

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from reproductions.fedau.weights import FREQUENT, RARE, population, weight_figure, weights

from turnout import ConfigurationError


def algorithm_2(there: np.ndarray) -> np.ndarray:
    """Return the mean of the intervals that each client has completed, 1 before the first."""
    found = []
    for column in there.T:
        ends = np.flatnonzero(column)
        found.append(np.diff(ends, prepend=-1).mean() if len(ends) else 1.0)
    return np.array(found)


@pytest.mark.parametrize("pattern", ["bernoulli", "cyclic"])
def test_weights_are_mean_intervals_of_clients_with_rates_by_labels(pattern: str) -> None:
    bound = population(pattern, seed=1, num_clients=40)
    assert bound.rates is not None
    assert bound.rates.min() == pytest.approx(RARE)
    assert bound.rates.max() > FREQUENT
    there = np.array([bound.available(np.arange(bound.num_clients), round) for round in range(300)])
    early, late = weights(bound, (20, 300))
    np.testing.assert_allclose(early, algorithm_2(there[:20]))
    np.testing.assert_allclose(late, algorithm_2(there))


def test_figure_draws_means_and_single_clients_beside_known_rates() -> None:
    axes = weight_figure(rounds=60, points=4).axes
    assert [len(each.get_lines()) for each in axes[:3]] == [2, 2, 4]
    bound = population("bernoulli", seed=0)
    assert bound.rates is not None
    mean, known = (line.get_xydata() for line in axes[0].get_lines())
    assert np.asarray(mean)[-1, 1] == pytest.approx(weights(bound, (60,)).mean())
    assert np.asarray(known)[0, 1] == pytest.approx((1 / bound.rates).mean())
    assert np.asarray(axes[5].get_lines()[-1].get_xydata())[0, 1] == pytest.approx(1 / RARE)


def test_other_patterns_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="unknown pattern 'markov'"):
        population("markov", seed=0)
