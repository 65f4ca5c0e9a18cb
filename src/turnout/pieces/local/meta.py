"""Train a model that is good after one step of adaptation (Per-FedAvg)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import torch

from turnout.core.checks import ConfigurationError, known_name, positive
from turnout.engine.cohort import Clients
from turnout.pieces.local.local_step import Direction, GradientAt
from turnout.pieces.local.sgd import Sgd, options_of

Hessian = Literal["none", "difference"]
HESSIANS = ("none", "difference")


@dataclass(frozen=True)
class Meta(Sgd):
    """Local SGD on ``F_k(w - alpha grad F_k(w))``, each gradient on a minibatch of its own: D, D' and D''.

    ``w <- w - lr (I - alpha H(w; D'')) g``, ``g = grad F(w - alpha grad F(w; D); D')`` (Per-FedAvg, algorithm 1). H g is
    left out (FO), or is ``(grad F(w + delta g; D'') - grad F(w - delta g; D'')) / (2 delta)`` (HF). The first order takes two
    minibatches a step, HF three and two more gradients.

    Options are those of `Sgd`, whose `lr` is the paper's beta, and:

    Args:
        alpha: step size of the adaptation.
        hessian: ``"none"`` (FO) or ``"difference"`` (HF).
        delta: of the difference.

    Seen by the server: ``loss [B]``, the mean loss on the minibatches D, before adaptation.

    Example:
        D, D' and D'' are three minibatches of each step:

        >>> Meta.of(Sgd(lr=0.1), alpha=0.05, hessian='difference').per_step
        3

    Reference: Fallah, Mokhtari and Ozdaglar, "Personalized federated learning with theoretical guarantees: a model-agnostic
    meta-learning approach", NeurIPS 2020.
    """

    refuses_batch_norm = (
        "a meta-gradient is of several models that nobody keeps, which running statistics could not follow"
    )

    alpha: float = 0.01
    hessian: Hessian = "none"
    delta: float = 1e-3

    def __post_init__(self) -> None:
        super().__post_init__()
        positive("alpha", self.alpha)
        positive("delta", self.delta)
        known_name("hessian", self.hessian, HESSIANS)

    @property
    def refuses_bf16(self) -> str | None:
        """The reason, for finite differences: with 8 significant bits, parameters that differ by delta are the same."""
        if self.hessian == "none":
            return None
        return f"hessian='difference' is of gradients at parameters {self.delta:g} apart, which bfloat16 rounds to the same"

    @classmethod
    def of(cls, local: Sgd, alpha: float, hessian: Hessian, delta: float = 1e-3) -> Meta:
        """Return the same steps and minibatches, with a meta-gradient.

        Raises:
            ConfigurationError: for another solver.
        """
        if not isinstance(local, Sgd):
            raise ConfigurationError(
                f"Per-FedAvg's steps are those of Sgd, got {type(local).__name__}: its analysis is of one step size for the "
                "meta-gradient: use Sgd"
            )
        return cls(**options_of(local), alpha=alpha, hessian=hessian, delta=delta)

    @property
    def per_step(self) -> int:
        """Minibatches of one step: D, D' and, with a Hessian, D''."""
        return self.accumulate * (2 if self.hessian == "none" else 3)

    def alone(self, steps: int) -> Sgd:
        """Return plain steps: a model of a client's own is trained to be good as it is."""
        return Sgd(**options_of(self)).alone(steps)

    def tuning(self, steps: int) -> Sgd:
        """Return steps of adaptation, of size alpha."""
        return replace(self.alone(steps), lr=self.alpha)

    @property
    def _direction(self) -> Direction:
        return _MetaGradient(self.alpha, self.hessian, self.delta)

    def _known(self, clients: Clients) -> None:
        """Return None: the first gradient is not the direction of the first step."""


@dataclass(frozen=True)
class _MetaGradient:
    """Compute the direction of a step. Directions of the same options are equal, so that runs share traces."""

    alpha: float
    hessian: Hessian
    delta: float

    def __call__(self, params: torch.Tensor, gradient: GradientAt) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the loss before adaptation, and the meta-gradient."""
        loss, first = gradient(params, 0)
        _, direction = gradient(params - self.alpha * first, 1)
        if self.hessian == "none":
            return loss, direction
        ahead, behind = (gradient(params + sign * self.delta * direction, 2)[1] for sign in (1.0, -1.0))
        return loss, direction - self.alpha / (2 * self.delta) * (ahead - behind)
