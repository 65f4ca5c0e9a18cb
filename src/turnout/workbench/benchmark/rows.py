"""Compute, save, read and check the row of a rule: its tuned options and figures in each cell."""

from __future__ import annotations

import json
import platform
import random
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from functools import partial
from importlib.resources import files
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from turnout.callbacks import Callbacks
from turnout.core.checks import ConfigurationError, TurnoutError
from turnout.record.storage import replace_files, text_writer
from turnout.simulation.lockstep import together
from turnout.simulation.running import Interrupted, stops_on_signal
from turnout.version import __version__
from turnout.workbench.benchmark.cells import Cell, Version
from turnout.workbench.benchmark.runs import ACCURACIES, FIGURES, figures_of, tuned

Row = dict[str, Any]
"""A row as JSON: the rule, the version, and for each cell its hash, options, figures by seed and cost, or why it has none."""

TOGETHER = 5
"""Number of seeds that run in lock-step, with the same bits as one after another."""

TOLERANCE = 0.02
"""Largest difference of accuracies between two kinds of processors."""


def compute(
    rule: str, version: Version, cells: Sequence[Cell], path: Path, jobs: int = 1,
    tell: Callable[[str], None] = lambda _: None,
) -> Row:  # fmt: skip
    """Compute the row of a rule, and save it after each cell; cells and seeds that the file has are not computed again.

    Args:
        rule: name of a recipe, or ``FILE.py:NAME``.
        version: the declarations.
        cells: the cells to compute.
        path: the file of the row.
        jobs: number of processes, each of which computes one cell at a time.
        tell: is called with a line about each cell.

    Raises:
        ConfigurationError: if the file has a row of another rule, version or machine.
    """
    row = _begun(rule, version, path)
    known = {cell.name: found for cell in cells if (found := row["cells"].get(cell.name, {})).get("hash") == cell.hash}
    cells = [cell for cell in cells if cell.name not in known or missing_seeds(known[cell.name], version)]
    task, before = partial(_computed, rule, version), [known.get(cell.name) for cell in cells]
    with ProcessPoolExecutor(jobs) if jobs > 1 else nullcontext() as pool:
        computed = map(task, cells, before) if pool is None else pool.map(task, cells, before)
        for cell, result in zip(cells, computed, strict=True):
            row["cells"][cell.name] = result
            save(row, path)
            tell(_line(rule, cell, result))
    _defined(row)
    return row


def _defined(row: Row) -> list[str]:
    """Return the cells in which a rule is defined, by name; raise an error if there are none."""
    if not (names := sorted(name for name, cell in row["cells"].items() if "runs" in cell)):
        why = next((cell["undefined"] for cell in row["cells"].values()), "it has no cells")
        raise ConfigurationError(f"{row['rule']} is defined in no cell ({why})")
    return names


def save(row: Row, path: Path) -> None:
    """Save a row as JSON."""
    replace_files({path: text_writer(json.dumps(row, indent=1, sort_keys=True) + "\n")})


def load(path: Path) -> Row:
    """Read a row.

    Raises:
        ConfigurationError: if the file is not a row.
    """
    try:
        row = json.loads(path.read_text("utf-8"))
        if not isinstance(row["rule"], str) or not isinstance(row["cells"], dict):
            raise TypeError
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigurationError(
            f"{path} is not a row of the benchmark: write it by turnout benchmark run RULE"
        ) from error
    return row


def published(version: Version) -> list[Row]:
    """Return the rows of a version that the package contains, by rule."""
    folder = files("turnout.workbench.benchmark").joinpath("rows", version.name)
    names = sorted(file.name for file in folder.iterdir()) if folder.is_dir() else []
    return [json.loads(folder.joinpath(name).read_text("utf-8")) for name in names]


def check(row: Row, version: Version, seed: int = 0) -> str:
    """Compute a random run of a row again, and compare its figures.

    Returns:
        What was compared, and how close it is.

    Raises:
        ConfigurationError: if the version or a hash is another one, or figures differ: at all on the same kind of machine, by
            more than `TOLERANCE` elsewhere.
    """
    if row.get("version") != version.name:
        raise ConfigurationError(f"version: got {row.get('version')!r}, needed {version.name!r}: compute the row again")
    cells, drawn = {cell.name: cell for cell in version.cells}, random.Random(seed)
    name = drawn.choice(_defined(row))
    cell, recorded = cells[name], row["cells"][name]
    if recorded["hash"] != cell.hash:
        raise ConfigurationError(f"{name}: its hash is {recorded['hash']}, needed {cell.hash}: compute the row again")
    number = drawn.choice(sorted(recorded["runs"]))
    again = _figures(cell, row["rule"], recorded["options"], [int(number)])[number]
    before, same = recorded["runs"][number], row["machine"] == machine()
    if same and again != before:
        raise ConfigurationError(
            f"{name}, seed {number}: got {again}, recorded {before}: the row is not of this version"
        )
    gap = max(abs((again[key] or 0.0) - (before[key] or 0.0)) for key in ACCURACIES)
    if gap > TOLERANCE:
        raise ConfigurationError(f"{name}, seed {number}: accuracies differ by {gap:.3f}, needed at most {TOLERANCE}")
    return f"{name}, seed {number}: " + ("equal, bit for bit" if again == before else f"within {gap:.4f}")


