"""The whole configuration of a run, frozen, and the run itself."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, fields, replace
from pathlib import Path

import torch
from torch import nn

from turnout import checkpoint, storage
from turnout.algorithms import fedavg
from turnout.algorithms.step_sizes import warn_of_step_sizes
from turnout.callbacks import Callback, Callbacks
from turnout.core.algorithm import Algorithm
from turnout.core.checks import CheckpointError, ConfigurationError, TurnoutError, count, known_name, refuse
from turnout.core.display import html_table, short
from turnout.data.federated import FederatedData
from turnout.describe import environment
from turnout.distributed import collectives
from turnout.distributed.collectives import ProcessLost
from turnout.engine.choice import ENGINES, Engine
from turnout.engine.loss import Loss, OfExamples, cross_entropy
from turnout.evaluation.appeal import AppealMetrics
from turnout.evaluation.gradients import GradientMetrics
from turnout.models import ModelSpec
from turnout.pace import Buffered, Pace, Rounds
from turnout.population import Population
from turnout.population.speed import UNEQUAL
from turnout.progress import Progress
from turnout.result import Result
from turnout.selection import AllAvailable
from turnout.simulation.simulation import Simulation


class Interrupted(TurnoutError):
    """The run was stopped by the user; its checkpoint is saved where the message says."""


@dataclass(frozen=True, eq=False)
class Experiment:
    """All that determines a result: same experiment, same machine, same number of processes, same result, bit for bit.

    Args:
        data: the clients and what they hold.
        model: a specification such as ``models.Mlp()``, or any `torch.nn.Module`, which starts from its own parameters. A
            specification's has an output for each class, or number to predict, in the type of the inputs.
        algorithm: a recipe such as ``fedau()``, or what `compose` made.
        population: who is there when.
        pace: when the server asks and steps: in synchronous rounds, or whenever a buffer of reports is full (`Buffered`). By
            the clock of `Buffered`, a population without a speed gets `population.speed.UNEQUAL`.
        rounds: how many server steps to take, whatever the pace.
        seed: of everything random in the run.
        evaluate_every: rounds between evaluations; the last round is always evaluated.
        evaluation_examples: evaluate on at most so many examples, evenly spaced; None means on all.
        label_groups: groups of labels whose accuracies evaluations also give, each by itself; None is none.
        appeal: whether evaluations also say how many clients find the model worth joining; None is not.
        gradients: whether evaluations also say how far the run is from a stationary point; None is not.
        record_weights: whether `Result.participation` also says by what each client's report was multiplied in each round.
        loss: one loss for each example, a function of (outputs, targets) such as `squared_error`, or a loss module of torch;
            in place of the default, a model's specification may bring its own.
        engine: ``"auto"``, ``"vectorised"`` or ``"one_by_one"``; results agree within rounding.
        device: ``"cpu"``, ``"cuda"``, ...
        memory_budget: bytes for the clients that train side by side.

    Raises:
        ConfigurationError: for values that cannot be run.
    """

    data: FederatedData
    model: ModelSpec | nn.Module
    algorithm: Algorithm = field(default_factory=fedavg)
    population: Population = field(default_factory=Population)
    pace: Pace = field(default_factory=Rounds)
    rounds: int = 100
    seed: int = 0
    evaluate_every: int = 10
    evaluation_examples: int | None = None
    label_groups: tuple[tuple[int, ...], ...] | None = None
    appeal: AppealMetrics | None = None
    gradients: GradientMetrics | None = None
    record_weights: bool = False
    loss: Loss = cross_entropy
    engine: Engine = "auto"
    device: str = "cpu"
    memory_budget: int = 1 << 30

    def __post_init__(self) -> None:
        self._check_kinds()
        if isinstance(self.pace, Buffered) and self.population.speed is None:
            object.__setattr__(self, "population", replace(self.population, speed=UNEQUAL))
        if self.label_groups is not None and self.algorithm.personal is not None:
            raise ConfigurationError(
                "label_groups: with a personal part there is no one model whose accuracies these are"
            )
        self._choose_loss()
        if not self.data.has_labels:
            self._check_without_labels()
        for name, least in {"rounds": 1, "seed": 0, "evaluate_every": 1}.items():
            count(name, getattr(self, name), least=least)
        if self.evaluation_examples is not None:
            count("evaluation_examples", self.evaluation_examples)
        count("memory_budget", self.memory_budget, least=1 << 20, instead="It is in bytes")
        known_name("engine", self.engine, ENGINES)
        try:
            torch.zeros(1, device=self.device)
        except (RuntimeError, AssertionError) as error:
            raise ConfigurationError(f"device {self.device!r} cannot be used here: {error}") from error

    def _check_kinds(self) -> None:
        """Refuse what is of another kind than its field."""
        kinds = {"data": FederatedData, "algorithm": Algorithm, "population": Population, "pace": Pace}
        for name, kind in kinds.items():
            if not isinstance(getattr(self, name), kind):
                raise ConfigurationError(
                    f"{name} must be a {kind.__name__}, got {getattr(self, name)!r}"
                    + ("; write data.split(...) to give a source to clients" if name == "data" else "")
                    + ("; write Rounds() or Buffered(buffer_size=10)" if name == "pace" else "")
                )
        if not isinstance(self.model, ModelSpec | nn.Module):
            raise ConfigurationError(f"model must be a ModelSpec or a torch.nn.Module, got {self.model!r}")
        for name, kind in {"appeal": AppealMetrics, "gradients": GradientMetrics}.items():
            if not isinstance(given := getattr(self, name), kind | None):
                raise ConfigurationError(
                    f"{name} must be {kind.__name__}(), or None for no such columns, got {given!r}"
                )
        if not isinstance(self.record_weights, bool):
            raise refuse("record_weights", given=self.record_weights, needed="True or False")

    def _choose_loss(self) -> None:
        """Take the model's own loss where none was given, and make a function of a module."""
        if isinstance(self.model, ModelSpec) and self.model.loss is not None and self.loss is cross_entropy:
            object.__setattr__(self, "loss", self.model.loss)
        if isinstance(self.loss, nn.Module):
            object.__setattr__(self, "loss", OfExamples(self.loss))
        if not callable(self.loss):
            raise ConfigurationError(f"loss must be a function of (outputs, targets), got {self.loss!r}")

    def _check_without_labels(self) -> None:
        """Refuse what is only about class labels."""
        numbers = f"the targets of {self.data.name} are {self.data.train.y.dtype} {list(self.data.train.y.shape)}"
        if self.loss is cross_entropy:
            raise ConfigurationError(
                f"loss: {numbers}, and cross-entropy is about one class label for each example: write "
                "loss=to.squared_error, or a function of (outputs, targets) that gives one loss for each example"
            )
        if self.label_groups is not None:
            raise ConfigurationError(f"label_groups: {numbers}, which are no class labels: leave it out")
        if getattr(self.population.requirement, "measure", None) == "accuracy":
            raise ConfigurationError(f"requirement: {numbers}, which have no accuracy: write measure='loss'")

    def __repr__(self) -> str:
        return f"Experiment({', '.join(f'{name}={text}' for name, text in self._settings().items())})"

    def _repr_html_(self) -> str:
        """The settings that differ from the defaults, for notebooks."""
        return html_table(f"Experiment: {self.algorithm.name} on {self.data.name}", self._settings())

    def _settings(self) -> dict[str, str]:
        """What determines the result, in short."""
        model = type(self.model).__name__ if isinstance(self.model, nn.Module) else short(self.model)
        always = {"data": repr(self.data), "model": model, "algorithm": repr(self.algorithm)}
        others = {each.name: short(getattr(self, each.name)) for each in fields(self) if each.name not in always}
        plain = {each.name: short(each.default) for each in fields(self)}
        kept = ("population", "pace", "rounds", "seed")
        return always | {name: text for name, text in others.items() if name in kept or text != plain[name]}

    @property
    def everyone_available_takes_part(self) -> bool:
        """Whether the rate of taking part is the rate of being available."""
        return isinstance(self.algorithm.selection, AllAvailable) and self.population.opting is None

    def build_model(self) -> nn.Module:
        """The model with its first parameters."""
        if isinstance(self.model, nn.Module):
            return self.model
        module, kind = self.model.build(self.data.input_shape, self.data.num_outputs, self.seed), self.data.input_dtype
        return module.to(kind) if kind.is_floating_point else module

    def run(
        self,
        folder: str | Path | None = None,
        *,
        resume: bool = False,
        checkpoint_every: int | None = None,
        progress: bool = False,
        callbacks: Sequence[Callback] = (),
    ) -> Result:
        """Train, evaluate, record.

        Where `torch.distributed` is initialised, its processes do this together: all call it with the same experiment, each
        trains its share of every cohort, and all get the result. Process 0 alone writes, and shows progress; on several
        machines all must see the folder.

        Args:
            folder: where tables, configuration and checkpoints go; None keeps everything in memory.
            resume: go on from the checkpoint in `folder`, if there is one.
            checkpoint_every: rounds between checkpoints; None means about once a minute. One is always saved at the end.
            progress: whether to show a bar, or lines where there is no terminal.
            callbacks: what looks on, and may end the run early.

        Raises:
            ConfigurationError: for what cannot run, before anything is trained.
            CheckpointError: for a folder that holds another run, or cannot be written.
            Interrupted: on Ctrl-C, after a checkpoint was saved.
            ProcessLost: where another process has died; the last checkpoint says how far the run got.

        Warns:
            StepSizeWarning: for step sizes of which the theorems on FedAvg-P and Scaffold-P say nothing.
        """
        if checkpoint_every is not None:
            count("checkpoint_every", checkpoint_every, instead="Write None for about once a minute")
        watched = Callbacks([*callbacks, *([Progress()] if progress else [])])
        simulation = Simulation(self)
        if collectives.rank() > 0:
            watched = Callbacks([])
        else:
            self._warn_of_step_sizes()
        target = None if folder is None else Path(folder)
        with _alone_in(target):
            if target is not None:
                self._open(target, simulation, resume)
            with (
                stops_on_signal() as stopped,
                _watching(simulation, target, watched) as ended,
            ):
                try:
                    _loop(simulation, target, checkpoint_every, ended, watched, stopped)
                except ProcessLost as error:
                    hint = (
                        f"go on from the last checkpoint with: turnout run --resume {target}"
                        if target
                        else "nothing was saved"
                    )
                    raise ProcessLost(f"{error}; {hint}") from error
        return Result.of(simulation)

    def _warn_of_step_sizes(self) -> None:
        """Hold the step sizes against the theorems, where these speak of the algorithm and L is known."""
        if self.algorithm.personal is None or not isinstance(self.model, ModelSpec):
            return
        smoothness = self.model.smoothness(self.data.train)
        if smoothness is not None:
            warn_of_step_sizes(self.algorithm, self.data.num_clients, self.rounds, smoothness)

    def _open(self, folder: Path, simulation: Simulation, resume: bool) -> None:
        """Take over an earlier run, or start a new folder."""
        if collectives.broadcast(checkpoint.exists(folder)):
            if not resume:
                raise CheckpointError(
                    f"{folder} already holds a run: write resume=True (--resume {folder}) to go on, or another folder"
                )
            simulation.restore(folder)
        if collectives.rank() > 0:
            return
        files = {"config.json": simulation.description, "environment.json": environment()}
        storage.save(folder, {name: storage.json_writer(value) for name, value in files.items()})


