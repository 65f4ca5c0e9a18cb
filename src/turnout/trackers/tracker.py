"""Define the base class of trackers, which hand on plain settings, numbers by round, and the identity of a run."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from turnout.callbacks import Callback
from turnout.core.checks import CheckpointError
from turnout.core.extras import imported
from turnout.core.registry import Family, Registered
from turnout.record import storage
from turnout.record.describe import flat


class Tracker(Registered, Callback):
    """Hand a run on to a tracker: its configuration, the numbers of every round, and how it ended.

    A run that is resumed goes on as the same run of the tracker, from its last checkpoint: what was tracked beyond it is
    tracked again. Which run it is stands in a file of the run's folder; without a folder every start is a new one.

    Args:
        project: what the tracker collects runs under.
        name: of the run; None takes the folder's.
    """

    family = Family("tracker", "trackers", ("turnout.trackers",))

    package: str | None = None
    """The package that has to be installed; None where the tracker needs none."""

    def __init__(self, project: str = "turnout", name: str | None = None) -> None:
        self.project, self.name = project, name
        self._folder: Path | None = None
        if self.package is not None:
            self._module(self.package)  # before anything is trained

    def on_start(self, config: Mapping[str, Any], folder: Path | None) -> None:
        """Begin a run of the tracker, or go on with the one that the folder names."""
        self._folder = folder
        settings = {name: str(value) if isinstance(value, list | dict) else value for name, value in flat(config)}
        self.begin(settings, self._known(), self.name or (folder.name if folder else "run"))

    def on_round(self, row: Mapping[str, Any]) -> None:
        """Hand the numbers of a round on."""
        self.log(row["round"], {name: float(value) for name, value in row.items() if _is_number(name, value)})

    def on_end(self, summary: Mapping[str, Any]) -> None:
        """Hand the summary on, and close."""
        figures = {name: value for name, value in flat(summary) if _is_number(name, value)}
        self.end(str(summary["status"]), {name: float(value) for name, value in figures.items()})

    @abstractmethod
    def begin(self, config: dict[str, Any], known: str | None, name: str) -> None:
        """Begin a run, or go on with the one that is `known`; call `remember` with what identifies it."""

    @abstractmethod
    def log(self, round: int, figures: dict[str, float]) -> None:
        """Take the figures of a round."""

    @abstractmethod
    def end(self, status: str, figures: dict[str, float]) -> None:
        """Take the final figures and the status, as `Callback.on_end` names them, and close."""

    def remember(self, identity: str) -> None:
        """Write down which run of the tracker this is."""
        if self._folder is not None:
            self._folder.mkdir(parents=True, exist_ok=True)
            storage.save(self._folder, {self._file: storage.json_writer({"run": identity})})

    @property
    def _file(self) -> str:
        return f"{self.package or type(self).__name__.lower()}.json"

    def _known(self) -> str | None:
        """Return the identity of the run in the folder, if it has been tracked before."""
        if self._folder is None or not (self._folder / self._file).exists():
            return None
        note = storage.read_json(self._folder / self._file, instead="delete it to track the run as a new one")
        if not isinstance(note.get("run"), str):
            raise CheckpointError(f"{self._folder / self._file} names no run: delete it to track the run as a new one")
        return note["run"]

    @staticmethod
    def _module(package: str | None, name: str | None = None) -> Any:
        """Import a tracker's package.

        Raises:
            ConfigurationError: where it is not installed, with the extra that has it.
        """
        return imported(name or str(package), f"tracking with {package}", f"turnout[{package}]", package)


def _is_number(name: str, value: Any) -> bool:
    """Return whether a value is a figure to be tracked."""
    return name != "round" and isinstance(value, int | float) and not isinstance(value, bool)
