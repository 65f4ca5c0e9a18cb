"""Read the parameters of a trained model and of clients' personal ones, from an experiment or a checkpoint."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from turnout.base.personalization import Personalization
from turnout.configuration import Configuration
from turnout.core.adapter import BASE_OFFSET, Adapter
from turnout.core.checks import ConfigurationError, refuse
from turnout.core.system import memory_bytes
from turnout.core.types import State
from turnout.engine.adapters import split_offset
from turnout.engine.objective import Objective
from turnout.engine.parameters import Layout
from turnout.models import MODELS
from turnout.record import checkpoint, contents
from turnout.record.client_memory import ClientMemory
from turnout.record.contents import Contents, Whole

_PERSONAL = "personal"  # the name of personal parameters in client memory
_PERSONALIZATIONS = Personalization.family


class _SpecFacts(Contents):
    """The specification of a built-in model."""

    name: str
    options: dict[str, Any]
    input_shape: tuple[Whole, ...]
    num_outputs: Whole


class _ModelFacts(Contents):
    """The description of the model in a checkpoint."""

    names: tuple[str, ...]
    shapes: tuple[tuple[Whole, ...], ...]
    num_shared: Whole
    num_clients: Whole
    tensors: dict[str, str]
    spec: _SpecFacts | None
    adapters: tuple[Adapter, ...] = ()
    personalization: str | None = None


class _Saved(Contents):
    """The values of a checkpoint that `load` needs."""

    version: Whole
    model: _ModelFacts


@dataclass(frozen=True, eq=False)
class Trained:
    """The parameters of a trained model, and the layout by which they are named tensors.

    Attributes:
        layout: the names and shapes of the parameters in a vector ``[P]``.
        params: the shared parameters, ``[P_u]``.
        first: the initial personal parameters, ``[P - P_u]``; empty if all are shared.
        personal: the personal parameters of clients; None if there are none.
        num_clients: N.
        names: the parameter of each trained tensor of the state dict; tied tensors have the same parameter.
        fixed: the other tensors of the state dict: frozen parameters and buffers. Empty for a built-in model, which is built
            with them.
        adapters: low-rank adapters of the model, if an offset is added to the frozen weights below them; else empty.
        offset: the offset, as a vector.
        spec: class, options, sizes and seed of a built-in model, as plain values; None for a user's module.
        personalization: makes the model that serves a client from its personal parameters. If it is None, these are the
            whole model, or the parameters that are not shared.
    """

    layout: Layout
    params: torch.Tensor
    first: torch.Tensor
    personal: ClientMemory | None
    num_clients: int
    names: Mapping[str, str]
    fixed: Mapping[str, torch.Tensor]
    spec: Mapping[str, Any] | None
    adapters: tuple[Adapter, ...] = ()
    offset: torch.Tensor | None = None
    personalization: Personalization | None = None

    @classmethod
    def of(
        cls, experiment: Configuration, objective: Objective, params: torch.Tensor, personal: ClientMemory | None = None
    ) -> Trained:
        """Return the model of an experiment with these parameters.

        Args:
            experiment: the experiment.
            objective: its model.
            params: the shared parameters, ``[P_u]``.
            personal: the personal parameters of clients; None if there are none, or if they do not leave the clients.
        """
        layout, spec = objective.layout, _spec(experiment)
        names, fixed = _state_dict(objective.network.module, keep_fixed=spec is None)
        return cls(
            layout,
            params.detach().cpu(),
            objective.initial[layout.num_shared :].detach().cpu().clone(),
            personal,
            experiment.data.num_clients,
            names,
            fixed,
            spec,
            objective.network.adapters if "base" in experiment.algorithm.aggregation.reads else (),
            personalization=experiment.algorithm.personal,
        )

    def vector(self, client: int | None) -> torch.Tensor:
        """Return all parameters ``[P]`` of the trained model, or of the personal model of a client."""
        if client is None:
            return torch.cat([self.params, self.first])
        if self.personal is None:
            raise ConfigurationError(
                "clients have no models of their own, for the algorithm has no personal part or, in a deployment, clients "
                "keep theirs to themselves: leave client out"
            )
        if isinstance(client, bool) or not isinstance(client, int | np.integer) or not 0 <= client < self.num_clients:
            raise refuse("client", given=client, needed=f"the number of a client, 0 to {self.num_clients - 1}")
        row = self.personal.gather(np.array([client]))[_PERSONAL].cpu()
        if self.personalization is not None:
            return self.personalization.serving(self.params, {_PERSONAL: row})[0]
        return row[0] if row.shape[1] == self.layout.num_params else torch.cat([self.params, row[0]])

    def tensors(self, client: int | None) -> dict[str, torch.Tensor]:
        """Return the state dict, with tensors that share no memory."""
        parameters = self.layout.split(self.vector(client))
        named = {name: parameters[parameter].clone() for name, parameter in self.names.items()}
        named |= {name: value.clone() for name, value in self.fixed.items()}
        if self.offset is not None:
            parts = zip(self.adapters, split_offset(self.offset, self.adapters), strict=True)
            named |= {f"{adapter.layer}.{BASE_OFFSET}": part.clone() for adapter, part in parts}
        return named

    def saved(self) -> tuple[dict[str, dict[str, torch.Tensor]], dict[str, Any]]:
        """Return the state for a checkpoint apart from parameters and client memory: tensors by group, and JSON values."""
        row = {} if self.personal is None else {"row": self.personal.first[_PERSONAL]}
        first = {"parameters": self.first} | row
        facts = {
            "names": self.layout.names, "shapes": self.layout.shapes, "num_shared": self.layout.num_shared,
            "num_clients": self.num_clients, "tensors": dict(self.names), "spec": self.spec,
            "adapters": [list(adapter) for adapter in self.adapters],
            "personalization": self.personalization and _PERSONALIZATIONS.name_of(type(self.personalization)),
        }  # fmt: skip
        return {"model.fixed": dict(self.fixed), "model.first": first}, facts

    @classmethod
    def load(cls, folder: Path) -> tuple[Trained, int]:
        """Return the model of the checkpoint of a run folder, and its version.

        Raises:
            CheckpointError: if there is no checkpoint, or it is damaged.
        """
        tensors, facts = checkpoint.load(folder)
        file = folder / checkpoint.FILE
        saved = contents.check(file, _Saved, facts)
        model = saved.model
        with contents.restoring(file, "memory"):
            personal = _personal(tensors, model.num_clients)
        with contents.restoring(file, "model"):
            trained = cls(
                Layout(model.names, model.shapes, model.num_shared),
                tensors["model/params"],
                tensors["model.first/parameters"],
                personal,
                model.num_clients,
                model.tensors,
                checkpoint.unflatten(tensors, "model.fixed"),
                facts["model"]["spec"],
                model.adapters,
                checkpoint.unflatten(tensors, "server.aggregation").get(BASE_OFFSET),
                _PERSONALIZATIONS.get(model.personalization or "", lambda: None)(),
            )
            trained.check()
        return trained, saved.version

    def check(self) -> None:
        """Check that the tensors fit the layout.

        Raises:
            ValueError: if a tensor does not, with the first one.
        """
        layout, length = self.layout, len(self.first) + len(self.params)
        sizes = f"{len(self.params):,} shared and {len(self.first):,} personal numbers"
        if len(layout.names) != len(layout.shapes) or len(set(layout.names)) < len(layout.names):
            raise ValueError(
                f"{len(layout.names)} names, {len(set(layout.names))} of them distinct, for {len(layout.shapes)} shapes"
            )
        if not self.params.is_floating_point() or self.params.dtype != self.first.dtype:
            raise ValueError(f"shared parameters are {self.params.dtype}, and personal parameters {self.first.dtype}")
        if (self.params.shape, self.first.dim(), length) != ((layout.num_shared,), 1, layout.num_params):
            raise ValueError(f"{sizes}, of {layout.num_params:,} parameters of which {layout.num_shared:,} are shared")
        if unknown := set(self.names.values()) - set(layout.names):
            raise ValueError(f"unknown parameter {min(unknown)!r}")
        if self.personal is not None and (shape := self.personal.first[_PERSONAL].shape) not in self._row_shapes():
            raise ValueError(f"rows of shape {tuple(shape)} in client memory, and {sizes}")
        if self.offset is not None and len(self.offset) != sum(it.inputs * it.outputs for it in self.adapters):
            raise ValueError(f"{BASE_OFFSET} has {len(self.offset):,} numbers, which does not match the adapters")

    def _row_shapes(self) -> list[tuple[int, ...]]:
        """Return the shapes that the personal parameters of a client may have."""
        if self.personalization is None:
            return [(self.layout.num_params,), tuple(self.first.shape)]
        row = self.personalization.first(torch.cat([self.params, self.first]), self.layout.num_shared)
        return [tuple(row.shape)]


def _personal(tensors: State, num_clients: int) -> ClientMemory | None:
    """Return the personal parameters of clients in a checkpoint; None if there are none.

    Raises:
        KeyError, ValueError: if tensors are missing or do not fit each other.
    """
    if not {"model.first/row", f"memory/table.{_PERSONAL}"} & tensors.keys():
        return None
    row = tensors["model.first/row"]
    if 4 * num_clients > memory_bytes():
        raise ValueError(f"model.num_clients is {num_clients:,}, more than there is memory for")
    personal, saved = ClientMemory(num_clients, {_PERSONAL: row}), checkpoint.unflatten(tensors, "memory")
    personal.restore({name: saved[name] for name in ("clients", f"table.{_PERSONAL}")})
    return personal


def _state_dict(module: nn.Module, keep_fixed: bool) -> tuple[dict[str, str], dict[str, torch.Tensor]]:
    """Return the trainable parameter of each tensor of a state dict, and the other tensors if `keep_fixed` is set."""
    trainable = {id(parameter): name for name, parameter in module.named_parameters() if parameter.requires_grad}
    names, fixed = {}, {}
    for key, value in module.state_dict(keep_vars=True).items():
        if id(value) in trainable:
            names[key] = trainable[id(value)]
        elif keep_fixed and isinstance(value, torch.Tensor):
            fixed[key] = value.detach().cpu().clone()
    return names, fixed


def _spec(experiment: Configuration) -> dict[str, Any] | None:
    """Return class, options, sizes and seed of a built-in model, as plain values; None for a user's module."""
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
