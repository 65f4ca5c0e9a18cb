"""Evaluate the present model for the table of rounds, for clients that never train, and for the table of clients."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import numpy as np
import pyarrow as pa
import torch

from turnout.base import KnownInAdvance
from turnout.base.algorithm import Algorithm
from turnout.configuration import Configuration
from turnout.core.checks import ConfigurationError, TurnoutError
from turnout.core.types import Federation, ServerState, Task
from turnout.data.shards import Shards
from turnout.engine.reading import as_logits, has_one_label, reading_of
from turnout.engine.trial import extremes
from turnout.evaluation.evaluate import Scores, by_labels, columns, evaluate, thinned
from turnout.evaluation.gradients import gradient_figures
from turnout.evaluation.metrics import METRICS, measured
from turnout.evaluation.personal import Models, PersonalScores, evaluate_personal
from turnout.record.predictions import PREDICTION_COLUMNS, count_predictions
from turnout.record.tables import build
from turnout.simulation.client_groups import Newcomers
from turnout.simulation.workspace import PresentModels, Workspace

_SECONDS = 1.0  # between two reports of the progress of an evaluation
_TRIED = 16  # examples of a split
MOST_MODELS = 1000  # that are evaluated one by one


class Judge:
    """Evaluates loss, and accuracy or root-mean-square error, of present models.

    Args:
        experiment: the configuration.
        workspace: model and data.
        models: the present models.
    """

    def __init__(self, experiment: Configuration, workspace: Workspace, models: PresentModels) -> None:
        self._experiment, self._workspace, self._models = experiment, workspace, models
        self._metrics, self._newcomers = experiment.named_metrics(), Newcomers.of(experiment, workspace)
        self._watched = 0.0

    def scores(
        self, shards: Shards, serving: Models | None = None, *, outputs: bool = False
    ) -> Scores | PersonalScores:
        """Evaluate the shared model, or each client's personal one, on these examples.

        Args:
            shards: the examples.
            serving: function that returns the personal models of these clients; None for those of the training clients.
            outputs: whether outputs and targets are returned as well; they are if there are metrics.
        """
        workspace, models, outputs = self._workspace, self._models, outputs or bool(self._metrics)
        self._watched = time.monotonic()
        if models.personal is None:
            return evaluate(
                workspace.objective,
                models.params,
                shards,
                workspace.data.transforms,
                outputs=outputs,
                watch=self._watch,
            )
        everyone = workspace.clients(np.arange(shards.num_clients), shards)
        return evaluate_personal(serving or models.serving, everyone, workspace.lanes, self._watch, outputs=outputs)

    def _watch(self, done: int, total: int) -> None:
        """Report the progress of an evaluation about once a second."""
        if time.monotonic() - self._watched > _SECONDS:
            self._watched = time.monotonic()
            self._workspace.watch("evaluation", done, total)

    def check(self) -> None:
        """Evaluate the initial models on a few examples of each split, so that no evaluation fails after some rounds.

        Metrics of users, which may fail on any client's examples, are tried on all of them.

        Raises:
            ConfigurationError: if a metric fails, or if the model does not fit the examples of a split.
        """
        whole = bool(self._metrics.keys() - METRICS.keys())
        for name, shards in self._experiment.data.splits.items():
            if not len(shards.x):
                continue
            with trying(f"the {name} data"):
                held = self._workspace.data(shards)
                scores = self.scores(held if whole else _some(held), self._first)
                self._measured(scores)
                self._measured_by_client(scores, shards.num_clients)

    def check_fitting(self, present: Task) -> None:
        """Compute for one client what evaluations compute beside scores: fitted personal models, and gradients.

        Raises:
            ConfigurationError: if that fails.
        """
        if self._newcomers is not None:
            one = self._newcomers.one()
            assert one.group.test is not None
            with trying("the data of validation clients"):
                self._measured(self.scores(one.group.test, partial(one.models, present)))
        with trying("the computation of gradients over all examples"):
            self._gradients(1)
        if (unseen := Newcomers.unseen(self._experiment, self._workspace)) is not None:
            with trying("the data of unseen clients"):
                unseen.one().figures(present)

    def _first(self, ids: np.ndarray) -> torch.Tensor:
        """Return the initial personal models of any clients."""
        return self._models.serving(np.zeros_like(ids))

    def figures(self, present: Task) -> dict[str, float]:
        """Return loss, and accuracy or root-mean-square error, of the present model on each split.

        Args:
            present: the present model, its version, and the seed.
        """
        most, groups = self._experiment.evaluation_examples, self._experiment.label_groups
        row, data, newcomers = {}, self._workspace.data, self._newcomers
        splits: dict[str, tuple[Shards | None, Models | None]] = {
            "train": (data.train, None), "validation": (data.validation, None), "test": (data.test, None)
        }  # fmt: skip
        if newcomers is not None:
            splits["validation"] = newcomers.group.test, partial(newcomers.models, present)
        for name, (whole, serving) in splits.items():
            if whole is not None and len(whole.x):
                shards = thinned(whole, most) if most else whole
                scores = self.scores(shards, serving)
                row |= columns(scores.mean() | self._measured(scores), name)
                if groups and isinstance(scores, Scores):
                    by_group = by_labels(scores, shards.y.cpu().numpy(), groups)
                    row |= {f"{name}_{metric}": value for metric, value in by_group.items()}
        return row | self._gradients(data.train.num_clients)

    def _gradients(self, num_clients: int) -> dict[str, float]:
        """Return the norms of gradients over the first clients, if they are recorded."""
        run, workspace = self._experiment, self._workspace
        if run.gradients is None:
            return {}
        share = run.gradients.share(getattr(run.algorithm.selection, "cohort_size", None), run.data.num_clients)
        return gradient_figures(self._models.trained, workspace.clients, num_clients, share, workspace.lanes)

    def unseen(self, present: Task) -> dict[str, float]:
        """Return the scores of unseen clients, with personal parts fitted to their data."""
        newcomers = Newcomers.unseen(self._experiment, self._workspace)
        return {} if newcomers is None else newcomers.figures(present)

    def by_client(self) -> dict[str, np.ndarray]:
        """Return the scores of each client, on its training, validation and test examples."""
        by_client: dict[str, np.ndarray] = {}
        on_device, test = self._workspace.data, self._experiment.data.client_test
        test = None if test is None else on_device(test)
        for name, shards in (("train", on_device.train), ("validation", on_device.client_validation), ("test", test)):
            if shards is not None:
                scores = self.scores(shards)
                figures = scores.by_client() | self._measured_by_client(scores, shards.num_clients)
                by_client |= {f"{name}_{figure}": values for figure, values in figures.items()}
        return by_client

    def predictions(self) -> pa.Table:
        """Return the predictions on test examples, counted; an empty table without class labels or test examples.

        Personal models are evaluated one by one, so of more than `MOST_MODELS` there are none.
        """
        run, test, empty = self._experiment, self._workspace.data.test, build({}, PREDICTION_COLUMNS)
        too_many = self._models.personal is not None and run.data.num_clients > MOST_MODELS
        if not has_one_label(run.loss, run.data.train.y) or test is None or not len(test.x) or too_many:
            return empty
        if np.isnan(self.scores(_some(test)).score).all():  # as of a model that returns several tensors
            return empty
        shards = thinned(test, run.evaluation_examples) if run.evaluation_examples else test
        outputs, targets = _judged(self.scores(shards, outputs=True))
        if reading_of(run.loss, outputs, targets) is None:
            return empty
        return count_predictions(*as_logits(run.loss, outputs, targets))

    def _measured(self, scores: Scores | PersonalScores) -> dict[str, float]:
        """Return the metrics over all examples."""
        return measured(self._metrics, *_judged(scores)) if self._metrics else {}

    def _measured_by_client(self, scores: Scores | PersonalScores, num_clients: int) -> dict[str, np.ndarray]:
        """Return the metrics of each client, float64 ``[N]``; NaN for a client without examples."""
        table = {name: np.full(num_clients, np.nan) for name in self._metrics}
        for client, pair in scores.pairs.items() if self._metrics else ():
            for name, value in measured(self._metrics, *pair).items():
                table[name][client] = value
        return table


@contextmanager
def trying(what: str) -> Iterator[None]:
    """Explain errors of models and losses of users, which may raise any exception."""
    try:
        yield
    except (TurnoutError, AssertionError):
        raise
    except Exception as error:
        raise ConfigurationError(f"the model does not fit {what}: it failed with: {error}") from error


def _some(shards: Shards) -> Shards:
    """Return a few examples, evenly spaced, with those of the smallest and largest labels and integer inputs."""
    rows = torch.linspace(0, len(shards.x) - 1, _TRIED, dtype=torch.float64).round().long()
    return shards.at(torch.cat([rows, extremes(shards).cpu()]).unique())


def _judged(scores: Scores | PersonalScores) -> tuple[torch.Tensor, torch.Tensor]:
    """Return outputs and targets of all examples."""
    if isinstance(scores, Scores) and scores.judged is not None:
        return scores.judged
    outputs, targets = map(torch.cat, zip(*scores.pairs.values(), strict=True))
    return outputs, targets


def client_weights(algorithm: Algorithm, state: ServerState, federation: Federation) -> np.ndarray | None:
    """Return each client's weight in the next round, before normalization; None if it depends on reports."""
    weights = np.ones(federation.num_clients)
    for i, piece in enumerate(algorithm.weighting[:-1]):
        if not isinstance(piece, KnownInAdvance):
            return None
        weights = weights * piece.client_weights(state.version, state.slots[f"weighting.{i}"], federation)
    return weights
