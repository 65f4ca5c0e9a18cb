"""What several benchmarks share: federations with random data, and the memory of this process."""

from __future__ import annotations

import resource

import numpy as np
import torch

from turnout.data.federated import FederatedData, Shards


def random_data(num_clients: int, num_examples: int, shape: tuple[int, ...], num_classes: int = 10) -> FederatedData:
    """Clients with so many examples each, of normal inputs of a shape and labels that have nothing to do with them."""
    rng = np.random.default_rng(0)
    total = num_clients * num_examples
    x = torch.from_numpy(rng.standard_normal((total, *shape), dtype=np.float32))
    y = torch.from_numpy(rng.integers(0, num_classes, total))
    return FederatedData("random", Shards(x, y, np.arange(num_clients + 1) * num_examples), num_classes)


def peak() -> float:
    """The most memory this process has had, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
