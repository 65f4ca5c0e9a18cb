"""Train a personal model in the same local steps as the shared one (APFL, pFedMe, FedALA)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from turnout.core.checks import ConfigurationError, probability
from turnout.core.device import to_device
from turnout.core.types import Report, State
from turnout.pieces.base import Local, Slots
from turnout.pieces.local.aggregation_steps import AggregationSteps
from turnout.pieces.local.pair_steps import MixtureSteps, MoreauSteps
from turnout.pieces.personalization.base import WholeModel


class PairModel(WholeModel):
    """Base class: the row of a client is trained behind the shared model, in more parameters than the model has."""

    steps: type[Local]

    def fits(self, algorithm: Slots) -> None:
        """Refuse other local steps, and pieces that are about one model."""
        name, steps = type(self).__name__, self.steps.__name__
        if type(algorithm.local) is not self.steps:
            raise ConfigurationError(f"{name} goes with {steps}, got {algorithm.local}: write {steps}.of(Sgd(...))")
        for piece in (*algorithm.corrections, *algorithm.measurements, *algorithm.selection.measurements):
            raise ConfigurationError(
                f"{type(piece).__name__} is about one model, and what clients of {name} train is of two: leave it out"
            )

    def join(self, params: torch.Tensor, memory: State) -> torch.Tensor:
        """Return the shared model and the row of each client, ``[B, P + P_v]``."""
        personal = to_device(memory["personal"], params.device)
        return torch.cat([params.expand(len(personal), -1), personal], dim=1)

    def split(
        self, report: Report, num_shared: int, start: torch.Tensor, row: torch.Tensor
    ) -> tuple[Report, torch.Tensor]:
        """Return the report on the shared model, and the update of the row."""
        moved = start[:, num_shared:] + report.delta[:, num_shared:]
        return replace(report, delta=report.delta[:, :num_shared]), moved - to_device(row, moved.device)

    def adapting(self, local: Local, steps: int) -> Local:
        """Return plain steps from the shared model."""
        return local.tuning(steps)


@dataclass(frozen=True)
class Mixture(PairModel, name="mixture"):
    """APFL: a client is served by ``a_k v_k + (1 - a_k) w``, and trains its own v_k within this mixture.

    `MixtureSteps` has the steps. v_k begins at the model's first parameters; v_k and a_k never leave the client.

    The paper's `alpha` is fixed or moves by a gradient step. The code that its authors point to mixes the outputs of two
    networks in place of their parameters, and adds ``0.02 a`` to the slope of a; here parameters are mixed, as in the
    paper, without this term.

    Args:
        alpha: a at first; 0 is the shared model alone, 1 a model that knows nothing of the others.
        adaptation_steps: plain local steps from the shared model that clients who never trained may do before they are
            judged; of several numbers each is judged by itself.

    Raises:
        ConfigurationError: for numbers out of range, and, of an algorithm, for other local steps, corrections of gradients
            and measurements.

    Example:
        A client's row is its model and its share:

        >>> Mixture(alpha=0.25).first(torch.zeros(3), num_shared=3).tolist()
        [0.0, 0.0, 0.0, 0.25]

    Reference: Deng, Kamani and Mahdavi, "Adaptive personalized federated learning", 2020 (arXiv 2003.13461).
    """

    steps = MixtureSteps

    alpha: float = 0.5
    adaptation_steps: int | tuple[int, ...] = 5

    def __post_init__(self) -> None:
        super().__post_init__()
        probability("alpha", self.alpha)

    def first(self, initial: torch.Tensor, num_shared: int) -> torch.Tensor:
        """Return the model's first parameters and the share, ``[P + 1]``."""
        return torch.cat([initial, initial.new_tensor([self.alpha])])

    def serving(self, params: torch.Tensor, memory: State) -> torch.Tensor:
        """Return the mixture of each client, ``[B, P]``."""
        personal = to_device(memory["personal"], params.device)
        return torch.lerp(params.expand(len(personal), -1), personal[:, :-1], personal[:, -1:])


@dataclass(frozen=True)
class MoreauModel(PairModel, name="moreau"):
    """pFedMe: a client is served by the theta_k that its last local step found, see `MoreauSteps`.

    theta_k never leaves the client, and begins anew from the shared model in every round that it takes part in.

    Args:
        adaptation_steps: as in `Mixture`.

    Raises:
        ConfigurationError: as in `Mixture`.

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
        """Return w twice for each client, ``[B, 2 P]``."""
        rows = params.expand(len(memory["personal"]), -1)
        return torch.cat([rows, rows], dim=1)


@dataclass(frozen=True)
class AggregatedModel(PairModel, name="aggregated"):
    """FedALA: a client is served by ``v_k + (w - v_k) W_k``, of its last model v_k, number by number.

    It is the model from which the client's next round begins, before the weights W_k are learnt anew, see
    `AggregationSteps`; of a client that never trained, it is w. v_k begins at the model's first parameters; v_k and W_k never
    leave the client.

    Args:
        adaptation_steps: as in `Mixture`.

    Raises:
        ConfigurationError: as in `Mixture`.

    Example:
        A client's row is its model, the weights, and whether they were learnt:

        >>> AggregatedModel().first(torch.zeros(2), num_shared=2).tolist()
        [0.0, 0.0, 1.0, 1.0, 0.0]

    Reference: Zhang et al., "FedALA: adaptive local aggregation for personalized federated learning", AAAI 2023 (arXiv
    2212.01197).
    """

    steps = AggregationSteps

    adaptation_steps: int | tuple[int, ...] = 5

    def first(self, initial: torch.Tensor, num_shared: int) -> torch.Tensor:
        """Return the model's first parameters, weights of 1, and 0, ``[2 P + 1]``."""
        return torch.cat([initial, torch.ones_like(initial), initial.new_zeros(1)])

    def serving(self, params: torch.Tensor, memory: State) -> torch.Tensor:
        """Return the mixture of each client, ``[B, P]``."""
        personal = to_device(memory["personal"], params.device)
        last, weights, _ = personal.tensor_split((params.shape[-1], 2 * params.shape[-1]), dim=1)
        return torch.lerp(last, params.expand(len(personal), -1), weights)
