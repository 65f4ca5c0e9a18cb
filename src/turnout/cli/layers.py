"""Settings in layers: defaults, a file, flags and overrides, each of which goes before the one under it."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from turnout.cli.options import Table
from turnout.cli.sections import flag_of
from turnout.core.checks import ConfigurationError


def merge(under: Mapping[str, Any], over: Mapping[str, Any]) -> Table:
    """One layer over another, table by table.

    A table that names another piece than the one under it replaces it: its options were those of the other piece.
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


def override(text: str) -> Table:
    """``data.alpha=0.3`` as a layer, ``{"data": {"alpha": 0.3}}``; what is no TOML value is taken as text."""
    path, equals, value = text.partition("=")
    keys = [key.strip() for key in path.split(".")]
    if not equals and (flag := flag_of(text)):
        raise ConfigurationError(f"{text!r} is the name of a piece, and settings are key=value: write {flag}")
    if not equals or not all(keys):
        raise ConfigurationError(f"override {text!r}: needed key=value, such as local.lr=0.05")
    layer: Any = _value(value.strip())
    for key in reversed(keys):
        layer = {key: layer}
    return layer


def read(path: Path) -> Table:
    """Return a TOML or YAML file as a layer, or a JSON file such as the ``settings.json`` of a run.

    Raises:
        ConfigurationError: where it cannot be read, with the line where it is not of its format.
    """
    kind = {".json": "JSON", ".yaml": "YAML", ".yml": "YAML"}.get(path.suffix, "TOML")
    try:
        with path.open("rb") as file:
            found = {"JSON": json.load, "YAML": _load_yaml, "TOML": tomllib.load}[kind](file)
    except FileNotFoundError as error:
        raise ConfigurationError(f"{path}: no such file; needed a TOML file of settings") from error
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error}") from error
    except ValueError as error:  # of all three formats, and of what is no text
        raise ConfigurationError(f"{path} is no {kind} file: {error}") from error
    if not isinstance(found, dict):
        raise ConfigurationError(f"{path} holds no settings: got {type(found).__name__}, needed an object")
    return found


def _load_yaml(file: IO[bytes]) -> Any:
    """Read YAML 1.1, in which 1e-3 without a dot is text, which settings read as a number where they need one."""
    try:
        import yaml
    except ModuleNotFoundError:
        raise ConfigurationError("settings in YAML need PyYAML: pip install 'turnout[yaml]', or write TOML") from None
    try:
        return yaml.safe_load(file)
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from error


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
