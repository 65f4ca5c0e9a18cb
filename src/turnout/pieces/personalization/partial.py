"""Keep some parameters of the model personal to each client."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import nn

from turnout.base import Correction, CorrectsColumns, Local, Personalization, Slots
from turnout.base.tuning import tuning_rule
from turnout.core.checks import ConfigurationError
from turnout.core.device import to_device
from turnout.core.lanes import Lanes
from turnout.core.ranges import Positive, Probability
from turnout.core.types import Report, State, Task
from turnout.engine.cohort import Clients
from turnout.engine.parameter_names import check_patterns, names_of, trainable_names
from turnout.pieces.personalization.base import Adaptation, OnOwnPart


class PartialModel(Personalization):
    """Base class of personalizations in which some parameters of the model, named by `parameters`, are not shared.

    A subclass has the options `parameters` and `adaptation_steps` of `Personal`.
    """

    parameters: str | tuple[str, ...] | Callable[[str], bool]
    adaptation_steps: Adaptation

    def __post_init__(self) -> None:
        if not callable(self.parameters):
            check_patterns("parameters", self.parameters, also=", or a function of a name")

    def fits(self, algorithm: Slots) -> None:
        """Raise an error for pieces that act on updates if no parameter is shared."""
        if self.parameters == "all" and (idle := _rules_about_updates(algorithm)):
            raise ConfigurationError(
                f"with {type(self).__name__}('all') no update is ever sent, so there is nothing for {idle} to act on: leave "
                "it out, or share some of the parameters"
            )

    def chosen(self, module: nn.Module) -> frozenset[str]:
        """Return the names of the personal parameters among the trainable parameters of a model.

        Raises:
            ConfigurationError: if a pattern or kind matches no parameter, or all of them without being ``"all"``.
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
        """Return the initial values of the personal parameters, ``[P_v]``."""
        return initial[num_shared:]

    def join(self, params: torch.Tensor, memory: State) -> torch.Tensor:
        """Return the model of each client, ``[B, P]``: the received part, ``[P_u]`` or ``[B, P_u]``, and the personal one."""
        personal = to_device(memory["personal"], params.device)
        return torch.cat([params.expand(len(personal), -1), personal], dim=1)

    serving = join

    def newcomer(self, params: torch.Tensor, first: torch.Tensor) -> torch.Tensor:
        """Return the shared part, followed by the initial personal part."""
        return torch.cat([params, first.to(params.device)])

    def split(
        self, report: Report, num_shared: int, start: torch.Tensor, row: torch.Tensor
    ) -> tuple[Report, torch.Tensor]:
        """Return the report without the personal part, and the update of the personal part, ``[B, P_v]``."""
        seen = {name: value[:, :num_shared] if value.dim() > 1 else value for name, value in report.seen.items()}
        return replace(report, delta=report.delta[:, :num_shared], seen=seen), report.delta[:, num_shared:]


