"""Train with an algorithm of turnout where a Flower ServerApp has a strategy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from turnout.core.checks import count, positive
from turnout.flower.options import Options


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
        poll: seconds between two looks for replies.

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
        from turnout.flower.grid import run

        count("num_rounds", num_rounds)
        positive("timeout", timeout)
        configs = {"train": train_config or {}, "evaluate": evaluate_config or {}}
        return run(self, grid, initial_arrays, num_rounds, timeout, configs, evaluate_fn)
