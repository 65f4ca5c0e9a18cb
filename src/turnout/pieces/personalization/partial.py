"""Keep some parameters of the model at each client."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import nn

from turnout.core.checks import ConfigurationError, positive, probability
from turnout.core.device import to_device
from turnout.core.types import Lanes, Report, State, Task
from turnout.engine.cohort import Clients
from turnout.engine.parameter_names import check_patterns, names_of, trainable_names
from turnout.pieces.base import Correction, Local, Personalization, Slots
from turnout.pieces.personalization.base import OnOwnPart, check_steps


class PartialModel(Personalization):
    """Base class: some parameters of the model are not shared, those that `parameters` names.

    A piece that derives from it has the options `parameters` and `adaptation_steps` of `Personal`.
    """

    parameters: str | tuple[str, ...] | Callable[[str], bool]

    def __post_init__(self) -> None:
        if not callable(self.parameters):
            check_patterns("parameters", self.parameters, also=", or a function of a name")
        check_steps(self.adaptation_steps)

    def fits(self, algorithm: Slots) -> None:
        """Refuse pieces that act on updates where nothing is sent."""
        if self.parameters == "all" and (idle := _rules_about_updates(algorithm)):
            raise ConfigurationError(
                f"with {type(self).__name__}('all') no update is ever sent, so there is nothing for {idle} to act on: leave "
                "it out, or share some of the parameters"
            )

    def chosen(self, module: nn.Module) -> frozenset[str]:
        """Return the names of the personal ones among a model's trainable parameters.

        Raises:
            ConfigurationError: where a pattern or kind matches none of them, or all of them without being ``"all"``.
        """
        names = trainable_names(module)
        if callable(self.parameters):
            return _chosen_by(self.parameters, names)
        chosen = names_of(self.parameters, module, "personal parameters")
        if len(chosen) == len(names) and self.parameters != "all":
            raise ConfigurationError(
                f"personal parameters {self.parameters!r} are all that {type(module).__name__} has ({', '.join(names)}), "
                "which leaves nothing to share: write 'all' if that is meant, or take a model with more layers"
            )
        return chosen

    def first(self, initial: torch.Tensor, num_shared: int) -> torch.Tensor:
        """Return the personal ones among the model's first parameters, ``[P_v]``."""
        return initial[num_shared:]

    def join(self, params: torch.Tensor, memory: State) -> torch.Tensor:
        """Return the model of each client, ``[B, P]``: what it received, ``[P_u]`` or ``[B, P_u]``, and its own part."""
        personal = to_device(memory["personal"], params.device)
        return torch.cat([params.expand(len(personal), -1), personal], dim=1)

    serving = join

    def newcomer(self, params: torch.Tensor, first: torch.Tensor) -> torch.Tensor:
        """Return the shared part and the first personal one."""
        return torch.cat([params, first.to(params.device)])

    def split(
        self, report: Report, num_shared: int, start: torch.Tensor, row: torch.Tensor
    ) -> tuple[Report, torch.Tensor]:
        """Return the report without anything personal, and the update of the personal part, ``[B, P_v]``."""
        seen = {name: value[:, :num_shared] if value.dim() > 1 else value for name, value in report.seen.items()}
        return replace(report, delta=report.delta[:, :num_shared], seen=seen), report.delta[:, num_shared:]


