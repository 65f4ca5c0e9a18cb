"""Weights & Biases, and Trackio, which has the same API."""

from __future__ import annotations

from typing import Any, Literal

from turnout.trackers.tracker import Tracker


class WeightsAndBiases(Tracker, name="wandb"):
    """Track with Weights & Biases, online or offline.

    Args:
        project, name: see `Tracker`.
        mode: ``"online"``, or ``"offline"`` for a later ``wandb sync``; None is ``WANDB_MODE``.

    Raises:
        ConfigurationError: if the package is missing.

    Reference: https://docs.wandb.ai
    """

    package = "wandb"

    def __init__(
        self, project: str = "turnout", name: str | None = None, mode: Literal["online", "offline"] | None = None
    ) -> None:
        super().__init__(project, name)
        self._mode, self._run = mode, None

    def begin(self, config: dict[str, Any], known: str | None, name: str) -> None:
        """Start or resume a run."""
        where = None if self._folder is None else str(self._folder)
        if self._folder is not None:
            self._folder.mkdir(parents=True, exist_ok=True)
        self._run = self._module(self.package).init(
            project=self.project, name=name, config=config, id=known, resume="allow", mode=self._mode, dir=where
        )
        if known is None:
            self.remember(self._run.id)

    def log(self, round: int, figures: dict[str, float]) -> None:
        """Log the metrics of a round."""
        assert self._run is not None
        self._run.log(figures, step=round)

    def end(self, status: str, figures: dict[str, float]) -> None:
        """Log the summary, and finish."""
        if self._run is not None:
            self._run.summary.update({"status": status, **figures})
            self._run.finish(exit_code=0 if status in ("finished", "stopped") else 1)
            self._run = None


class Trackio(Tracker, name="trackio"):
    """Track with Trackio, in a local database; ``trackio show`` opens it.

    Args:
        project, name: see `Tracker`.

    Raises:
        ConfigurationError: if the package is missing.

    Reference: https://huggingface.co/docs/trackio
    """

    package = "trackio"
    _run: Any = None

    def begin(self, config: dict[str, Any], known: str | None, name: str) -> None:
        """Start a run, or resume the one of this name."""
        trackio = self._module(self.package)
        self._run = trackio.init(project=self.project, name=known or name, config=config, resume="allow")
        if known is None:
            self.remember(self._run.name)

    def log(self, round: int, figures: dict[str, float]) -> None:
        """Log the metrics of a round."""
        self._run.log(figures, step=round)

    def end(self, status: str, figures: dict[str, float]) -> None:
        """Log the final metrics and status, and finish."""
        if self._run is not None:
            self._run.log({f"final/{name}": value for name, value in figures.items()} | {"finished": status})
            self._run.finish()
