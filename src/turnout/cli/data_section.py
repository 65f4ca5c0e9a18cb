"""The section of settings about data: a data set, its split over clients, and the shape that it declares."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

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


@dataclass(frozen=True)
class DataSection:
    """The data of a run, described by plain values.

    Attributes:
        table: the section ``data`` of settings.
        seed: the seed of the run, of the split and of random data.
    """

    table: Table
    seed: int

    def check(self) -> None:
        """Raise an error for invalid options, as far as they can be checked without the data."""
        self._options()
        self._augmentation()

    def declared(self) -> FederatedData | None:
        """Return zeros of the declared shape of the data; None if none is declared."""
        shape = only(self.table, OF_DECLARED)
        return build(declared, shape, "data") if "inputs" in shape else None

    def load(self) -> FederatedData:
        """Load the data and split them over clients.

        Raises:
            ConfigurationError: if they have another shape than is declared.
        """
        described = self.declared()
        if described is None:
            return self._loaded()
        if self.table["name"] == "declared":
            return described
        loaded = self._loaded()
        shape, here = (described.input_shape, described.num_outputs), (loaded.input_shape, loaded.num_outputs)
        if shape != here:
            raise ConfigurationError(
                f"data.inputs: got {list(shape[0])} and {counted(shape[1], 'output')}, but {loaded.name} has examples of "
                f"shape {list(here[0])} and {counted(here[1], 'output')}"
            )
        return loaded

    def _loaded(self) -> FederatedData:
        """Load a data set and split it."""
        source_options, split, partition = self._options()
        make, seed = user_code.member(SOURCES, self.table["name"], "data set"), Table(seed=self.seed)
        # Random data depend on the seed of the run, like the split.
        drawn = seed if "seed" in options_of(make) else {}
        with placed("data", make):
            source = make(**drawn | source_options)
        if not isinstance(source, Source):
            raise refuse(
                "data.name",
                given=self.table["name"],
                needed=f"a function that returns a Source, got {type(source).__name__}",
                instead="Return what to.data.from_arrays(...) makes",
            )
        if augmentation := self._augmentation():
            source = replace(source, transforms=augmentation())
        with placed("data", Source.split):
            return source.split(partition, **seed | split)

    def _options(self) -> tuple[Table, Table, Partition | None]:
        """Return the options of the source, those of the split (seed and num_clients can be in both), and the partition."""
        options = dict(self.table)
        source = user_code.member(SOURCES, options.pop("name"), "data set")
        known, partition = [*options_of(source)], None
        if source is not declared:  # which is not split
            options.pop("augmentation", None)
            partition = _partition(options.pop("partition", None))
            known += [*OF_SPLIT, *OF_DECLARED, "partition", "augmentation"]
            known += [] if partition is None else options_of(type(partition))
        for key in options:
            if key not in known:
                raise unknown_option(f"data.{key}", source.__name__, known)
        return (
            arguments(source, only(options, options_of(source)), "data"),
            arguments(Source.split, only(options, OF_SPLIT), "data", ready=("self",)),
            partition,
        )

    def _augmentation(self) -> Callable[[], tuple[Transform, ...]] | None:
        """Return the factory of transforms of images, if one is named."""
        name = convert(str | None, self.table.get("augmentation"), "data.augmentation")
        return None if name is None else user_code.member(AUGMENTATIONS, name, "augmentation")


def _partition(table: Table | None) -> Partition | None:
    """Return the partition that a table describes; None without a table."""
    if table is None:
        return None
    return build(chosen("data.partition", table, PARTITIONS), without(table, ("name",)), "data.partition")
