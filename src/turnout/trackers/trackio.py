"""Trackio: a local dashboard with the calls of Weights & Biases."""

from __future__ import annotations

from typing import Any

from turnout.trackers.tracker import Tracker


class Trackio(Tracker, name="trackio"):
    """Track with Trackio, whose database is local; ``trackio show`` opens it.

    Args:
        project, name: see `Tracker`.

    Raises:
        ConfigurationError: where the package is missing.

    Reference: https://huggingface.co/docs/trackio
    """

    package = "trackio"

    def __init__(self, project: str = "turnout", name: str | None = None) -> None:
        super().__init__(project, name)
        self._run: Any = None

    def begin(self, config: dict[str, Any], known: str | None, name: str) -> None:
        """Begin a run, or go on with the one of this name."""
        trackio = self._module(self.package)
        self._run = trackio.init(project=self.project, name=known or name, config=config, resume="allow")
        if known is None:
            self.remember(self._run.name)

    def log(self, round: int, figures: dict[str, float]) -> None:
        """Log the figures at their round."""
        self._run.log(figures, step=round)

    def end(self, status: str, figures: dict[str, float]) -> None:
        """Log how it ended, and finish."""
        if self._run is not None:
            self._run.log({f"final/{name}": value for name, value in figures.items()} | {"finished": status})
            self._run.finish()
            self._run = None
