"""Name the numbers of a vector as the arrays of a Flower model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from pathlib import Path

import torch
from safetensors.torch import load_file

from turnout.core.checks import ConfigurationError
from turnout.deployment.wire.format import WireError, encode
from turnout.engine.parameters import Layout
from turnout.record.storage import replace_files
from turnout.simulation.trained import Trained


@dataclass(frozen=True, eq=False)
class Arrays:
    """The arrays of a model as a vector ``[P]``, in the smallest type that holds all of them.

    Floating-point arrays are in the vector: parameters, and running statistics of BatchNorm, which are averaged like them.
    Others, such as counts of batches, stay as they were.
    """

    first: dict[str, torch.Tensor]

    def __post_init__(self) -> None:
        if not any(value.is_floating_point() for value in self.first.values()):
            given = ", ".join(self.first) or "no arrays"
            raise ConfigurationError(
                f"initial_arrays: got {given}, needed floating-point numbers, as those of model.state_dict()"
            )

    @classmethod
    def of_run(cls, folder: Path, given: dict[str, torch.Tensor]) -> Arrays:
        """Return the first model of the run in a folder: that in its file, or this one, which is written there."""
        path = folder / "initial.safetensors"
        if not path.exists():
            replace_files({path: lambda part: part.write_bytes(encode(given))})
            return cls(given)
        first = load_file(path)
        try:
            cls(given).vector(first)
        except WireError as error:
            raise ConfigurationError(f"initial_arrays: {folder} holds a run of another model ({error})") from None
        return cls({name: first[name] for name in given})  # a file does not keep the order

    @property
    def layout(self) -> Layout:
        """Which stretch of the vector is which array."""
        shapes = {name: tuple(value.shape) for name, value in self.first.items() if value.is_floating_point()}
        return Layout(tuple(shapes), tuple(shapes.values()), sum(self.first[name].numel() for name in shapes))

    def vector(self, arrays: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Return arrays of this model as a vector.

        Raises:
            WireError: where names or shapes are others.
        """
        wrong = self.first.keys() ^ arrays.keys()
        wrong |= {name for name in arrays.keys() - wrong if arrays[name].shape != self.first[name].shape}
        if wrong:
            given = ", ".join(sorted(wrong)[:5])
            raise WireError(f"the arrays are not those that were sent, in name or shape: {given}")
        names = self.layout.names
        dtype = reduce(torch.promote_types, [self.first[name].dtype for name in names], torch.float32)
        return torch.cat([arrays[name].to(dtype).reshape(-1) for name in names])

    def tensors(self, vector: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return a vector as arrays, in the types of the first model."""
        return self.first | {name: part.to(self.first[name].dtype) for name, part in self.layout.split(vector).items()}

    def trained(self) -> Trained:
        """Return what names the numbers in a checkpoint."""
        layout, vector = self.layout, self.vector(self.first)
        fixed = {name: value for name, value in self.first.items() if name not in layout.names}
        return Trained(layout, vector, vector[:0], None, 0, {name: name for name in layout.names}, fixed, None)
