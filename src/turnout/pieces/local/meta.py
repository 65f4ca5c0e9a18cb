"""Train a model to perform well after one gradient step of adaptation (Per-FedAvg)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import torch

from turnout.base import FineTunes, Traits
from turnout.core.checks import ConfigurationError
from turnout.core.ranges import Positive
from turnout.pieces.local.sgd import Sgd, SgdSteps, options_of
from turnout.pieces.local.update import Direction, GradientAt

Hessian = Literal["none", "difference"]


@dataclass(frozen=True)
class Meta(SgdSteps, FineTunes):
    """Train locally on the loss after one gradient step of adaptation (Per-FedAvg, Algorithm 1).

    Client k minimizes ``F_k(w - alpha grad F_k(w))``. A local step uses independent minibatches D, D' and D''::

        g = grad F(w - alpha grad F(w; D); D')
        w <- w - lr (I - alpha H(w; D'')) g

    H is the Hessian of the loss F on a minibatch. The first-order variant (FO) leaves H g out, and takes two
    minibatches per step. The Hessian-free variant (HF) replaces H g by the difference ``(grad F(w + delta g; D'') -
    grad F(w - delta g; D'')) / (2 delta)``, and takes three minibatches and two more gradients per step.

    Options are those of `Sgd`, whose `lr` is the paper's beta, and:

    Args:
        alpha: step size of the adaptation, > 0.
        hessian: ``"none"`` (FO) or ``"difference"`` (HF).
        delta: length of the finite difference, > 0.

    Seen by the server: ``loss [B]``, the mean loss on the minibatches D before adaptation.

    Raises:
        ConfigurationError: if an option is out of range.

    Example:
        D, D' and D'' are three minibatches of each step:

        >>> Meta.of(Sgd(lr=0.1), alpha=0.05, hessian='difference').per_step
        3

    Reference: Fallah, Mokhtari and Ozdaglar, "Personalized federated learning with theoretical guarantees: a
    model-agnostic meta-learning approach", NeurIPS 2020.
    """

    alpha: Positive = 0.01
    hessian: Hessian = "none"
    delta: Positive = 1e-3

    @property
    def traits(self) -> Traits:
        """Those of `Sgd`, but there are several models in a step.

        bfloat16 has 8 significant bits, so that it rounds parameters that differ by delta to the same number.
        """
        delta = f"hessian='difference' is of gradients at parameters {self.delta:g} apart, which bfloat16 rounds to the same"
        return replace(
            super().traits,
            refuses_batch_norm="a meta-gradient is computed at several temporary models, which running statistics cannot "
            "follow",
            refuses_bf16=None if self.hessian == "none" else delta,
        )

    @classmethod
    def of(cls, local: Sgd, alpha: float, hessian: Hessian, delta: float = 1e-3) -> Meta:
        """Return the meta-gradient steps with the options of a solver.

        Raises:
            ConfigurationError: if the solver is not `Sgd`.
        """
        if not isinstance(local, Sgd):
            raise ConfigurationError(
                f"Per-FedAvg's steps are those of Sgd, got {type(local).__name__}: its analysis is of one step size for the "
                "meta-gradient: use Sgd"
            )
        return cls(**options_of(local), alpha=alpha, hessian=hessian, delta=delta)

    @property
    def per_step(self) -> int:
        """Number of minibatches per step: D, D' and, with ``hessian="difference"``, D''."""
        return self.accumulate * (2 if self.hessian == "none" else 3)

    def alone(self, steps: int) -> Sgd:
        """Return plain SGD: a client's own model is trained without adaptation."""
        return Sgd(**options_of(self)).alone(steps)

    def tuning(self, steps: int) -> Sgd:
        """Return the steps of adaptation: plain SGD with step size alpha."""
        return replace(self.alone(steps), lr=self.alpha)

    @property
    def direction(self) -> Direction:
        """The function that computes the meta-gradient."""
        return _MetaGradient(self.alpha, self.hessian, self.delta)


@dataclass(frozen=True)
class _MetaGradient:
    """Compute the meta-gradient of a step. Instances with the same options are equal, so that runs share traces."""

    alpha: float
    hessian: Hessian
    delta: float

    def __call__(self, params: torch.Tensor, gradient: GradientAt) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the loss before adaptation, ``[B]``, and the meta-gradient, ``[B, P]``."""
        loss, first = gradient(params, 0)
        _, direction = gradient(params - self.alpha * first, 1)
        if self.hessian == "none":
            return loss, direction
        ahead, behind = (gradient(params + sign * self.delta * direction, 2)[1] for sign in (1.0, -1.0))
        return loss, direction - self.alpha / (2 * self.delta) * (ahead - behind)
