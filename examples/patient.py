"""Weight reports by a slowly growing function of their staleness: an example of a rule of your own.

turnout compare examples/patient.py:patient fedstaleweight fedbuff
turnout compare examples/patient.py:patient fedbuff patient.power=0.5 --rounds 300 --seeds 5
"""

from dataclasses import dataclass

import torch

import turnout as to
from turnout.base import Piece, Weighting


@dataclass(frozen=True)
class Patience(Weighting):
    """Weight each report by a power of the logarithm of its staleness.

    ``w_b <- w_b (1 + log(1 + tau_b))^power``, where tau_b is the number of server steps since the version that the client
    trained from.
    """

    power: float = 1.0

    def factors(self, report, version, state, federation):  # noqa: D102 - as little as it takes
        staleness = torch.from_numpy(version - report.version).double()
        return (1 + torch.log1p(staleness)) ** self.power


def patient(local: to.Sgd | None = None, power: float = 1.0, also: tuple[Piece, ...] = ()) -> to.Algorithm:
    """Average updates with the weights of `Patience`."""
    return to.compose(local or to.Sgd(), Patience(power), to.weighting.DivideBySum(), *also)
