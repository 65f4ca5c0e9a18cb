"""Weight reports by whether the model meets the requirements of clients (MaxFL, MW-Fed)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch

from turnout.base import InformsClients, KnownInAdvance, Weighting, Weights, WithState
from turnout.core.checks import ConfigurationError
from turnout.core.device import to_device
from turnout.core.ranges import NotNegative, Positive
from turnout.core.types import Federation, Report, State
from turnout.pieces.weighting.normalize import ByOneNumber

Q = Literal["derivative", "sigmoid"]


@dataclass(frozen=True)
class Appeal(Weighting, name="appeal"):
    """Weight each report by how close the client's loss is to its requirement (MaxFL, eq. 4).

    ``w_b <- w_b q_b``, where ``q_b = s_b (1 - s_b)`` and ``s_b = sigmoid(F_b(w^t) - rho_b)``. Here w_b is the weight of
    report b, ``F_b(w^t)`` is the loss of the received model over the client's training examples, and rho_b is the loss
    that the client requires. Clients report the gap ``F_b(w^t) - rho_b`` (`AppealGap`).

    MaxFL minimizes ``mean_k sigmoid(F_k - rho_k)``, a smooth approximation of the share of clients whose requirement is
    not met. In the gradient of this objective q_k multiplies the gradient of client k. It is 1/4 at the threshold and
    tends to 0 on both sides, for clients that are satisfied anyway and for clients that cannot be satisfied. It is 0
    for an arbitrarily large gap.

    Args:
        q: ``"derivative"``, or ``"sigmoid"`` for ``q_b = s_b``, as line 8 of Algorithm 1 prints it. The derivation,
            figure 2 and the remarks on Byzantine clients need ``"derivative"``; with ``"sigmoid"`` a client that claims
            a huge loss gets the largest weight.
        sharpness: factor on the gap before the sigmoid, > 0. 1 follows the paper. Use larger values if requirements are
            accuracies: their gaps are so small that with 1 all weights are nearly equal.

    Raises:
        ConfigurationError: if `q` is unknown, or if `sharpness` is not positive.

    Example:
        The weight is largest where the loss equals the requirement, and small 4 above or below it:

        >>> from turnout.base.trial import report, weigh
        >>> weigh(Appeal(), report([[0.0]] * 3, appeal_gap=[0.0, 4.0, -4.0]))
        [0.25, 0.0177, 0.0177]

    Reference: Cho et al., "Maximizing global model appeal in federated learning", TMLR 2024.
    """

    reads = "own"
    participation = "none"

    needs = ("appeal_gap",)

    q: Q = "derivative"
    sharpness: Positive = 1.0

    def factors(self, report: Report, version: int, state: State, federation: Federation) -> Weights:
        """Return q of each report."""
        gap = self.sharpness * report.seen["appeal_gap"].double()
        if self.q == "sigmoid":
            return gap.sigmoid()
        # s (1 - s) = e / (1 + e)^2 with e = exp(-|gap|) <= 1 does not overflow, and does not round 1 - s to 0.
        small = gap.abs().neg().exp()
        return small / (1.0 + small).square()


@dataclass(frozen=True)
class DivideBySumPlus(ByOneNumber, name="divide_by_sum_plus"):
    """Divide weights by their sum plus a constant (MaxFL, adaptive server step of section 3, below eq. 6).

    ``w_b <- w_b / (sum_b w_b + epsilon)``, where w_b is the weight of report b. Weights far above epsilon sum to nearly
    1, so the step keeps its size where the objective is flat. In a round in which all weights are far below epsilon,
    the model moves correspondingly little. Weights that are all zero stay zero, which leaves the model unchanged.

    Args:
        epsilon: constant added to the sum, >= 0. The paper leaves its value open: its theory uses ``N L_c / (4 L_s)``,
            and the proof uses the size of the cohort.

    Raises:
        ConfigurationError: if `epsilon` is negative.

    Example:
        >>> from turnout.base.trial import report, weigh
        >>> weigh(DivideBySumPlus(epsilon=1.0), report([[0.0]] * 2), weights=[1.0, 2.0])
        [0.25, 0.5]

    Reference: Cho et al., "Maximizing global model appeal in federated learning", TMLR 2024.
    """

    epsilon: NotNegative = 1e-3

    def apply(self, weights: Weights, report: Report, version: int, state: State, federation: Federation) -> WithState:
        """Return the weights divided by their sum plus epsilon, and the state."""
        total = weights.sum() + self.epsilon
        return (weights / total).where(total != 0, weights), state


@dataclass(frozen=True)
class MultiplicativeWeights(Weighting, InformsClients, KnownInAdvance, name="multiplicative_weights"):
    """Weight reports by weights that grow whenever a client's requirement is not met (multiplicative weights, MW-Fed).

    ``w_b <- w_b v_b``, where w_b is the weight of report b, and v_b is kept by the server for its client. All v start
    as 1/N. After each round, v_b is multiplied by `factor` for each participant with ``F_b(w^t) >= rho_b``, and v is
    divided by its sum over all N clients. Here ``F_b(w^t)`` is the loss of the received model over the client's
    training examples, and rho_b is the loss that the client requires.

    With its task each client receives ``N v_b``, its ``share`` of the local work (`ShareOfWork`).

    Differences from the original:

    - There, all agents are asked in every round. Here, only participants change their weight.
    - There, agents are asked first, weights grow, and the round uses the grown weights. Here, a client sends its answer
      with its update, so its larger weight and its larger work begin with its next round. To follow the original, all
      clients of a round would have to receive the model twice.

    Args:
        factor: growth of the weight of an unsatisfied client in one round, > 1.

    State: ``times [N]``, the number of rounds in which each client was unsatisfied, int64; ``log_sum []``, the
    logarithm of the sum of ``factor^times`` over all clients, float64.

    Raises:
        ConfigurationError: if `factor` is at most 1.

    Example:
        In the first round all weights are 1/N:

        >>> from turnout.base.trial import report, weigh
        >>> piece, state = MultiplicativeWeights(), MultiplicativeWeights().init(Federation(2, 1))
        >>> one = report([[0.0]] * 2, appeal_gap=[0.5, -0.5])
        >>> weigh(piece, one, num_clients=2, state=state)
        [0.5, 0.5]

    References: Blum et al., "One for one, or all for all: equilibria and optimality of collaboration in federated
    learning", ICML 2021; as a baseline in Cho et al., "Maximizing global model appeal in federated learning", TMLR
    2024.
    """

    needs = ("appeal_gap",)
    client_rows = ("times",)

    factor: Positive = 4.0

    def __post_init__(self) -> None:
        if self.factor <= 1:
            raise ConfigurationError(
                f"factor: got {self.factor}, needed a number > 1, so that weights of unsatisfied clients grow"
            )

    def init(self, federation: Federation) -> State:
        """Return the state of equal weights."""
        return {
            "times": torch.zeros(federation.num_clients, dtype=torch.int64),
            "log_sum": torch.tensor(math.log(federation.num_clients), dtype=torch.float64),
        }

    def grow(self, state: State, before: Federation, after: Federation, version: int) -> State:
        """Return the state with new clients, which have the weight of a client whose requirement was always met."""
        more = after.num_clients - before.num_clients
        log_sum = torch.logaddexp(state["log_sum"], torch.tensor(math.log(more), dtype=torch.float64))
        return super().grow(state, before, after, version) | {"log_sum": log_sum}

    def apply(self, weights: Weights, report: Report, version: int, state: State, federation: Federation) -> WithState:
        """Return the weights times v, and the state in which each unsatisfied client is counted once."""
        share = to_device(self.factors(report, version, state, federation), weights.device)
        clients, rows = np.unique(report.client, return_index=True)
        unhappy = clients[report.seen["appeal_gap"].cpu().numpy()[rows] >= 0]
        if len(unhappy):
            # In logarithms, because 4^times overflows float64 after 511 rounds. All terms are positive, so nothing cancels.
            grown = torch.from_numpy(unhappy)
            added = (state["times"][grown].double() * math.log(self.factor)).logsumexp(0) + math.log(self.factor - 1.0)
            state = {"times": state["times"], "log_sum": torch.logaddexp(state["log_sum"], added)}
            state["times"][grown] += 1
        return weights * share / federation.num_clients, state

    def factors(self, report: Report, version: int, state: State, federation: Federation) -> Weights:
        """Return ``N v`` of each report."""
        return self.per_client_inputs(report.client, state, federation)["share"]

    def per_client_inputs(self, clients: np.ndarray, state: State, federation: Federation) -> State:
        """Return ``share [B]``: ``N v`` of each client, whose mean over all N clients is 1."""
        times = state["times"][torch.from_numpy(clients)].double()
        return {"share": federation.num_clients * (times * math.log(self.factor) - state["log_sum"]).exp()}

    def client_weights(self, version: int, state: State, federation: Federation) -> np.ndarray:
        """Return v of all clients, float64 ``[N]``."""
        everyone = np.arange(federation.num_clients)
        return self.per_client_inputs(everyone, state, federation)["share"].numpy() / federation.num_clients