def machine() -> dict[str, str]:
    """Return the kind of machine, on which the bits of a run depend."""
    return {"processor": platform.machine(), "system": platform.system(), "torch": torch.__version__}


def _begun(rule: str, version: Version, path: Path) -> Row:
    """Return the row of a file, or a new one."""
    new = {"rule": rule, "version": version.name, "turnout": __version__, "machine": machine(), "cells": {}}
    if not path.exists():
        return new
    row = load(path)
    for key in ("rule", "version", "machine"):
        if row[key] != new[key]:
            raise ConfigurationError(
                f"{path} has a row of {key} {row[key]!r}, needed {new[key]!r}: give another --output"
            )
    return row


def missing_seeds(computed: Mapping[str, Any], version: Version) -> list[int]:
    """Return the seeds of a version without a run in what was computed of a cell; none where the rule is not defined."""
    return [] if "undefined" in computed else [seed for seed in version.seeds if str(seed) not in computed["runs"]]


def _computed(rule: str, version: Version, cell: Cell, before: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the figures of a rule in a cell with all seeds; or the reason why the rule is not defined there.

    Args:
        rule: the rule.
        version: the declarations.
        cell: the cell.
        before: what was computed before, whose options are used; None tunes the rule.
    """
    torch.set_num_threads(1)
    found = before or _options_in(rule, version, cell)
    runs = dict(found.get("runs", {}))
    missing = missing_seeds(found, version)
    for start in range(0, len(missing), TOGETHER):
        seeds = missing[start : start + TOGETHER]
        try:
            runs |= _figures(cell, rule, found["options"], seeds)
        except Interrupted:
            raise
        except TurnoutError as error:  # such as a run that diverged
            return {"hash": cell.hash, "undefined": f"one of the seeds {seeds}: {str(error).splitlines()[0]}"}
    return {**found, "runs": runs} if runs else dict(found)


def _options_in(rule: str, version: Version, cell: Cell) -> dict[str, Any]:
    """Tune a rule in a cell, and return its options without a run; or the reason why the rule is not defined there."""
    try:
        first = cell.experiment(rule, version.options(rule), version.seeds[0], rounds=4)
        if first.model != cell.model:
            return {"hash": cell.hash, "undefined": f"it needs {first.model}, and the cell has {cell.model}"}
        first.run()
    except Interrupted:
        raise
    except TurnoutError as error:
        return {"hash": cell.hash, "undefined": str(error).splitlines()[0]}
    options, search = tuned(partial(cell.experiment, rule), rule, cell, version)
    return {
        "hash": cell.hash, "options": options, "edges": list(search.edges), "tried": search.tried,
        "tuning_updates": search.updates, "runs": {},
    }  # fmt: skip


def _figures(
    cell: Cell, rule: str, options: Mapping[str, Any], seeds: Sequence[int]
) -> dict[str, dict[str, float | None]]:
    """Run a rule with these options in a cell with several seeds, in lock-step, and return the figures by seed."""
    experiments = [cell.experiment(rule, options, seed) for seed in seeds]
    own = {"resume": False, "checkpoint_every": None, "callbacks": Callbacks([])}
    with stops_on_signal() as signal:
        results = together([experiment.steps(None, signal=signal, **own) for experiment in experiments])
    return {
        str(experiment.seed): figures_of(result, cell.target, personal=experiment.algorithm.personal is not None)
        for experiment, result in zip(experiments, results, strict=True)
    }


def _line(rule: str, cell: Cell, result: Mapping[str, Any]) -> str:
    """Return a line about a finished cell."""
    if "undefined" in result:
        return f"{rule}, {cell.name}: not defined ({result['undefined']})"
    figure = next(name for name in FIGURES if all(run[name] is not None for run in result["runs"].values()))
    return f"{rule}, {cell.name}: {FIGURES[figure]} {fmean(run[figure] for run in result['runs'].values()):.1%}"
