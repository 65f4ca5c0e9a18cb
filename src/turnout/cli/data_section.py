"""The section ``data`` of settings: a data set, its split over clients, and the shape that it declares."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from turnout.cli import user_code
from turnout.cli.names import PARTITIONS, SOURCES
from turnout.cli.options import Table, arguments, build, convert, only, options_of, placed, unknown_option, without
from turnout.cli.sections import OF_DECLARED, OF_SPLIT, chosen
from turnout.core.checks import ConfigurationError, counted, refuse
from turnout.data.declared import declared
from turnout.data.federated import FederatedData
from turnout.data.partition import Partition
from turnout.data.source import Source
from turnout.data.transforms import AUGMENTATIONS, Transform


def check(table: Table) -> None:
    """Raise an error for invalid options, as far as they can be checked without the data."""
    _options(table)
    _augmentation(table)


def declared_by(table: Table) -> FederatedData | None:
    """Return zeros of the declared shape of the data; None if none is declared."""
    shape = only(table, OF_DECLARED)
    return build(declared, shape, "data") if "inputs" in shape else None


def load(table: Table, seed: int) -> FederatedData:
    """Load the data and split them over clients.

    Args:
        table: the section ``data`` of settings.
        seed: the seed of the run, of the split and of random data.

    Raises:
        ConfigurationError: if they have another shape than is declared.
    """
    described = declared_by(table)
    if described is not None and table["name"] == "declared":
        return described
    loaded = _loaded(table, seed)
    if described is None:
        return loaded
    shape, here = (described.input_shape, described.num_outputs), (loaded.input_shape, loaded.num_outputs)
    if shape != here:
        raise ConfigurationError(
            f"data.inputs: got {list(shape[0])} and {counted(shape[1], 'output')}, but {loaded.name} has examples of "
            f"shape {list(here[0])} and {counted(here[1], 'output')}"
        )
    return loaded


def _loaded(table: Table, seed: int) -> FederatedData:
    """Load a data set and split it."""
    source_options, split, partition = _options(table)
    make = user_code.member(SOURCES, table["name"])
    # Random data depend on the seed of the run, like the split.
    drawn = Table(seed=seed) if "seed" in options_of(make) else {}
    with placed("data", make):
        source = make(**drawn | source_options)
    if not isinstance(source, Source):
        raise refuse(
            "data.name",
            given=table["name"],
            needed=f"a function that returns a Source, got {type(source).__name__}",
            instead="Return what to.data.from_arrays(...) makes",
        )
    if augmentation := _augmentation(table):
        source = replace(source, transforms=augmentation())
    with placed("data", Source.split):
        return source.split(partition, **Table(seed=seed) | split)


def _options(table: Table) -> tuple[Table, Table, Partition | None]:
    """Return the options of the source, those of the split (seed and num_clients can be in both), and the partition."""
    options = dict(table)
    source = user_code.member(SOURCES, options.pop("name"))
    known, partition = [*options_of(source)], None
    if source is not declared:  # which is not split
        options.pop("augmentation", None)
        if (described := options.pop("partition", None)) is not None:
            kind = chosen("data.partition", described, PARTITIONS)
            partition = build(kind, without(described, ("name",)), "data.partition")
            known += options_of(kind)
        known += [*OF_SPLIT, *OF_DECLARED, "partition", "augmentation"]
    for key in options:
        if key not in known:
            raise unknown_option(f"data.{key}", source.__name__, known)
    return (
        arguments(source, only(options, options_of(source)), "data"),
        arguments(Source.split, only(options, OF_SPLIT), "data", ready=("self",)),
        partition,
    )


def _augmentation(table: Table) -> Callable[[], tuple[Transform, ...]] | None:
    """Return the factory of transforms of images, if one is named."""
    name = convert(str | None, table.get("augmentation"), "data.augmentation")
    return None if name is None else user_code.member(AUGMENTATIONS, name)