def _loop(
    simulation: Simulation,
    folder: Path | None,
    checkpoint_every: int | None,
    ended: Callable[[], bool],
    callbacks: Callbacks,
    stopped: threading.Event,
) -> None:
    """Go through the rounds that are left, with checkpoints on the way and at the end."""
    rounds, saved = simulation.experiment.rounds, time.monotonic()

    def save() -> None:
        if folder is not None and collectives.rank() == 0:
            simulation.save(folder)

    simulation.workspace.watch = _watch(folder, callbacks, stopped)
    if collectives.world_size() > 1 and simulation.state.version == 0:
        save()  # so that there is something to go on from whenever another process is lost
    while simulation.state.version < rounds:
        simulation.round()
        try:
            over = ended()
        except Interrupted:
            save()
            raise
        version = simulation.state.version
        due = version % checkpoint_every == 0 if checkpoint_every else time.monotonic() - saved > 60.0
        if collectives.anyone(stopped.is_set()):
            if folder is None:
                raise Interrupted(f"stopped after round {version} of {rounds}; without a folder nothing was saved")
            save()
            raise Interrupted(
                f"stopped after round {version} of {rounds}, all saved. Go on with: turnout run --resume {folder}"
            )
        if collectives.anyone(over):
            break
        if due and version < rounds:
            save()
            saved = time.monotonic()
    simulation.finish()
    save()


