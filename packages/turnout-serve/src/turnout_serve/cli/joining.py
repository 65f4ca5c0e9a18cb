"""Build the experiment of a client from the server's announcement and the client's data.

No code comes from the server, and no file is read because a server names it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from turnout.cli import user_code
from turnout.cli.options import only, without
from turnout.cli.sections import OF_DECLARED
from turnout.cli.settings import Settings
from turnout.core.checks import ConfigurationError
from turnout.data.federated import FederatedData
from turnout.data.names import check_names, names_of, names_read
from turnout.experiment import Experiment
from turnout.record.describe import agreed, describe, differences
from turnout_serve.cli.deployed import ANNOUNCED, FILES, experiment_of, pooled
from turnout_serve.wire.data_shape import DataShape


def clients_experiment(
    announcement: Mapping[str, Any], data: str, experiment: str | None, client: int | None, device: str
) -> tuple[Experiment, int]:
    """Return the experiment with the client's data, and the index of the client in the data.

    Args:
        announcement: announcement of the server. All names are of this package, so that no code comes from the server.
        data: ``FILE.py:FUNCTION``, or the name of a data set, for tests.
        experiment: ``FILE.py:EXPERIMENT``, if that of the server is a Python file.
        client: index of the client in a named data set.
        device: device for training.

    Raises:
        ConfigurationError: if the settings or data do not match those of the server, among them names of classes and
            categories, and declared scales, of tables.
    """
    own_data = ".py:" in data
    if announcement["input_shape"] is None:
        raise ConfigurationError("the server waits for the shape of the first client's data: try again")
    if own_data and announcement.get("data"):  # the error is clearer than that of the experiment below
        DataShape.read(announcement["data"]).check(shape_of(announcement, data))
    if experiment is None:
        with names_read() as read:
            made = _from_settings(announcement, data)
        check_names(read if own_data else (), section(_settings_of(announcement), "data"))
    else:
        made, _ = experiment_of(experiment, (), loads=not own_data)
        if own_data:
            with names_read() as read:
                own = _own_data(data, **_expected(announcement))
            check_names(read, names_of(made.data))
            made = replace(made, data=own)
    if made.data.is_declared:
        raise ConfigurationError(
            f"the server has no data, and knows only that inputs have shape {announcement['input_shape']}: give the data of "
            "this client with --data FILE.py:FUNCTION"
        )
    row = 0 if own_data else _row(client, data, made.data.num_clients)
    made = replace(made, device=device)
    described, describes = agreed(describe(made)), announcement["describes"]
    if different := list(differences(describes, {name: described.get(name) for name in describes})):
        raise ConfigurationError(
            f"the server runs something else (there, and here): {'; '.join(different[:5])}. Give the experiment that it has"
        )
    return made, row


def _row(client: int | None, data: str, num_clients: int) -> int:
    """Return the index of the client in a named data set, after checks."""
    if client is None:
        raise ConfigurationError(f"--data {data} has many clients: add --client 0 or another number")
    if not 0 <= client < num_clients:
        raise ConfigurationError(f"--client: got {client}, needed 0 to {num_clients - 1}")
    return client


def _from_settings(announcement: Mapping[str, Any], data: str) -> Experiment:
    """Build the experiment that a server's settings describe."""
    table = only(_settings_of(announcement), ANNOUNCED) | {"availability": {"name": "everyone"}}
    own_data = ".py:" in data
    if own_data:
        table.pop("data", None)
    elif data != (name := section(table, "data").get("name")):
        raise ConfigurationError(f"--data {data}: the server's data are {name!r}: give that name")
    _refuse_names_of_files(table)
    _refuse_files_without_a_folder(table)
    settings = Settings.of(table)
    return settings.experiment(_own_data(data, **_expected(announcement)) if own_data else None)


def _refuse_names_of_files(table: Any, section: str = "") -> None:
    """Raise an error for settings of a server that name a file of this machine."""
    for setting, text in user_code.texts(table, section):
        if re.search(r"\.py|[/\\]", text):
            raise ConfigurationError(
                f"the server's settings name a file ({setting} = {text!r}), which is not read for a server: give the "
                "experiment with --experiment FILE.py:EXPERIMENT"
            )


