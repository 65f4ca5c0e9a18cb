"""Select the trainable parameters of a model by the kind of their layer or by a pattern of names."""

from __future__ import annotations

from fnmatch import fnmatchcase

import torch
from torch import nn

from turnout.core.checks import ConfigurationError, refuse
from turnout.engine.network import Network

KINDS = ("head", "first", "norms", "all", "none")
"""Kinds of parameters: those of the last layer, of the first layer, of normalization layers, all, none."""

_NORMS = (
    *(nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm),
    *(nn.GroupNorm, nn.LayerNorm, nn.RMSNorm),
    *(nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d),
    *(nn.LazyInstanceNorm1d, nn.LazyInstanceNorm2d, nn.LazyInstanceNorm3d),
)


def check_patterns(option: str, patterns: str | tuple[str, ...], also: str = "") -> None:
    """Check that a value is a kind of parameters, a pattern of names, or a tuple of these.

    Args:
        option: the name of the option.
        patterns: the value.
        also: further allowed values, for the message.
    """
    parts = (patterns,) if isinstance(patterns, str) else patterns
    if not (isinstance(parts, tuple | list) and parts and all(isinstance(part, str) and part for part in parts)):
        needed = f"one of {', '.join(KINDS)}, {'patterns' if also else 'or patterns'} of parameters' names{also}"
        raise refuse(option, given=patterns, needed=needed)


def trainable_names(module: nn.Module) -> list[str]:
    """Return the names of the trainable parameters, in the module's order."""
    return [name for name, parameter in module.named_parameters() if parameter.requires_grad]


def names_of(patterns: str | tuple[str, ...], module: nn.Module, what: str = "parameters") -> frozenset[str]:
    """Return the names of the trainable parameters that a kind or a pattern such as ``"output.*"`` matches.

    Args:
        patterns: one of `KINDS`, a pattern, or several of these, whose matches are united.
        module: the model.
        what: the noun for the parameters in the error message.

    Raises:
        ConfigurationError: if a kind or pattern matches nothing, except ``"none"``.

    >>> model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 2))
    >>> sorted(names_of("head", model)), sorted(names_of("*.bias", model))
    (['2.bias', '2.weight'], ['0.bias', '2.bias'])
    """
    names = trainable_names(module)
    parts = (patterns,) if isinstance(patterns, str) else patterns
    return frozenset[str]().union(*(_part(part, module, names, what) for part in parts))


def elements_of(patterns: str | tuple[str, ...], network: Network) -> torch.Tensor:
    """Return a mask of the elements of the vector that belong to matching parameters, bool ``[P]``; see `names_of`."""
    chosen = names_of(patterns, network.module)
    return network.layout.per_element([name in chosen for name in network.layout.names])


def _part(part: str, module: nn.Module, names: list[str], what: str) -> set[str]:
    """Return the names that a kind or pattern matches; at least one, unless it is ``"none"``."""
    own = [(layer, _direct(name, layer, names)) for name, layer in module.named_modules()]
    layers = [(layer, direct) for layer, direct in own if direct]
    of_norms = [pair for pair in layers if isinstance(pair[0], _NORMS)]
    kinds = {"none": [], "all": layers, "head": layers[-1:], "first": layers[:1], "norms": of_norms}
    if part in kinds:
        matches = {name for _, direct in kinds[part] for name in direct}
    else:
        matches = {name for name in names if fnmatchcase(name, part)}
    if not matches and part != "none":
        why = "it has no such layer" if part in KINDS else f"its parameters are {', '.join(names)}"
        norms = [name for name, layer in module.named_modules() if isinstance(layer, _NORMS)]
        if part == "norms" and norms:
            why = f"its normalization layer {norms[0]!r} has no trainable weights: write affine=True, torch's default"
        raise ConfigurationError(f"{what} {part!r} match nothing of {type(module).__name__}: {why}")
    return matches


def _direct(name: str, layer: nn.Module, names: list[str]) -> list[str]:
    """Return the trainable parameters of a layer itself, without those of its submodules."""
    full = (f"{name}.{inner}" if name else inner for inner, _ in layer.named_parameters(recurse=False))
    return [parameter for parameter in full if parameter in names]
