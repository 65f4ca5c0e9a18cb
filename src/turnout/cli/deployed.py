"""What the commands of a deployment share: where an experiment comes from, and what a client makes of a server's settings."""

from __future__ import annotations

import importlib
import json
import logging
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from turnout.cli import layers, own
from turnout.cli.options import Table
from turnout.cli.run import one_algorithm, saved
from turnout.cli.sections import SECTIONS
from turnout.cli.settings import Settings
from turnout.core.checks import CheckpointError, ConfigurationError
from turnout.core.display import printable
from turnout.data.federated import FederatedData, Shards
from turnout.experiment import Experiment
from turnout.record import storage
from turnout.record.describe import describe, differences

_JUDGED = ("appeal", "label_groups", "metrics")
TOLD = ("name", "seed", "rounds", *_JUDGED, *(section for section in SECTIONS if section != "availability"))
"""The sections of a run's settings that the server sends to its clients: all that an algorithm is made of."""

_FILES = ("path", "directory")
"""Options of a data set that name files of the server."""


def needs(extra: str, *modules: str) -> None:
    """Refuse a command whose libraries are not there.

    Raises:
        ConfigurationError: naming the extra that brings them.
    """
    for module in modules:
        try:
            importlib.import_module(module)
        except ModuleNotFoundError:
            raise ConfigurationError(f"this needs {module}: pip install 'turnout[{extra}]'") from None


def experiment_of(
    source: str | None, overrides: Sequence[str], loads: bool = True
) -> tuple[Experiment, Settings | None]:
    """Return an experiment from a TOML file, or as a Python file has it, and its settings if it has some.

    Args:
        source: ``FILE.toml`` or ``FILE.py:EXPERIMENT``; None where the overrides say all.
        overrides: further settings, ``KEY=VALUE``.
        loads: whether to load data whose shape the settings declare; a server does not.

    Raises:
        ConfigurationError: where there is none.
    """
    if source is not None and ".py:" in source:
        if overrides:
            raise ConfigurationError(
                f"{source} says all of the experiment: leave {overrides[0]} out, or change the file"
            )
        found = own.loaded(source)
        found = found() if callable(found) and not isinstance(found, Experiment) else found
        if not isinstance(found, Experiment):
            raise ConfigurationError(f"{source}: got {found!r}, needed an Experiment, or a function that returns one")
        return found, None
    given = [layers.override(text) for text in overrides]
    settings = one_algorithm([layers.read(Path(source)), *given] if source is not None else given, None)
    return settings.experiment(None if loads else settings.declared()), settings


def announced(settings: Settings) -> Table:
    """Return the settings of a run that its clients need; how clients behave and where files are is left out."""
    table = {name: value for name, value in settings.table.items() if name in TOLD}
    population = table.get("population", {})
    table["population"] = {k: v for k, v in population.items() if k in ("requirement", "opting")}
    table["data"] = {k: v for k, v in table["data"].items() if k not in _FILES}
    return table


def clients_experiment(
    announcement: Mapping[str, Any], data: str, experiment: str | None, client: int | None, device: str
) -> tuple[Experiment, int]:
    """Return what a client takes part in, on its own data, and which of the data's clients it is.

    Args:
        announcement: what the server says of its run. No code comes from there: names are of this package alone.
        data: ``FILE.py:FUNCTION``, or the name of a data set to try things out.
        experiment: ``FILE.py:EXPERIMENT`` where the server's is one, too.
        client: which part of a data set by name.
        device: where to compute.

    Raises:
        ConfigurationError: where the settings or the data do not fit.
    """
    own_data = ".py:" in data
    if experiment is None:
        found = _from_settings(announcement, data)
    else:
        found, _ = experiment_of(experiment, (), loads=not own_data)
        found = replace(found, data=_own_data(data, announcement)) if own_data else found
    if found.data.is_declared:
        raise ConfigurationError(
            f"the server has no data, and knows only that inputs have shape {announcement['input_shape']}: give the data of "
            "this client with --data FILE.py:FUNCTION"
        )
    if own_data:
        row = 0
    elif client is None:
        raise ConfigurationError(f"--data {data} has many clients: add --client 0 or another number")
    else:
        row = client
        if not 0 <= row < found.data.num_clients:
            raise ConfigurationError(f"--client: got {row}, needed 0 to {found.data.num_clients - 1}")
    found = replace(found, device=device)
    described = describe(found)
    mine = {name: json.loads(json.dumps(described.get(name))) for name in announcement["describes"]}
    if different := list(differences(announcement["describes"], mine)):
        raise ConfigurationError(
            f"the server runs something else (there, and here): {'; '.join(different[:5])}. Give the experiment that it has"
        )
    return found, row


