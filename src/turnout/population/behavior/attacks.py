"""Attacks by colluding clients that know the honest updates, and by clients that train on wrong labels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from turnout.core.checks import ConfigurationError
from turnout.core.ranges import Count, Positive
from turnout.population.behavior.byzantine import Attack, Honest


@dataclass(frozen=True)
class ALittleIsEnough(Attack, name="a_little_is_enough"):
    """Send ``mean + z std`` of the honest updates in each coordinate, with a z too small to be detected (ALIE).

    Args:
        z: number of standard deviations; None is that of the paper, ``Phi^-1((n - m - s) / (n - m))`` with
            ``s = floor(n/2 + 1) - m``, for m attackers among n reports, and 0 if that is negative.

    Example:
        >>> import torch, turnout as to
        >>> from turnout.core.updates import Dense
        >>> from turnout.population.behavior.byzantine import Honest
        >>> updates = Dense(torch.tensor([[1.0, 2.0], [3.0, 2.0], [0.0, 0.0]]))
        >>> honest = Honest(updates, rows=torch.tensor([0, 1]), num_attackers=1, direction=lambda update: update)
        >>> to.behavior.ALittleIsEnough(z=1.0).forged(honest).tolist()  # the mean is [2, 2]
        [3.414213562373095, 2.0]

    Reference: Baruch, Baruch and Goldberg, "A little is enough: circumventing defenses for distributed learning", NeurIPS
    2019.
    """

    z: Positive | None = None

    def forged(self, honest: Honest) -> torch.Tensor:
        """Return the update of all attackers."""
        z = self.z
        if z is None:
            n = len(honest.rows) + honest.num_attackers
            supporters = max(0, n // 2 + 1 - honest.num_attackers)
            share = torch.tensor((n - honest.num_attackers - supporters) / len(honest.rows), dtype=torch.float64)
            z = float(torch.special.ndtri(share.clamp(0.5, 0.999)))
        return honest.mean() + z * honest.deviation()


@dataclass(frozen=True)
class InnerProduct(Attack, name="inner_product"):
    """Send ``-scale`` times the mean of the honest updates, which reduces its inner product with the server's direction.

    Args:
        scale: epsilon; small values are hard to detect, and values above (n - m) / m reverse a plain mean.

    Example:
        >>> import torch, turnout as to
        >>> from turnout.core.updates import Dense
        >>> from turnout.population.behavior.byzantine import Honest
        >>> updates = Dense(torch.tensor([[1.0, 2.0], [3.0, 2.0], [0.0, 0.0]]))
        >>> honest = Honest(updates, rows=torch.tensor([0, 1]), num_attackers=1, direction=lambda update: update)
        >>> to.behavior.InnerProduct(scale=2.0).forged(honest).tolist()
        [-4.0, -4.0]

    Reference: Xie, Koyejo and Gupta, "Fall of empires: breaking Byzantine-tolerant SGD by inner product manipulation", UAI
    2020.
    """

    scale: Positive = 2.0

    def forged(self, honest: Honest) -> torch.Tensor:
        """Return the update of all attackers."""
        return -self.scale * honest.mean()


@dataclass(frozen=True)
class Mimic(Attack, name="mimic"):
    """Send a copy of one honest update: the most extreme one in the direction of the largest variance.

    The copies are honest updates, but one client counts as many. The paper copies a fixed client after some rounds of
    learning the direction. Here cohorts change, so the client is chosen in each step, from the inner products of the honest
    updates.

    Example:
        >>> import torch, turnout as to
        >>> from turnout.core.updates import Dense
        >>> from turnout.population.behavior.byzantine import Honest
        >>> updates = Dense(torch.tensor([[1.0, 2.0], [3.0, 2.0], [0.0, 0.0]]))
        >>> honest = Honest(updates, rows=torch.tensor([0, 1]), num_attackers=1, direction=lambda update: update)
        >>> to.behavior.Mimic().forged(honest).tolist()
        [1.0, 2.0]

    Reference: Karimireddy, He and Jaggi, "Byzantine-robust learning on heterogeneous datasets via bucketing", ICLR 2022.
    """

    def forged(self, honest: Honest) -> torch.Tensor:
        """Return the update of all attackers."""
        products = honest.updates.gram()[honest.rows][:, honest.rows]
        centered = products - products.mean(dim=0) - products.mean(dim=1, keepdim=True) + products.mean()
        along = torch.linalg.eigh(centered).eigenvectors[:, -1].abs()
        one = torch.zeros(len(honest.updates), dtype=torch.float64, device=along.device)
        one[honest.rows[along.argmax()]] = 1.0
        return honest.updates.weighted_sum(one)


@dataclass(frozen=True)
class WorstCase(Attack, name="worst_case"):
    """Send the update that maximizes the distance of the server's direction from the honest mean, found by line search.

    Updates are ``mean + a d`` with d the standard deviation of the honest updates (as `ALittleIsEnough`) or minus their mean
    (as `InnerProduct`); the search for a tries powers of 2 first and then values near the best of them. The attackers know
    the aggregation, with equal weights. Without a robust aggregation the distance is unbounded.

    Args:
        evaluations: number of aggregations that are tried for each d.

    Raises:
        ConfigurationError: if the aggregation has a state, which the trials would change.

    Example:
        >>> import torch, turnout as to
        >>> from turnout.core.updates import Dense
        >>> from turnout.population.behavior.byzantine import Honest
        >>> rows = torch.tensor([[1.0, 2.0], [3.0, 2.0]])
        >>> median = lambda update: torch.cat([rows, update[None].float()]).median(dim=0).values
        >>> honest = Honest(Dense(torch.cat([rows, rows[:1]])), torch.tensor([0, 1]), num_attackers=1, direction=median)
        >>> update = to.behavior.WorstCase().forged(honest)
        >>> median(update).tolist()  # the honest mean is [2, 2]
        [3.0, 2.0]

    Reference: Shejwalkar and Houmansadr, "Manipulating the Byzantine: optimizing model poisoning attacks and defenses for
    federated learning", NDSS 2021, with the same halving of steps.
    """

    evaluations: Count = 20

    def forged(self, honest: Honest) -> torch.Tensor:
        """Return the update of all attackers."""
        mean = honest.mean()
        updates = [self._farthest(honest, mean, d) for d in (honest.deviation(), -mean)]
        return max(updates, key=lambda update: update[0])[1]

    def _farthest(self, honest: Honest, mean: torch.Tensor, d: torch.Tensor) -> tuple[float, torch.Tensor]:
        """Return the largest distance along d, and its update."""

        def distance(a: float) -> float:
            return float((honest.direction(mean + a * d).double() - mean).norm())

        best = line_search(distance, self.evaluations)
        return distance(best), mean + best * d


def line_search(value: Callable[[float], float], evaluations: int) -> float:
    """Maximize a function of a number > 0: evaluate powers of 2 from 1/16 on, then steps of decreasing size.

    Example:
        >>> round(line_search(lambda a: -((a - 3.7) ** 2), 60), 2)
        3.7
    """
    first = max(1, evaluations // 2)
    values = {2.0 ** (k - 4): value(2.0 ** (k - 4)) for k in range(first)}
    best = max(values, key=lambda a: values[a])
    largest, step = values[best], best / 2
    for k in range(evaluations - first):
        tried = best + (step if k % 2 == 0 else -step)
        if (new := value(tried)) > largest:
            best, largest = tried, new
        elif k % 2 == 1:
            step /= 2
    return best


@dataclass(frozen=True)
class LabelFlipping(Attack, name="label_flipping"):
    """Train on labels ``C - 1 - y`` in place of y, and send the resulting update unchanged.

    Example:
        >>> import torch, turnout as to
        >>> to.behavior.LabelFlipping().poisoned(torch.tensor([0, 1, 9]), 10).tolist()
        [9, 8, 0]

    Reference: Fang et al., "Local model poisoning attacks to Byzantine-robust federated learning", USENIX Security 2020.
    """

    def poisoned(self, labels: torch.Tensor, num_classes: int | None) -> torch.Tensor:
        """Return the flipped labels.

        Raises:
            ConfigurationError: if targets are not classes.
        """
        if num_classes is None or labels.is_floating_point() or labels.dim() > 1:
            raise ConfigurationError(
                "behavior: LabelFlipping flips classes, and the targets of these data are numbers: use another attack, such "
                "as sign_flipping"
            )
        return num_classes - 1 - labels
