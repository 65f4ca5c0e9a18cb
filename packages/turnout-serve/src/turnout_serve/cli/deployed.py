"""Build the experiment of a server from settings or a Python file, and select the settings that clients are sent."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from turnout.cli import layers, user_code
from turnout.cli.options import Table, convert, only, without
from turnout.cli.run import one_algorithm
from turnout.cli.run_plan import saved
from turnout.cli.sections import OF_DECLARED, SECTIONS
from turnout.cli.settings import Settings
from turnout.core.checks import CheckpointError, ConfigurationError
from turnout.data.shards import Shards
from turnout.experiment import Experiment
from turnout.record import storage
from turnout.record.contents import open_regular

_LONGEST = 10_000  # bytes of the name of an experiment, with its path
_JUDGED = ("appeal", "label_groups", "metrics")
ANNOUNCED = ("name", "seed", "rounds", *_JUDGED, *(section for section in SECTIONS if section != "availability"))
"""The sections of settings that the server sends to its clients."""

AUTO = "auto"
"""The value of ``data.inputs`` with which the first client determines the shape of the data."""

FILES = ("path", "directory")
"""Options of a data set that are paths on the server."""


def experiment_of(
    source: str | None, overrides: Sequence[str], loads: bool = True, algorithm: str | None = None
) -> tuple[Experiment, Settings | None]:
    """Return the experiment of a TOML or Python file, and its settings if it has some.

    Args:
        source: ``FILE.toml`` or ``FILE.py:EXPERIMENT``; None if there are only overrides.
        overrides: further settings, ``KEY=VALUE``.
        loads: whether to load data whose shape the settings declare; a server does not.
        algorithm: overrides that of the settings, or selects one of several in a file.

    Raises:
        ConfigurationError: if a file is invalid, or settings are invalid.
    """
    if source is not None and ".py:" in source:
        if overrides:
            raise ConfigurationError(
                f"{source} describes the entire experiment: leave {overrides[0]} out, or change the file"
            )
        experiment = user_code.loaded(source)
        if callable(experiment) and not isinstance(experiment, Experiment):
            experiment = experiment()
        if not isinstance(experiment, Experiment):
            raise ConfigurationError(
                f"{source}: got {experiment!r}, needed an Experiment, or a function that returns one"
            )
        return experiment, None
    settings = one_algorithm(_layers(source, overrides) or [{}], algorithm)
    return settings.experiment(None if loads else settings.declared()), settings


def _layers(source: str | None, overrides: Sequence[str]) -> list[Table]:
    """Return the layers of settings of a file and of overrides."""
    return [*([] if source is None else [layers.read(Path(source))]), *map(layers.override, overrides)]


def declared_beside(source: str | None, overrides: Sequence[str]) -> Table | None:
    """Return the other declared properties of data if ``inputs = "auto"``; None if the shape of inputs is known.

    Raises:
        ConfigurationError: if a declaration is invalid.
    """
    if source is not None and ".py:" in source:
        return None
    data = layers.data_of(_layers(source, overrides))
    if data.get("inputs") != AUTO:
        return None
    beside = only(data, ("classes", "outputs", "input_type", "target_shape"))
    given = {name: value for name, value in beside.items() if value is not None}
    values = {name: convert(OF_DECLARED[name].hint, value, f"data.{name}") for name, value in given.items()}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}


def as_overrides(shape: Mapping[str, Any]) -> list[str]:
    """Return the shape of data as settings, ``data.KEY=VALUE``."""
    return [f"data.{name}={json.dumps(value)}" for name, value in shape.items()]


def announced(settings: Settings) -> Table:
    """Return the settings of a run that its clients need, without the behavior of clients and paths of files."""
    table = only(settings.table, ANNOUNCED)
    table["population"] = only(table.get("population", {}), ("requirement", "opting"))
    table["data"] = without(table["data"], FILES)
    return table


def with_test(experiment: Experiment, name: str | None) -> Experiment:
    """Return an experiment with test examples of the server.

    Args:
        experiment: experiment to serve.
        name: ``FILE.py:FUNCTION``, which returns inputs and targets; None leaves the experiment unchanged.

    Raises:
        ConfigurationError: if a function is invalid.
    """
    if name is None:
        return experiment
    function = user_code.loaded(name) if ".py:" in name else None
    pair = function() if callable(function) else None
    if not isinstance(pair, tuple) or len(pair) != 2:
        raise ConfigurationError(f"--test: got {name!r}, needed FILE.py:FUNCTION, which returns (inputs, targets)")
    data = experiment.data
    return replace(experiment, data=replace(data, test=pooled(name, pair, data.input_shape, "the experiment's")))


def pooled(
    name: str, pair: tuple[Any, Any], shape: tuple[int, ...] | None, whose: str, kind: torch.dtype | None = None
) -> Shards:
    """Return inputs and targets as the examples of one client.

    Args:
        name: name of the function that returned them.
        pair: inputs and targets.
        shape: required shape of an example; None takes any.
        whose: owner of that shape, for the message.
        kind: floating type to which floating inputs are converted; None leaves theirs.

    Raises:
        ConfigurationError: if examples have another shape.
    """
    x, y = (torch.as_tensor(value) for value in pair)
    if kind is not None and x.is_floating_point():
        x = x.to(kind)
    if shape is not None and tuple(x.shape[1:]) != shape:
        raise ConfigurationError(f"{name}: an example has shape {tuple(x.shape[1:])}, and {whose} {shape}")
    return Shards.pooled(x, y)


def settings_in(folder: Path, code: Sequence[Path]) -> tuple[Experiment, Settings | None]:
    """Return the experiment of a server's folder, and its settings if it has some.

    Args:
        folder: folder of the server.
        code: trusted files that the folder may name.

    Raises:
        CheckpointError: if the folder contains neither.
        ConfigurationError: if it names untrusted code.
    """
    storage.check_all(folder)
    source = folder / "experiment.txt"
    if source.exists():
        with open_regular(source) as file:
            name = file.read(_LONGEST).decode(errors="replace").strip()
        if ".py:" not in name:
            raise CheckpointError(f"{source} is damaged: needed FILE.py:EXPERIMENT")
        user_code.refuse_code(name, folder, code)
        return experiment_of(name, ())
    settings = Settings.of(saved(folder, code))
    return settings.experiment(settings.declared()), settings
