"""Observe and stop runs: the base class of callbacks, early stopping, and calling a function after each round."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partialmethod
from pathlib import Path
from typing import Any

from turnout.core.checks import ConfigurationError, count, not_negative, refuse
from turnout.record.schema import CHOOSING, less_is_better


class Callback:
    """Observe a run. Methods do nothing by default, so a subclass overrides those that it needs.

    If several processes run one experiment together, only process 0 calls its callbacks.

    Example:
        >>> import turnout as to
        >>> class GoodEnough(to.Callback):
        ...     def on_round(self, row):
        ...         return row.get("test_accuracy", 0) > 0.5
        >>> data = to.data.digits().split(to.partition.Iid(), num_clients=10)
        >>> experiment = to.Experiment(data=data, model=to.models.Logistic(), rounds=100, evaluate_every=1)
        >>> experiment.run(callbacks=[GoodEnough()]).rounds.num_rows < 100
        True
    """

    stopped_by: str | None = None
    """The column of the table of rounds by which this callback has ended the run; None if it goes by something else."""

    _result: Callable[[], Any] | None = None

    def current_result(self) -> Any:
        """Return the run so far as a `Result`: its model, `state_dict`, models of clients, and tables.

        It may be called in every method. The model is that of the last completed round. Nothing is copied for callbacks
        that do not call it.

        Example:
            >>> import turnout as to
            >>> class Norms(to.Callback):
            ...     def on_start(self, config, folder):
            ...         self.norms = []
            ...     def on_round(self, row):
            ...         weights = self.current_result().state_dict().values()
            ...         self.norms.append(sum(float(each.square().sum()) for each in weights) ** 0.5)
            >>> data, norms = to.data.digits().split(to.partition.Iid(), num_clients=10), Norms()
            >>> result = to.Experiment(data=data, model=to.models.Logistic(), rounds=3).run(callbacks=[norms])
            >>> norms.norms[0] < norms.norms[1] < norms.norms[2]
            True

        Raises:
            ConfigurationError: if it is called outside of a run.
        """
        if self._result is None:
            raise ConfigurationError(
                f"{type(self).__name__}: there is no run at the moment: call current_result() from on_round or on_end"
            )
        return self._result()

    def on_start(self, config: Mapping[str, Any], folder: Path | None) -> None:
        """Handle the start of a run, or of its continuation.

        Args:
            config: the whole configuration as plain values, as in ``config.json``.
            folder: folder of the run; None if it is not saved.
        """

    def on_earlier(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Handle the rounds that were recorded before a run is continued; called after `on_start`.

        Args:
            rows: rows of all rounds so far, as `on_round` gets them.
        """

    def on_round(self, row: Mapping[str, Any]) -> bool | None:
        """Handle a completed round; return True to end the run with it, as if it were the last.

        Raise `Interrupted` to save the run and continue it later.

        Args:
            row: record of the round: ``round``, counted from 1, and the columns of the table of rounds.
        """

    def on_work(self, what: str, done: int, total: int) -> None:
        """Handle the progress of long work within a round.

        Args:
            what: the kind of work, such as ``"own models"``, which clients train alone to determine their requirements.
            done: number of completed parts.
            total: number of parts.
        """

    def on_end(self, summary: Mapping[str, Any]) -> None:
        """Handle the end of a run; called once after `on_start`, however the run ends.

        Args:
            summary: ``status`` (``"finished"``, ``"stopped"`` by a callback, ``"interrupted"`` or ``"failed"``), the number
                of completed ``rounds``, and for a finished or stopped run the figures of `History.summary`.
        """


class AfterRound(Callback):
    """Call a function with the row of every round.

    Args:
        function: function that returns True to end the run.
    """

    def __init__(self, function: Callable[[Mapping[str, Any]], bool | None]) -> None:
        self._function = function

    def on_round(self, row: Mapping[str, Any]) -> bool | None:
        """Call the function."""
        return self._function(row)


