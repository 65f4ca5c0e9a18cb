"""Hold and check examples before they are split over clients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np
import torch

from turnout.core.checks import ConfigurationError, DataError, counted
from turnout.core.display import html_table
from turnout.data.targets import are_labels, check_finite, check_targets, classes_in_words, described, number_of_classes
from turnout.data.transforms import Transform
from turnout.data.weights import check_weights


@dataclass(frozen=True, eq=False, repr=False)
class Examples:
    """Examples and their origin; attributes and errors are those of `turnout.data.Source`."""

    name: str
    x: torch.Tensor
    y: torch.Tensor
    num_classes: int | None = None
    test_x: torch.Tensor | None = None
    test_y: torch.Tensor | None = None
    client_ids: np.ndarray | None = None
    client_names: tuple[str, ...] | None = None
    test_client_ids: np.ndarray | None = None
    weights: torch.Tensor | None = None
    test_weights: torch.Tensor | None = None
    prepare: Callable[[np.ndarray], torch.Tensor] | None = None
    transforms: tuple[Transform, ...] = ()
    recipe: dict[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        targets = [y for y in (self.y, self.test_y) if y is not None]
        object.__setattr__(self, "num_classes", number_of_classes(self.num_classes, targets))
        if (self.test_x is None) != (self.test_y is None):
            raise DataError(f"{self.name}: test_x and test_y belong together: give both or neither")
        if self.weights is None and self.test_weights is not None:
            raise DataError(f"{self.name}: test_weights without weights: give those of training examples too")
        self._check("", self.x, self.y, self.client_ids, self.weights)
        if self.test_x is not None and self.test_y is not None:
            self._check("test_", self.test_x, self.test_y, self.test_client_ids, self.test_weights)
        elif self.test_client_ids is not None:
            raise DataError(f"{self.name}: test_client_ids were given without test examples")
        else:
            check_weights(f"{self.name}: test_weights", self.test_weights, 0)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join([repr(self.name), *self._facts().values()])})"

    def _repr_html_(self) -> str:
        """Return a table of sizes, for notebooks."""
        return html_table(f"Data {self.name}", self._facts())

    def _facts(self) -> dict[str, str]:
        """Return the numbers of examples, classes and natural clients, in words."""
        facts = {
            "examples": described(self.x),
            "targets": "numbers to predict" if self.num_classes is None else classes_in_words(self.y, self.num_classes),
        }
        if self.test_x is not None:
            facts["test examples"] = counted(len(self.test_x), "test example")
        if self.client_ids is not None:
            facts["natural clients"] = counted(len(np.unique(self.client_ids)), "natural client")
        return facts

    def _check(
        self, prefix: str, x: torch.Tensor, y: torch.Tensor, ids: np.ndarray | None, weights: torch.Tensor | None
    ) -> None:
        """Check the training examples, or those of the test, whose attributes begin with a prefix."""
        part = "test" if prefix else "training"
        of_tokens = y.ndim == 2 and y.shape[1] > 1
        if are_labels(y) and (not (y.ndim == 1 or of_tokens) or y.dtype != torch.int64):
            of_pixels = ": write y.flatten(1), and nn.Flatten(2) as the last layer of the model" if y.ndim > 2 else ""
            raise DataError(
                f"{self.name}: {part} labels must be int64 of shape [n], or [n, T] for T tokens or pixels, got {y.dtype} "
                f"{list(y.shape)}{of_pixels}"
            )
        if len(x) != len(y):
            raise DataError(f"{self.name}: {len(x)} {part} inputs but {len(y)} {part} targets; each input needs one")
        if len(x) == 0:
            raise DataError(f"{self.name}: there are no {part} examples")
        if y.dtype != self.y.dtype or y.shape[1:] != self.y.shape[1:]:
            raise DataError(
                f"{self.name}: test targets are {y.dtype} of shape {list(y.shape[1:])} for each example, training targets "
                f"{self.y.dtype} {list(self.y.shape[1:])}; they must agree"
            )
        check_targets(f"{self.name}: {part}", y, self.num_classes)
        check_finite(f"{self.name}: {part} inputs", x, "clean or impute them before training")
        if x.shape[1:] != self.x.shape[1:] or x.dtype != self.x.dtype:
            raise DataError(
                f"{self.name}: test examples have shape {list(x.shape[1:])} and {x.dtype}, "
                f"training examples {list(self.x.shape[1:])} and {self.x.dtype}; they must agree"
            )
        check_weights(f"{self.name}: {prefix}weights", weights, len(x))
        if ids is not None:
            self._check_ids(f"{prefix}client_ids", ids, len(x))

    def _check_ids(self, what: str, ids: np.ndarray, n: int) -> None:
        if ids.shape != (n,) or ids.dtype != np.int64:
            raise DataError(f"{self.name}: {what} must be int64 of shape [{n}], got {ids.dtype} {list(ids.shape)}")
        limit = None if self.client_names is None else len(self.client_names)
        if n and (ids.min() < 0 or (limit is not None and ids.max() >= limit)):
            allowed = "0 upwards" if limit is None else f"0 to {limit - 1}, one per client name"
            raise DataError(f"{self.name}: {what} run from {ids.min()} to {ids.max()}, needed {allowed}")

    def pooled(self) -> Self:
        """Merge the official test split into the training examples.

        Natural clients are kept if those of both parts are known.

        Raises:
            ConfigurationError: if the data have no official test split, or one without weights.
        """
        if self.test_x is None or self.test_y is None:
            raise ConfigurationError(f"{self.name} has no official test split whose examples could join the others")
        ids = None
        if self.client_ids is not None and self.test_client_ids is not None:
            ids = np.concatenate([self.client_ids, self.test_client_ids])
        weights = self.weights
        if weights is not None:
            if self.test_weights is None:
                raise ConfigurationError(
                    f"{self.name}: weights without test_weights: give those of the test examples too"
                )
            weights = torch.cat([weights, self.test_weights])
        return replace(
            self,
            x=torch.cat([self.x, self.test_x]),
            y=torch.cat([self.y, self.test_y]),
            test_x=None,
            test_y=None,
            client_ids=ids,
            client_names=None if ids is None else self.client_names,
            test_client_ids=None,
            weights=weights,
            test_weights=None,
            recipe={**self.recipe, "official_test": "pool"},
        )
