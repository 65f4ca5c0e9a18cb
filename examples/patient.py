"""A weighting of one's own: the later a report, the more it counts, but ever more slowly so.

turnout compare examples/patient.py:patient fedstaleweight fedbuff
turnout compare examples/patient.py:patient fedbuff patient.power=0.5 --rounds 300 --seeds 5
"""

from dataclasses import dataclass

import torch

import turnout as to
from turnout.pieces.base import Piece, Weighting


@dataclass(frozen=True)
class Patience(Weighting):
    """``w_b <- w_b (1 + ln(1 + tau_b))^power``, tau = server steps since the version that the report started from."""

    power: float = 1.0

    def factors(self, report, version, state, federation):  # noqa: D102 - as little as it takes
        staleness = torch.from_numpy(version - report.version).double()
        return (1 + torch.log1p(staleness)) ** self.power


def patient(local: to.Sgd | None = None, power: float = 1.0, also: tuple[Piece, ...] = ()) -> to.Algorithm:
    """Weights by `Patience`, divided by their sum."""
    return to.compose(local or to.Sgd(), Patience(power), to.weighting.DivideBySum(), *also)
