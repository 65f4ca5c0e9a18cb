"""Find out whether a layer computes what a class of torch does, so that another layer can take its place."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from torch import nn

from turnout.core.checks import ConfigurationError

_HARMLESS = {"__init__", "__repr__", "__doc__", "__module__", "__dict__", "__weakref__", "__annotations__", "__slots__"}
_HARMLESS |= {"__constants__", "__parameters__", "extra_repr", "reset_parameters", "reset_running_stats"}
_HARMLESS |= {"_check_input_dim", "__static_attributes__", "__firstlineno__", "__annotate_func__", "__hash__"}
"""Attributes that a subclass may define without another output."""


def is_plain(layer: nn.Module, kinds: tuple[type[nn.Module], ...]) -> bool:
    """Return True if a layer is of one of these classes of torch, or of a subclass that computes the same.

    A subclass may compute something else if it overrides a method such as ``forward()`` or ``train()``; so may a layer
    with hooks, or with a ``forward`` of its own.

    >>> class Activated(nn.BatchNorm1d):
    ...     def forward(self, x):
    ...         return super().forward(x).relu()
    >>> is_plain(nn.BatchNorm1d(2), (nn.BatchNorm1d,)), is_plain(Activated(2), (nn.BatchNorm1d,))
    (True, False)
    """
    parents = type(layer).__mro__
    kind = next((parent for parent in parents if parent in kinds), None)
    if kind is None:
        return False
    overridden = {name for parent in parents[: parents.index(kind)] for name in vars(parent)} & set(dir(kind))
    hooks = (layer._forward_hooks, layer._forward_pre_hooks, layer._backward_hooks, layer._backward_pre_hooks)
    own = {"forward", "train", "__call__"} & vars(layer).keys()
    return not (overridden - _HARMLESS or own or any(hooks))


def check_plain(name: str, layer: nn.Module, kinds: tuple[type[nn.Module], ...], other: str, instead: str) -> None:
    """Raise an error unless `is_plain`.

    Args:
        name: name of the layer in the model.
        layer: the layer.
        kinds: classes of torch.
        other: the layer that would take its place.
        instead: what to write instead.

    Raises:
        ConfigurationError: if the layer may compute something else.
    """
    if not is_plain(layer, kinds):
        kind, base = type(layer).__name__, next(it.__name__ for it in type(layer).__mro__ if it in kinds)
        own = (
            f"is a subclass of {base} with methods of its own" if kind != base else "has hooks or a forward of its own"
        )
        raise ConfigurationError(
            f"layer {name!r} ({kind}) {own}, which would be lost, because {other} takes its place: {instead}"
        )


def with_layers(
    module: nn.Module, layers: Iterable[tuple[str, nn.Module]], make: Callable[[nn.Module, int], nn.Module]
) -> tuple[nn.Module, list[str]]:
    """Replace layers of a module, in place; a layer with several names has one replacement.

    Args:
        module: the module.
        layers: the layers with their names; an empty name is that of the module itself.
        make: function that returns the replacement of a layer, the i-th one from 0.

    Returns:
        The module, and for each replacement the prefix of the names of its parameters and buffers.
    """
    new: dict[nn.Module, nn.Module] = {}
    prefixes: list[str] = []
    for name, layer in layers:
        if layer not in new:
            new[layer] = make(layer, len(new))
            prefixes.append(f"{name}." if name else "")
        if name:
            module.set_submodule(name, new[layer])
        else:
            module = new[layer]
    return module, prefixes
