"""Raw data, to be split over clients."""

from __future__ import annotations

from dataclasses import dataclass, replace

from turnout.core.registry import Family
from turnout.data.examples import Examples
from turnout.data.federated import FederatedData
from turnout.data.partition import Partition
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

    def split(
        self,
        partition: Partition | None = None,
        num_clients: int | None = None,
        *,
        seed: int = 0,
        test_fraction: float | None = None,
        client_test_fraction: float = 0.0,
        validation_fraction: float = 0.0,
        unseen_clients: int = 0,
        validation_clients: int = 0,
        test_clients: int = 0,
        flip_labels: float = 0.0,
        empty: str = "refuse",
        official_test: str = "keep",
    ) -> FederatedData:
        """Split the examples over clients; see `turnout.data.split.split_source` for what each argument means.

        ``partition=None`` splits by natural client, and is refused where the data have none.
        """
        data = split_source(
            self if self.prepare is None else self.numbered(),
            partition,
            num_clients,
            seed=seed,
            test_fraction=test_fraction,
            client_test_fraction=client_test_fraction,
            validation_fraction=validation_fraction,
            unseen_clients=unseen_clients,
            validation_clients=validation_clients,
            test_clients=test_clients,
            flip_labels=flip_labels,
            empty=empty,
            official_test=official_test,
        )
        if self.prepare is None:
            return data
        x = self.prepare(data.train.x[:, 0].numpy())
        return replace(data, **{name: replace(shards, x=x[shards.x[:, 0]]) for name, shards in data.splits.items()})


SOURCES = Family("data set", "data", ("turnout.data",), returns=Source)
"""Functions that load the named data sets."""
