"""Train with an algorithm of turnout in place of the strategy of a Flower ServerApp."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from turnout.core.checks import ConfigurationError, count, positive
from turnout.core.types import State
from turnout.protocol.pace import Rounds
from turnout.record import lock, storage
from turnout.record.describe import describe
from turnout.record.environment import save_description
from turnout_flower.arrays import Arrays
from turnout_flower.options import Options
from turnout_flower.requirements import required
from turnout_serve.server.journal.recovery import opened
from turnout_serve.server.run.setting import RunSetting, norm_limit
from turnout_serve.wire.format import WireError, encode
from turnout_serve.wire.messages import ReportFormat


@dataclass(frozen=True)
class Rule(Options):
    """An algorithm of turnout in place of a strategy: ``Rule(to.fedau(cutoff=50)).start(grid, arrays, num_rounds=100)``.

    Every node of the grid is a client, numbered in the order in which nodes are first seen; a node that reconnects is the
    same client as long as Flower assigns it the same id. Connected nodes are available clients, so that participation
    intervals are those of nodes. Clients train by their own ClientApp: the algorithm's local rule is not used, except for the
    step size that q-FFL reads. Reports and a journal are in the folder: a ServerApp that was killed resumes the run when it
    is started again, bit for bit.

    Args:
        algorithm: the algorithm of the server.
        pace: the pace. `Rounds` without a deadline has the `timeout` of `start`.
        folder: the folder of the run; a run in it is resumed.
        mod: True if every ClientApp has ``mods=[turnout_flower.mod(algorithm)]``, for algorithms that need more of clients
            than parameters and metrics.
        min_nodes: number of connected nodes before `start` sends its first task. Later, a round goes on with fewer.
        seed: the seed of the selection of clients.
        evaluate_every: server steps between calls of `evaluate_fn`.
        requirement: rho_k of MaxFL, a loss; or the name of the metric of a client's evaluation with its requirement.
        loss: the name of the loss in the metrics of an evaluation, for MaxFL, q-FFL and power of choice. With the suffix
            ``_rms``, that of ``sqrt(mean_i loss_i^2)``, for Oort.
        train_loss: the name of the mean loss in the metrics of training, for selections by the last loss.
        arrays, config, examples, steps: keys of records and metrics; `steps` is read only for FedNova without the mod.
        retry: seconds until the node of a failed task counts as available again.
        poll: seconds between polls for replies and connected nodes.
        max_norm: maximum norm of an update; None is unlimited. ``"auto"`` is 100 times the norm of the initial model, and at
            least 100 times the square root of its number of parameters.
        max_examples, max_steps: maximum numbers of examples and of local steps that a client may report; None is 2^40.
            Weights by examples (FedAvg) grow with the first, and FedNova's step with the second.

    Raises:
        ConfigurationError: if an algorithm needs more of clients than a ClientApp sends, or options are out of range.
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
        """Train, or resume the run in the folder.

        Args:
            grid: the grid of the ServerApp.
            initial_arrays: the initial model, an ``ArrayRecord``; a resumed run has its own.
            num_rounds: number of server steps.
            timeout: maximum duration of a round, or of a task if there are no rounds, in seconds.
            train_config: a ``ConfigRecord`` for training, to which ``server-round`` is added.
            evaluate_config: the same for evaluations of received models (MaxFL, q-FFL).
            evaluate_fn: evaluates a model, ``(round, ArrayRecord) -> MetricRecord``; also called before the first round.

        Returns:
            A ``Result`` of Flower with the last model, and metrics by round; with differential privacy without those of
            clients, which have no noise.

        Raises:
            CheckpointError: if the folder holds another run, or cannot be written.
            Diverged: if ten consecutive steps had no usable report.
            ModuleNotFoundError: if Flower is not installed.
        """
        with required():
            from flwr.app import ArrayRecord  # pyright: ignore[reportMissingImports]
            from flwr.serverapp.strategy import Result  # pyright: ignore[reportMissingImports]

            from turnout_flower.grid import GridServer
            from turnout_flower.replies import formats

        count("num_rounds", num_rounds)
        positive("timeout", timeout)
        result, folder = Result(), Path(self.folder)

        def score(version: int, params: torch.Tensor, _: State) -> dict[str, float]:
            metrics = None if evaluate_fn is None else evaluate_fn(version, ArrayRecord(arrays.tensors(params)))
            if metrics is not None:
                result.evaluate_metrics_serverapp[version] = metrics
            return {f"test_{k}": float(v) for k, v in (metrics or {}).items() if isinstance(v, int | float)}

        with lock.locked(folder):
            arrays = self._initial(folder, initial_arrays)
            reports = formats(self, arrays, norm_limit(arrays.shared, self.max_norm))
            setting = self._setting(arrays, num_rounds, timeout, reports, score)
            with opened(folder, setting, min_clients=self.min_nodes) as (driver, last):
                save_description(folder, setting.description)
                if driver.run is None:
                    if (plan := self.algorithm.privacy) is not None:
                        plan.check_correlation(num_rounds)
                        plan.check(num_rounds)
                    setting.evaluate(0, setting.initial, {})
                configs = {"train": train_config or {}, "evaluate": evaluate_config or {}}
                server = GridServer(self, grid, arrays, driver, last, timeout, configs)
                server.run_in_this_thread()
        result.arrays, result.train_metrics_clientapp = ArrayRecord(arrays.tensors(driver.params)), server.metrics
        return result

    def _initial(self, folder: Path, record: Any) -> Arrays:
        """Return the initial model of the run in a folder; for a new run, write this one there."""
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
        """Return the settings of the run for the server. Options in the description must not change when it is resumed."""
        pace, names = self.pace, ("algorithm", "pace", "seed", "requirement", "loss")
        if isinstance(pace, Rounds) and pace.deadline is None:
            pace = replace(pace, deadline=timeout)
        description = {"kind": "flower", "rounds": rounds, "arrays": describe(arrays.layout)}
        return RunSetting(
            algorithm=self.algorithm, pace=pace, rounds=rounds, seed=self.seed, evaluate_every=self.evaluate_every,
            record_weights=False, initial=arrays.shared, reports=reports, heartbeat=timeout,
            description=description | {name: describe(getattr(self, name)) for name in names},
            trained=arrays.trained(), score=score,
        )  # fmt: skip
