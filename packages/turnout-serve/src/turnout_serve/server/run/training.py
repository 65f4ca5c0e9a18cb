"""Describe the computation of a client in plain values, for clients in other languages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from turnout.base import InformsClients
from turnout.base.algorithm import Algorithm
from turnout.core.checks import TurnoutError
from turnout.engine.loss import cross_entropy
from turnout.engine.objective import Objective
from turnout.engine.plain_layers import is_plain
from turnout.pieces.local import Sgd
from turnout_serve.wire.format import Manifest, manifest, plain


class _Indescribable(TurnoutError):
    """A computation that cannot be described in plain values; the text says why."""


def secure(
    algorithm: Algorithm, objective: Objective, seed: int, report: Manifest, opts: bool
) -> dict[str, Any] | None:
    """Describe how clients mask their updates, and what they compute before; None where updates are not masked, or changed.

    The arguments are those of `training`.
    """
    masking = getattr(algorithm.aggregation, "masking", None)
    if masking is None or algorithm.privacy is not None:  # clients of a private sum clip, and may add noise
        return None
    code = masking.code
    return {
        "bits": code.bits,
        "fraction_bits": code.fraction_bits,
        "largest": code.largest,
        "too_large": code.too_large,
        "threshold": masking.threshold,
        "weights": None if masking.weights is None else list(masking.weights),
        "degree": masking.degree,
        "min_clients": masking.min_clients,
        "training": training(algorithm, objective, seed, report, opts, masks=True),
    }


def training(
    algorithm: Algorithm, objective: Objective, seed: int, report: Manifest, opts: bool, masks: bool = False
) -> dict[str, Any]:
    """Describe the computation of a task of the phase ``"train"``.

    Args:
        algorithm: algorithm of the run.
        objective: model and loss.
        seed: seed of the run.
        report: the tensors of a report.
        opts: True where clients evaluate the model before they take part.
        masks: True for clients that can mask their update.

    Returns:
        ``layers``, ``loss``, ``dtype``, ``sgd``, ``seed`` and ``report``; or ``reason``, where a client needs more than
        minibatch SGD on a stack of linear, convolutional, pooling and ReLU layers.
    """
    try:
        sgd, layers = _sgd(algorithm, masks), _layers(objective.network.module)
        if objective.network.constants or len(layers) != len(_leaves(objective.network.module)):
            raise _Indescribable("the model holds frozen parameters, buffers, or a layer twice")
        if objective.loss is not cross_entropy:
            raise _Indescribable("the loss is not cross_entropy")
        if objective.network.precision != "full":
            raise _Indescribable("local steps are in bfloat16")
        if opts:
            raise _Indescribable("clients judge the model by what they require before they take part")
    except _Indescribable as reason:
        return {"reason": str(reason)}
    return {
        "layers": layers,
        "loss": "cross_entropy",
        "dtype": manifest({"": objective.initial})[""].dtype,
        "sgd": sgd,
        "seed": str(seed),  # which may have more digits than a float64
        "report": plain(report),
    }


def _sgd(algorithm: Algorithm, masks: bool) -> dict[str, Any]:
    """Describe the local steps.

    Raises:
        _Indescribable: if they are more than minibatch SGD.
    """
    sgd = algorithm.local.plain if isinstance(algorithm.local, Sgd) else None
    if sgd is None:
        raise _Indescribable(
            f"{type(algorithm.local).__name__}, as it is written, is not SGD with the same step size in each step"
        )
    if (piece := _further(algorithm, masks)) is not None:
        raise _Indescribable(f"{type(piece).__name__} has clients do more than SGD")
    return sgd


def _further(algorithm: Algorithm, masks: bool) -> object | None:
    """Return a piece that needs more of clients than SGD; None without one."""
    pieces = (*algorithm.corrections, *algorithm.measurements, *algorithm.selection.measurements, *algorithm.guard)
    informs = [piece for piece in algorithm.weighting if isinstance(piece, InformsClients)]
    secure = [algorithm.aggregation] if algorithm.phases != ("train",) and not masks else []
    return next(iter((*pieces, *informs, *secure)), algorithm.personal)


def _leaves(module: nn.Module) -> list[nn.Module]:
    """Return the layers of a model that contain no others."""
    return [layer for layer in module.modules() if not any(layer.children())]


def _layers(module: nn.Module) -> list[dict[str, Any]]:
    """Describe the layers of a model, whose parameters are their weights and biases, in order.

    Raises:
        _Indescribable: if it is not a sequence of known layers.
    """
    if is_plain(module, (nn.Sequential,)):
        return [layer for child in module.children() for layer in _layers(child)]
    describe = next((function for kind, function in _KINDS.items() if is_plain(module, (kind,))), None)
    if describe is None:
        raise _Indescribable(f"the model holds {type(module).__name__}")
    return [describe(module)]


def _flatten(layer: Any) -> dict[str, Any]:
    if (layer.start_dim, layer.end_dim) != (1, -1):
        raise _Indescribable("the model holds Flatten of some dimensions")
    return {"kind": "flatten"}


def _linear(layer: Any) -> dict[str, Any]:
    return {
        "kind": "linear",
        "inputs": layer.in_features,
        "outputs": layer.out_features,
        "bias": layer.bias is not None,
    }


def _conv2d(layer: Any) -> dict[str, Any]:
    if layer.groups != 1 or layer.dilation != (1, 1) or layer.padding_mode != "zeros" or isinstance(layer.padding, str):
        raise _Indescribable("the model holds Conv2d with groups, dilation, or padding by something else than zeros")
    return {
        "kind": "conv2d",
        "inputs": layer.in_channels,
        "outputs": layer.out_channels,
        "kernel": list(layer.kernel_size),
        "stride": list(layer.stride),
        "padding": list(layer.padding),
        "bias": layer.bias is not None,
    }


def _max_pool2d(layer: Any) -> dict[str, Any]:
    pair = lambda value: [value, value] if isinstance(value, int) else list(value)  # noqa: E731
    if pair(layer.padding) != [0, 0] or pair(layer.dilation) != [1, 1] or layer.ceil_mode:
        raise _Indescribable("the model holds MaxPool2d with padding, dilation or ceil_mode")
    return {"kind": "max_pool2d", "kernel": pair(layer.kernel_size), "stride": pair(layer.stride)}


_KINDS: dict[type, Callable[[Any], dict[str, Any]]] = {
    nn.Flatten: _flatten,
    nn.Linear: _linear,
    nn.ReLU: lambda _: {"kind": "relu"},
    nn.Conv2d: _conv2d,
    nn.MaxPool2d: _max_pool2d,
}
