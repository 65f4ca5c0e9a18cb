"""The step of FADAS: AMSGrad, with a smaller step size if a report of the buffer is very stale."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

from turnout.base import Server, ShortensSteps, WithState
from turnout.core.ranges import Decay, Whole
from turnout.core.schedule import StepSize, step_size_at
from turnout.core.types import Federation, Report, State
from turnout.pieces.server_optimizer.adaptive import Offset

Delays = Literal["ignored", "paper", "authors_code"]


@dataclass(frozen=True)
class ServerAmsgrad(Server, ShortensSteps, name="amsgrad"):
    """Take a step of AMSGrad, with a smaller step size if reports are very stale (FADAS).

    With the model x and the direction u, i.e. the aggregated update::

        m <- beta1 m + (1 - beta1) u
        v <- beta2 v + (1 - beta2) u^2
        v_max <- max(v_max, v)
        x <- x + eta_t m / (sqrt(v_max) + epsilon)

    The step size eta_t depends on tau, the largest staleness of the step's reports in server steps::

        eta_t = eta                                                 for tau <= tau_c, or if delays are ignored
        eta_t = min(eta, 1 / tau)  "paper"    or    eta / tau  "authors_code"      for tau > tau_c

    m, v and v_max begin at 0. The authors' code also divides m by ``1 - beta1^t`` and v_max by ``1 - beta2^t``, where t
    counts steps from 1. The defaults of beta1, beta2, epsilon and tau_c are those of the code. Tune eta; the code uses
    1e-4 for CIFAR-10.

    Args:
        lr: step size of the server (eta), > 0, or a `Schedule` of it by round.
        beta1: decay of m, in [0, 1). Larger values average over more steps.
        beta2: decay of v, in [0, 1). Larger values average over more steps.
        epsilon: constant added to ``sqrt(v_max)``, > 0.
        delays: ``"ignored"`` keeps the step size at eta. ``"paper"`` and ``"authors_code"`` reduce it as above if tau
            exceeds the threshold.
        threshold: largest staleness tau_c that does not reduce the step size, in server steps, >= 0.
        bias_correction: whether to divide m and v_max as the authors' code does.

    State: ``m [P]``, ``v [P]`` and ``v_max [P]``, of the model's type; and on the host ``steps []``, int64.

    Raises:
        ConfigurationError: if a number is out of range, or if `delays` is unknown.

    Example:
        >>> from turnout.base.trial import step
        >>> step(ServerAmsgrad(lr=0.1), [1.0], [1.0])
        [[0.1], [0.2347]]

    Reference: Wang et al., "FADAS: towards federated adaptive asynchronous optimization", ICML 2024.
    """

    client_rows = ()
    trusts = ("max_norm", "takes short steps for good after a single large update")

    lr: StepSize = 0.01
    beta1: Decay = 0.9
    beta2: Decay = 0.99
    epsilon: Offset = 1e-8
    delays: Delays = "ignored"
    threshold: Whole = 1
    bias_correction: bool = False

    def init(self, federation: Federation) -> State:
        """Return zeros."""
        zero = torch.zeros(federation.num_params, dtype=federation.dtype, device=federation.device)
        return {"m": zero, "v": zero.clone(), "v_max": zero.clone(), "steps": torch.tensor(0)}

    @property
    def shortens(self) -> bool:
        """True if the step size depends on delays."""
        return self.delays != "ignored"

    def shortened(self, report: Report, version: int) -> float:
        """Return ``eta_t / eta``."""
        tau = int((version - report.version).max(initial=0))
        if self.delays == "ignored" or tau <= self.threshold:
            return 1.0
        eta = 1.0 if self.delays == "authors_code" else step_size_at(self.lr, version)
        return min(1.0, 1.0 / (max(tau, 1) * eta))

    def apply(self, params: torch.Tensor, direction: torch.Tensor, version: int, state: State) -> WithState:
        """Return the model after a step along the momentum, and the state."""
        steps = state["steps"] + 1
        m = torch.lerp(direction, state["m"], self.beta1)
        v = torch.lerp(direction.square(), state["v"], self.beta2)
        v_max = torch.maximum(state["v_max"], v)
        lr, scale = step_size_at(self.lr, version), 1.0
        if self.bias_correction:
            lr, scale = lr / (1 - self.beta1 ** int(steps)), (1 - self.beta2 ** int(steps)) ** -0.5
        stepped = params.addcdiv(m, v_max.sqrt().mul_(scale).add_(self.epsilon), value=lr)
        return stepped, {"m": m, "v": v, "v_max": v_max, "steps": steps}
