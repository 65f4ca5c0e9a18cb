"""Local Adam and AdamW."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from turnout.core.checks import decay, positive
from turnout.core.schedule import Schedule
from turnout.core.types import State
from turnout.engine.compile import fused
from turnout.pieces.local.solver import Solver
from turnout.pieces.local.update import Update, check_weight_decay


@dataclass(frozen=True)
class Adam(Solver, name="adam"):
    """Local Adam: ``y <- y - lr m^ / (sqrt(v^) + epsilon)``, with moments of the client's own gradients g.

    In the t-th step of the state, ``m <- beta1 m + (1 - beta1) g``, ``v <- beta2 v + (1 - beta2) g^2``,
    ``m^ = m / (1 - beta1^t)`` and ``v^ = v / (1 - beta2^t)``; m and v begin at zero, in every round or, with `keep_state`, in
    a client's first. Equal to `torch.optim.Adam`, whose weight decay is an L2 penalty, part of g, too.

    Corrections change g before the moments see it. A proximal term is part of the objective. With SCAFFOLD's control
    variates ``g - c_k + c`` vanishes at a common optimum for every client, so it stays a fixed point.

    Options are those of `Solver`, and:

    Args:
        beta1: how much of m stays from one step to the next, in [0, 1).
        beta2: how much of v stays, in [0, 1).
        epsilon: added to the root, > 0.
        weight_decay: L2 penalty's factor.

    Raises:
        ConfigurationError: for numbers out of range.

    Example:
        >>> Adam(lr=1e-3, steps=5).memory(7, torch.float32)
        {'steps_done': ((), torch.int64)}
        >>> Adam(keep_state=True, sampling="fresh").memory(7, torch.float32)["solver.v"]
        ((7,), torch.float32)

    Reference: Kingma and Ba, "Adam: a method for stochastic optimization", ICLR 2015.
    """

    lr: float | Schedule = 1e-3
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_weight_decay(self.weight_decay)
        positive("epsilon", self.epsilon)
        decay("beta1", self.beta1)
        decay("beta2", self.beta2)

    @property
    def normalises(self) -> bool:
        """True: a gradient that is twice as long has the same quotient of moments."""
        return True

    @property
    def update(self) -> Update:
        """The rule of moments, with the decay as a penalty."""
        return Moments(self.weight_decay, self.max_norm, self.beta1, self.beta2, self.epsilon)


@dataclass(frozen=True)
class AdamW(Adam, name="adamw"):
    """Local AdamW: `Adam` with weight decay beside the moments, ``y <- y - lr (m^ / (sqrt(v^) + epsilon) + weight_decay y)``.

    Equal to `torch.optim.AdamW`. The decay is no part of the gradient, so neither clipping nor corrections see it.

    Options are those of `Adam`.

    Example:
        >>> AdamW(lr=1e-3).drifts, Adam(lr=1e-3).drifts
        (True, False)

    Reference: Loshchilov and Hutter, "Decoupled weight decay regularization", ICLR 2019.
    """

    weight_decay: float = 0.01

    @property
    def drifts(self) -> bool:
        """True if parameters move by a state of earlier rounds, or by the decay."""
        return super().drifts or self.weight_decay > 0

    @property
    def update(self) -> Update:
        """The rule of moments, with the decay beside them."""
        return Moments(0.0, self.max_norm, self.beta1, self.beta2, self.epsilon, decay=self.weight_decay)


@dataclass(frozen=True)
class Moments(Update):
    """``d = m^ / (sqrt(v^) + epsilon) + decay y``.

    State: ``m [B, P]``, ``v [B, P]``, ``count [B, 1]`` (t, float32).
    """

    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    decay: float = 0.0

    def init(self, params: torch.Tensor) -> State:
        """Return zeros."""
        m = torch.zeros(params.shape, dtype=params.dtype, device=params.device)
        count = torch.zeros((len(params), 1), dtype=torch.float32, device=params.device)
        return {"m": m, "v": torch.zeros_like(m), "count": count}

    def direction(self, gradient: torch.Tensor, state: State, params: torch.Tensor) -> torch.Tensor:
        """Return the quotient of the moments, without their bias, and the decay."""
        # In float64, because 1 - beta2^t of the first steps has few digits in single precision. Both bias corrections are two
        # numbers for each client, which saves a pass over the matrices.
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
        """Take the step in one pass, where there is an operation for it."""
        if not fused.has_adamw(params):
            super().step(params, gradient, state, lr)
            return
        count, moments = state["count"].add_(1), (state["m"], state["v"])
        options = {"beta1": self.beta1, "beta2": self.beta2, "eps": self.epsilon, "weight_decay": self.decay}
        fused.adamw_(params, gradient, *moments, count, lr, **options)