def _from_settings(announcement: Mapping[str, Any], data: str) -> Experiment:
    """Build the experiment that a server's settings describe."""
    table = _settings_of(announcement)
    table = {name: value for name, value in table.items() if name in TOLD} | {"availability": {"name": "everyone"}}
    own_data = ".py:" in data
    if own_data:
        table.pop("data", None)
    elif data != (theirs := section(table, "data").get("name")):
        raise ConfigurationError(f"--data {data}: the server's data are {theirs!r}: give that name")
    _refuse_names_of_files(table, "")
    _refuse_files_without_a_folder(table)
    settings = Settings.of(table)
    return settings.experiment(_own_data(data, announcement) if own_data else None)


def _refuse_names_of_files(table: Any, place: str) -> None:
    """Refuse settings that would have this machine read or run a file because a server says so."""
    if isinstance(table, Mapping):
        for key, value in table.items():
            _refuse_names_of_files(str(key), place or "settings")
            _refuse_names_of_files(value, f"{place}.{key}" if place else str(key))
    elif isinstance(table, list | tuple):
        for value in table:
            _refuse_names_of_files(value, place)
    elif isinstance(table, str) and (".py" in table or "/" in table or "\\" in table):
        raise ConfigurationError(
            f"the server's settings name a file ({place} = {table!r}), which is not read for a server: give the experiment "
            "with --experiment FILE.py:EXPERIMENT"
        )


def _refuse_files_without_a_folder(table: Mapping[str, Any]) -> None:
    """Refuse data in a file and weights in a folder or on the Hub, whose names look like any other text."""
    data, model = section(table, "data"), section(table, "model")
    if data.get("name") == "table" or any(name in data for name in _FILES):
        raise ConfigurationError(
            "the server's settings name a file (data), which is not read for a server: give your data with --data "
            "FILE.py:FUNCTION"
        )
    if model.get("name") == "huggingface" and not str(model.get("base", "")).startswith("{"):
        raise ConfigurationError(
            "the server's settings name the weights of a model (model.base), which are not fetched or read for a server: "
            "give the experiment with --experiment FILE.py:EXPERIMENT"
        )


