"""Raw data, to be split over clients."""

from __future__ import annotations

from dataclasses import dataclass

from turnout.core.registry import Family
from turnout.data.examples import Examples
from turnout.data.split import split_source


@dataclass(frozen=True, eq=False)
class Source(Examples):
    """Examples, and what is known of where they came from; `split` divides them over clients.

    Attributes:
        name: what reports call the data, e.g. ``"mnist"``.
        x: training inputs ``[n, ...]``; images are float32 ``[n, C, H, W]`` in [0, 1], texts are character indices.
        y: training targets: class labels, int64 ``[n]``, each in 0..num_classes-1, or numbers to predict, floating point
            ``[n]`` or ``[n, D]``.
        num_classes: number of classes (C); None is one more than the largest label, and stays None of numbers to predict.
        test_x, test_y: the official test split, shaped like `x` and `y`; None if the data have none.
        client_ids: the natural client of every training example (writer, speaking role, user), int64 ``[n]``, or None.
        client_names: name of natural client 0, 1, ...; None for the numbers themselves.
        test_client_ids: the natural client of every test example, int64, numbered as `client_ids`, or None.
        weights, test_weights: how much each example counts, floating point, > 0; None is equally. See the guide to data.
        prepare: from the numbers of the examples on which clients train to the inputs of all examples, those of the test
            behind the others; `split` then takes these inputs in place of `x`, so that nothing is fitted to examples that
            are held out. None keeps `x`.
        transforms: what every minibatch goes through by default, e.g. normalisation.
        recipe: how the data were read, as plain values, saved with every run.

    Raises:
        ConfigurationError: for a number of classes of targets that have none.
        DataError: where there are no examples, shapes disagree, labels are out of range, or numbers are not finite.
    """

    split = split_source
    """Split the examples over clients; ``partition=None`` splits by natural client, where the data have some."""


SOURCES = Family("data set", "data", ("turnout.data",), returns=Source)
"""Functions that load the named data sets."""
