"""Raw data, to be split over clients."""

from __future__ import annotations

from dataclasses import dataclass

from turnout.data.examples import Examples
from turnout.data.federated import FederatedData
from turnout.data.partition import Partition
from turnout.data.split import split_source


@dataclass(frozen=True, eq=False)
class Source(Examples):
    """Examples, and what is known of where they came from; `split` divides them over clients.

    Arguments, attributes and errors are those of `turnout.data.examples.Examples`.
    """

    def split(
        self,
        partition: Partition | None = None,
        num_clients: int | None = None,
        *,
        seed: int = 0,
        test_fraction: float | None = None,
        client_test_fraction: float = 0.0,
        unseen_clients: int = 0,
        flip_labels: float = 0.0,
        empty: str = "refuse",
        official_test: str = "keep",
    ) -> FederatedData:
        """Split the examples over clients; see `turnout.data.split.split_source` for what each argument means.

        ``partition=None`` splits by natural client, and is refused where the data have none.
        """
        return split_source(
            self,
            partition,
            num_clients,
            seed=seed,
            test_fraction=test_fraction,
            client_test_fraction=client_test_fraction,
            unseen_clients=unseen_clients,
            flip_labels=flip_labels,
            empty=empty,
            official_test=official_test,
        )
