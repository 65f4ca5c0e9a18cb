"""Apply the model of a result to the rows of tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from torch import nn

from turnout.core.checks import ConfigurationError
from turnout.export import usage


class Predicting:
    """Base class of results, which have a model and a preparation of tables.

    Attributes:
        config: the experiment as plain values; None where it is not known.
        preparation: how rows of a table become inputs; None for other data.
    """

    config: Mapping[str, Any] | None
    preparation: usage.Prepared | None

    def _with(self, client: int | None) -> nn.Module:
        """Return a module with the parameters of the shared model, or of a client's."""
        raise NotImplementedError

    def predict(self, table: Any, client: int | None = None) -> np.ndarray:
        """Return the class of each row of a table by name (by number without names), or the predicted numbers, ``[n]``.

        Args:
            table: a file, a data frame, an Arrow table or a mapping with the columns of inputs.
            client: client whose model it is; None is the shared one.

        Raises:
            ConfigurationError: if the run was not on a table, or a column is missing; and as `model`.
            DataError: if a cell has an unknown category, or no value.
        """
        outputs = usage.outputs_of(self._with(client), self.preparation, table)
        return usage.predictions(outputs, self.preparation, self._num_classes)

    def predict_proba(self, table: Any, client: int | None = None) -> np.ndarray:
        """Return the probability of each class for each row of a table, ``[n, C]``; see `predict`.

        Raises:
            ConfigurationError: if the targets are no class labels; and as `predict`.
        """
        if self._num_classes is None:
            raise ConfigurationError("the targets of the run are numbers, which have no probabilities: write predict()")
        return usage.probabilities(usage.outputs_of(self._with(client), self.preparation, table))

    @property
    def _num_classes(self) -> int | None:
        return ((self.config or {}).get("data") or {}).get("num_classes")
