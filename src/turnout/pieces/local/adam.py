"""Local Adam and AdamW."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from turnout.base import Traits
from turnout.core.ranges import Decay, Positive
from turnout.core.schedule import Schedule
from turnout.core.types import State
from turnout.engine.compile import fused
from turnout.pieces.local.solver import Solver
from turnout.pieces.local.update import Update, WeightDecay


@dataclass(frozen=True)
class Adam(Solver, name="adam"):
    """Train locally by Adam, with moments of each client's own gradients.

    A local step is ``y <- y - lr m^ / (sqrt(v^) + epsilon)``. In step t of the state, with the minibatch gradient g,
    the moments are ``m <- beta1 m + (1 - beta1) g`` and ``v <- beta2 v + (1 - beta2) g^2``, and without their bias ``m^
    = m / (1 - beta1^t)`` and ``v^ = v / (1 - beta2^t)``. m and v start at zero in every round or, with `keep_state`, in
    a client's first round. The steps are those of `torch.optim.Adam`: weight decay is an L2 penalty, and so a part of
    g.

    Corrections change g before the moments are updated. A proximal term is therefore a part of the objective. With
    SCAFFOLD's control variates, ``g - c_k + c`` vanishes for every client at a common optimum, so that the optimum
    stays a fixed point.

    Options are those of `Solver`, and:

    Args:
        beta1: decay rate of m, in [0, 1).
        beta2: decay rate of v, in [0, 1).
        epsilon: number added to the root, > 0.
        weight_decay: factor of the L2 penalty, >= 0.

    Raises:
        ConfigurationError: if a number is out of range.

    Example:
        >>> Adam(lr=1e-3, steps=5).memory(7, torch.float32)
        {'steps_done': ((), torch.int64)}
        >>> Adam(keep_state=True, sampling="fresh").memory(7, torch.float32)["solver.v"]
        ((7,), torch.float32)

    Reference: Kingma and Ba, "Adam: a method for stochastic optimization", ICLR 2015.
    """

    lr: float | Schedule = 1e-3
    beta1: Decay = 0.9
    beta2: Decay = 0.999
    epsilon: Positive = 1e-8
    weight_decay: WeightDecay = 0.0

    @property
    def traits(self) -> Traits:
        """Those of other solvers, but scaling the gradients does not change the quotient of the moments."""
        return replace(super().traits, normalizes=True)

    @property
    def update(self) -> Update:
        """The update rule of Adam, with the weight decay in the gradient."""
        return Moments(self.weight_decay, self.max_norm, self.beta1, self.beta2, self.epsilon)


@dataclass(frozen=True)
class AdamW(Adam, name="adamw"):
    """Train locally by AdamW: `Adam` with weight decay that bypasses the moments.

    A local step is ``y <- y - lr (m^ / (sqrt(v^) + epsilon) + weight_decay y)``, with the moments m^ and v^ of `Adam`,
    as in `torch.optim.AdamW`. The weight decay is not a part of the gradient, so neither clipping nor corrections
    affect it.

    Options are those of `Adam`; `weight_decay` is 0.01 by default.

    Example:
        >>> AdamW(lr=1e-3).traits.drifts, Adam(lr=1e-3).traits.drifts
        (True, False)

    Reference: Loshchilov and Hutter, "Decoupled weight decay regularization", ICLR 2019.
    """

    weight_decay: WeightDecay = 0.01

    @property
    def traits(self) -> Traits:
        """Those of `Adam`, but the weight decay moves parameters, too."""
        return replace(super().traits, drifts=self.keep_state or self.weight_decay > 0)

    @property
    def update(self) -> Update:
        """The update rule of AdamW, with the weight decay beside the moments."""
        return Moments(0.0, self.max_norm, self.beta1, self.beta2, self.epsilon, decay=self.weight_decay)


@dataclass(frozen=True)
class Moments(Update):
    """Descend the quotient of Adam's moments, plus a decoupled weight decay.

    The direction is ``d = m^ / (sqrt(v^) + epsilon) + decay y``, with m^ and v^ as in `Adam` and the parameters y.

    State: ``m [B, P]`` and ``v [B, P]`` (the moments) and ``count [B, 1]`` (the number of steps t, float32).
    """

    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    decay: float = 0.0

    def init(self, params: torch.Tensor) -> State:
        """Return moments and a number of steps of zero."""
        m = torch.zeros(params.shape, dtype=params.dtype, device=params.device)
        count = torch.zeros((len(params), 1), dtype=torch.float32, device=params.device)
        return {"m": m, "v": torch.zeros_like(m), "count": count}

    def direction(self, gradient: torch.Tensor, state: State, params: torch.Tensor) -> torch.Tensor:
        """Return the quotient of the bias-corrected moments, plus the weight decay."""
        # In float64, because 1 - beta2^t loses most of its digits in float32 for small t. The bias corrections are applied to
        # two numbers per client instead of the moments, which saves a pass over the matrices.
        count = state["count"].add_(1).double()
        unbiased = 1 - self.beta1**count
        factor = (unbiased * (1 - self.beta2**count).rsqrt()).to(params.dtype)
        offset = (unbiased * self.epsilon).to(params.dtype)
        m = state["m"].lerp_(gradient, 1 - self.beta1)
        v = state["v"].mul_(self.beta2).addcmul_(gradient, gradient, value=1 - self.beta2)
        denominator = torch.addcmul(offset, v.sqrt(), factor)
        direction = torch.div(m, denominator, out=denominator)
        return direction.add_(params, alpha=self.decay) if self.decay else direction

    def step(self, params: torch.Tensor, gradient: torch.Tensor, state: State, lr: torch.Tensor) -> None:
        """Take the step by a single fused operation, if the device has one."""
        if not fused.has_adamw(params):
            super().step(params, gradient, state, lr)
            return
        count, moments = state["count"].add_(1), (state["m"], state["v"])
        options = {"beta1": self.beta1, "beta2": self.beta2, "eps": self.epsilon, "weight_decay": self.decay}
        fused.adamw_(params, gradient, *moments, count, lr, **options)
