"""Average the last updates of the clients that reported recently (ACED)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Annotated

import numpy as np
import torch

from turnout.base import Aggregation, Slots, Weights, WithState
from turnout.core.checks import count
from turnout.core.device import to_device
from turnout.core.types import Federation, Report, State
from turnout.core.updates import Updates
from turnout.pieces.aggregation.last_updates import last_reports
from turnout.pieces.aggregation.requirements import needs_alone
from turnout.pieces.weighting.normalize import DivideByClients


@dataclass(frozen=True)
class Aced(Aggregation, name="aced"):
    """Average the last updates of the clients that reported in the last `tau` steps (ACED).

    Y_n is the last update of client n, and A the set of clients that reported in this step or in one of the `tau` steps
    before it. Clients that report replace their row, and the direction is the mean over A::

        Y_b <- Delta_b
        u = sum_{n in A} Y_n / |A|

    Delta_b is the update of client b. A client with several reports in a step is represented by the one trained from
    the latest version. A limit on age keeps outdated updates of absent clients out of the mean. With a `tau` of at
    least the number of steps of the run, the rule is ACE once all clients have reported; clients that never reported
    are not in A. A step without reports changes nothing.

    The paper's text was not available, so the rule follows its authors' code, in which age counts from the step in
    which the server hands out a model: after a report in step s a client receives model s + 1, and it is in A(t) as
    long as ``(t + 1) - (s + 1) <= tau``. A comment in that code says that age counts from the version behind Y_n
    instead.

    Args:
        tau: maximum age of an update in A, in server steps, a whole number >= 0. It is ``tau_algo`` of the authors.

    State: ``table [N, P]`` (Y) and ``total [P]``, float64, the sum of Y over A; on the host ``heard [N]``, int64, the
    step of each client's last report, or -1, and ``steps []``, int64, the number of steps with reports.

    Raises:
        ConfigurationError: if `tau` is not a whole number >= 0, or weights are other than 1/N.

    Example:
        An update is no longer in the mean once it is more than `tau` steps old:

        >>> from turnout.base.trial import aggregate, report
        >>> aggregate(Aced(tau=1), report([[4.0]]), *[report([[1.0]], clients=[1])] * 3)
        [[4.0], [2.5], [1.0], [1.0]]

    Reference: Chang et al., "Mitigating participation imbalance bias in asynchronous federated learning", 2025 (arXiv
    2511.19066).
    """

    client_rows = ("table", "heard")

    tau: Annotated[int, partial(count, least=0, instead="For updates that never expire, write ace()")] = 50

    def fits(self, algorithm: Slots) -> None:
        """Raise an error for weights other than 1/N: all clients in A count equally, absent ones included."""
        why = "ACED averages the stored updates of all clients that reported recently; weights exist only for participants"
        needs_alone(algorithm, DivideByClients, why)

    def init(self, federation: Federation) -> State:
        """Return an empty table."""
        num_clients, num_params, device = federation.num_clients, federation.num_params, federation.device
        return {
            "table": torch.zeros((num_clients, num_params), dtype=federation.dtype, device=device),
            "total": torch.zeros(num_params, dtype=torch.float64, device=device),
            "heard": torch.full((num_clients,), -1),
            "steps": torch.tensor(0),
        }

    def apply(self, weights: Weights, report: Report, state: State, federation: Federation) -> WithState:
        """Return the direction ``[P]``, and replace the rows of the reporting clients."""
        table, heard, now = state["table"], state["heard"].numpy(), int(state["steps"])
        last = last_reports(report)
        clients = report.client[last]
        counted = (heard >= 0) & (heard >= now - 1 - self.tau)  # in the total after the last step
        stays = counted & (heard >= now - self.tau)
        stays[clients] = False
        rows = to_device(clients, table.device)
        gone = np.flatnonzero(counted & ~stays)
        old, new = table[to_device(gone, table.device)], report.updates.gathered()[to_device(last, table.device)]
        # The total changes by the rows that enter and leave A, so that a step costs O(B P) and not O(N P). Rows are summed
        # before they are subtracted: the difference of two finite rows may overflow, and would remain in the total.
        total = state["total"] + (_sum(new) - _sum(old))
        table[rows], heard[clients] = new, now
        direction = total / (int(stays.sum()) + len(clients))
        return direction.to(report.delta.dtype), state | {"total": total, "steps": state["steps"] + 1}


def _sum(rows: torch.Tensor) -> torch.Tensor:
    """Return the sum of rows, float64 ``[P]``."""
    return Updates.of(rows).weighted_sum(torch.ones(len(rows), dtype=torch.float64, device=rows.device))