def section(table: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return a section of settings that a server sent."""
    found = table.get(name, {})
    return found if isinstance(found, Mapping) else {"name": found}


def _settings_of(announcement: Mapping[str, Any]) -> dict[str, Any]:
    table = announcement.get("settings")
    if not isinstance(table, dict):
        raise ConfigurationError(
            "the server's experiment is a Python file: give yours with --experiment FILE.py:EXPERIMENT"
        )
    return table


def data_set_of(announcement: Mapping[str, Any]) -> str:
    """Return the data set that a server's settings name.

    Raises:
        ConfigurationError: where it has no settings, or they name a file in place of a data set.
    """
    name = str(section(_settings_of(announcement), "data").get("name", ""))
    _refuse_names_of_files(name, "data")
    return name


def _own_data(name: str, announcement: Mapping[str, Any]) -> FederatedData:
    """Return what a client's own function gives, as the data of a federation of one."""
    found = own.loaded(name)
    found = found() if callable(found) else found
    if isinstance(found, FederatedData):
        return found
    if not isinstance(found, tuple) or len(found) != 2:
        raise ConfigurationError(
            f"{name}: needed a function that returns (inputs, targets), or such a pair for training and one for tests, got "
            f"{type(found).__name__}"
        )
    shape = tuple(int(size) for size in announcement["input_shape"])
    train, test = found if all(isinstance(part, tuple) and len(part) == 2 for part in found) else (found, None)
    held_out = None if test is None else _pooled(name, test, shape, "the server's")
    return FederatedData(
        name, _pooled(name, train, shape, "the server's"), announcement["num_classes"], client_test=held_out
    )


def _pooled(name: str, pair: tuple[Any, Any], shape: tuple[int, ...], whose: str) -> Shards:
    """Return inputs and targets as the examples of one holder."""
    x, y = (torch.as_tensor(value) for value in pair)
    if tuple(x.shape[1:]) != shape:
        raise ConfigurationError(f"{name}: an example has shape {tuple(x.shape[1:])}, and {whose} {shape}")
    return Shards.pooled(x, y)


def with_test(experiment: Experiment, name: str | None) -> Experiment:
    """Return an experiment whose model a server judges by test examples of its own.

    Args:
        experiment: what is served.
        name: ``FILE.py:FUNCTION``, which returns inputs and targets; None leaves the experiment as it is.

    Raises:
        ConfigurationError: for what is no such function.
    """
    if name is None:
        return experiment
    found = own.loaded(name) if ".py:" in name else None
    pair = found() if callable(found) else None
    if not isinstance(pair, tuple) or len(pair) != 2:
        raise ConfigurationError(f"--test: got {name!r}, needed FILE.py:FUNCTION, which returns (inputs, targets)")
    data = experiment.data
    return replace(experiment, data=replace(data, test=_pooled(name, pair, data.input_shape, "the experiment's")))


def functions_of(names: Sequence[str]) -> dict[str, Callable[..., Any]]:
    """Return functions of a client's examples by the names that a query may ask for.

    Raises:
        ConfigurationError: for what is no function, two of one name, and names of what can be asked for anyway.
    """
    found: dict[str, Callable[..., Any]] = {}
    for text in names:
        function, name = own.loaded(text), text.rpartition(":")[2]
        if not callable(function):
            raise ConfigurationError(f"--function {text}: needed a function of inputs and targets, got {function!r}")
        if name in found or name in ("features", "targets"):
            raise ConfigurationError(
                f"--function {text}: {name} is the name of something else, too: rename the function"
            )
        found[name] = function
    return found


def settings_in(folder: Path, code: Sequence[Path]) -> tuple[Experiment, Settings | None]:
    """Return the experiment of a server's folder, and its settings if it has some.

    Args:
        folder: of the server.
        code: files that the folder may name.

    Raises:
        CheckpointError: where the folder does not say.
        ConfigurationError: where it names other code.
    """
    storage.check_all(folder)
    source = folder / "experiment.txt"
    if source.exists():
        name = source.read_text(encoding="utf-8", errors="replace").strip()
        if ".py:" not in name:
            raise CheckpointError(f"{source} is damaged: needed FILE.py:EXPERIMENT")
        own.refuse_code(name, folder, code)
        return experiment_of(name, ())
    settings = Settings.of(saved(folder, code))
    return settings.experiment(settings.declared()), settings


def log_to_stderr(form: str) -> None:
    """Write what happens to standard error, a line each: as text, or as JSON for machines."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json() if form == "json" else _Text())
    root = logging.getLogger("turnout")
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO)
    logging.getLogger("uvicorn").handlers[:] = [handler]


_PLAIN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "taskName"}


def _extra(record: logging.LogRecord) -> dict[str, Any]:
    return {name: value for name, value in vars(record).items() if name not in _PLAIN}


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        fields = {"time": round(record.created, 3), "level": record.levelname.lower(), "logger": record.name}
        fields |= {"message": record.getMessage()} | _extra(record)
        if record.exc_info:
            fields["error"] = self.formatException(record.exc_info)
        return json.dumps(fields, default=str)


class _Text(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        extra = " ".join(f"{name}={value}" for name, value in _extra(record).items())
        line = f"{time.strftime('%H:%M:%S', time.localtime(record.created))} {record.getMessage()} {extra}".rstrip()
        line = printable(line)
        return line if not record.exc_info else f"{line}\n{self.formatException(record.exc_info)}"
