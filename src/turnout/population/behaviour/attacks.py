"""Attacks of clients who know what honest ones send, and of clients who train on wrong labels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch

from turnout.core.checks import ConfigurationError, count, positive
from turnout.population.behaviour.byzantine import Attack, Honest


@dataclass(frozen=True)
class ALittleIsEnough(Attack, name="a_little_is_enough"):
    """Send ``mean + z std`` of the honest updates, in each coordinate, with z so small that it does not stand out (ALIE).

    Args:
        z: how many standard deviations; None is the paper's, ``Phi^-1((n - m - s) / (n - m))`` with
            ``s = floor(n/2 + 1) - m``, for m attackers of n reports, and 0 where that is negative.

    Reference: Baruch, Baruch and Goldberg, "A little is enough: circumventing defenses for distributed learning", NeurIPS
    2019.
    """

    colludes: ClassVar[bool] = True

    z: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.z is not None:
            positive("z", self.z)

    def forged(self, honest: Honest) -> torch.Tensor:
        """Return the update."""
        z = self.z
        if z is None:
            n = len(honest.rows) + honest.num_attackers
            supporters = max(0, n // 2 + 1 - honest.num_attackers)
            share = torch.tensor((n - honest.num_attackers - supporters) / len(honest.rows), dtype=torch.float64)
            z = float(torch.special.ndtri(share.clamp(0.5, 0.999)))
        return honest.mean() + z * honest.deviation()


@dataclass(frozen=True)
class InnerProduct(Attack, name="inner_product"):
    """Send ``-scale`` times the mean of the honest updates, so that the direction's inner product with it falls.

    Args:
        scale: epsilon; a small one hides among honest updates, one beyond (n - m) / m turns a plain mean around.

    Reference: Xie, Koyejo and Gupta, "Fall of empires: breaking Byzantine-tolerant SGD by inner product manipulation", UAI
    2020.
    """

    colludes: ClassVar[bool] = True

    scale: float = 2.0

    def __post_init__(self) -> None:
        super().__post_init__()
        positive("scale", self.scale)

    def forged(self, honest: Honest) -> torch.Tensor:
        """Return the update."""
        return -self.scale * honest.mean()


@dataclass(frozen=True)
class Mimic(Attack, name="mimic"):
    """Send what one honest client sends: the one farthest out along the direction in which honest updates vary most.

    Nothing of it is wrong, but one client counts as many. The paper keeps to one client after some rounds in which it
    learns that direction; here cohorts change, so it is found anew in each step, from the honest updates' inner products.

    Reference: Karimireddy, He and Jaggi, "Byzantine-robust learning on heterogeneous datasets via bucketing", ICLR 2022.
    """

    colludes: ClassVar[bool] = True

    def forged(self, honest: Honest) -> torch.Tensor:
        """Return the update."""
        products = honest.updates.gram()[honest.rows][:, honest.rows]
        centred = products - products.mean(dim=0) - products.mean(dim=1, keepdim=True) + products.mean()
        along = torch.linalg.eigh(centred).eigenvectors[:, -1].abs()
        one = torch.zeros(len(honest.updates), dtype=torch.float64, device=along.device)
        one[honest.rows[along.argmax()]] = 1.0
        return honest.updates.weighted_sum(one)


@dataclass(frozen=True)
class WorstCase(Attack, name="worst_case"):
    """Send whichever update brings the server's direction farthest from the honest mean, as far as a search finds.

    Updates are ``mean + a d`` with d the honest updates' standard deviation (as `ALittleIsEnough`) or minus their mean (as
    `InnerProduct`); a is searched for, powers of 2 first and then around the best of them. The attackers know the
    aggregation, with equal weights. Without a robust aggregation there is no worst case, only ever worse ones.

    Args:
        evaluations: how many directions of the server are looked at for each d.

    Raises:
        ConfigurationError: for an aggregation that remembers updates, which trying would change.

    Reference: Shejwalkar and Houmansadr, "Manipulating the Byzantine: optimizing model poisoning attacks and defenses for
    federated learning", NDSS 2021, which halves steps likewise.
    """

    colludes: ClassVar[bool] = True

    evaluations: int = 20

    def __post_init__(self) -> None:
        super().__post_init__()
        count("evaluations", self.evaluations)

    def forged(self, honest: Honest) -> torch.Tensor:
        """Return the update."""
        mean = honest.mean()
        updates = [self._farthest(honest, mean, d) for d in (honest.deviation(), -mean)]
        return max(updates, key=lambda update: update[0])[1]

    def _farthest(self, honest: Honest, mean: torch.Tensor, d: torch.Tensor) -> tuple[float, torch.Tensor]:
        """Return the largest distance that was found along d, and the update."""

        def distance(a: float) -> float:
            return float((honest.direction(mean + a * d).double() - mean).norm())

        best = line_search(distance, self.evaluations)
        return distance(best), mean + best * d


def line_search(value: Callable[[float], float], evaluations: int) -> float:
    """Return where a function of a number > 0 was largest: powers of 2 from 1/16 are tried, then ever smaller steps.

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
        if (reached := value(tried)) > largest:
            best, largest = tried, reached
        elif k % 2 == 1:
            step /= 2
    return best


@dataclass(frozen=True)
class LabelFlipping(Attack, name="label_flipping"):
    """Train on labels ``C - 1 - y`` in place of y, and report honestly what comes of it.

    Reference: Fang et al., "Local model poisoning attacks to Byzantine-robust federated learning", USENIX Security 2020.
    """

    def poisoned(self, labels: torch.Tensor, num_classes: int | None) -> torch.Tensor:
        """Return the flipped labels.

        Raises:
            ConfigurationError: for labels that are no classes.
        """
        if num_classes is None or labels.is_floating_point() or labels.dim() > 1:
            raise ConfigurationError(
                "behaviour: LabelFlipping turns classes around, and the data's labels are numbers: use another attack, such "
                "as sign_flipping"
            )
        return num_classes - 1 - labels
