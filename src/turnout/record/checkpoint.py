"""Write and read checkpoints: named tensors and plain values in a safetensors file. The last two are kept."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from safetensors import SafetensorError, safe_open

from turnout.core.checks import CheckpointError
from turnout.core.system import check_path
from turnout.record import contents, storage
from turnout.record.contents import Contents, Unreadable, Whole

if TYPE_CHECKING:
    import torch

FILE, PREVIOUS = "checkpoint.safetensors", "checkpoint.previous.safetensors"


class Facts(Contents):
    """The JSON values that every checkpoint has; drivers add others."""

    version: Whole | None = None
    experiment: dict[str, Any] | None = None
    engine: Literal["vectorized", "one_by_one"] | None = None


def save(folder: Path, tensors: Mapping[str, torch.Tensor], facts: Mapping[str, Any]) -> Path:
    """Write a checkpoint into `folder` and keep the previous one; the digests of both are in ``SHA256SUMS``.

    Args:
        folder: the folder of a run.
        tensors: tensors by name.
        facts: plain values that describe them, saved as JSON.

    Raises:
        CheckpointError: if it cannot be written, e.g. on a full disk; the last checkpoint is unchanged then.
    """
    from safetensors.torch import save_file  # here, because commands that read a version alone need no PyTorch

    contents: dict[str, torch.Tensor] = {}
    addresses: set[int] = set()
    for name, tensor in tensors.items():
        value = tensor.detach().cpu().contiguous()
        address = value.untyped_storage().data_ptr()
        # Tensors may share memory, as models of several versions after a step that changes nothing; safetensors refuses that.
        contents[name] = value.clone() if address in addresses else value
        addresses.add(address)

    def write(path: Path) -> None:
        try:
            save_file(contents, path, metadata={"facts": json.dumps(dict(facts))})
        except SafetensorError as error:  # raised on a full disk
            raise OSError(str(error)) from error

    storage.save(folder, {FILE: write}, previous={FILE: PREVIOUS})
    return folder / FILE


def exists(folder: Path) -> bool:
    """Return True if the folder has a checkpoint, damaged or not.

    Raises:
        ConfigurationError: if the system does not accept its path.
    """
    check_path(folder)
    return any((folder / name).exists() for name in (FILE, PREVIOUS))


def version(folder: Path) -> int | None:
    """Return the round of the checkpoint from which a run would be resumed; None if there is no intact one."""
    for name in (FILE, PREVIOUS):
        with suppress(CheckpointError):
            if (path := folder / name).exists():
                return _read(path, tensors=False)[1].get("version")
    return None


def facts(folder: Path) -> dict[str, Any]:
    """Return the facts of the checkpoint of `folder`, without its tensors.

    Raises:
        CheckpointError: if there is none, or it is damaged.
    """
    return _read(folder / FILE, tensors=False)[1]


def load(folder: Path, or_previous: bool = False) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """Read the checkpoint of `folder`: tensors and facts.

    Args:
        folder: the folder of a run.
        or_previous: if the last checkpoint is damaged, warn and read the previous one.

    Raises:
        CheckpointError: if there is none, or it is damaged.
    """
    if not exists(folder):
        if _is_served(folder):
            raise CheckpointError(
                f"the server of {folder} has saved no model yet: it saves a minute after its first step, and when it stops"
            )
        raise CheckpointError(f"{folder} holds no {FILE}: give the folder of a run that has saved one")
    if not (folder / FILE).exists():  # the process was killed between two moves
        return _read(folder / PREVIOUS)
    try:
        return _read(folder / FILE)
    except Unreadable:  # the last checkpoint may be intact
        raise
    except CheckpointError as error:
        if not storage.is_whole(folder / PREVIOUS):
            raise
        contents = _read(folder / PREVIOUS)
        before = f"the checkpoint of round {contents[1].get('version')} before it"
        if not or_previous:
            raise CheckpointError(f"{error}; {before} is intact: {command(folder)} resumes from it") from error
        warnings.warn(f"{error}; resuming from {before}", RuntimeWarning, stacklevel=2)
        return contents


def _read(path: Path, tensors: bool = True) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """Read a file: its tensors if `tensors` is True, and its facts."""
    try:
        storage.check(path)
        with safe_open(path, framework="pt" if tensors else "numpy") as file:
            facts = contents.parse((file.metadata() or {}).get("facts", "{}"))
            contents.check(path, Facts, facts)
            names = file.keys() if tensors else ()
            return {name: file.get_tensor(name) for name in names}, facts
    except CheckpointError:  # says what is wrong already
        raise
    except (OSError, RuntimeError, SafetensorError, ValueError) as error:  # RuntimeError: replaced since it was checked
        raise contents.damaged(path, error, "delete it to start the run anew") from error


def flatten(states: Mapping[str, Mapping[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    """Return groups of named tensors as a flat mapping by ``group/name``."""
    return {f"{group}/{name}": tensor for group, state in states.items() for name, tensor in state.items()}


def unflatten(tensors: Mapping[str, torch.Tensor], group: str) -> dict[str, torch.Tensor]:
    """Return the tensors of one group of a flat mapping."""
    return {name.removeprefix(f"{group}/"): t for name, t in tensors.items() if name.startswith(f"{group}/")}


def command(folder: Path) -> str:
    """Return the command that resumes the run in a folder."""
    return f"turnout serve SETTINGS --folder {folder}" if _is_served(folder) else f"turnout run --resume {folder}"


def _is_served(folder: Path) -> bool:
    """Return True if the folder is that of a server."""
    return (folder / "incoming").is_dir()
