"""Read and merge layers of settings: defaults, a file, flags and overrides; later ones override earlier ones."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import reduce
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any

from turnout.cli.options import Table
from turnout.cli.sections import as_table, flag_of
from turnout.core.checks import ConfigurationError, shown
from turnout.core.earlier_names import with_present_names

_KEYS = re.compile(r"(?<=^also\.)[^=]*?\.py:\w+|[^.]+|(?<=\.)(?=\.|$)|^(?=\.|$)")
"""Matches the names between dots, including empty ones; a piece in a file, ``also.FILE.py:NAME``, is a single name."""

_OWN = re.compile(r"(?!also\.)[^=]*?\.py:(\w+)\.(.+)")
"""Matches a setting of an algorithm in a file, ``FILE.py:NAME.SETTING``."""

VALIDATION = ("validation_fraction", "validation_clients")
"""The options of data that hold out validation examples."""

_DEEPEST, _MOST_VALUES = 20, 1_000_000
"""The greatest depth of nested settings, and the largest number of values at one level."""
_SHOWN = 80  # characters of a malformed value


def merge(under: Mapping[str, Any], over: Mapping[str, Any]) -> Table:
    """Merge two layers, table by table.

    A table that names another piece replaces the table below it, whose options are those of the other piece.
    """
    merged = dict(under)
    for key, value in over.items():
        old = merged.get(key)
        if isinstance(value, Mapping) and isinstance(old, Mapping):
            names = {table["name"] for table in (old, value) if "name" in table}
            merged[key] = dict(value) if len(names) > 1 else merge(old, value)
        else:
            merged[key] = value
    return merged


def data_of(layers: Iterable[Mapping[str, Any]]) -> Table:
    """Return the section ``data`` of merged layers."""
    return reduce(merge, (as_table("data", layer.get("data", {})) for layer in layers), {})


def is_validated(data: Mapping[str, Any]) -> bool:
    """Return whether the section ``data`` of settings holds out validation examples."""
    return any(data.get(name) for name in VALIDATION)


def refuse_keys(layers: Collection[Mapping[str, Any]], what: str, instead: Mapping[str, str]) -> None:
    """Raise an error for settings that a command does not accept.

    Args:
        layers: layers of settings.
        what: noun for what the command does, in messages.
        instead: replacement of each of the settings.
    """
    for key, words in instead.items():
        if any(key in layer for layer in layers):
            raise ConfigurationError(f"{key} is not for {what}: write {words}")


def override(text: str) -> Table:
    """Read ``data.alpha=0.3`` as a layer, ``{"data": {"alpha": 0.3}}``; see `value_of` for the value."""
    path, equals, value = text.partition("=")
    keys = keys_of(path)
    if not equals and (flag := flag_of(text)):
        raise ConfigurationError(f"{text!r} is the name of a piece, and settings are key=value: write {flag}")
    if not equals or not all(keys) or len(keys) > _DEEPEST:
        raise ConfigurationError(f"override {shown(text)}: needed key=value, such as local.lr=0.05")
    return nested(keys, value_of(value.strip(), path.strip()))


def keys_of(path: str) -> list[str]:
    """Return the names of nested tables in a setting: ``local.lr``, or ``FILE.py:NAME.local.lr`` of one's own algorithm.

    >>> keys_of("local.lr"), keys_of("examples/mine.py:patient.local.lr")
    (['local', 'lr'], ['algorithms', 'patient', 'local', 'lr'])
    """
    if own := _OWN.match(path.strip()):
        return ["algorithms", own[1], *keys_of(own[2])]
    return [key.strip() for key in _KEYS.findall(path)]


def nested(keys: Sequence[str], value: Any) -> Any:
    """Return a value in nested tables: ``nested(["local", "lr"], 0.1)`` is ``{"local": {"lr": 0.1}}``."""
    for key in reversed(keys):
        value = {key: value}
    return value


def read(path: Path) -> Table:
    """Read a TOML or YAML file as a layer, or a JSON file such as the ``settings.json`` of a run.

    Raises:
        ConfigurationError: if it cannot be read, with the line of a syntax error.
    """
    kind = {".json": "JSON", ".yaml": "YAML", ".yml": "YAML"}.get(path.suffix, "TOML")
    try:
        with path.open("rb") as file:
            content = {"JSON": json.load, "YAML": _load_yaml, "TOML": tomllib.load}[kind](file)
    except FileNotFoundError as error:
        raise ConfigurationError(f"{path}: no such file; needed a TOML file of settings") from error
    except ConfigurationError as error:  # PyYAML is missing
        raise ConfigurationError(f"{path}: {error}") from error
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error}") from error
    except (ValueError, RecursionError, MemoryError) as error:  # of all three formats, and of invalid UTF-8
        raise ConfigurationError(f"{path} is no {kind} file: {error}") from error
    if not isinstance(content, dict):
        raise ConfigurationError(f"{path} holds no settings: got {type(content).__name__}, needed an object")
    _check_nesting(content, str(path))
    return with_present_names(content)


def _check_nesting(value: Any, source: str) -> None:
    """Raise an error for settings that are nested too deeply or too large, and for names that are not text."""
    values = [value]
    for _ in range(_DEEPEST):
        tables = [value for value in values if isinstance(value, dict)]
        for name in chain.from_iterable(tables):
            if not isinstance(name, str):
                raise ConfigurationError(
                    f"{source}: got {name!r} as the name of a setting, needed a text: write it in quotes"
                )
        lists = (value for value in values if isinstance(value, list))
        values = list(islice(chain(*(table.values() for table in tables), *lists), _MOST_VALUES))
        if len(values) == _MOST_VALUES:
            break
    if values:
        raise ConfigurationError(
            f"{source}: got settings that are nested more than {_DEEPEST} levels deep, or more than {_MOST_VALUES:,} "
            "values at one level: needed tables of options"
        )


def _load_yaml(file: IO[bytes]) -> Any:
    """Read YAML 1.1, in which 1e-3 without a dot is text; settings convert it to a number."""
    try:
        import yaml
    except ModuleNotFoundError:
        raise ConfigurationError(
            "settings in YAML need PyYAML: pip install '.[yaml]' in a clone of turnout, or write TOML"
        ) from None
    try:
        return yaml.safe_load(file)
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from error


def value_of(text: str, key: str) -> Any:
    """Read a TOML value; other text is returned as it is, unless it begins like a table, a list or a quoted text.

    Raises:
        ConfigurationError: if a table, list or quoted text is malformed, with the place of the error.
    """
    begin = "value = "
    try:
        value = tomllib.loads(begin + text)["value"]
    except (ValueError, RecursionError) as error:  # also for a number of thousands of digits, and for nested lists
        if not text.startswith(("{", "[", '"', "'")):
            return text
        problem = re.sub(r"(?<=line 1, column )\d+", lambda column: str(int(column[0]) - len(begin)), str(error))
        shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
        raise ConfigurationError(
            f"{key}: {shown} is malformed TOML: {problem}: needed a value such as {{a = 1, b = 2}}, [1, 2] or 'text'"
        ) from error
    _check_nesting(value, key)
    return value
