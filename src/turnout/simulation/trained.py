"""The numbers of a trained model and of every client's own one, from a simulation or a checkpoint, as named tensors."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from turnout.configuration import Configuration
from turnout.core.adapter import BASE_OFFSET, Adapter
from turnout.core.checks import CheckpointError, ConfigurationError, refuse
from turnout.engine.adapters import split_offset
from turnout.engine.objective import Objective
from turnout.engine.parameters import Layout
from turnout.models import MODELS
from turnout.record import checkpoint
from turnout.simulation.memory import ClientMemory
from turnout.simulation.simulation import Simulation

_OWN = "personal"  # what a client's own part is called in client memory


@dataclass(frozen=True, eq=False)
class Trained:
    """The numbers of a trained model, and how they become named tensors.

    Attributes:
        layout: which stretch of a vector ``[P]`` is which parameter.
        params: the shared parameters, ``[P_u]``.
        first: the personal parameters before a client took part, ``[P - P_u]``; empty where all are shared.
        own: what clients keep of the model, by client; None where they keep nothing.
        num_clients: N.
        names: the parameter that each trained tensor of the state dict is; two tensors may be one parameter (tied weights).
        fixed: the other tensors of the state dict: frozen parameters and buffers, which training leaves as they are; none of
            a ready-made model, which is made with them.
        adapters: low-rank updates of the model, where something is added to the frozen weights below them; else none.
        offset: what is added, end to end.
        spec: class, options, sizes and seed of a ready-made model, as plain values; None of a module of one's own.
    """

    layout: Layout
    params: torch.Tensor
    first: torch.Tensor
    own: ClientMemory | None
    num_clients: int
    names: Mapping[str, str]
    fixed: Mapping[str, torch.Tensor]
    spec: Mapping[str, Any] | None
    adapters: tuple[Adapter, ...] = ()
    offset: torch.Tensor | None = None

    @classmethod
    def of(cls, simulation: Simulation) -> Trained:
        """Take the present model of a simulation."""
        experiment = simulation.experiment
        own = simulation.memory if experiment.algorithm.personal is not None else None
        trained = cls.of_parts(experiment, simulation.objective, simulation.state.params.clone(), own)
        if (offset := simulation.coordinator.shared().get(BASE_OFFSET)) is None:
            return trained
        return replace(trained, offset=offset.detach().cpu().clone())

    @classmethod
    def of_parts(
        cls, experiment: Configuration, objective: Objective, params: torch.Tensor, own: ClientMemory | None = None
    ) -> Trained:
        """Name the numbers of a model.

        Args:
            experiment: what is run.
            objective: its model.
            params: the shared parameters, ``[P_u]``.
            own: what clients keep of the model; None where they keep nothing, or keep it to themselves.
        """
        layout, spec = objective.layout, _spec(experiment)
        names, fixed = _state_dict(objective.network.module, keep_fixed=spec is None)
        return cls(
            layout,
            params.detach().cpu(),
            objective.initial[layout.num_shared :].detach().cpu().clone(),
            own,
            experiment.data.num_clients,
            names,
            fixed,
            spec,
            objective.network.adapters if experiment.algorithm.aggregation.moves_base else (),
        )

    def vector(self, client: int | None) -> torch.Tensor:
        """Return all parameters ``[P]`` of the trained model, or of a client's own one.

        A client's row is the model that serves it, or its personal part.
        """
        if client is None:
            return torch.cat([self.params, self.first])
        if self.own is None:
            raise ConfigurationError(
                "clients have no models of their own, for the algorithm has no personal part or, in a deployment, clients "
                "keep theirs to themselves: leave client out"
            )
        if isinstance(client, bool) or not isinstance(client, int | np.integer) or not 0 <= client < self.num_clients:
            raise refuse("client", given=client, needed=f"the number of a client, 0 to {self.num_clients - 1}")
        row = self.own.gather(np.array([client]))[_OWN][0].cpu()
        return row if len(row) == self.layout.num_params else torch.cat([self.params, row])

    def tensors(self, client: int | None) -> dict[str, torch.Tensor]:
        """Return the state dict, each tensor with memory of its own."""
        parameters = self.layout.split(self.vector(client))
        named = {name: parameters[parameter].clone() for name, parameter in self.names.items()}
        named |= {name: value.clone() for name, value in self.fixed.items()}
        if self.offset is not None:
            parts = zip(self.adapters, split_offset(self.offset, self.adapters), strict=True)
            named |= {f"{adapter.layer}.{BASE_OFFSET}": part.clone() for adapter, part in parts}
        return named

    def saved(self) -> tuple[dict[str, dict[str, torch.Tensor]], dict[str, Any]]:
        """Return what a checkpoint needs beside parameters and client memory: tensors by group, and plain values."""
        first = {"parameters": self.first} | ({} if self.own is None else {"row": self.own.first[_OWN]})
        facts = {
            "names": self.layout.names, "shapes": self.layout.shapes, "num_shared": self.layout.num_shared,
            "num_clients": self.num_clients, "tensors": dict(self.names), "spec": self.spec,
            "adapters": [list(adapter) for adapter in self.adapters],
        }  # fmt: skip
        return {"model.fixed": dict(self.fixed), "model.first": first}, facts

    @classmethod
    def load(cls, folder: Path) -> tuple[Trained, int]:
        """Read the model that the checkpoint of a run folder holds, and after which round it is.

        Raises:
            CheckpointError: where there is none, or it is damaged.
        """
        tensors, facts = checkpoint.load(folder)
        if (model := facts.get("model")) is None:
            raise CheckpointError(
                f"{folder / checkpoint.FILE} does not say what its parameters are called: run it again, or start "
                "`turnout serve` on this folder once more"
            )
        first, memory, own = checkpoint.unflatten(tensors, "model.first"), checkpoint.unflatten(tensors, "memory"), None
        if "row" in first:
            own = ClientMemory(model["num_clients"], {_OWN: first["row"]})
            own.restore({name: memory[name] for name in ("clients", f"table.{_OWN}")})
        trained = cls(
            Layout(tuple(model["names"]), tuple(map(tuple, model["shapes"])), model["num_shared"]),
            tensors["model/params"],
            first["parameters"],
            own,
            model["num_clients"],
            model["tensors"],
            checkpoint.unflatten(tensors, "model.fixed"),
            model["spec"],
            tuple(Adapter(*adapter) for adapter in model.get("adapters", ())),
            checkpoint.unflatten(tensors, "server.aggregation").get(BASE_OFFSET),
        )
        return trained, facts["version"]


def _state_dict(module: nn.Module, keep_fixed: bool) -> tuple[dict[str, str], dict[str, torch.Tensor]]:
    """Which tensors of a module's state dict are which trainable parameter, and the others, if they are to be kept."""
    trainable = {id(parameter): name for name, parameter in module.named_parameters() if parameter.requires_grad}
    names, fixed = {}, {}
    for key, value in module.state_dict(keep_vars=True).items():
        if id(value) in trainable:
            names[key] = trainable[id(value)]
        elif keep_fixed and isinstance(value, torch.Tensor):
            fixed[key] = value.detach().cpu().clone()
    return names, fixed


def _spec(experiment: Configuration) -> dict[str, Any] | None:
    """Return what a ready-made model is made of, as plain values; None of any other."""
    model, data = experiment.model, experiment.data
    if type(model) not in MODELS.values():
        return None
    return {
        "name": next(name for name, kind in MODELS.items() if kind is type(model)),
        "options": dataclasses.asdict(model),  # type: ignore[call-overload]
        "input_shape": data.input_shape,
        "num_outputs": data.num_outputs,
        "seed": experiment.seed,
    }
