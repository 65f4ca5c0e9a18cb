"""Convert states between the arrays of the protocol and the tensors of checkpoints."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch

from turnout.core.types import NUMBERS, Report, State


def as_tensors(arrays: Mapping[str, np.ndarray]) -> State:
    """Return copies of arrays as tensors."""
    return {name: torch.from_numpy(np.array(array)) for name, array in arrays.items()}


def as_arrays(state: State) -> dict[str, np.ndarray]:
    """Return tensors as arrays in host memory."""
    return {name: tensor.cpu().numpy() for name, tensor in state.items()}


def check_form(saved: torch.Tensor | np.ndarray, fresh: torch.Tensor | np.ndarray, name: str) -> None:
    """Check that a saved tensor or array has the shape and type of the initial one.

    Raises:
        ValueError: if it has another shape or type.
    """
    if (saved.shape, saved.dtype) != (fresh.shape, fresh.dtype):
        got, needed = (f"{it.dtype} {list(it.shape)}" for it in (saved, fresh))
        raise ValueError(f"{name}: got {got}, needed {needed}")


def report_as_tensors(report: Report) -> State:
    """Return a report as tensors."""
    numbers = {name: getattr(report, name) for name in NUMBERS}
    return as_tensors(numbers) | {f"seen.{name}": value for name, value in report.seen.items()}


def report_of_tensors(state: State, device: torch.device) -> Report:
    """Return the reports of measurements that `report_as_tensors` converted."""
    client, version, num_examples, num_steps = (state[name].cpu().numpy() for name in NUMBERS)
    seen = {name.removeprefix("seen."): value.to(device) for name, value in state.items() if name.startswith("seen.")}
    nothing = torch.zeros((len(client), 0), device=device)
    return Report(client, version, num_examples, num_steps, nothing, seen=seen)
