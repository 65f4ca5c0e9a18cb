"""Read the folders of runs: check that a run may resume there, whether it is finished, and load its record.

PyTorch is imported only by functions that compare an experiment or load a record, and not to tell the progress of a run.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import AfterValidator

from turnout.core.checks import CheckpointError, DataError, counted, refuse
from turnout.core.display import printable
from turnout.record import checkpoint, lock, saved, storage
from turnout.record.contents import Contents, RunConfig

if TYPE_CHECKING:
    from turnout.experiment import Experiment
    from turnout.results.records import RunRecord

CONFIG, TABLE, ORDER = "config.json", "rounds.parquet", "comparison.json"


class OtherRuns(CheckpointError):
    """Report a folder with a run or a comparison other than the one that is asked for."""


def _check_below(name: str) -> str:
    path = Path(name)
    if path.is_absolute() or path.drive or ".." in path.parts:
        raise ValueError("needed a folder below that of the comparison")
    return name


class _Order(Contents):
    """``comparison.json``: the folders of the runs of a comparison, in its order, none of them outside of its folder."""

    runs: tuple[Annotated[str, AfterValidator(_check_below)], ...] = ()


def check_name(name: object) -> None:
    """Check the name of a run, which is that of a folder."""
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z0-9][\w.-]*", name):
        raise refuse("name", given=name, needed="letters, digits, '_', '-' and '.', a letter or digit first")


def run_folder(folder: Path, name: str, seed: int) -> Path:
    """Return the folder of one run of several."""
    return folder / name / f"seed-{seed}"


def is_finished(folder: Path, experiment: Experiment) -> bool:
    """Return whether `folder` holds all rounds of `experiment`: tables and checkpoint, both of the last round.

    A folder that another process is writing is not read and counts as unfinished.

    Raises:
        OtherRuns: if it holds another experiment or more rounds.
        CheckpointError: if it is damaged.
    """
    from turnout.record.describe import describe, differences, without_neutral

    if lock.in_use(folder):
        return False
    if not (folder / CONFIG).exists() or not (checkpoint.exists(folder) or (folder / TABLE).exists()):
        return False  # no round was saved
    storage.check_all(folder, but=(checkpoint.FILE, checkpoint.PREVIOUS))  # one of the two is enough to resume
    there, here = without_neutral(_config(folder)), without_neutral(describe(experiment))
    if different := list(differences(there, here)):
        raise OtherRuns(
            f"{folder} holds another experiment (there, and here): {'; '.join(different[:5])}. Give another folder, or "
            "delete this one"
        )
    if (done := checkpoint.version(folder)) is None:
        return False
    if done > experiment.rounds:
        raise OtherRuns(
            f"{folder} holds {done} rounds, more than the {experiment.rounds} asked for: ask for {done} or more, or give "
            "another folder"
        )
    return done == experiment.rounds and len(saved.load(folder, done).clients) > 0


def has_ended(folder: Path) -> bool:
    """Return whether the run in a folder has taken its last round, and has saved its tables.

    Raises:
        CheckpointError: if there is no run, or it is damaged.
    """
    storage.check_all(folder)
    done = checkpoint.version(folder) or 0
    end = saved.load_end(folder)
    ended = done >= _config(folder)["rounds"] or (end is not None and done == end["rounds"])
    return ended and done > 0 and len(saved.load(folder, done).clients) > 0


def load_record(folder: str | Path) -> RunRecord:
    """Return the record of a finished run.

    Raises:
        CheckpointError: if there is no run, or it is damaged or not finished.
    """
    from turnout.record.query import History
    from turnout.results.records import RunRecord

    folder = Path(folder)
    finished, config, done = has_ended(folder), _config(folder), checkpoint.version(folder) or 0
    if not finished:
        raise CheckpointError(
            f"the run in {folder} is not finished ({done} of {config['rounds']} rounds): go on with "
            f"`{checkpoint.command(folder)}`, or leave it out"
        )
    return RunRecord(printable(config["algorithm"]["name"]), config["seed"], History.load(folder, done), config)


def load_records(folders: Iterable[str | Path]) -> list[RunRecord]:
    """Return the records of the runs in `folders` and in the folders below them, in the order of `run_folders`.

    Raises:
        DataError: if a folder has no runs.
        CheckpointError: if a run cannot be read or is not finished.
    """
    return [load_record(run) for run in run_folders(folders)]


def run_folders(folders: Iterable[str | Path]) -> list[Path]:
    """Return the folders of runs that have begun in `folders` and below, in the order of `ordered_names`.

    Raises:
        DataError: if a folder has no runs.
    """
    runs = [folder / name for folder in map(Path, folders) for name in ordered_names(folder, begun=True)]
    return list(dict.fromkeys(runs))


def save_order(folder: Path, runs: Iterable[Path]) -> None:
    """Save the order of the runs of a comparison.

    Raises:
        OtherRuns: if the folder has another comparison or sweep, none of whose runs is among these.
    """
    names = [str(run.relative_to(folder)) for run in runs]
    with lock.locked(folder, patience=lock.PATIENCE):
        check_order(folder, names)
        storage.save(folder, {ORDER: storage.json_writer({"runs": names})})


def check_order(folder: Path, names: Sequence[str]) -> None:
    """Check that a folder has no other comparison or sweep, none of whose runs is among those with these names.

    Raises:
        OtherRuns: if it has one.
    """
    there = _order(folder)
    if there and names and set(there).isdisjoint(names):
        raise OtherRuns(
            f"{folder} holds another comparison or sweep, of {counted(len(there), 'run')} such as {there[0]}, whose "
            "tables would be overwritten: give another --folder"
        )


def ordered_names(folder: Path, begun: bool = False) -> list[str]:
    """Return the names of all runs below a folder: those of its comparisons in their order, and others by their path.

    Args:
        folder: the folder.
        begun: leave out runs that have not begun.

    Raises:
        DataError: if there are none.
    """
    planned = [order.parent / name for order in sorted(folder.rglob(ORDER)) for name in _order(order.parent)]
    others = sorted(path.parent for path in folder.rglob(CONFIG))
    runs = [run for run in dict.fromkeys([*planned, *others]) if not begun or (run / CONFIG).exists()]
    if not runs:
        raise DataError(f"{folder} holds no run: give the folder of a run or of a comparison")
    return [str(run.relative_to(folder)) for run in runs]


def rounds_of(folder: Path) -> int:
    """Return the number of rounds that the run in a folder is to take; 0 if it has not begun."""
    return _config(folder)["rounds"] if (folder / CONFIG).exists() else 0


def _order(folder: Path) -> list[str]:
    """Return the names of the runs of a comparison in its order; none for any other folder."""
    path = folder / ORDER
    return storage.read_json(path, instead="compare again", form=_Order).get("runs", []) if path.exists() else []


def _config(folder: Path) -> dict[str, Any]:
    """Return the configuration of the run in a folder, as it was when the run began or was last resumed."""
    return storage.read_json(folder / CONFIG, instead="give the folder of a run", form=RunConfig)
