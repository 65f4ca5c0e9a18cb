"""Train a personal model together with the shared one, in the same local steps (APFL, pFedMe, FedALA)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from turnout.base import Local, Slots
from turnout.base.tuning import tuning_rule
from turnout.core.checks import ConfigurationError
from turnout.core.device import to_device
from turnout.core.ranges import Probability
from turnout.core.types import Report, State
from turnout.pieces.local.aggregation_steps import AggregationSteps
from turnout.pieces.local.pair_steps import MixtureSteps, MoreauSteps
from turnout.pieces.personalization.base import WholeModel


class PairModel(WholeModel):
    """Base class of personalizations whose local steps train the shared model and a client's personal row together.

    A local step has the parameters of both: the shared model, ``[P]``, followed by the personal row, ``[P_v]``.
    """

    steps: type[Local]

    def fits(self, algorithm: Slots) -> None:
        """Raise an error for other local steps, and for pieces that require a single model."""
        name, steps = type(self).__name__, self.steps.__name__
        if type(algorithm.local) is not self.steps:
            raise ConfigurationError(f"{name} requires {steps}, got {algorithm.local}: write {steps}.of(Sgd(...))")
        for piece in (*algorithm.corrections, *algorithm.measurements, *algorithm.selection.measurements):
            raise ConfigurationError(
                f"{type(piece).__name__} applies to one model, and clients of {name} train two: leave it out"
            )

    def join(self, params: torch.Tensor, memory: State) -> torch.Tensor:
        """Return the shared model and the personal row of each client, ``[B, P + P_v]``."""
        personal = to_device(memory["personal"], params.device)
        return torch.cat([params.expand(len(personal), -1), personal], dim=1)

    def split(
        self, report: Report, num_shared: int, start: torch.Tensor, row: torch.Tensor
    ) -> tuple[Report, torch.Tensor]:
        """Return the report on the shared model, and the update of the personal row, ``[B, P_v]``."""
        moved = start[:, num_shared:] + report.delta[:, num_shared:]
        return replace(report, delta=report.delta[:, :num_shared]), moved - to_device(row, moved.device)

    def adapting(self, local: Local, steps: int) -> Local:
        """Return plain local steps from the shared model."""
        return tuning_rule(local, steps)


@dataclass(frozen=True)
class Mixture(PairModel, name="mixture"):
    """Serve each client by a mixture of the shared model and its personal model (APFL).

    Client k is served by ``m_k = a_k v_k + (1 - a_k) w``, with the shared model w, its personal model v_k and its share
    a_k in [0, 1]. The local steps, `MixtureSteps`, train w on the client's loss and v_k on the loss of the mixture. v_k
    starts from the model's initial parameters; v_k and a_k never leave the client.

    In the paper, a_k is either fixed or updated by gradient steps. The authors' code updates it once a round, which is
    the option ``adapts_every="round"`` of `MixtureSteps`. The code to which its authors refer mixes the
    outputs of two networks and not their parameters, and adds ``0.02 a`` to the derivative with respect to a. Here
    parameters are mixed, as in the paper, and that term is absent.

    Args:
        alpha: initial share a_k, from 0 (the shared model alone) to 1 (a personal model that is independent of it).
        adaptation_steps: number of plain local steps from the shared model, >= 1, by which a client that never trained
            (``unseen_clients``) fits a model before it is evaluated. A tuple of numbers evaluates it after each of
            them.

    Raises:
        ConfigurationError: if a number is out of range, local steps are other than `MixtureSteps`, or there are
            corrections of gradients or measurements.

    Example:
        The personal row of a client contains its model and its share:

        >>> Mixture(alpha=0.25).first(torch.zeros(3), num_shared=3).tolist()
        [0.0, 0.0, 0.0, 0.25]

    Reference: Deng, Kamani and Mahdavi, "Adaptive personalized federated learning", 2020 (arXiv 2003.13461).
    """

    steps = MixtureSteps

    alpha: Probability = 0.5
    adaptation_steps: int | tuple[int, ...] = 5

    def first(self, initial: torch.Tensor, num_shared: int) -> torch.Tensor:
        """Return the model's initial parameters and the share, ``[P + 1]``."""
        return torch.cat([initial, initial.new_tensor([self.alpha])])

    def serving(self, params: torch.Tensor, memory: State) -> torch.Tensor:
        """Return the mixture of each client, ``[B, P]``."""
        personal = to_device(memory["personal"], params.device)
        return torch.lerp(params.expand(len(personal), -1), personal[:, :-1], personal[:, -1:])


@dataclass(frozen=True)
class MoreauModel(PairModel, name="moreau"):
    """Serve each client by the minimizer of its loss near the shared model (pFedMe).

    Client k is served by the personal model theta_k that its last local step found as the approximate minimizer of its
    loss plus a proximal term, see `MoreauSteps`. theta_k never leaves the client, and starts from the shared model in
    every round in which the client participates.

    Args:
        adaptation_steps: as in `Mixture`.

    Raises:
        ConfigurationError: if a number is out of range, local steps are other than `MoreauSteps`, or there are
            corrections of gradients or measurements.

    Example:
        >>> import turnout as to
        >>> to.pfedme(proximal=10.0).personal
        MoreauModel(adaptation_steps=5)

    Reference: Dinh, Tran and Nguyen, "Personalized federated learning with Moreau envelopes", NeurIPS 2020 (arXiv
    2006.08848).
    """

    steps = MoreauSteps

    adaptation_steps: int | tuple[int, ...] = 5

    def join(self, params: torch.Tensor, memory: State) -> torch.Tensor:
        """Return the shared model twice for each client, ``[B, 2 P]``."""
        rows = params.expand(len(memory["personal"]), -1)
        return torch.cat([rows, rows], dim=1)


@dataclass(frozen=True)
class AggregatedModel(PairModel, name="aggregated"):
    """Serve each client by a learned elementwise mixture of the shared model and its last model (FedALA).

    Client k is served by ``v_k + (w - v_k) W_k``, with the shared model w, the model v_k after its last local training
    and the weights W_k in [0, 1], one for each parameter. The client's next round begins with this model, before W_k is
    updated (see `AggregationSteps`). A client that never trained is served by w. v_k starts from the model's initial
    parameters; v_k and W_k never leave the client.

    Args:
        adaptation_steps: as in `Mixture`.

    Raises:
        ConfigurationError: if a number is out of range, local steps are other than `AggregationSteps`, or there are
            corrections of gradients or measurements.

    Example:
        The personal row of a client contains its model, the weights, and a flag that is 1 once these have been learned:

        >>> AggregatedModel().first(torch.zeros(2), num_shared=2).tolist()
        [0.0, 0.0, 1.0, 1.0, 0.0]

    Reference: Zhang et al., "FedALA: adaptive local aggregation for personalized federated learning", AAAI 2023 (arXiv
    2212.01197).
    """

    steps = AggregationSteps

    adaptation_steps: int | tuple[int, ...] = 5

    def first(self, initial: torch.Tensor, num_shared: int) -> torch.Tensor:
        """Return the model's initial parameters, weights of 1, and a flag of 0, ``[2 P + 1]``."""
        return torch.cat([initial, torch.ones_like(initial), initial.new_zeros(1)])

    def serving(self, params: torch.Tensor, memory: State) -> torch.Tensor:
        """Return the mixture of each client, ``[B, P]``."""
        personal = to_device(memory["personal"], params.device)
        last, weights, _ = personal.tensor_split((params.shape[-1], 2 * params.shape[-1]), dim=1)
        return torch.lerp(last, params.expand(len(personal), -1), weights)
