"""Check that the layers of a model can be trained with many clients."""

from __future__ import annotations

from torch import nn
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm

from turnout.core.checks import ConfigurationError
from turnout.engine.parameters import check_kind


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
        kind = type(child).__name__
        if isinstance(child, nn.RNNBase) and child.dropout > 0:
            raise ConfigurationError(
                f"layer {name!r} ({kind}) has dropout={child.dropout}, whose random numbers cannot be reproduced for each "
                "client: stack single layers with nn.Dropout between them"
            )
        if isinstance(child, nn.MultiheadAttention) and child.dropout > 0:
            raise ConfigurationError(
                f"layer {name!r} ({kind}) has dropout={child.dropout} of its attention weights, whose random numbers "
                "cannot be reproduced for each client: set its attribute dropout to 0.0; the other dropout of a "
                "transformer is in layers of nn.Dropout, and stays"
            )
        if isinstance(child, nn.AlphaDropout | nn.FeatureAlphaDropout | nn.RReLU):
            raise ConfigurationError(
                f"layer {name!r} ({kind}) draws random numbers that cannot be reproduced for each client: use nn.Dropout"
            )
        if isinstance(child, nn.Embedding | nn.EmbeddingBag):
            _refuse_options(name, child)
        _refuse_uncopied_norms(name, child)


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


def _refuse_uncopied_norms(name: str, child: nn.Module) -> None:
    """Reject norms of weights that torch cannot copy."""
    for hook in child._forward_pre_hooks.values():
        if isinstance(hook, WeightNorm | SpectralNorm):
            normed = "weight_norm" if isinstance(hook, WeightNorm) else "spectral_norm"
            raise ConfigurationError(
                f"layer {name!r} has a {normed} of torch.nn.utils, which torch cannot copy: write "
                "torch.nn.utils.parametrizations.weight_norm"
            )


def _refuse_options(name: str, child: nn.Embedding | nn.EmbeddingBag) -> None:
    """Reject options of embeddings that change weights in forward(), or that make gradients sparse."""
    for option, why in (
        ("max_norm", "changes its weights in forward(), which are not its own here"),
        ("sparse", "has sparse gradients, and the updates of clients are plain vectors"),
    ):
        if value := getattr(child, option):
            raise ConfigurationError(
                f"layer {name!r} ({type(child).__name__}) has {option}={value}, which {why}: leave {option} out"
            )