def _refuse_files_without_a_folder(table: Mapping[str, Any]) -> None:
    """Raise an error for data in a file, and for weights in a folder or on the Hub, whose names look like other text."""
    data, model = section(table, "data"), section(table, "model")
    if data.get("name") == "table" or any(name in data for name in FILES):
        raise ConfigurationError(
            "the server's settings name a file (data), which is not read for a server: give your data with --data "
            "FILE.py:FUNCTION"
        )
    if model.get("name") == "huggingface" and not str(model.get("base", "")).startswith("{"):
        raise ConfigurationError(
            "the server's settings name the weights of a model (model.base), which are not downloaded or read for a server: "
            "give the experiment with --experiment FILE.py:EXPERIMENT"
        )


def section(table: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return a section of a server's settings as a table."""
    value = table.get(name, {})
    return value if isinstance(value, Mapping) else {"name": value}


def _settings_of(announcement: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that a server announces."""
    table = announcement.get("settings")
    if not isinstance(table, dict):
        raise ConfigurationError(
            "the server's experiment is a Python file: give yours with --experiment FILE.py:EXPERIMENT"
        )
    return table


def data_set_of(announcement: Mapping[str, Any]) -> str:
    """Return the name of the data set in a server's settings.

    Raises:
        ConfigurationError: if it has no settings, or they name a file instead.
    """
    name = str(section(_settings_of(announcement), "data").get("name", ""))
    _refuse_names_of_files(name, "data")
    return name


def _own_data(
    name: str,
    num_classes: int | None = None,
    shape: tuple[int, ...] | None = None,
    kind: torch.dtype | None = torch.float32,
) -> FederatedData:
    """Call a client's function, and return its examples as data of a single client.

    Args:
        name: ``FILE.py:FUNCTION``, which returns data, or pairs of inputs and targets for training and for tests.
        num_classes: number of classes; by default one more than the largest label.
        shape: required shape of an example; None takes any.
        kind: floating type to which floating inputs are converted; None leaves theirs.
    """
    examples = user_code.loaded(name)
    examples = examples() if callable(examples) else examples
    if isinstance(examples, FederatedData):
        return examples
    if not isinstance(examples, tuple) or len(examples) != 2:
        raise ConfigurationError(
            f"{name}: needed a function that returns (inputs, targets), or such a pair for training and one for tests, got "
            f"{type(examples).__name__}"
        )
    train, test = examples if all(isinstance(part, tuple) and len(part) == 2 for part in examples) else (examples, None)
    tested = None if test is None else pooled(name, test, shape, "the server's", kind)
    return FederatedData(name, pooled(name, train, shape, "the server's", kind), num_classes, client_test=tested)


def _expected(announcement: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a server declares of examples; inputs of any floating type are taken unless it has no data."""
    data = section(announcement.get("settings") or {}, "data")
    kind = {"float64": torch.float64}.get(str(data.get("input_type")), torch.float32) if "inputs" in data else None
    shape = tuple(int(size) for size in announcement["input_shape"])
    return {"num_classes": announcement["num_classes"], "shape": shape, "kind": kind}


def shape_of(announcement: Mapping[str, Any], data: str) -> DataShape:
    """Return the shape of a client's examples, for a server that waits for it or checks it.

    Args:
        announcement: announcement of the server.
        data: ``FILE.py:FUNCTION``, or the name of a data set.

    Raises:
        ConfigurationError: if data are invalid, or their names are not those of the server.
    """
    if ".py:" in data:
        with names_read() as read:
            shape = DataShape.of(_own_data(data))
        check_names(read, section(announcement.get("settings") or {}, "data"))
        return shape
    settings = _settings_of(announcement)
    loaded = without(section(settings, "data"), OF_DECLARED.keys() - {"num_clients"})
    return DataShape.of(_from_settings({**announcement, "settings": {**settings, "data": loaded}}, data).data)


def functions_of(names: Sequence[str]) -> dict[str, Callable[..., Any]]:
    """Return functions of a client's examples by the names that queries use.

    Raises:
        ConfigurationError: if an object is not a function, or a name is used twice or reserved.
    """
    functions: dict[str, Callable[..., Any]] = {}
    for text in names:
        function, name = user_code.loaded(text), text.rpartition(":")[2]
        if not callable(function):
            raise ConfigurationError(f"--function {text}: needed a function of inputs and targets, got {function!r}")
        if name in functions or name in ("features", "targets"):
            raise ConfigurationError(f"--function {text}: the name {name} is already in use: rename the function")
        functions[name] = function
    return functions
