"""Check that the layers of a model can be trained with many clients."""

from __future__ import annotations

from torch import nn
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm

from turnout.core.checks import ConfigurationError
from turnout.engine.parameters import check_kind

_OPTIONS = (
    ("max_norm", "changes its weights in forward(), which are not its own here"),
    ("sparse", "has sparse gradients, and the updates of clients are plain vectors"),
)
"""Options of embeddings that change weights in forward(), or that make gradients sparse."""


def check_layers(module: nn.Module) -> None:
    """Reject layers that would behave differently from what users expect with many clients.

    Batch normalization is checked where it is replaced (`turnout.engine.batch_norm`).

    Raises:
        ConfigurationError: if a layer has random numbers that cannot be reproduced for each client, weights that change in
            ``forward()``, or sparse gradients, or if a parameter has no shape, no values or is of inference mode.
    """
    check_kind(module)
    _refuse_untrainable_tensors(module)
    for name, child in module.named_modules():
        if (why := _why_refused(child)) is not None:
            raise ConfigurationError(f"layer {name!r} ({type(child).__name__}) {why}")


def _refuse_untrainable_tensors(module: nn.Module) -> None:
    """Reject parameters that have no values, or that were created in inference mode."""
    for name, parameter in module.named_parameters():
        if parameter.is_meta:
            raise ConfigurationError(
                f"parameter {name!r} is on the device meta, where tensors have no values: create the model on the CPU"
            )
        if parameter.is_inference():
            raise ConfigurationError(
                f"parameter {name!r} was created in inference mode, and cannot be trained: create the model outside of "
                "torch.inference_mode()"
            )


def _why_refused(layer: nn.Module) -> str | None:
    """Return why a layer cannot be trained with many clients, and what to write; None if it can."""
    if isinstance(layer, nn.RNNBase) and layer.dropout > 0:
        return (
            f"has dropout={layer.dropout}, whose random numbers cannot be reproduced for each client: stack single layers "
            "with nn.Dropout between them"
        )
    if isinstance(layer, nn.MultiheadAttention) and layer.dropout > 0:
        return (
            f"has dropout={layer.dropout} of its attention weights, whose random numbers cannot be reproduced for each "
            "client: set its attribute dropout to 0.0; the other dropout of a transformer is in layers of nn.Dropout, and "
            "stays"
        )
    if isinstance(layer, nn.AlphaDropout | nn.FeatureAlphaDropout | nn.RReLU):
        return "draws random numbers that cannot be reproduced for each client: use nn.Dropout"
    for option, why in _OPTIONS if isinstance(layer, nn.Embedding | nn.EmbeddingBag) else ():
        if value := getattr(layer, option):
            return f"has {option}={value}, which {why}: leave {option} out"
    for hook in layer._forward_pre_hooks.values():
        if isinstance(hook, WeightNorm | SpectralNorm):
            normed = "weight_norm" if isinstance(hook, WeightNorm) else "spectral_norm"
            return (
                f"has a {normed} of torch.nn.utils, which torch cannot copy: write "
                "torch.nn.utils.parametrizations.weight_norm"
            )
    return None
