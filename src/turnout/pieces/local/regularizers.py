"""Terms that clients add to their objectives: of FedProx, FedDyn and MOON."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.nn import functional as F

from turnout.base import Correction, LossTerm, MemoryShapes, Outcome, Slots
from turnout.core.checks import ConfigurationError
from turnout.core.device import to_device
from turnout.core.lanes import Lanes
from turnout.core.ranges import NotNegative, Positive
from turnout.core.types import Report, State, Task
from turnout.engine.cohort import Clients
from turnout.engine.objective import Objective
from turnout.engine.term import Minibatch


@dataclass(frozen=True)
class Prox(Correction, name="prox"):
    """Add the proximal term of FedProx to every local gradient (equation 2).

    Client k minimizes ``F_k(w) + mu/2 ||w - w^t||^2``, where F_k is its local loss and w^t is the received model, so a
    local step descends ``g + mu (w - w^t)`` with the minibatch gradient g. Use it to limit client drift when data are
    heterogeneous or clients do unequal amounts of work.

    Args:
        mu: factor of the term, >= 0; 0 changes nothing.

    Raises:
        ConfigurationError: if `mu` is out of range.

    Example:
        >>> Prox(mu=0.5).correct(torch.tensor([1.0]), params=torch.tensor([3.0]), start=torch.tensor([1.0]))
        tensor([2.])

    Reference: Li et al., "Federated optimization in heterogeneous networks", MLSys 2020.
    """

    mu: NotNegative = 0.01

    def correct(self, gradient: torch.Tensor, params: torch.Tensor, start: torch.Tensor) -> torch.Tensor:
        """Return the gradient plus ``mu (params - start)``."""
        return gradient + self.mu * (params - start)


@dataclass(frozen=True)
class DynamicRegularizer(Correction, name="dynamic_regularizer"):
    """Add the dynamic regularizer of FedDyn to every local gradient.

    Client k minimizes ``F_k(y) - <lambda_k, y> + alpha/2 ||y - w^t||^2``, so a local step descends ``g(y) - lambda_k +
    alpha (y - w^t)``, where g(y) is the minibatch gradient, w^t the received model and lambda_k the client's dual
    vector. After the round, a client that took part updates its dual vector from its local model w_k::

        lambda_k <- lambda_k - alpha (w_k - w^t)

    lambda_k starts at zero. It equals the gradient of F_k at w_k if the local problem is solved exactly, so that
    stationary points of the local objectives agree with those of the global one. It moves by the update that was sent,
    so it stays consistent with the server's sum even if a guard changes the update.

    Only the shared parameters are regularized; personal parameters have neither term.

    Client memory: ``dual [P]`` (lambda_k), which never leaves the client.

    Args:
        alpha: strength of the regularizer, > 0; the paper searches {0.1, 0.01, 0.001}.

    Raises:
        ConfigurationError: if `alpha` is not positive.

    Example:
        >>> import turnout as to
        >>> to.feddyn(alpha=0.01).corrections
        (DynamicRegularizer(alpha=0.01),)
        >>> DynamicRegularizer().memory(7, torch.float32)
        {'dual': ((7,), torch.float32)}

    Reference: Acar et al., "Federated learning based on dynamic regularization", ICLR 2021 (arXiv 2111.04263).
    """

    alpha: Positive = 0.1

    def memory(self, num_params: int, dtype: torch.dtype) -> MemoryShapes:
        """Return the shape of the dual vector."""
        return {"dual": ((num_params,), dtype)}

    def begin(self, task: Task, memory: State, clients: Clients, lanes: Lanes) -> Correction:
        """Return the correction with the dual vectors of these clients."""
        return _Regularized(lanes.of(to_device(memory["dual"], task.params.device)), self.alpha)

    def correct(self, gradient: torch.Tensor, params: torch.Tensor, start: torch.Tensor) -> torch.Tensor:
        """Return the gradient with dual vectors of zero; `begin` supplies those of the clients."""
        return gradient + self.alpha * (params - start)

    def settle(self, memory: State, sent: Report, good: torch.Tensor) -> None:
        """Update the dual vectors of B clients by the updates that they sent."""
        delta = to_device(sent.updates.gathered(), memory["dual"].device)
        memory["dual"] = memory["dual"] - self.alpha * delta.where(good, 0.0)


@dataclass(frozen=True)
class _Regularized(Correction):
    """`DynamicRegularizer` in one round.

    Args:
        dual: dual vectors lambda_k of the shared parameters, ``[B, P]``.
        alpha: strength of the regularizer.
    """

    dual: torch.Tensor
    alpha: float

    def correct(self, gradient: torch.Tensor, params: torch.Tensor, start: torch.Tensor) -> torch.Tensor:
        """Return ``g - lambda_k + alpha (y - w^t)``."""
        num_shared = self.dual.shape[1]
        pull = self.alpha * (params - start)[:, :num_shared] - self.dual[: len(gradient)]
        return gradient + F.pad(pull, (0, gradient.shape[1] - num_shared))


@dataclass(frozen=True)
class Contrastive(LossTerm, name="contrastive"):
    """Add the model-contrastive loss of MOON to the loss on every local minibatch.

    Client k minimizes ``F_k(w) + mu l_con(w)``, where l_con is the mean over the examples of a minibatch of::

        l_con = -log(e^(sim(z, z_glob) / tau) / (e^(sim(z, z_glob) / tau) + e^(sim(z, z_prev) / tau)))

    z, z_glob and z_prev are the representations of an example by the model in training, by the received model and by
    the client's last local model; sim is the cosine similarity, and tau is the temperature. The term pulls
    representations toward the received model and away from the last local one, against client drift on heterogeneous
    data.

    The representation is the flattened input of the last layer with trainable parameters. As in the authors' code, the
    term is absent in a client's first round, when there is no last model. The received and the last model are in
    evaluation mode.

    Client memory: ``contrast_previous [P]``, the client's last local model, and ``contrast_known [1]``, which is 1 if
    there is one. Neither leaves the client.

    Args:
        mu: weight of the term, >= 0; the paper searches {0.1, 1, 5, 10}.
        temperature: tau, > 0.

    Raises:
        ConfigurationError: if a number is out of range, if a local step is not on a single minibatch, if a part of the
            model is personal, or (when a simulation begins) if the model has no layer before its last one.

    Example:
        >>> import turnout as to
        >>> to.compose(to.Sgd(lr=0.1), Contrastive(mu=5.0))
        Algorithm('custom': AllAvailable() -> Sgd() -> Contrastive(mu=5.0) -> DivideByParticipants() ->
        WeightedSum() -> ServerSgd())

    Reference: Li, He and Song, "Model-contrastive federated learning", CVPR 2021 (arXiv 2103.16267).
    """

    mu: NotNegative = 1.0
    temperature: Positive = 0.5

    def fits(self, algorithm: Slots) -> None:
        """Raise an error if a part of the model is personal."""
        if hasattr(algorithm.personal, "parameters"):
            raise ConfigurationError(
                f"Contrastive compares the received model with the client's, and with {type(algorithm.personal).__name__} "
                "only a part of the model is received: leave one out, or keep whole models with Ditto"
            )

    def memory(self, num_params: int, dtype: torch.dtype) -> MemoryShapes:
        """Return the shapes of the last local model and of the flag that there is one."""
        return {"contrast_previous": ((num_params,), dtype), "contrast_known": ((1,), dtype)}

    def begin(self, task: Task, memory: State, clients: Clients, lanes: Lanes) -> Correction:
        """Return the correction with the received and the last models of these clients."""
        device = task.params.device
        previous, known = (lanes.of(to_device(memory[f"contrast_{name}"], device)) for name in ("previous", "known"))
        received = lanes.of(task.params) if task.params.dim() == 2 else task.params.expand(len(previous), -1)
        return _Contrast(received, previous, known, self.mu, self.temperature)


@dataclass(frozen=True)
class _Contrast(LossTerm):
    """`Contrastive` in one round.

    Args:
        received: received models, ``[B, P]``.
        previous: last local models, ``[B, P]``.
        known: 1 for clients with a last local model and 0 for others, ``[B, 1]``.
        mu, temperature: as in `Contrastive`.
    """

    received: torch.Tensor
    previous: torch.Tensor
    known: torch.Tensor
    mu: float
    temperature: float

    def slope(
        self, objective: Objective, params: torch.Tensor, x: torch.Tensor, mask: torch.Tensor | None, key: torch.Tensor
    ) -> torch.Tensor:
        """Return the gradient of ``mu l_con`` on one minibatch of each client, ``[B, P]``."""
        active = len(params)
        others = (self.received[:active], self.previous[:active])
        return self.mu * self.known[:active] * objective.gradient_of(self._losses, params, others, x, mask, key)

    def _losses(
        self, minibatch: Minibatch, params: torch.Tensor, received: torch.Tensor, previous: torch.Tensor
    ) -> torch.Tensor:
        """Return l_con of each example of one client, ``[b]``."""
        z = minibatch.features(params)
        others = [minibatch.features(model, training=False) for model in (received, previous)]
        similarities = torch.stack([F.cosine_similarity(z, other, dim=1) for other in others], dim=1)
        # As a softmax over rows: an elementwise softplus rounds the elements at the end of a tensor differently, so that bits
        # would depend on the number of lanes.
        return -F.log_softmax(similarities / self.temperature, dim=1)[:, 0]

    def outcome(self, delta: torch.Tensor) -> Outcome:
        """Return the models after the local steps; a client whose model is not finite keeps its last one."""
        model = self.received + delta
        good = model.isfinite().all(dim=1, keepdim=True)
        remembered = {
            "contrast_previous": model.where(good, self.previous),
            "contrast_known": torch.ones_like(self.known).where(good, self.known),
        }
        return Outcome(remembered=remembered)
