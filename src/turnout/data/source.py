"""Define sources: examples that can be split over clients."""

from __future__ import annotations

from dataclasses import dataclass

from turnout.core.registry import Family
from turnout.data.examples import Examples
from turnout.data.split import split_source


@dataclass(frozen=True, eq=False, repr=False)
class Source(Examples):
    """Examples and their origin; `split` divides them over clients.

    Attributes:
        name: name of the data in reports, such as ``"mnist"``.
        x: training inputs ``[n, ...]``; images are float32 ``[n, C, H, W]`` in [0, 1], texts are character indices.
        y: training targets: class labels, int64 ``[n]``, each in 0..num_classes-1, or numbers to predict, floating point
            ``[n]`` or ``[n, D]``.
        num_classes: number of classes (C); by default one more than the largest label; None for numbers to predict.
        test_x, test_y: the official test split, shaped like `x` and `y`; None if the data have none.
        client_ids: the natural client of every training example (writer, speaking role, user), int64 ``[n]``, or None.
        client_names: names of natural clients 0, 1, ...; None for the numbers themselves.
        test_client_ids: the natural client of every test example, int64, numbered as `client_ids`, or None.
        weights, test_weights: weights of examples, floating point, > 0; None is equal weights. See the guide to data.
        prepare: a function of the indices of the training examples, which returns the inputs of all examples, those of the
            test after the others. `split` uses these inputs in place of `x`, so that nothing is fitted to held-out examples.
            None uses `x`.
        transforms: default transforms of minibatches, such as normalization.
        recipe: how the data were read, as plain values that are saved with every run.

    Raises:
        ConfigurationError: if targets without classes are given a number of classes.
        DataError: if there are no examples, shapes disagree, labels are out of range, or numbers are not finite.
    """

    split = split_source
    """Split the examples over clients; ``partition=None`` splits by natural client, if the data have some."""


SOURCES = Family("data set", "data", ("turnout.data", "turnout.data.named"), returns=Source)
"""The functions that load data sets, by name."""
