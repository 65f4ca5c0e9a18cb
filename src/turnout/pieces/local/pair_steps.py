"""Local steps that train the shared model and a personal model together (APFL, pFedMe)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self

import torch

from turnout.base import Correction, Slots, Traits
from turnout.core.checks import ConfigurationError
from turnout.core.ranges import Count, Positive
from turnout.core.schedule import Schedule
from turnout.core.types import Report, State, Task
from turnout.engine.cohort import Clients
from turnout.pieces.local.sgd import Sgd, SgdSteps, options_of
from turnout.pieces.local.solver import Solver
from turnout.pieces.local.update import Direction, GradientAt


@dataclass(frozen=True)
class PairSteps(SgdSteps):
    """Base class of SGD on a pair of models: the shared model w and parameters that the client keeps.

    The parameters of a step are w followed by the personal parameters.
    """

    kept_by: ClassVar[str]
    """Name of the personalization that keeps the personal parameters between rounds."""

    needs_plain: ClassVar[bool] = True
    """True if steps must be elementwise and stateless: no momentum, weight decay or clipping."""

    @classmethod
    def of(cls, local: Solver, **options: Any) -> Self:
        """Return the steps of the pair with the options of a solver.

        Args:
            local: plain SGD.
            options: further options of the class.

        Raises:
            ConfigurationError: if the solver is not plain SGD.
        """
        if type(local) is not Sgd:
            raise ConfigurationError(
                f"{cls.__name__}: got {local}, needed steps of Sgd: write {cls.__name__}.of(Sgd(...))"
            )
        if cls.needs_plain and (local.momentum or local.weight_decay or local.max_norm is not None):
            raise ConfigurationError(
                f"{cls.__name__}: got {local}, needed plain steps, which act on each number by itself: use Sgd without "
                "momentum, weight decay and max_norm"
            )
        return cls(**options_of(local), **options)

    def fits(self, algorithm: Slots) -> None:
        """Raise an error if the algorithm lacks the personalization that keeps the pair."""
        if getattr(algorithm.personal, "steps", None) is not type(self):
            raise ConfigurationError(f"{type(self).__name__} trains two models: add {self.kept_by}() to the pieces")

    @property
    def traits(self) -> Traits:
        """Those of `Sgd`, but a step trains several models."""
        why = "a step trains two models at once, and there are running statistics of only one"
        return replace(super().traits, refuses_batch_norm=why)

    def alone(self, steps: int) -> Sgd:
        """Return plain SGD on a single model."""
        return Sgd(**options_of(self)).alone(steps)

    def _constant_lr(self, why: str) -> float:
        """Return the step size; raise an error, with the reason, if it is a schedule."""
        if isinstance(self.lr, Schedule):
            raise ConfigurationError(f"{type(self).__name__}: got {self.lr}, needed one step size lr, {why}")
        return float(self.lr)


AdaptsEvery = Literal["step", "round"]


@dataclass(frozen=True)
class MixtureSteps(PairSteps):
    """Train the shared model, a personal model and their mixture together (APFL, Algorithm 1).

    Each local step uses one minibatch for the shared model w, the personal model v and the share a of the mixture ``m =
    a v + (1 - a) w``::

        w <- w - lr grad F_k(w)
        v <- v - lr a grad F_k(m)
        a <- clip(a - lr <grad F_k(m), v - w>, 0, 1)        if `adaptive`

    In the paper, the last line is Equation (10) and has the index of local steps. The authors' code (FedTorch, ``apfl.py``)
    updates the share only in the first local step of a round. It also adds ``0.02 a`` to the gradient, which Equation (10)
    does not have; this term is left out here.

    Options are those of `Sgd`, and:

    Args:
        adaptive: whether to update the share a.
        adapts_every: ``"step"`` to update it in every local step, as in the paper's equation, or ``"round"`` to update it
            in the first local step of a round, as in the authors' code.

    Raises:
        ConfigurationError: if the step size is a schedule, with `adaptive`, or if `adapts_every` is unknown.

    Example:
        >>> MixtureSteps.of(Sgd(lr=0.1, steps=3), adaptive=True).steps
        3
    """

    kept_by = "Mixture"

    adaptive: bool = False
    adapts_every: AdaptsEvery = "step"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.adaptive:
            self._constant_lr("because the share is clipped after each step")

    @property
    def _adapts_once(self) -> bool:
        """True if the share is updated in the first step only."""
        return self.adaptive and self.adapts_every == "round"

    @property
    def direction(self) -> Direction:
        """The function that computes the direction of both models and of the share."""
        return _Mixture(float(self.lr) if self.adaptive else None, self._adapts_once)  # type: ignore[arg-type]

    def train(self, task: Task, memory: State, clients: Clients, corrections: tuple[Correction, ...]) -> Report:
        """Train as `Sgd` does; if the share moves once, with a last column that is 1 before the first step."""
        if not self._adapts_once:
            return super().train(task, memory, clients, corrections)
        params = torch.cat([task.params, task.params.new_ones(len(task.params), 1)], dim=1)
        report = super().train(replace(task, params=params), memory, clients, corrections)
        return replace(report, delta=report.delta[:, :-1])


@dataclass(frozen=True)
class _Mixture:
    """Compute the direction of w, v and a. Instances with the same options are equal.

    Args:
        lr: step size of a; None if a is constant.
        once: whether a moves only in the step in which a further column of the parameters, which becomes 0, is 1.
    """

    lr: float | None
    once: bool = False

    def __call__(self, params: torch.Tensor, gradient: GradientAt) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the loss of w, ``[B]``, and the direction of w, v and a, ``[B, 2 P + 1]``, or one column more."""
        size = (params.shape[1] - 1) // 2
        shared, personal, share, first = params.split([size, size, 1, params.shape[1] - 2 * size - 1], dim=1)
        loss, of_shared = gradient(shared, 0)
        of_mixture = gradient(personal * share + shared * (1 - share), 0)[1]
        of_share = torch.zeros_like(share)
        if self.lr is not None:
            # The direction for which a step of size lr ends at the clipped share.
            slope = (of_mixture * (personal - shared)).sum(dim=1, keepdim=True)
            of_share = (share - (share - self.lr * slope).clamp(0.0, 1.0)) / self.lr
        if self.once and self.lr is not None:
            of_share, first = of_share.where(first > 0.5, 0.0), first / self.lr
        return loss, torch.cat([of_shared, share * of_mixture, of_share, first], dim=1)