@dataclass(frozen=True)
class Personal(PartialModel, CorrectsColumns, name="personal"):
    """Keep some parameters of the model personal, and train them with the shared ones (FedAvg-P, Algorithm 1).

    The model has a shared part u and a personal part v_i at each of n clients. With the loss f_i of client i, the
    objective is ``(1/n) sum_i f_i(u, v_i)`` (equation 1). A client trains u and v_i together by any local rule, sends
    the update of u only, and keeps the result v_i' of its local steps by line 9 of the algorithm::

        v_i <- (1 - outer_lr) v_i + outer_lr v_i'

    v_i starts from the model's initial parameters. Measurements refer to the whole model; if they are vectors, only the
    shared part is sent. v_i does not change if the server would drop the client's report or if the new v_i is not
    finite.

    Args:
        parameters: the personal parameters: ``"head"`` (the last layer), ``"first"`` (the first layer), ``"norms"``
            (normalization layers), ``"all"``, ``"none"``, one or several patterns of their names such as
            ``"output.*"``, or a function that takes a name and returns whether it is personal.
        lr_factor: step size of the personal part divided by that of the local rule (``gamma_v / gamma_u``), > 0.
        outer_lr: outer step size of the personal part (eta_v), > 0; 1 keeps the result of the local steps.
        alternate: fraction of a client's local steps, in [0, 1] and rounded down, that train v_i alone before the
            remaining steps train u alone (FedAlt); with 0 every step trains both (FedSim).
        adaptation_steps: number of local steps on v_i alone, >= 1, by which a client that never trained
            (``unseen_clients``) fits its personal part before it is evaluated. Chen et al. do not evaluate such
            clients. A single number gives ``unseen_test_accuracy`` and similar columns; a tuple, such as
            ``(1, 5, 20)``, gives ``unseen_after_k_test_accuracy`` and similar columns in the last round, for each
            number k.

    Raises:
        ConfigurationError: if a number is out of range, `alternate` is with momentum or Adam, `lr_factor` is other than
            1 with Adam, or there are rules about updates with ``"all"``, because no updates are sent.

    Example:
        Personal parameters chosen by a kind and by a pattern of names:

        >>> model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 2))
        >>> sorted(Personal('head').chosen(model)), sorted(Personal('*.bias').chosen(model))
        (['2.bias', '2.weight'], ['0.bias', '2.bias'])

    References: Chen et al., "Sharper convergence guarantees for federated learning with partial model personalization";
    Pillutla et al., "Federated learning with partial model personalization", ICML 2022.
    """

    parameters: str | tuple[str, ...] | Callable[[str], bool] = "head"
    lr_factor: Positive = 1.0
    outer_lr: Positive = 1.0
    alternate: Probability = 0.0
    adaptation_steps: int | tuple[int, ...] = 5

    def fits(self, algorithm: Slots) -> None:
        """Raise an error for local rules with which the parts cannot alternate or have different step sizes."""
        if self.alternate and algorithm.local.traits.adapts:
            what = "momentum the velocity" if hasattr(algorithm.local, "momentum") else "Adam the mean gradient"
            raise ConfigurationError(
                f"with {what} of one part would change it during the steps of the other part: use Sgd without momentum, "
                "or alternate=0"
            )
        if self.lr_factor != 1.0 and algorithm.local.traits.normalizes:
            raise ConfigurationError(
                f"lr_factor={self.lr_factor} multiplies the gradients of the personal part, and the length of a step of "
                f"{type(algorithm.local).__name__} does not depend on that of the gradient: use Sgd, or lr_factor=1"
            )
        super().fits(algorithm)

    def split(
        self, report: Report, num_shared: int, start: torch.Tensor, row: torch.Tensor
    ) -> tuple[Report, torch.Tensor]:
        """Return the report without the personal part, and `outer_lr` times the update of the personal part."""
        report, update = super().split(report, num_shared, start, row)
        return report, update if self.outer_lr == 1.0 else self.outer_lr * update

    def adapting(self, local: Local, steps: int) -> Local:
        """Return the rule by which a client that never trained fits its personal part, with the shared part frozen."""
        return OnOwnPart(tuning_rule(local, steps), (Columns(self.lr_factor, 1.0),))

    @property
    def columns(self) -> tuple[Correction, ...]:
        """The correction that gives the parts different steps. It comes last, so that no other one changes a frozen part."""
        return (Columns(self.lr_factor, self.alternate),) if self.alternate or self.lr_factor != 1.0 else ()


def _chosen_by(function: Callable[[str], bool], names: list[str]) -> frozenset[str]:
    """Return the names that a function selects; raise an error if it selects all names or none."""
    chosen = frozenset(name for name in names if function(name))
    if 0 < len(chosen) < len(names):
        return chosen
    raise ConfigurationError(
        f"the function of personal parameters chose {'all' if chosen else 'none'} of {', '.join(names)}: choose some, or "
        "write 'all' or 'none'"
    )


def _rules_about_updates(algorithm: Slots) -> str:
    """Return the names of the guards and the aggregation, which act on updates, unless it is a plain sum.

    Weights may be any: without updates, each client trains alone.
    """
    from turnout.pieces.aggregation import WeightedSum

    aggregation = [] if isinstance(algorithm.aggregation, WeightedSum) else [algorithm.aggregation]
    return " and ".join(type(piece).__name__ for piece in (*algorithm.guard, *aggregation))


@dataclass(frozen=True)
class Columns(Correction):
    """Scale the steps of the personal part, or alternate between steps of the two parts.

    Args:
        lr_factor: factor of the steps of the personal part.
        alternate: fraction of the local steps that change the personal part alone, before the others change the shared
            part alone; 0 does not alternate.
    """

    of_objective = False

    lr_factor: float
    alternate: float

    def begin(self, task: Task, memory: State, clients: Clients, lanes: Lanes) -> Correction:
        """Return the correction for the number of steps of each client."""
        layout, device = clients.objective.layout, task.params.device
        alone = to_device(np.floor(self.alternate * lanes.num_steps), device)[:, None]
        personal = torch.arange(layout.num_params, device=device) >= layout.num_shared
        factor = torch.where(personal, task.params.new_tensor(self.lr_factor), task.params.new_ones(()))
        step = torch.zeros((), dtype=torch.int64, device=device)
        return _Paced(personal, factor, alone if self.alternate else None, step)


@dataclass(frozen=True)
class _Paced(Correction):
    """The correction `Columns` in one round.

    Args:
        personal: True for personal parameters, bool ``[P]``.
        factor: factor of the step of each parameter, ``[P]``.
        alone: number of steps of each client that change only the personal part, ``[B, 1]``; None if all steps change
            both.
        step: number of steps so far, int64 ``[]``.
    """

    personal: torch.Tensor
    factor: torch.Tensor
    alone: torch.Tensor | None
    step: torch.Tensor

    def correct(self, gradient: torch.Tensor, params: torch.Tensor, start: torch.Tensor) -> torch.Tensor:
        """Return the gradient times the factor, and zero for the part that does not move in this step."""
        direction = gradient * self.factor
        if self.alone is None:
            return direction
        moves = self.personal == (self.step < self.alone[: len(gradient)])
        self.step.add_(1)
        return direction.where(moves, 0.0)
