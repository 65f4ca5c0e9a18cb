"""Check devices, and move values to them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from turnout.core.checks import ConfigurationError, refuse

_GIB = 1 << 30


def check_device(name: str) -> None:
    """Check that a device exists and can hold numbers (``"meta"`` cannot).

    Raises:
        ConfigurationError: if it cannot be used, with the first sentence of torch's reason.
    """
    if str(name).partition(":")[0] == "mps":
        raise ConfigurationError(
            f"device {name!r} cannot be used here: it lacks float64, in which sums are computed. Write device='cpu'"
        )
    try:
        torch.zeros(1, device=name).item()
    except (RuntimeError, AssertionError, TypeError) as error:
        reason = str(error).partition("\n")[0].partition(". ")[0].rstrip(".")
        raise ConfigurationError(
            f"device {name!r} cannot be used here: {reason}. Write device='cpu', or another that this installation has"
        ) from error


def gpus_of(name: str) -> tuple[str, ...]:
    """Return the GPUs of a device string: those of ``"cuda:0,cuda:1"``, all of this machine for ``"cuda"``, else none."""
    if "," in name:
        return tuple(part.strip() for part in name.split(","))
    return tuple(f"cuda:{index}" for index in range(torch.cuda.device_count())) if name == "cuda" else ()


def check_gpus(devices: Sequence[str]) -> None:
    """Check that this machine has these GPUs.

    Raises:
        ConfigurationError: if it lacks one of them.
    """
    present = gpus_of("cuda")
    for device in devices:
        if device not in present:
            needed = f"one of {', '.join(present)}" if present else "a GPU, of which this machine has none"
            raise refuse("devices", given=device, needed=needed)


def memory_budget(device: torch.device, chosen: int | None = None) -> int:
    """Return the bytes that clients may take on a device: the chosen number, or a default.

    The default is 1 GiB on a CPU, and an eighth of a GPU's memory, but at least 1 GiB. It does not depend on how much is
    free, because the number of clients that a GPU computes at once may change the last digits of a result.
    """
    if chosen is not None:
        return chosen
    return _GIB if device.type != "cuda" else max(_GIB, torch.cuda.get_device_properties(device).total_memory // 8)


def to_device(
    values: np.ndarray | torch.Tensor, device: torch.device, dtype: torch.dtype | None = None
) -> torch.Tensor:
    """Copy values to a device and type, unless they have both already, without waiting for the copy to complete."""
    tensor = torch.from_numpy(values) if isinstance(values, np.ndarray) else values
    return tensor.to(device, dtype, non_blocking=True)
