"""Run an experiment: train, evaluate, record."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from turnout.algorithms import fedavg
from turnout.algorithms.averages import check_averages
from turnout.algorithms.step_sizes import warn_of_step_sizes
from turnout.base.algorithm import Algorithm
from turnout.callbacks import Callback, Callbacks
from turnout.configuration import Configuration
from turnout.core.checks import CheckpointError, ConfigurationError, count, refuse
from turnout.core.other_names import ExplainsAttributes, explains_arguments
from turnout.core.signals import Flag
from turnout.distributed import collectives
from turnout.distributed.collectives import ProcessLost
from turnout.models import ModelSpec
from turnout.pieces.weighting.rates import KnownRates
from turnout.protocol.pace import Rounds
from turnout.protocol.published import Published
from turnout.record import checkpoint, storage
from turnout.record.environment import save_description
from turnout.reporting.progress import Progress
from turnout.result import Result
from turnout.simulation.dispatch import Steps
from turnout.simulation.lockstep import together
from turnout.simulation.running import alone_in, restore, rounds_left, stops_on_signal, watching
from turnout.simulation.simulation import Simulation

LOG = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False, repr=False)
class Experiment(Configuration, ExplainsAttributes):
    """Everything that determines a result. The same experiment gives the same bits on the same machine and processes.

    Args:
        data: the clients with their examples.
        model: a specification such as ``models.Mlp()``, or any `torch.nn.Module`, which starts from its own parameters. The
            model of a specification has one output for each class or number to predict, in the type of the inputs.
        algorithm: a recipe such as ``fedau()``, or what `compose` made.
        population: availability, speed and behavior of clients.
        pace: when the server asks clients and takes steps: in synchronous rounds, or whenever a buffer of reports is full
            (`Buffered`). With `Buffered`, a population without a speed has `population.speed.UNEQUAL`.
        rounds: number of server steps, for any pace.
        seed: seed of everything random in the run.
        evaluate_every: rounds between evaluations; the last round is always evaluated.
        evaluate_share: share of the clients of a server that evaluate the model on their own test examples at each
            evaluation, drawn at random; 0 asks no client. It has no effect in a simulation, which has the examples of all
            clients.
        evaluation_examples: largest number of examples of an evaluation, evenly spaced; None is all examples.
        label_groups: groups of labels whose accuracies are recorded separately at each evaluation; None is none.
        appeal: columns about the clients whose requirement the model meets; None is no such columns.
        metrics: further figures of evaluations, by name (``"auc"``, ``"f1"``; see `turnout.metrics`) or as functions of
            outputs ``[n, ...]`` and targets ``[n]`` of all examples, or of those of one client. A function returns NaN where
            its figure is undefined. If it returns a number for each example, the figure is their mean. The perplexity of a
            model that predicts the next token is recorded in any case, unless clients have personal parameters.
        gradients: columns of the squared norms of gradients at the present model; None is no such columns.
        record_weights: whether to record the factor of each client's report in each round, in `Result.participation`.
        loss: function of (outputs, targets) that returns one loss for each example, such as `squared_error`, or a loss module
            of torch. A model specification may replace the default by a loss of its own.
        class_weights: weights of examples by class: C numbers > 0, or ``"balanced"`` for ``n / (C n_c)`` with the counts of
            all training examples. They multiply the weights of the examples, and the products are divided by their mean over
            all training examples; see the guide to data.
        engine: ``"auto"``, ``"vectorized"`` or ``"one_by_one"``; results agree within rounding.
        precision: precision of local steps, forward and backward: ``"full"``, the type of the parameters, or
            ``"bf16"``, bfloat16 by `torch.autocast`. Parameters, updates and sums stay float32 or wider, and
            evaluations and measurements are in full precision.
        statistics: running statistics of BatchNorm layers. ``"own"``: each client keeps its own, which needs personal
            parameters, as in `fedbn`. ``"average"``: they are averaged with the parameters, as usual implementations of
            FedAvg do. The averaged variance lacks the variance between the clients' means, so that the averaged model
            normalizes data that differ between clients by statistics that none of them has.
        device: ``"cpu"``, ``"cuda"``, ...
        memory_budget: bytes for the clients that train at the same time; None is 1 GiB on a CPU, and an eighth of the memory
            of a GPU.

    Raises:
        ConfigurationError: if values cannot be run.
    """

    algorithm: Algorithm = field(default_factory=fedavg)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.statistics == "average":
            check_averages(self.algorithm, self.pace)

    @explains_arguments
    def run(
        self,
        /,
        folder: str | Path | None = None,
        *,
        resume: bool = False,
        checkpoint_every: int | None = None,
        progress: bool = False,
        callbacks: Sequence[Callback] = (),
    ) -> Result:
        """Train the model, evaluate it, and return the result.

        If `torch.distributed` is initialized, its processes run the experiment together: all call this method with the same
        experiment, each trains its share of every cohort, and all return the result. Only process 0 writes files and shows
        progress; processes on several machines need a common folder.

        Args:
            folder: folder of tables, configuration and checkpoints; None keeps everything in memory.
            resume: whether to continue from the checkpoint in `folder`, if there is one.
            checkpoint_every: rounds between checkpoints; None is about once a minute. The last round is always saved.
            progress: whether to show a progress bar, or lines if there is no terminal.
            callbacks: objects that observe the run, and may end it early.

        Raises:
            ConfigurationError: if the experiment cannot run, before anything is trained.
            CheckpointError: if the folder contains another run, or cannot be written.
            Interrupted: if the user presses Ctrl-C, after a checkpoint was saved.
            ProcessLost: if another process has ended; the run can be resumed from its last checkpoint.

        Warns:
            StepSizeWarning: for step sizes that the theorems on FedAvg-P and Scaffold-P do not cover.
        """
        if not isinstance(folder, str | Path | None):
            raise refuse(
                "folder",
                given=folder,
                needed="a path, or None",
                instead="The experiment has the number of rounds: rounds=5",
            )
        watched = Callbacks(callbacks, *([Progress()] if progress else []))
        steps = self.steps(folder, resume=resume, checkpoint_every=checkpoint_every, callbacks=watched)
        return together([steps])[0]

    def steps(
        self,
        folder: str | Path | None,
        *,
        resume: bool,
        checkpoint_every: int | None,
        callbacks: Callbacks,
        signal: Flag | None = None,
    ) -> Steps[Result]:
        """Run the experiment, and yield each assignment of clients, for runs in lock-step.

        Args:
            folder, resume, checkpoint_every, callbacks: as in `run`.
            signal: flag that stops the run after the present round; None is one that Ctrl-C sets.
        """
        if checkpoint_every is not None:
            count("checkpoint_every", checkpoint_every, instead="Write None for about once a minute")
        simulation = Simulation(self)
        if collectives.rank() > 0:
            callbacks = Callbacks([])
        else:
            self._warn_of_step_sizes()
            self._note_rates()
        target = None if folder is None else Path(folder).absolute()  # callbacks may change the working directory
        if target is None or not checkpoint.exists(target):
            self.check_budget()
        with alone_in(target) as created:
            if target is not None:
                self._open(target, simulation, resume)
            with (
                _explained(folder, created),
                nullcontext(signal) if signal is not None else stops_on_signal() as stopped,
                callbacks.attached(partial(Result.of, simulation)),
                watching(simulation, target, callbacks) as ended,
            ):
                for _ in rounds_left(simulation, target, checkpoint_every, ended, callbacks, stopped):
                    yield from simulation.steps()
        return Result.of(simulation)

    def _warn_of_step_sizes(self) -> None:
        """Warn of step sizes beyond the theorems, where these cover the algorithm and the smoothness L is known."""
        if self.algorithm.personal is None or not isinstance(self.model, ModelSpec):
            return
        if not Published(self.algorithm).data:  # L is computed from what clients hold
            return
        smoothness = self.model.smoothness(self.data.train)
        if smoothness is not None:
            warn_of_step_sizes(self.algorithm, self.data.num_clients, self.rounds, smoothness)

    def _note_rates(self) -> None:
        """Log if a rule takes the rates of availability for those of participation where these differ."""
        known = any(isinstance(piece, KnownRates) and piece.rates is None for piece in self.algorithm.weighting)
        waits = (
            isinstance(self.pace, Rounds)
            and replace(self.pace, deadline=None, quorum=None, over_selection=1.0) == self.pace
        )
        if known and (self.population.dropout is not None or not waits):
            LOG.warning("known_statistics takes the rates of availability for those of participation, which are lower where "
                        "clients drop out or the server does not wait for all: write rates=(...), or use fedau, which "
                        "estimates them")  # fmt: skip

    def _open(self, folder: Path, simulation: Simulation, resume: bool) -> None:
        """Continue the run in a folder, or begin a new one."""
        if collectives.broadcast(checkpoint.exists(folder)):
            if not resume:
                raise CheckpointError(
                    f"{folder} already holds a run: write resume=True (--resume {folder}) to go on, or another folder"
                )
            storage.check_all(folder, but=(checkpoint.FILE, checkpoint.PREVIOUS))  # `restore` goes on from either
            restore(simulation, folder)
        if collectives.rank() > 0:
            return
        save_description(folder, simulation.description, self.device)


@contextmanager
def _explained(folder: str | Path | None, created: bool) -> Iterator[None]:
    """Add how to go on to the error of a lost process, and delete the folder of a run that is refused in its first round."""
    target = None if folder is None else Path(folder).absolute()
    try:
        yield
    except ProcessLost as error:
        hint = "nothing was saved"
        if folder is not None:
            hint = f"go on from the last checkpoint with: turnout run --resume {folder}"
        raise ProcessLost(f"{error}; {hint}") from error
    except ConfigurationError:
        if created and target is not None and not checkpoint.exists(target):
            storage.discard(target)
        raise
