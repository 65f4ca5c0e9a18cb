"""Checkpoints: named tensors and a few plain values in one safetensors file, replaced in one move."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from turnout.core.checks import CheckpointError
from turnout.tables import replace_files

FILE = "checkpoint.safetensors"


def save(folder: Path, tensors: Mapping[str, torch.Tensor], facts: Mapping[str, Any]) -> Path:
    """Write a checkpoint into `folder`; the one before stays whole until this one is on the disk.

    Args:
        tensors: what to save, by name.
        facts: plain values (JSON) that say what it is.

    Raises:
        CheckpointError: where it cannot be written, e.g. on a full disk; the last checkpoint is still there then.
    """
    whole = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}

    def write(path: Path) -> None:
        try:
            save_file(whole, path, metadata={"facts": json.dumps(dict(facts))})
        except SafetensorError as error:  # what a full disk is called there
            raise OSError(str(error)) from error

    replace_files({folder / FILE: write})
    return folder / FILE


def load(folder: Path) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """Read the checkpoint of `folder`: tensors and facts.

    Raises:
        CheckpointError: where there is none, or it is damaged.
    """
    path = folder / FILE
    if not path.exists():
        raise CheckpointError(f"{folder} holds no {FILE}: give the folder of a run that has saved one")
    try:
        with safe_open(path, framework="pt") as file:
            facts = json.loads((file.metadata() or {}).get("facts", "{}"))
            return {name: file.get_tensor(name) for name in file.keys()}, facts  # noqa: SIM118 - not a mapping
    except (OSError, SafetensorError, ValueError) as error:
        raise CheckpointError(f"{path} is damaged ({error}): delete it to start the run anew") from error


def flatten(states: Mapping[str, Mapping[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    """Named groups of named tensors as one flat mapping, ``group/name``."""
    return {f"{group}/{name}": tensor for group, state in states.items() for name, tensor in state.items()}


def unflatten(tensors: Mapping[str, torch.Tensor], group: str) -> dict[str, torch.Tensor]:
    """The tensors of one group of a flat mapping."""
    return {name.removeprefix(f"{group}/"): t for name, t in tensors.items() if name.startswith(f"{group}/")}
