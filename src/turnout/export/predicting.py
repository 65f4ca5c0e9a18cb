"""Apply the model of a result to the rows of tables."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import nn

from turnout.core.checks import ConfigurationError
from turnout.export import usage

LOG = logging.getLogger(__name__)


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

        If `nn.PoissonNLLLoss` takes outputs for logarithms, the numbers are their exponentials. Of a loss of your own, the
        numbers are the outputs, and the class is that of the largest output; the log says so of numbers.

        Args:
            table: a file, a data frame, an Arrow table or a mapping with the columns of inputs.
            client: client whose model it is; None is the shared one.

        Raises:
            ConfigurationError: if the run was not on a table or its inputs were transformed, or a column is missing; and as
                `model`.
            DataError: if a cell has an unknown category, or no value; or if outputs are NaN, which predict no class.
        """
        outputs = self._outputs(table, client)
        if self._are_numbers:
            return usage.numbers(outputs, self.config)
        return usage.predictions(outputs, self.preparation, usage.loss_of(self.config))

    def predict_proba(self, table: Any, client: int | None = None) -> np.ndarray:
        """Return the probability of each class for each row of a table, ``[n, C]``; see `predict`.

        Of several labels 0 and 1 for each row, it is the probability that each is 1. Of a loss of your own, it is the softmax
        of the outputs, and the log says so.

        Raises:
            ConfigurationError: if the targets are numbers, or the loss does not determine what a single output means; and
                as `predict`.
        """
        if self._are_numbers:
            raise ConfigurationError("the targets of the run are numbers, which have no probabilities: write predict()")
        loss = usage.loss_of(self.config)
        shares = usage.probabilities(self._outputs(table, client), loss)
        if loss not in (*usage.BINARY, *usage.LOGITS):
            LOG.warning("predict_proba(): it is unknown what the loss %s takes outputs for: their softmax is returned, which "
                        "is no probability unless they are logits", loss)  # fmt: skip
        return shares

    def _outputs(self, table: Any, client: int | None) -> torch.Tensor:
        """Return the outputs of the model for the rows of a table.

        Raises:
            ConfigurationError: if inputs were transformed after their preparation; and as `predict`.
        """
        transforms = ((self.config or {}).get("data") or {}).get("transforms") or ()
        if transforms and self.preparation is not None:
            names = ", ".join(str(one.get("kind") if isinstance(one, Mapping) else one) for one in transforms)
            raise ConfigurationError(
                f"the inputs of the run were transformed by {names}, which predict() does not apply: apply it to "
                "result.preparation(table), and write result.model(inputs)"
            )
        return usage.outputs_of(self._with(client), self.preparation, table)

    @property
    def _num_classes(self) -> int | None:
        return ((self.config or {}).get("data") or {}).get("num_classes")

    @property
    def _are_numbers(self) -> bool:
        """True if the targets are numbers, and not labels."""
        return self._num_classes is None and usage.loss_of(self.config) not in (*usage.BINARY, "CrossEntropyLoss")
