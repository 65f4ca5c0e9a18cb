"""Full participation of available clients."""

import numpy as np

from turnout.base.selection import check_selection
from turnout.core.candidates import Candidates
from turnout.pieces.selection import AllAvailable
from turnout.population import Bernoulli


def test_selects_exactly_the_available_clients_in_order():
    bound = Bernoulli(mean=0.3).bind(1000, None, 0)
    cohort = AllAvailable().select(Candidates(lambda clients: bound.available(clients, 4), 1000, 4, 0))
    assert cohort.dtype == np.int64
    np.testing.assert_array_equal(cohort, np.flatnonzero(bound.available(np.arange(1000), 4)))


def test_no_available_client():
    assert len(AllAvailable().select(Candidates(lambda clients: np.zeros(len(clients), dtype=bool), 10, 0, 0))) == 0


def test_works_for_any_number_of_clients():
    check_selection(AllAvailable(), 1)