@dataclass(frozen=True)
class Personal(PartialModel, name="personal"):
    """Keep some parameters personal: minimise ``(1/n) sum_i f_i(u, v_i)`` over a shared u and personal v_i (eq. 1).

    A client trains u and v_i side by side with whatever the local rule is, sends the update of u alone, and keeps
    ``v_i <- (1 - outer_lr) v_i + outer_lr v_i'`` for itself (FedAvg-P, Algorithm 1, line 9); v_i starts from the model's
    first parameters. Measurements are about both, and of those that are vectors the shared part is sent. A client whose
    report would be dropped, or whose own part is no longer finite, keeps the v_i that it had.

    Args:
        parameters: which are personal: ``"head"`` (of the last layer), ``"first"``, ``"norms"``, ``"all"``, ``"none"``, a
            pattern of their names such as ``"output.*"``, several of these, or a function that says of a name whether it is.
        lr_factor: the personal part's step size is so many times the local rule's (``gamma_v / gamma_u``).
        outer_lr: eta_v; 1 keeps what the local steps led to.
        alternate: the share of each client's local steps, rounded down, that go to v_i alone, before the others go to u
            alone (FedAlt); 0 moves both in every step (FedSim).
        adaptation_steps: local steps on v_i alone that clients who never trained may do before they are judged. Chen et
            al. judge no such clients. Several numbers k, such as ``(1, 5, 20)``, give columns of the last round for each,
            ``unseen_after_k_test_accuracy`` and alike; a single one gives ``unseen_test_accuracy``.

    Raises:
        ConfigurationError: for numbers out of range, and, of an algorithm, for momentum or Adam with `alternate`, Adam with
            an `lr_factor`, and with ``"all"`` for rules about updates, of which there are none.

    Example:
        What is personal, by a kind and by a pattern of names:

        >>> model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 2))
        >>> sorted(Personal('head').chosen(model)), sorted(Personal('*.bias').chosen(model))
        (['2.bias', '2.weight'], ['0.bias', '2.bias'])

    References: Chen et al., "Sharper convergence guarantees for federated learning with partial model personalization";
    Pillutla et al., "Federated learning with partial model personalization", ICML 2022.
    """

    parameters: str | tuple[str, ...] | Callable[[str], bool] = "head"
    lr_factor: float = 1.0
    outer_lr: float = 1.0
    alternate: float = 0.0
    adaptation_steps: int | tuple[int, ...] = 5

    def __post_init__(self) -> None:
        super().__post_init__()
        positive("lr_factor", self.lr_factor)
        positive("outer_lr", self.outer_lr)
        probability("alternate", self.alternate)

    def fits(self, algorithm: Slots) -> None:
        """Refuse local rules with which the two parts cannot take turns, or have step sizes of their own."""
        if self.alternate and algorithm.local.adapts:
            what = "momentum the velocity" if hasattr(algorithm.local, "momentum") else "Adam the mean gradient"
            raise ConfigurationError(
                f"with {what} of one part would move it on while the other part's steps are due: use Sgd without momentum, "
                "or alternate=0"
            )
        if self.lr_factor != 1.0 and algorithm.local.normalises:
            raise ConfigurationError(
                f"lr_factor={self.lr_factor} multiplies the gradients of the personal part, and a step of "
                f"{type(algorithm.local).__name__} is as long whatever the gradient's length is: use Sgd, or lr_factor=1"
            )
        super().fits(algorithm)

    def adapting(self, local: Local, steps: int) -> Local:
        """Return the rule by which a client that never trained fits its own part to its data, the shared part frozen."""
        return OnOwnPart(local.tuning(steps), (Columns(self.lr_factor, 1.0),))

    @property
    def columns(self) -> tuple[Correction, ...]:
        """The correction by which the two parts move differently; it comes last, so that no other moves a frozen part."""
        return (Columns(self.lr_factor, self.alternate),) if self.alternate or self.lr_factor != 1.0 else ()


def _chosen_by(function: Callable[[str], bool], names: list[str]) -> frozenset[str]:
    """Return the names that a function chooses: some, and not all."""
    chosen = frozenset(name for name in names if function(name))
    if 0 < len(chosen) < len(names):
        return chosen
    raise ConfigurationError(
        f"the function of personal parameters chose {'all' if chosen else 'none'} of {', '.join(names)}: choose some, or "
        "write 'all' or 'none'"
    )


def _rules_about_updates(algorithm: Slots) -> str:
    """Return the names of the pieces that act on updates, other than those of plain averaging."""
    from turnout.pieces.aggregation import WeightedSum
    from turnout.pieces.base import Normaliser
    from turnout.pieces.weighting import ByExamples

    weights = [piece for piece in algorithm.weighting if not isinstance(piece, Normaliser | ByExamples)]
    aggregation = [] if isinstance(algorithm.aggregation, WeightedSum) else [algorithm.aggregation]
    return " and ".join(type(piece).__name__ for piece in (*algorithm.guard, *weights, *aggregation))


@dataclass(frozen=True)
class Columns(Correction):
    """Scale the steps of the personal part, or have the two parts move in turns."""

    of_objective = False

    lr_factor: float
    alternate: float

    def begin(self, task: Task, memory: State, clients: Clients, lanes: Lanes) -> Correction:
        """Return the correction with the number of steps that each client takes."""
        layout, device = clients.objective.layout, task.params.device
        alone = to_device(np.floor(self.alternate * lanes.num_steps), device)[:, None]
        personal = torch.arange(layout.num_params, device=device) >= layout.num_shared
        factor = torch.where(personal, task.params.new_tensor(self.lr_factor), task.params.new_ones(()))
        step = torch.zeros((), dtype=torch.int64, device=device)
        return _Paced(personal, factor, alone if self.alternate else None, step)


@dataclass(frozen=True)
class _Paced(Correction):
    """`Columns` in one round.

    Args:
        personal: which numbers are personal, bool ``[P]``.
        factor: of each number's step, ``[P]``.
        alone: steps of each client in which they move alone, ``[B, 1]``; None where both parts always move.
        step: how many steps there were, int64 ``[]``.
    """

    personal: torch.Tensor
    factor: torch.Tensor
    alone: torch.Tensor | None
    step: torch.Tensor

    def correct(self, gradient: torch.Tensor, params: torch.Tensor, start: torch.Tensor) -> torch.Tensor:
        """Return the gradient times the factor, and zero for the part whose turn it is not."""
        direction = gradient * self.factor
        if self.alone is None:
            return direction
        moves = self.personal == (self.step < self.alone[: len(gradient)])
        self.step.add_(1)
        return direction.where(moves, 0.0)
