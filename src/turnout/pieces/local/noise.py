"""Gaussian noise of known variance in local gradients."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from turnout.base import Correction
from turnout.core.device import to_device
from turnout.core.lanes import Lanes
from turnout.core.random import fold, normal
from turnout.core.ranges import NotNegative
from turnout.core.types import State, Task
from turnout.engine.cohort import Clients


@dataclass(frozen=True)
class GradientNoise(Correction, name="gradient_noise"):
    """Add Gaussian noise of known variance to every local gradient.

    A local step descends ``g + sigma / sqrt(d) N(0, I)`` with fresh noise, where d is the number of parameters of a
    part. The noise is unbiased, and its variance over the whole part, ``E ||noise||^2 = sigma^2``, does not depend on d
    (the assumption of Chen et al. on stochastic gradients). Use it to compare runs with theorems about that variance:
    if minibatches hold all examples of a client, there is no other noise. Control variates behind it in the chain see
    the noise as they see that of minibatches.

    Args:
        shared: sigma_u of the shared part, >= 0; 0 adds no noise.
        personal: sigma_v of the personal part, >= 0; 0 adds no noise.

    Raises:
        ConfigurationError: if a number is out of range.

    Example:
        >>> import turnout as to
        >>> to.compose(GradientNoise(shared=0.1), to.Sgd()).corrections
        (GradientNoise(shared=0.1, personal=0.0),)

    Reference: Chen et al., "Sharper convergence guarantees for federated learning with partial model personalization".
    """

    of_objective = False

    shared: NotNegative = 0.0
    personal: NotNegative = 0.0

    def begin(self, task: Task, memory: State, clients: Clients, lanes: Lanes) -> Correction:
        """Return the correction with the random keys of these clients in this round."""
        keys = clients.keys("gradient noise", task.seed, task.draws(len(clients)), lanes.order)
        num_params, num_shared = clients.objective.layout.num_params, clients.objective.layout.num_shared
        sizes = torch.tensor([num_shared, num_params - num_shared])
        sigma = torch.tensor([self.shared, self.personal], dtype=torch.float64) / sizes.clamp(min=1).sqrt()
        sigma, like = sigma.repeat_interleave(sizes), task.params
        noisy = sigma.nonzero()[:, 0]
        step = torch.zeros((), dtype=torch.int64, device=like.device)
        return _Begun(keys, to_device(sigma[noisy], like.device, like.dtype), to_device(noisy, like.device), step)


@dataclass(frozen=True)
class _Begun(Correction):
    """`GradientNoise` in one round.

    Args:
        keys: 64 random bits for each lane, int64 ``[B]``.
        sigma: standard deviation of each parameter with noise, ``[n]``.
        noisy: positions of these parameters, int64 ``[n]``.
        step: number of steps so far, int64 ``[]``; changed in place.
    """

    keys: torch.Tensor
    sigma: torch.Tensor
    noisy: torch.Tensor
    step: torch.Tensor

    def correct(self, gradient: torch.Tensor, params: torch.Tensor, start: torch.Tensor) -> torch.Tensor:
        """Return the gradient with the noise of the next step."""
        if not len(self.noisy):
            return gradient
        keys = fold(self.keys[: len(gradient)], self.step)
        self.step.add_(1)
        noise = normal(fold(keys[:, None], self.noisy)).to(gradient.dtype) * self.sigma
        return gradient.index_add(1, self.noisy, noise)
