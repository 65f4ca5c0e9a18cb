"""MLflow, with a local database or a tracking server."""

from __future__ import annotations

import inspect
import os
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

from turnout.trackers.tracker import Tracker

_STATUS = {"finished": "FINISHED", "stopped": "FINISHED", "interrupted": "KILLED", "failed": "FAILED"}
_MOST = 100  # maximum number of parameters per request


class MLflow(Tracker, name="mlflow"):
    """Track with MLflow.

    Args:
        project: the experiment's name.
        name: see `Tracker`.
        uri: URI of the tracking server or database; None is ``MLFLOW_TRACKING_URI``, or by default the SQLite file
            mlflow.db next to the run's folder: ``mlflow ui --backend-store-uri sqlite:///runs/mlflow.db``.
        log_model: whether to log the trained model at the end, for ``mlflow.pytorch.load_model``.

    Raises:
        ConfigurationError: if the package is missing.

    Reference: https://mlflow.org/docs/latest/ml/tracking
    """

    package = "mlflow"

    def __init__(
        self, project: str = "turnout", name: str | None = None, uri: str | None = None, log_model: bool = False
    ) -> None:
        super().__init__(project, name)
        self._uri, self._client, self._run, self._log_model = uri, None, "", log_model

    def begin(self, config: dict[str, Any], known: str | None, name: str) -> None:
        """Start or resume a run."""
        module = self._module(self.package)
        beside = (self._folder or Path("run")).resolve().parent
        uri = self._uri or os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{beside / 'mlflow.db'}"
        self._client = client = module.MlflowClient(uri)
        if known is not None:
            self._run = known
            client.update_run(known, status="RUNNING")
            return
        existing = client.get_experiment_by_name(self.project)
        artifacts = (beside / "mlflow-artifacts").as_uri() if uri.startswith("sqlite:") else None
        experiment = existing.experiment_id if existing else client.create_experiment(self.project, artifacts)
        self._run = client.create_run(experiment, run_name=name).info.run_id
        params = [module.entities.Param(key, str(value)[:6000]) for key, value in config.items()]
        for low in range(0, len(params), _MOST):
            client.log_batch(self._run, params=params[low : low + _MOST])
        self.remember(self._run)

    def log(self, round: int, figures: dict[str, float]) -> None:
        """Log the metrics of a round, in one request."""
        assert self._client is not None
        metric, now = self._module(self.package).entities.Metric, int(time.time() * 1000)
        self._client.log_batch(self._run, metrics=[metric(name, value, now, round) for name, value in figures.items()])

    def end(self, status: str, figures: dict[str, float]) -> None:
        """Tag the run with its final metrics, and end it."""
        if self._client is None:
            return
        tag = self._module(self.package).entities.RunTag
        tags = [tag(f"final.{name}", repr(value)) for name, value in figures.items()]
        self._client.log_batch(self._run, tags=[tag("status", status), *tags[: _MOST - 1]])
        if self._log_model and status in ("finished", "stopped"):
            self._save_model(self._client)
        self._client.set_terminated(self._run, _STATUS[status])
        self._client = None

    def _save_model(self, client: Any) -> None:
        """Log the trained model as the artifact ``model`` of the run."""
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of MLflow's own type hints
            flavor = self._module(self.package, "mlflow.pytorch")
            # Newer versions trace the module by default, which fixes the batch size.
            pickled = "serialization_format" in inspect.signature(flavor.save_model).parameters
            options = {"serialization_format": "pickle"} if pickled else {}
            path = Path(folder) / "model"
            flavor.save_model(self.current_result().model, path, **options)
            client.log_artifacts(self._run, path, "model")
