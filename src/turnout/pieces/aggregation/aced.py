"""Average the last updates of the clients that reported recently (ACED)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from turnout.core.checks import count
from turnout.core.device import to_device
from turnout.core.types import Federation, Report, State
from turnout.core.updates import Updates
from turnout.pieces.aggregation.last_updates import last_reports
from turnout.pieces.aggregation.requirements import needs_alone
from turnout.pieces.base import Aggregation, Slots, Weights, WithState
from turnout.pieces.weighting.normalise import DivideByClients


@dataclass(frozen=True)
class Aced(Aggregation, name="aced"):
    """``Y_b = Delta_b`` for the clients that report, then ``u = sum_{n in A} Y_n / |A|``, A those of the last tau steps.

    After a report in step s a client is handed the model s + 1, and it is in A(t) while ``(t + 1) - (s + 1) <= tau``. With a
    tau as large as the number of steps it is ACE once all clients have reported; those that never did are not in A. A step
    without reports changes nothing.

    The paper's text was not at hand: the rule is that of its authors' code, which counts from the hand-out. A comment there
    says that it counts from the version behind Y_n.

    Args:
        tau: server steps for which an update counts, the authors' tau_algo.

    State: ``table [N, P]`` (Y), ``total [P]`` in float64, the sum of Y over A; on the host ``heard [N]``, the step of a
    client's last report or -1, and ``steps []``.

    Raises:
        ConfigurationError: for a tau that is no whole number >= 0, or weights other than 1 / N.

    Example:
        A client whose last report is more than tau steps old no longer counts:

        >>> from turnout.pieces.base.trial import aggregate, report
        >>> aggregate(Aced(tau=1), report([[4.0]]), *[report([[1.0]], clients=[1])] * 3)
        [[4.0], [2.5], [1.0], [1.0]]

    Reference: Chang et al., "Mitigating participation imbalance bias in asynchronous federated learning", 2025 (arXiv
    2511.19066).
    """

    client_rows = ("table", "heard")

    tau: int = 50

    def __post_init__(self) -> None:
        count("tau", self.tau, least=0, instead="Where updates are to count for ever, write ace()")

    def fits(self, algorithm: Slots) -> None:
        """Refuse weights: all clients in A count alike, absent ones included."""
        why = (
            "ACED averages the stored updates of all who were heard of late; weights exist only for those who are there"
        )
        needs_alone(algorithm, DivideByClients, why)

    def init(self, federation: Federation) -> State:
        """Return a table of zeros."""
        num_clients, num_params, device = federation.num_clients, federation.num_params, federation.device
        return {
            "table": torch.zeros((num_clients, num_params), dtype=federation.dtype, device=device),
            "total": torch.zeros(num_params, dtype=torch.float64, device=device),
            "heard": torch.full((num_clients,), -1),
            "steps": torch.tensor(0),
        }

    def apply(self, weights: Weights, report: Report, state: State, federation: Federation) -> WithState:
        """Return the direction ``[P]``; rows of those who report are replaced."""
        table, heard, now = state["table"], state["heard"].numpy(), int(state["steps"])
        last = last_reports(report)
        clients = report.client[last]
        counted = (heard >= 0) & (heard >= now - 1 - self.tau)  # in the sum, as the last step left it
        stays = counted & (heard >= now - self.tau)
        stays[clients] = False
        rows = to_device(clients, table.device)
        gone = np.flatnonzero(counted & ~stays)
        old, new = table[to_device(gone, table.device)], report.updates.gathered()[to_device(last, table.device)]
        # The sum of all in A moves by what comes and goes, so that a step costs its reports and not N P. Both sums are made
        # first: a difference of two finite rows may overflow, and would stay in the total.
        total = state["total"] + (_sum(new) - _sum(old))
        table[rows], heard[clients] = new, now
        direction = total / (int(stays.sum()) + len(clients))
        return direction.to(report.delta.dtype), state | {"total": total, "steps": state["steps"] + 1}


def _sum(rows: torch.Tensor) -> torch.Tensor:
    """Return the sum of rows, float64 ``[P]``."""
    return Updates.of(rows).weighted_sum(torch.ones(len(rows), dtype=torch.float64, device=rows.device))
