"""``turnout replay``: a deployment once more, from its journal."""

from __future__ import annotations

from typing import Any


def with_recorded(table: dict[str, Any], population: dict[str, Any]) -> dict[str, Any]:
    """Put recorded clients in place of those of a run's settings."""
    return table | population | {"population": table.get("population", {}) | population["population"]}
