"""``turnout status``: what a server is doing, or how far the runs of a comparison are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from rich.table import Table

from turnout.comparison.sharing import Standing

HEARD = {
    "participation": "contributions per step",
    "staleness": "mean staleness (steps)",
    "influence": "influence (fair share = 1)",
}
SHOWN = {0: "least", 1: "10 %", 5: "median", 9: "90 %", 10: "most"}
"""The deciles that `heard_table` shows."""


def table_of(standings: Sequence[Standing]) -> Table:
    """Return a row for each run, and what they are in all."""
    states = Counter(each.state for each in standings)
    title = f"{len(standings)} runs: " + ", ".join(f"{number} {state}" for state, number in states.items())
    table = Table("run", "state", "rounds", "where", title=title, title_justify="left")
    for each in standings:
        rounds = f"{each.done} of {each.rounds}" if each.rounds else ""
        table.add_row(each.name, each.state, rounds, each.where)
    return table


def rows_of(figures: dict[str, Any]) -> list[tuple[str, str]]:
    """Return what a person looks at."""
    rows = [
        ("run", f"{figures['run']}: {figures['algorithm']}, {figures['pace']}, {figures['state']}"),
        ("steps", f"{figures['version']} of {figures['rounds']}"),
        ("clients", f"{figures['enrolled']} enrolled, {figures['there']} there, {figures['at_work']} at work"),
    ]
    rows += [(f"dropped: {reason}", str(number)) for reason, number in figures["dropped"].items()]
    rows += [(f"in no secure sum: client {client}", why) for client, why in figures.get("barred", {}).items()]
    rows += [(name.replace("_", " "), f"{points[-1][1]}") for name, points in figures["curves"].items() if points]
    if (evaluation := figures.get("evaluation")) is not None:
        rows.append(
            ("evaluation", f"{evaluation['answered']} of {evaluation['asked']} answered at {evaluation['version']}")
        )
        rows += [
            (f"evaluation: {name.replace('_', ' ')}", f"{value:.4g}") for name, value in evaluation["figures"].items()
        ]
    return rows if figures["healthy"] else [*rows, ("journal", "cannot be written")]


def heard_table(figures: dict[str, Any]) -> Table | None:
    """Return a table of who is heard, a row for each distribution; None where the server shows none."""
    heard = figures.get("heard") or {}
    if not heard.get("deciles"):
        return None
    never = f", {heard['never']:.1%} of clients never" if "never" in heard else ""
    title = f"Who is heard, after {heard['version']:,d} steps{never}"
    table = Table("over clients", *SHOWN.values(), title=title, title_justify="left")
    for name, values in heard["deciles"].items():
        table.add_row(HEARD[name], *(f"{values[level]:.3g}" for level in SHOWN))
    return table
