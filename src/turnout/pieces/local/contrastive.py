"""The model-contrastive term of MOON."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.nn import functional as F

from turnout.base import Correction, LossTerm, MemoryShapes, Outcome, Slots
from turnout.core.checks import ConfigurationError
from turnout.core.device import to_device
from turnout.core.lanes import Lanes
from turnout.core.ranges import NotNegative, Positive
from turnout.core.types import State, Task
from turnout.engine.cohort import Clients
from turnout.engine.objective import Objective
from turnout.engine.term import Minibatch


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
