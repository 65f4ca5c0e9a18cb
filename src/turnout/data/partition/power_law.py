"""FedProx's partition of MNIST: two neighbouring classes for each client, and sizes that follow a power law."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from turnout.core.checks import count, not_negative, refuse
from turnout.data.partition.base import Artificial, by_owner, rows_by_class, too_many_classes


@dataclass(frozen=True)
class PowerLaw(Artificial, name="power_law"):
    """Give each client a few neighbouring classes, and sizes that follow a log-normal distribution.

    Client u holds the classes (u + j) mod C, j < `classes_per_client`. It first gets `least` examples of each; the
    remaining R_c of a class are then cut in proportion to one log-normal number for each of its holders::

        share of holder h = floor(R_c * z_h / sum_h' z_h'),   z_h = exp(sigma * Normal(0, 1))

    Rows go in the order of the data. The fractions lost to the floor, fewer examples than a class has holders, are not
    used. (The mean of the logarithm would cancel, so it is no option. The authors' script skips a share that would end
    exactly with the last example of its class; here it is given, and a class cannot be over-run either way.)

    Attributes:
        classes_per_client: how many neighbouring classes a client holds.
        sigma: standard deviation of the logarithm; 0 makes shares equal.
        least: examples of each of its classes that every client gets.

    Raises:
        ConfigurationError: for more classes than there are, or a class that has not `least` examples for each holder.

    Reference: Li et al., "Federated Optimization in Heterogeneous Networks", MLSys 2020, and the authors' script for
    MNIST (1000 clients, 2 classes, sigma 2, least 5: the defaults).
    """

    classes_per_client: int = 2
    sigma: float = 2.0
    least: int = 5

    def __post_init__(self) -> None:
        count("classes_per_client", self.classes_per_client)
        not_negative("sigma", self.sigma)
        count("least", self.least)

    def _rows(self, labels: np.ndarray, num_clients: int, rng: np.random.Generator) -> list[np.ndarray]:
        classes, of_class = rows_by_class(labels)
        if self.classes_per_client > len(classes):
            raise too_many_classes("classes_per_client", self.classes_per_client, len(classes))
        client, offset = np.indices((num_clients, self.classes_per_client))
        held = (client + offset) % len(classes)
        # Shares depend on ratios alone: subtracting the greatest keeps the exponential finite for any sigma.
        logs = self.sigma * rng.standard_normal(held.shape)
        rows, owner = [], []
        for c, label in enumerate(classes):
            holders = client[held == c]
            needed = self.least * len(holders)
            if needed > len(of_class[c]):
                raise refuse(
                    "num_clients",
                    given=num_clients,
                    needed=f"{self.least} examples of class {label} for each of {len(holders)} holders, of "
                    f"{len(of_class[c])} that there are",
                    instead="Write fewer clients, a smaller least or fewer classes_per_client",
                )
            if len(holders) == 0:
                continue
            share = np.exp(logs[held == c] - logs[held == c].max())
            extra = np.floor((len(of_class[c]) - needed) * share / share.sum()).astype(np.int64)
            owner.append(np.concatenate([holders.repeat(self.least), holders.repeat(extra)]))
            rows.append(of_class[c][: len(owner[-1])])
        return by_owner(np.concatenate(rows), np.concatenate(owner), num_clients)
