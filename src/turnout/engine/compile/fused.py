"""Apply AdamW in one pass over memory, by the undocumented operation that PyTorch's optimizers call."""

from __future__ import annotations

from typing import Any

import torch

_aten: Any = torch.ops.aten
_ADAMW: Any = getattr(getattr(_aten, "_fused_adamw_", None), "tensor_lr", None)


def has_adamw(params: torch.Tensor) -> bool:
    """Return whether PyTorch has the operation for tensors of this type on this device."""
    return (
        _ADAMW is not None and params.device.type in ("cpu", "cuda") and params.dtype in (torch.float32, torch.float64)
    )


def adamw_(
    params: torch.Tensor,
    gradient: torch.Tensor,
    m: torch.Tensor,
    v: torch.Tensor,
    count: torch.Tensor,
    lr: torch.Tensor,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float,
) -> None:
    """Apply a step of AdamW for B clients, each with its own moments and number of steps.

    Written as separate operations, the step passes over the matrices eight times, which takes as long as the gradients of a
    small model. Each row is computed by itself, so the bits of a client do not depend on the others.

    Args:
        params, m, v: parameters and moments ``[B, P]``, changed in place.
        gradient: ``[B, P]``.
        count: steps of each client, this one included, float32 ``[B, 1]``.
        lr: step size of each client ``[B, 1]``, or of all ``[1, 1]``.
        beta1, beta2, eps, weight_decay: hyperparameters of AdamW.
    """
    torch.ops.turnout.adamw_(params, gradient, m, v, count, lr, beta1, beta2, eps, weight_decay)


def _adamw(
    params: torch.Tensor,
    gradient: torch.Tensor,
    m: torch.Tensor,
    v: torch.Tensor,
    count: torch.Tensor,
    lr: torch.Tensor,
    *rule: float,
) -> None:
    """Call PyTorch's operation, which expects lists of tensors."""
    rows = [matrix.unbind() for matrix in (params, gradient.contiguous(), m, v)]
    steps, sizes = count.unbind(), lr.flatten().unbind()
    options = dict(zip(("beta1", "beta2", "eps", "weight_decay"), rule, strict=True), amsgrad=False, maximize=False)
    if len(sizes) == 1:
        p, g, first, second = map(list, rows)
        _ADAMW(p, g, first, second, [], list(steps), lr=sizes[0], **options)
        return
    for *row, step, size in zip(*rows, steps, sizes, strict=True):
        p, g, first, second = ([vector] for vector in row)
        _ADAMW(p, g, first, second, [], [step], lr=size, **options)


# Registered as an operation on tensors, because TorchScript does not see that an operation on lists changes the tensors in
# them, and would leave it out.
_LIBRARY = torch.library.Library("turnout", "DEF")
_LIBRARY.define(
    "adamw_(Tensor(a!) params, Tensor gradient, Tensor(b!) m, Tensor(c!) v, Tensor count, Tensor lr, float beta1, "
    "float beta2, float eps, float weight_decay) -> ()"
)
for _device in ("CPU", "CUDA"):
    _LIBRARY.impl("adamw_", _adamw, _device)
