"""Define sources, examples that can be split over clients; load those with a name, and standardize inputs."""

from __future__ import annotations

import inspect
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch

from turnout.core.checks import ConfigurationError, DataError, known_name, nearest, positive
from turnout.core.registry import Family
from turnout.data.directory import ELSEWHERE, PLACES
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


class Entry(NamedTuple):
    """One data set of the inventory.

    Attributes:
        name: name of the data set.
        path: folder of its (first) files; None if they are missing, or it has none.
        description: description in one line.
        remedy: how to get the data if there is no path.
    """

    name: str
    path: Path | None
    description: str
    remedy: str


def load(name: str, directory: str | os.PathLike[str] | None = None, **options: Any) -> Source:
    """Load a data set by name; `options` are those of its function, e.g. ``load("shakespeare", stride=5)``.

    Raises:
        ConfigurationError: if a name or option is unknown, with the nearest known one.
        DataError: if files are missing or damaged.
    """
    source = SOURCES[known_name("data set", name, SOURCES)]
    known = set(inspect.signature(source).parameters)
    for option in options:
        if option not in known:
            allowed = known - {"directory"}
            hint = nearest(option, allowed) if allowed else "it has none"
            raise ConfigurationError(f"unknown option {option!r} of data set {name!r}: {hint}")
    return source(directory, **options) if "directory" in known else source(**options)


def describe(name: str) -> str:
    """Return a description of a data set in one line."""
    documentation = inspect.getdoc(SOURCES[known_name("data set", name, SOURCES)]) or ""
    return documentation.split("\n", 1)[0]


def inventory(directory: str | os.PathLike[str] | None = None) -> list[Entry]:
    """Return all data sets with the folders of their (first) files; no data are read."""
    entries = []
    for name in SOURCES:
        folders = [place.find(directory) for place in PLACES.get(name, ())]
        path = folders[0] if folders and None not in folders else None
        entries.append(Entry(name, path, describe(name), ELSEWHERE.get(name, f"turnout data fetch {name}")))
    return entries


def standardized(source: Source, epsilon: float = 0.001) -> Source:
    """Standardize every entry of the inputs (every pixel) over all examples, including the official test.

    With mean and standard deviation of entry j over all examples::

        x_j <- (x_j - mean_j) / (std_j + epsilon)

    A constant entry becomes 0. `Source.transforms` are removed, because they expect the original scale.

    Args:
        source: the data, with floating-point inputs.
        epsilon: added to each standard deviation, in units of the inputs, > 0.

    Raises:
        ConfigurationError: if epsilon <= 0.
        DataError: if inputs are integers.
    """
    positive("epsilon", epsilon)
    if not source.x.is_floating_point():
        raise DataError(
            f"{source.name}: inputs of type {source.x.dtype} cannot be standardized: make them floats first"
        )
    parts = [source.x] if source.test_x is None else [source.x, source.test_x]
    n = sum(map(len, parts))
    # Double precision, because the mean of a pixel that is black in almost all images is tiny.
    mean = (_sum(parts) / n).to(source.x.dtype)
    centered = [part - mean for part in parts]
    variance = _sum([part.square() for part in centered]) / n
    scale = (variance.sqrt() + epsilon).to(source.x.dtype)
    x, *test = [part.div_(scale) for part in centered]
    recipe = {**source.recipe, "standardize": True}
    return replace(source, x=x, test_x=test[0] if test else None, transforms=(), prepare=None, recipe=recipe)


def _sum(parts: list[torch.Tensor]) -> torch.Tensor:
    """Return the sum over all examples of all parts, float64."""
    return torch.stack([part.sum(dim=0, dtype=torch.float64) for part in parts]).sum(dim=0)
