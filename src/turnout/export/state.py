"""Choose the format of an exported model by the name of its file, and write named tensors."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from safetensors.torch import save

from turnout.core.checks import ConfigurationError, known_name

ENDINGS = {
    ".safetensors": "safetensors",
    ".pt": "torch",
    ".pth": "torch",
    ".onnx": "onnx",
    ".pte": "executorch",
}
"""The format of each ending of a file's name."""


def format_of(path: Path, format: str | None) -> str:
    """Return the format of a file: the given one, or else that of the end of its name.

    Raises:
        ConfigurationError: if the format is unknown, or if the ending is of none or of another one.
    """
    ending = path.suffix.lower()
    by_name = ENDINGS.get(ending)
    if format is None:
        if by_name is None and not path.is_dir():  # writing to a folder is an error of its own
            raise ConfigurationError(
                f"{path}: got a name that ends in {ending or 'nothing'!r}, needed one of {', '.join(ENDINGS)}: write "
                f"{path.with_suffix('.safetensors').name}, or give the format, such as --format peft for a folder "
                "(format='peft')"
            )
        return by_name or "safetensors"
    known_name("format", format, (*dict.fromkeys(ENDINGS.values()), "peft"))
    if by_name not in (None, format):
        endings = [each for each, of in ENDINGS.items() if of == format]
        needed = f"that ends in {' or '.join(endings)}" if endings else f"without {ending}"
        raise ConfigurationError(
            f"{path}: got format {format!r} and a name that ends in {ending}, which is for {by_name!r}: write a name {needed}"
        )
    return format


def _torch(state: Mapping[str, torch.Tensor], facts: Mapping[str, str]) -> bytes:
    """Return named tensors as `torch.load` reads them with ``weights_only=True``, without metadata."""
    del facts
    file = io.BytesIO()
    torch.save({name: tensor.clone() for name, tensor in state.items()}, file)  # a view would save all of its storage
    return file.getvalue()


def _safetensors(state: Mapping[str, torch.Tensor], facts: Mapping[str, str]) -> bytes:
    """Return a file of safetensors with its metadata in order, which the library writes in another one each time."""
    data = save(dict(state), metadata=dict(facts))
    end = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:end])
    header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    return data[:8] + text.ljust(end - 8) + data[end:]


STATES: Mapping[str, Callable[[Mapping[str, torch.Tensor], Mapping[str, str]], bytes]] = {
    "safetensors": _safetensors,
    "torch": _torch,
}
"""The functions that write named tensors and metadata, by format."""
