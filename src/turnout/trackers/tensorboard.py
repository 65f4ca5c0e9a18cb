"""TensorBoard: event files in the run's folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from turnout.core.checks import ConfigurationError
from turnout.trackers.tracker import Tracker


class TensorBoard(Tracker, name="tensorboard"):
    """Write event files to ``FOLDER/tensorboard``; ``tensorboard --logdir runs`` shows them.

    Args:
        folder: folder of the event files; None is a subfolder of the run's folder, which is then required.

    Raises:
        ConfigurationError: if the package is missing, or there is no folder.

    Reference: https://www.tensorflow.org/tensorboard
    """

    package = "tensorboard"

    def __init__(self, folder: str | Path | None = None) -> None:
        super().__init__()
        self._events = None if folder is None else Path(folder)
        self._writer: Any = None
        self._config: dict[str, Any] = {}

    def begin(self, config: dict[str, Any], known: str | None, name: str) -> None:
        """Keep the settings until the first round, whose number is needed to open the file."""
        if self._events is None and self._folder is None:
            raise ConfigurationError(
                "TensorBoard writes files, and this run has no folder: give it one, experiment.run('runs/mine')"
            )
        self._config = config

    def log(self, round: int, figures: dict[str, float]) -> None:
        """Write one scalar per metric; later rounds of an interrupted run are purged."""
        if self._writer is None:
            module = self._module(self.package, "torch.utils.tensorboard")
            where = self._events or (self._folder or Path()) / "tensorboard"
            self._writer = module.SummaryWriter(str(where), purge_step=round)
            self._writer.add_text("settings", "\n".join(f"    {key} = {value}" for key, value in self._config.items()))
        for name, value in figures.items():
            self._writer.add_scalar(name, value, round)

    def end(self, status: str, figures: dict[str, float]) -> None:
        """Close the file."""
        if self._writer is not None:
            self._writer.add_text("status", status)
            self._writer.close()
            self._writer = None
