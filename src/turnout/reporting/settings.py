"""Format configurations and the environment as text."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from turnout.protocol.published import published_settings
from turnout.record.describe import flat
from turnout.record.environment import environment as this_environment
from turnout.results.records import RunRecord, by_algorithm


def environment(noted: Mapping[str, Any] | None = None) -> dict[str, str]:
    """Return the recorded environment of a run as texts, by default that of this process."""
    values = noted
    if values is None:  # without date and command, so that the same runs give the same page
        values = {name: value for name, value in this_environment().items() if name not in ("date", "command")}
    shown = {name: value for name, value in values.items() if name != "sources"}  # hundreds of modules
    words = {name: shlex.join(map(str, value)) if isinstance(value, list) else value for name, value in shown.items()}
    return {name: str(value) for name, value in words.items() if value is not None}


def settings(records: Sequence[RunRecord]) -> dict[str, str]:
    """Format configurations as TOML: common settings under ``"all runs"``, and the other settings of each algorithm.

    Settings that differ between seeds of an algorithm are those of its first run.
    """
    configs = [_published(record) for record in records]
    shared = {key: value for key, value in configs[0].items() if all(other.get(key) == value for other in configs)}
    parts = {"all runs": shared}
    for algorithm, group in by_algorithm(records).items():
        parts[algorithm] = {key: value for key, value in _published(group[0]).items() if key not in shared}
    return {name: "\n".join(map(" = ".join, part.items())) for name, part in parts.items() if part}


def _published(record: RunRecord) -> dict[str, str]:
    """Return the settings of a run that may be published with its tables."""
    return as_toml(published_settings(record.config) if record.history.is_private else record.config)


def as_toml(config: Mapping[str, Any]) -> dict[str, str]:
    """Return nested settings under dotted keys, with values as TOML; None, which TOML lacks, is ``none``."""
    return {
        name: "none" if value is None else json.dumps(value, default=str, ensure_ascii=False)
        for name, value in flat(config)
    }