def _watch(folder: Path | None, callbacks: Callbacks, stopped: threading.Event) -> Callable[[str, int, int], None]:
    """Make what is told of long work within a round: it tells callbacks, and ends the run where it was stopped."""

    def watch(what: str, done: int, total: int) -> None:
        callbacks.on_work(what, done, total)
        if stopped.is_set() and collectives.world_size() == 1:  # several processes stop together, after the round
            saved = folder is not None and checkpoint.exists(folder)
            hint = (
                f"go on from the last checkpoint with: turnout run --resume {folder}" if saved else "nothing was saved"
            )
            raise Interrupted(f"stopped within a round, at {what} ({done} of {total} clients); {hint}")

    return watch


@contextmanager
def _watching(simulation: Simulation, folder: Path | None, callbacks: Callbacks) -> Iterator[Callable[[], bool]]:
    """Tell callbacks of a run; yields a function that tells them of a round, and returns whether it is to be the last."""
    over = False

    def ended() -> bool:
        nonlocal over
        over = callbacks.on_round({"round": simulation.state.version, **simulation.row})
        return over

    callbacks.on_start(simulation.description, folder)
    try:
        yield ended
    except BaseException as error:
        status = "interrupted" if isinstance(error, Interrupted | KeyboardInterrupt) else "failed"
        callbacks.on_end({"status": status, "rounds": simulation.state.version})
        raise
    status = "stopped" if over else "finished"
    callbacks.on_end({"status": status, "rounds": simulation.state.version} | simulation.history.summary())


@contextmanager
def _alone_in(folder: Path | None) -> Iterator[None]:
    """Keep other runs out of a folder, if there is one; process 0 does so for all of this run.

    Raises:
        CheckpointError: on all processes, where another run is going on there.
    """
    refused: CheckpointError | None = None
    with ExitStack() as held:
        if folder is not None and collectives.rank() == 0:
            try:
                held.enter_context(storage.locked(folder))
            except CheckpointError as error:
                refused = error
        if (why := collectives.broadcast(refused and str(refused))) is not None:
            raise CheckpointError(why) from refused
        yield


@contextmanager
def stops_on_signal() -> Iterator[threading.Event]:
    """An event that Ctrl-C sets, so that a round is never cut in the middle; a second Ctrl-C stops at once."""
    stopped = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stopped  # signals reach the main thread only
        return

    def stop(*_: object) -> None:
        if stopped.is_set():
            raise KeyboardInterrupt
        stopped.set()

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stopped
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
