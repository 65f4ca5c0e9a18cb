"""Multiply the weight and the work of clients whose requirement is not met (MW-Fed)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch

from turnout.core.checks import ConfigurationError, positive
from turnout.core.device import to_device
from turnout.core.types import Federation, Report, State
from turnout.pieces.base import InformsClients, KnownInAdvance, Weighting, Weights, WithState


@dataclass(frozen=True)
class MultiplicativeWeights(Weighting, InformsClients, KnownInAdvance, name="multiplicative_weights"):
    """Weight reports by v; v starts as 1/N, and ``v_b <- factor v_b / sum`` where a report says that ``F_b(w^t) >= rho_b``.

    Each client receives N v_b with its task, as its ``share`` of the work (`ShareOfWork`). Two differences from the original:

    - There all agents are asked in every round; here only those who take part change their weight, and the sum goes over
      all N.
    - There agents are asked first, weights grow, and the round is done with the grown weights. Here a client says that it is
      not content together with its update, when its work is done, so it counts more and works more from its next round
      on: the weights of a round are those that earlier rounds have led to. To follow the original, everyone in a round
      would have to receive the model twice.

    Args:
        factor: of those who are not content.

    State: ``times [N]``, how often each was not content; ``log_sum``, of ``factor^times`` over all clients.

    Example:
        All weigh 1/N, until one is not content:

        >>> from turnout.pieces.base.trial import report, weigh
        >>> piece, state = MultiplicativeWeights(), MultiplicativeWeights().init(Federation(2, 1))
        >>> one = report([[0.0]] * 2, appeal_gap=[0.5, -0.5])
        >>> weigh(piece, one, num_clients=2, state=state)
        [0.5, 0.5]

    References: Blum et al., "One for one, or all for all: equilibria and optimality of collaboration in federated
    learning", ICML 2021; as a baseline in Cho et al., "Maximizing global model appeal in federated learning", TMLR 2024.
    """

    needs = ("appeal_gap",)
    client_rows = ("times",)

    factor: float = 4.0

    def __post_init__(self) -> None:
        positive("factor", self.factor)
        if self.factor <= 1:
            raise ConfigurationError(
                f"factor: got {self.factor}, needed a number > 1, so that weights of the unhappy grow"
            )

    def init(self, federation: Federation) -> State:
        """Return equal weights."""
        return {
            "times": torch.zeros(federation.num_clients, dtype=torch.int64),
            "log_sum": torch.tensor(math.log(federation.num_clients), dtype=torch.float64),
        }

    def grow(self, state: State, before: Federation, after: Federation, version: int) -> State:
        """Give new clients the weight of a client whose requirement was always met, and add them to the sum."""
        more = after.num_clients - before.num_clients
        log_sum = torch.logaddexp(state["log_sum"], torch.tensor(math.log(more), dtype=torch.float64))
        return super().grow(state, before, after, version) | {"log_sum": log_sum}

    def apply(self, weights: Weights, report: Report, version: int, state: State, federation: Federation) -> WithState:
        """Multiply by v, then count the clients whose requirement is not met, each once."""
        share = to_device(self.factors(report, version, state, federation), weights.device)
        clients, rows = np.unique(report.client, return_index=True)
        unhappy = clients[report.seen["appeal_gap"].cpu().numpy()[rows] >= 0]
        if len(unhappy):
            # Logarithms, because powers of 4 leave float64 after 500 rounds; all terms are positive, so nothing cancels.
            grown = torch.from_numpy(unhappy)
            added = (state["times"][grown].double() * math.log(self.factor)).logsumexp(0) + math.log(self.factor - 1.0)
            state = {"times": state["times"], "log_sum": torch.logaddexp(state["log_sum"], added)}
            state["times"][grown] += 1
        return weights * share / federation.num_clients, state

    def factors(self, report: Report, version: int, state: State, federation: Federation) -> Weights:
        """Return N v of each report."""
        return self.per_client_inputs(report.client, state, federation)["share"]

    def per_client_inputs(self, clients: np.ndarray, state: State, federation: Federation) -> State:
        """Return ``share [B]``: N v of each client; 1 on average over all N."""
        times = state["times"][torch.from_numpy(clients)].double()
        return {"share": federation.num_clients * (times * math.log(self.factor) - state["log_sum"]).exp()}

    def client_weights(self, version: int, state: State, federation: Federation) -> np.ndarray:
        """Return v of all clients."""
        everyone = np.arange(federation.num_clients)
        return self.per_client_inputs(everyone, state, federation)["share"].numpy() / federation.num_clients
