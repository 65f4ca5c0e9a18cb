"""The base class of trackers."""

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
    """Log a run to a tracker: its configuration, the metrics of every round, and its final status.

    A resumed run continues the same run of the tracker from its last checkpoint, so rounds after it are logged again. A file
    in the run's folder stores the tracker's ID of the run; without a folder each start is a new run.

    Args:
        project: project of the tracker.
        name: name of the run; None is that of the folder.
    """

    family = Family("tracker", "trackers", ("turnout.trackers",))

    package: str | None = None
    """The required package, if any."""

    def __init__(self, project: str = "turnout", name: str | None = None) -> None:
        self.project, self.name = project, name
        self._folder: Path | None = None
        if self.package is not None:
            self._module(self.package)  # raises an error before training if it is missing

    def on_start(self, config: Mapping[str, Any], folder: Path | None) -> None:
        """Start a run of the tracker, or resume that of the folder."""
        self._folder = folder
        settings = {name: str(value) if isinstance(value, list | dict) else value for name, value in flat(config)}
        self.begin(settings, self._known(), self.name or (folder.name if folder else "run"))

    def on_round(self, row: Mapping[str, Any]) -> None:
        """Log the metrics of a round."""
        self.log(row["round"], {name: float(value) for name, value in row.items() if _is_number(name, value)})

    def on_end(self, summary: Mapping[str, Any]) -> None:
        """Log the summary, and close."""
        figures = {name: value for name, value in flat(summary) if _is_number(name, value)}
        self.end(str(summary["status"]), {name: float(value) for name, value in figures.items()})

    @abstractmethod
    def begin(self, config: dict[str, Any], known: str | None, name: str) -> None:
        """Start a run, or resume the one with the ID `known`; call `remember` with the ID of a new run."""

    @abstractmethod
    def log(self, round: int, figures: dict[str, float]) -> None:
        """Log the metrics of a round."""

    @abstractmethod
    def end(self, status: str, figures: dict[str, float]) -> None:
        """Log the final metrics and the status, see `Callback.on_end`, and close."""

    def remember(self, identity: str) -> None:
        """Save the tracker's ID of the run in the folder."""
        if self._folder is not None:
            storage.save(self._folder, {self._file: storage.json_writer({"run": identity})})

    @property
    def _file(self) -> str:
        return f"{self.package or type(self).__name__.lower()}.json"

    def _known(self) -> str | None:
        """Return the tracker's ID of the run in the folder, if it has been tracked before."""
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
            ConfigurationError: if it is not installed, with the extra to install.
        """
        return imported(name or str(package), f"tracking with {package}", f".[{package}]", package)


def _is_number(name: str, value: Any) -> bool:
    """Return whether a value is a metric to log."""
    return name != "round" and isinstance(value, int | float) and not isinstance(value, bool)
