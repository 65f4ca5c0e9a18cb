"""Define federated data: the examples of clients in training, validation and test splits."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from turnout.core.checks import ConfigurationError, DataError, counted
from turnout.core.display import html_table
from turnout.data.preparation import Preparation
from turnout.data.shards import Shards
from turnout.data.targets import check_targets, classes_in_words, described, number_of_classes
from turnout.data.transformer import FittedTransform
from turnout.data.transforms import Transform, apply_transforms

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SPLITS = ("train", "test", "client_test", "validation", "unseen_validation", "unseen_train", "unseen_test")
"""The attributes of federated data that are examples."""


@dataclass(frozen=True, eq=False)
class FederatedData:
    """The training, validation and test data of a federation.

    Attributes:
        name: name in reports, such as ``"digits"``.
        train: training examples of the N training clients.
        test: pooled test examples that belong to no client, such as an official test split; None if there are none.
        client_test: test examples of each training client; None if there are none.
        validation: validation examples of each training client, for the choice of settings; None if there are none.
        unseen_validation: examples of clients that never train, in place of `validation`; None if there are none.
        unseen_train, unseen_test: examples of clients that never train and only receive the model; None if there are none.
        num_classes: C; labels are 0..C-1. By default one more than the largest label; None for numbers to predict.
        transforms: applied to minibatches in order; random ones only in training.
        client_names: N names for tables, or None for the numbers 0..N-1.
        recipe: how the data were made, as plain values that are saved with every run.
        preparation: how rows of a table become inputs, with what was fitted to the training rows; None for other data.
    """

    name: str
    train: Shards
    num_classes: int | None = None
    test: Shards | None = None
    client_test: Shards | None = None
    validation: Shards | None = None
    unseen_validation: Shards | None = None
    unseen_train: Shards | None = None
    unseen_test: Shards | None = None
    transforms: tuple[Transform, ...] = ()
    client_names: tuple[str, ...] | None = None
    recipe: dict[str, object] = field(default_factory=dict)
    preparation: Preparation | FittedTransform | None = None

    def __post_init__(self) -> None:
        if self.num_clients < 1:
            raise ConfigurationError("the data have no clients: train needs the examples of at least one")
        if (self.train.sizes == 0).any():
            empty = np.flatnonzero(self.train.sizes == 0)
            raise ConfigurationError(
                f"{len(empty)} of {self.num_clients} clients have no training examples, first client {empty[0]}: "
                "write fewer clients, a larger alpha, or empty='drop' in split()"
            )
        self._check_clients()
        splits = self.splits
        num_classes = number_of_classes(self.num_classes, [shards.y for shards in splits.values()])
        object.__setattr__(self, "num_classes", num_classes)
        for name, shards in splits.items():
            if len(shards.y) and shards.y.dtype != self.train.y.dtype:
                raise DataError(
                    f"{name} targets are {shards.y.dtype}, training targets {self.train.y.dtype}: convert them"
                )
            check_targets(name, shards.y, self.num_classes)

    def _check_clients(self) -> None:
        """Check that splits have the same clients, by their positions, and that these have different names."""
        pairs = (("client_test", "train"), ("validation", "train"), ("unseen_test", "unseen_train"))
        for name, of in pairs:
            held, whose = getattr(self, name), getattr(self, of)
            if held is not None and whose is not None and held.num_clients != whose.num_clients:
                raise DataError(
                    f"{name} has {counted(held.num_clients, 'client')}, and {of} {counted(whose.num_clients, 'client')}: "
                    "give the same clients in the same order, with zero examples where one has none"
                )
        names = self.client_names
        if names is not None and not len(names) == len(set(names)) == self.num_clients:
            raise DataError(
                f"client_names: got {len(names)} names, {len(set(names))} of them different, needed a name for each of "
                f"{counted(self.num_clients, 'client')}"
            )

    def __repr__(self) -> str:
        return f"FederatedData({', '.join([repr(self.name), *self._facts().values()])})"

    def _repr_html_(self) -> str:
        """Return a table of sizes and splits, for notebooks."""
        return html_table(f"Federated data {self.name}", self._facts())

    def _facts(self) -> dict[str, str]:
        """Return the number of clients, their examples, and the other splits, in words."""
        sizes, numbers = self.train.sizes, self.num_outputs
        tests = {
            "validation examples": self.validation,
            "validation examples of unseen clients": self.unseen_validation,
            "test examples": self.test,
            "test examples of clients": self.client_test,
        }
        facts = {
            "clients": counted(self.num_clients, "client"),
            "examples": described(self.train.x),
            "a client holds": f"{sizes.min():,} to {sizes.max():,} each, median {np.median(sizes):,.0f}",
            "targets": counted(numbers, "number")
            if self.num_classes is None
            else classes_in_words(self.train.y, numbers),
        }
        facts |= {name: f"{len(held.x):,} {name}" for name, held in tests.items() if held is not None}
        if self.unseen_test is not None:
            facts["unseen"] = f"{self.unseen_test.num_clients:,} unseen clients"
        return facts

    def prepare(self, table: Any) -> torch.Tensor:
        """Return the inputs of further rows, as those of the training rows were made, float32 ``[n, d]``.

        Args:
            table: a file, a data frame, an Arrow table or a mapping with the columns of inputs; others are ignored.

        Raises:
            ConfigurationError: if the data are not those of a table, or a column is missing.
            DataError: if a cell has an unknown category, or no value.
        """
        if self.preparation is None:
            raise ConfigurationError(f"{self.name} was not read by from_table, so there are no columns to prepare")
        return self.preparation(table)

    def plot(self) -> Figure:
        """Plot the classes of each client, or the numbers of examples, as a matplotlib figure.

        Raises:
            ConfigurationError: if matplotlib is not installed.
        """
        from turnout.reporting.partition_figure import partition_figure, sizes_figure  # matplotlib may be missing

        if not self.has_labels:
            return sizes_figure(self.train.sizes)
        return partition_figure(self.name, self.label_counts(), self.client_names)

    @property
    def is_declared(self) -> bool:
        """True for placeholders of examples that only clients have; see `turnout.data.declared`."""
        return self.recipe.get("source") == "declared"

    @property
    def splits(self) -> dict[str, Shards]:
        """The splits that are not None, by the name of the attribute."""
        return {name: shards for name in SPLITS if (shards := getattr(self, name)) is not None}

    @property
    def is_validated(self) -> bool:
        """True if there are validation examples."""
        return self.validation is not None or self.unseen_validation is not None

    @property
    def num_clients(self) -> int:
        """The number of clients that train (N)."""
        return self.train.num_clients

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one example as input of the model, after the transforms that are not random."""
        return tuple(self._example().shape[1:])

    @property
    def input_dtype(self) -> torch.dtype:
        """Type of an example as input of the model."""
        return self._example().dtype

    @property
    def num_outputs(self) -> int:
        """The number of outputs of a model: that of classes, or of numbers to predict."""
        return math.prod(self.train.y.shape[1:]) if self.num_classes is None else self.num_classes

    @property
    def widths(self) -> dict[str, int]:
        """The numbers of features and of targets of an example, and of classes, 0 without class labels."""
        return {
            "features": math.prod(self.input_shape),
            "targets": math.prod(self.train.y.shape[1:]),
            "classes": self.num_outputs if self.has_labels else 0,
        }

    @property
    def has_labels(self) -> bool:
        """True if every example has one class label."""
        return self.num_classes is not None and self.train.y.dim() == 1

    def label_counts(self) -> np.ndarray:
        """Return the number of training examples of each class at each client, int64 ``[N, C]``.

        Raises:
            DataError: if the targets are not class labels.
        """
        if not self.has_labels:
            raise DataError(f"the targets of {self.name} are no class labels, so there are no classes to count")
        return self.train.label_counts(self.num_outputs)

    def _example(self) -> torch.Tensor:
        return apply_transforms(self.transforms, self.train.x[:1], None, training=False)
