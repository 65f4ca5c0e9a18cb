"""Hold a row for each client in arrays that grow with the federation."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from turnout.protocol.tensors import check_form


class ClientArrays:
    """Arrays ``[N]`` by name, with one row for each client.

    Args:
        num_clients: N.
        **initial: initial value of each array.

    Attributes:
        arrays: the arrays, which may be written to.
    """

    def __init__(self, num_clients: int, **initial: float) -> None:
        self._initial = initial
        self.arrays = {name: np.full(num_clients, value) for name, value in initial.items()}

    def grow(self, more: int) -> None:
        """Add rows with initial values."""
        for name, value in self._initial.items():
            self.arrays[name] = np.append(self.arrays[name], np.full(more, value))

    def state(self) -> dict[str, np.ndarray]:
        """Return the arrays."""
        return dict(self.arrays)

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Restore the arrays that `state` returned; other arrays are ignored.

        Raises:
            KeyError, ValueError: if an array is missing, or has another shape or type.
        """
        for name, array in self.arrays.items():
            check_form(state[name], array, name)
        self.arrays = {name: state[name].copy() for name in self._initial}