@dataclass(frozen=True)
class MoreauSteps(PairSteps):
    """Train the shared model on the Moreau envelope of the local loss, with a personal model as its minimizer (pFedMe).

    Each local step uses one minibatch for the shared model w and the personal model theta::

        theta <- theta - inner_lr (grad F_k(theta) + lambda (theta - w))        K times
        w <- w - lr lambda (w - theta)

    The envelope is ``min_theta F_k(theta) + lambda/2 ||theta - w||^2``; its gradient is ``lambda (w - theta)`` at the
    minimizer theta. theta starts at the received model and continues from one local step to the next, as in the
    authors' code; the paper leaves the method of the inner problem open.

    Options are those of `Sgd`, and:

    Args:
        proximal: lambda, > 0; larger values keep theta closer to w.
        inner_steps: K, >= 1.
        inner_lr: step size of the inner problem, > 0.

    Raises:
        ConfigurationError: if a number is out of range, or if the step size is a schedule.

    Example:
        >>> MoreauSteps.of(Sgd(lr=0.1), proximal=10.0).proximal
        10.0
    """

    kept_by = "MoreauModel"

    proximal: Positive = 15.0
    inner_steps: Count = 5
    inner_lr: Positive = 0.05

    def __post_init__(self) -> None:
        super().__post_init__()
        self._constant_lr("by which the personal model's step is divided")

    @property
    def direction(self) -> Direction:
        """The function that computes the direction of both models."""
        return _Moreau(float(self.lr), self.proximal, self.inner_steps, self.inner_lr)  # type: ignore[arg-type]


@dataclass(frozen=True)
class _Moreau:
    """Compute the direction of w and theta. Instances with the same options are equal."""

    lr: float
    proximal: float
    inner_steps: int
    inner_lr: float

    def __call__(self, params: torch.Tensor, gradient: GradientAt) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the loss of theta before the step, ``[B]``, and the direction of w and theta, ``[B, 2 P]``."""
        shared, first = params.chunk(2, dim=1)
        theta, losses = first, []
        for _ in range(self.inner_steps):
            loss, slope = gradient(theta, 0)
            losses.append(loss)
            theta = theta - self.inner_lr * (slope + self.proximal * (theta - shared))
        # Divided by lr, because the step multiplies by it: theta moves to the minimizer for any lr.
        return losses[0], torch.cat([self.proximal * (shared - theta), (first - theta) / self.lr], dim=1)