class EarlyStopping(Callback):
    """End a run once a metric reaches a target, or no longer improves.

    Patience counts evaluations: with an evaluation every 10 rounds, ``patience=3`` is 30 rounds. A resumed run ends in the
    same round as an uninterrupted one.

    Args:
        patience: number of evaluations without an improvement that ends the run; None sets no limit.
        target: value of the metric that ends the run; None is none.
        metric: column of the table of rounds. Smaller values of losses, errors and norms are better, and larger values of
            accuracies and scores: the end of the name decides. None is the validation accuracy, or the test accuracy if there
            are no validation examples. Test figures of a run that they ended are biased, as the summary (``stopped_by``), the
            report and the command line say.
        least: smallest difference from the best value so far that counts as an improvement.

    Raises:
        ConfigurationError: if there is neither patience nor a target, if an evaluation has no such column, or if its name
            does not say in which direction it improves.

    Example:
        >>> import turnout as to
        >>> data = to.data.digits().split(to.partition.Iid(), num_clients=10)
        >>> experiment = to.Experiment(data=data, model=to.models.Logistic(), rounds=100, evaluate_every=1)
        >>> experiment.run(callbacks=[to.EarlyStopping(target=0.5)]).rounds["test_accuracy"][-1].as_py() >= 0.5
        True
    """

    def __init__(
        self,
        patience: int | None = None,
        target: float | None = None,
        metric: str | None = None,
        least: float = 0.0,
    ) -> None:
        if patience is None and target is None:
            raise ConfigurationError("EarlyStopping: nothing would end the run: write patience=10, target=0.9, or both")
        if patience is not None:
            count("patience", patience)
        if target is not None and (isinstance(target, bool) or not math.isfinite(target)):
            raise refuse("target", given=target, needed="a number")
        not_negative("least", least)
        self.patience, self.target, self.metric, self.least = patience, target, metric, least
        self._best, self._waited = -math.inf, 0

    def on_start(self, config: Mapping[str, Any], folder: Path | None) -> None:
        """Reset the state of an earlier run."""
        self._best, self._waited = -math.inf, 0

    def on_earlier(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Process the evaluations before the run is continued."""
        for row in rows:
            self.on_round(row)

    def on_round(self, row: Mapping[str, Any]) -> bool:
        """Compare an evaluation with the best value and the target, and return whether the run ends."""
        metric = self.metric or next((name for name in CHOOSING[:2] if row.get(name) is not None), CHOOSING[1])
        if (value := row.get(metric)) is None:
            self._check_evaluated(metric, row)
            return False
        sign = -1.0 if less_is_better(metric) else 1.0
        good = sign * value
        if good > self._best + self.least:
            self._best, self._waited = good, 0
        else:
            self._waited += 1
        reached = self.target is not None and good >= sign * self.target
        over = reached or (self.patience is not None and self._waited >= self.patience)
        self.stopped_by = metric if over else None
        return over

    def _check_evaluated(self, metric: str, row: Mapping[str, Any]) -> None:
        """Raise an error for a row of an evaluation, in which the metric should be."""
        evaluated = ("validation_", "test_", "train_")
        if figures := sorted(name for name, value in row.items() if value is not None and name.startswith(evaluated)):
            raise ConfigurationError(f"EarlyStopping: no {metric!r} in an evaluation, which has {', '.join(figures)}")


class Callbacks(Callback):
    """Combine several callbacks into one, which calls them in their order.

    Raises:
        ConfigurationError: if an object is not a callback.
    """

    def __init__(self, callbacks: Iterable[Callback], *more: Callback) -> None:
        if isinstance(callbacks, Callback) or not isinstance(callbacks, Iterable):
            raise ConfigurationError(f"callbacks: got {callbacks!r}, needed a list of callbacks: write callbacks=[...]")
        self._all = (*callbacks, *more)
        for callback in self._all:
            if not isinstance(callback, Callback):
                raise ConfigurationError(
                    f"callbacks: got {callback!r}, needed objects of classes that derive from Callback: write "
                    "AfterRound(function) to call a function after every round"
                )

    @contextmanager
    def attached(self, result: Callable[[], Any]) -> Iterator[None]:
        """Let the callbacks read the present result of a run, by a function, within this context."""
        for callback in self._all:
            callback._result = result
        try:
            yield
        finally:
            for callback in self._all:
                callback._result = None

    @property
    def look_back(self) -> bool:
        """True if a callback handles earlier rounds, which are many in a long run."""
        return any(type(callback).on_earlier is not Callback.on_earlier for callback in self._all)

    @property
    def stopped_by(self) -> str | None:  # type: ignore[override]
        """The column by which the first of the callbacks that did has ended the run."""
        return next((callback.stopped_by for callback in self._all if callback.stopped_by is not None), None)

    def _call(self, method: str, *arguments: Any) -> bool:
        """Call a method of every callback; return whether one of them returns True."""
        return any([bool(getattr(callback, method)(*arguments)) for callback in self._all])  # noqa: C419 - every one is called

    on_start = partialmethod(_call, "on_start")  # type: ignore[assignment]
    on_earlier = partialmethod(_call, "on_earlier")  # type: ignore[assignment]
    on_round = partialmethod(_call, "on_round")  # type: ignore[assignment]
    on_work = partialmethod(_call, "on_work")  # type: ignore[assignment]
    on_end = partialmethod(_call, "on_end")  # type: ignore[assignment]
