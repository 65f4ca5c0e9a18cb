"""Train with an algorithm of turnout where a Flower ServerApp has a strategy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from turnout.core.checks import ConfigurationError, count, positive
from turnout.deployment.server.recovery import opened
from turnout.deployment.server.setting import RunSetting, norm_limit
from turnout.deployment.wire.format import WireError, encode
from turnout.deployment.wire.messages import ReportFormat
from turnout.flower.arrays import Arrays
from turnout.flower.options import Options
from turnout.protocol.pace import Rounds
from turnout.record import lock, storage
from turnout.record.describe import describe
from turnout.record.environment import environment


@dataclass(frozen=True)
class Rule(Options):
    """An algorithm of turnout in the place of a strategy: ``Rule(to.fedau(cutoff=50)).start(grid, arrays, num_rounds=100)``.

    Every node of the grid is a client, numbered in the order in which nodes were seen first; one that comes again is the same
    client as long as Flower gives it the same id. Who is connected is there, so that participation intervals are those of
    nodes. Clients train by their own ClientApp: of the algorithm's local rule nothing is used but the step size that q-FFL
    refers to. Reports and a journal are in the folder: a ServerApp that was killed goes on with the run when it is started
    again, bit for bit.

    Args:
        algorithm: what the server does with updates.
        pace: when it asks and steps. `Rounds` without a deadline has the `timeout` of `start`.
        folder: of the run. One that holds a run goes on with it.
        mod: whether every ClientApp has ``mods=[turnout.flower.mod(algorithm)]``, which does what needs more of clients than
            parameters and metrics.
        min_nodes: so many nodes are connected before the first task is given.
        seed: of the selection of clients.
        evaluate_every: server steps from one call of `evaluate_fn` to the next.
        requirement: rho_k of MaxFL, a loss; or the name of the metric by which a client says its own when it evaluates.
        loss: the name of the loss in the metrics of an evaluation, for MaxFL, q-FFL and power of choice. With ``_rms`` behind
            it, that of ``sqrt(mean_i loss_i^2)``, for Oort.
        train_loss: the name of the mean loss in the metrics of training, for selections by the last loss.
        arrays, config, examples, steps: keys of records and metrics; `steps` is read for FedNova without the mod alone.
        retry: seconds until the node of a task that failed counts as there again.
        poll: seconds between two looks for replies and for who is connected.
        max_norm: the greatest norm of an update that counts; None takes any. ``"auto"`` is 100 times the norm of the first
            model, and at least 100 times the root of its number of parameters.

    Raises:
        ConfigurationError: for an algorithm that needs more of clients than a ClientApp sends, or options out of range.
    """

    def start(
        self,
        grid: Any,
        initial_arrays: Any,
        num_rounds: int = 3,
        timeout: float = 3600,
        train_config: Any = None,
        evaluate_config: Any = None,
        evaluate_fn: Callable[[int, Any], Any] | None = None,
    ) -> Any:
        """Train, or go on with the run in the folder.

        Args:
            grid: of the ServerApp.
            initial_arrays: the first model, an ``ArrayRecord``; a run that goes on has its own.
            num_rounds: server steps.
            timeout: longest time of a round, or of a task where there are no rounds, in seconds.
            train_config: a ``ConfigRecord`` for training; ``server-round`` is added.
            evaluate_config: the same for the evaluation of received models (MaxFL, q-FFL).
            evaluate_fn: scores a model, ``(round, ArrayRecord) -> MetricRecord``; called before the first round, too.

        Returns:
            A ``Result`` of Flower: the last model, and metrics by round.

        Raises:
            CheckpointError: for a folder that holds another run, or cannot be written.
            Diverged: where ten steps in a row had no report that can be used.
        """
        from flwr.app import ArrayRecord  # pyright: ignore[reportMissingImports]
        from flwr.serverapp.strategy import Result  # pyright: ignore[reportMissingImports]

        from turnout.flower.grid import GridServer
        from turnout.flower.replies import formats

        count("num_rounds", num_rounds)
        positive("timeout", timeout)
        result, folder = Result(), Path(self.folder)

        def score(version: int, params: torch.Tensor) -> dict[str, float]:
            metrics = None if evaluate_fn is None else evaluate_fn(version, ArrayRecord(arrays.tensors(params)))
            if metrics is not None:
                result.evaluate_metrics_serverapp[version] = metrics
            return {f"test_{k}": float(v) for k, v in (metrics or {}).items() if isinstance(v, int | float)}

        with lock.locked(folder):
            arrays = self._first(folder, initial_arrays)
            reports = formats(self, arrays, norm_limit(arrays.shared, self.max_norm))
            setting = self._setting(arrays, num_rounds, timeout, reports, score)
            with opened(folder, setting) as (driver, last):
                files = {"config.json": setting.description, "environment.json": environment()}
                # By these, `turnout report` and `to.load` know a run.
                storage.save(folder, {name: storage.json_writer(table) for name, table in files.items()})
                if not driver.started:
                    if (plan := self.algorithm.privacy) is not None:
                        plan.check_correlation(num_rounds)
                        plan.check(num_rounds)
                    score(0, setting.initial)
                configs = {"train": train_config or {}, "evaluate": evaluate_config or {}}
                server = GridServer(self, grid, arrays, driver, last, timeout, configs)
                server.run_in_this_thread()
        result.arrays, result.train_metrics_clientapp = ArrayRecord(arrays.tensors(driver.params)), server.metrics
        return result

    def _first(self, folder: Path, record: Any) -> Arrays:
        """Return the first model of the run in a folder: that in its file, or this one, which is written there."""
        path, arrays = folder / "initial.safetensors", Arrays.of(self.algorithm, record)
        if not path.exists():
            storage.replace_files({path: lambda part: part.write_bytes(encode(arrays.first))})
            return arrays
        recorded = load_file(path)
        try:
            arrays.vector(recorded)
        except WireError as error:
            raise ConfigurationError(f"initial_arrays: {folder} holds a run of another model ({error})") from None
        return replace(arrays, first={name: recorded[name] for name in arrays.first})  # a file does not keep the order

    def _setting(
        self, arrays: Arrays, rounds: int, timeout: float, reports: dict[Any, ReportFormat], score: Any
    ) -> RunSetting:
        """Return what the server needs to know of the run; of its options, those in the description stay as they are."""
        pace, names = self.pace, ("algorithm", "pace", "seed", "requirement", "loss")
        if isinstance(pace, Rounds) and pace.deadline is None:
            pace = replace(pace, deadline=timeout)
        about = {"kind": "flower", "rounds": rounds, "arrays": describe(arrays.layout)}
        return RunSetting(
            algorithm=self.algorithm, pace=pace, rounds=rounds, seed=self.seed, evaluate_every=self.evaluate_every,
            record_weights=False, initial=arrays.shared, reports=reports, heartbeat=timeout,
            description=about | {name: describe(getattr(self, name)) for name in names},
            trained=arrays.trained(), score=score,
        )  # fmt: skip
