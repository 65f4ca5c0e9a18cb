"""Draw the pooled test of a source, whose examples belong to no client."""

from __future__ import annotations

import numpy as np

from turnout.core.checks import ConfigurationError, below_one, refuse
from turnout.core.random import generator
from turnout.data.examples import Examples
from turnout.data.gather import note_none


def draw_test(source: Examples, test_fraction: float | None, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw the pooled test, and return the other rows and those of the test, each in the order of the data.

    Examples are sorted by class, in random order within a class, and the i-th is drawn where i * fraction passes an integer.
    The number of drawn examples is then correct to within one, overall and in each class.
    """
    n = len(source.y)
    if source.test_x is not None:
        if test_fraction is not None:
            needed = f"None, because {source.name} has an official test split of {len(source.test_x)} examples"
            instead = (
                "For tests inside each client, write client_test_fraction; to do without the official split, "
                "official_test='pool'"
            )
            raise refuse("test_fraction", given=test_fraction, needed=needed, instead=instead)
        return np.arange(n), np.empty(0, dtype=np.int64)
    fraction = 0.2 if test_fraction is None else test_fraction
    below_one("test_fraction", fraction)
    one_each = source.num_classes is not None and source.y.dim() == 1
    classes = source.y.numpy(force=True) if one_each else np.zeros(n)
    order = np.lexsort((generator("pooled test", seed).random(n), classes))
    passed = np.floor(np.arange(n + 1) * fraction)
    taken = np.zeros(n, dtype=bool)
    taken[order] = np.diff(passed) > 0
    note_none(source.name, "test_fraction", fraction, taken)
    return np.flatnonzero(~taken), np.flatnonzero(taken)


def no_pooled_test(source: Examples, test_fraction: float | None, test_clients: int) -> float:
    """Return 0, the share of examples for a pooled test if whole clients are the test, after checks."""
    if source.test_x is not None:
        raise ConfigurationError(
            f"test_clients: got {test_clients}, and {source.name} has an official test split, which would be another test: "
            "write official_test='pool' to give its examples to clients, or leave test_clients out"
        )
    if test_fraction:
        raise ConfigurationError(
            f"test_clients: got {test_clients} beside test_fraction={test_fraction}, and there is one pooled test: "
            "leave one of them out"
        )
    return 0.0
