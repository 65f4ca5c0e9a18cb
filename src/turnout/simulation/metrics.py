"""How good the present model is: for the table of rounds, for newcomers, and for the table of clients."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np
import torch

from turnout.core.types import Federation, ServerState, Task
from turnout.data.federated import FederatedData, Shards
from turnout.evaluation.evaluate import Scores, by_labels, columns, evaluate, thinned
from turnout.evaluation.gradients import gradient_figures
from turnout.evaluation.metrics import Metric, measured
from turnout.evaluation.own import OwnScores, evaluate_own, evaluate_own_with_outputs
from turnout.pieces.base import KnownInAdvance, Personalization
from turnout.pieces.base.algorithm import Algorithm
from turnout.simulation.client_groups import ClientGroup, unseen_figures
from turnout.simulation.memory import ClientMemory
from turnout.simulation.workspace import Workspace


class Judge:
    """Loss, and accuracy or root-mean-square error, of present models.

    Args:
        workspace: model and data.
        models: the present models.
        metrics: further figures of outputs and targets, by name.
    """

    def __init__(self, workspace: Workspace, models: PresentModels, metrics: Mapping[str, Metric]) -> None:
        self._workspace, self._models, self._metrics = workspace, models, metrics

    def scores(self, shards: Shards) -> Scores | OwnScores:
        """Return how whoever holds these examples does, all with the shared model, or each with its own."""
        space, models, outputs = self._workspace, self._models, bool(self._metrics)
        if models.personal is None:
            return evaluate(space.objective, models.params, shards, space.data.transforms, outputs=outputs)
        if outputs:
            return evaluate_own_with_outputs(space.objective, models.serving, shards, space.data.transforms)
        clients = partial(space.clients, shards=shards)
        return evaluate_own(models.serving, clients, shards, space.lanes)

    def figures(
        self, most: int | None, groups: tuple[tuple[int, ...], ...] | None, gradients: float | None
    ) -> dict[str, float]:
        """Return loss, and accuracy or root-mean-square error, of the present model on each split.

        Args:
            most: evaluate on at most so many examples; None is all.
            groups: groups of labels whose accuracies are told apart; None is none.
            gradients: the share of clients in a cohort, to say how far the model is from a stationary point; None is not.
        """
        row, data = {}, self._workspace.data
        for name, shards in (("train", data.train), ("validation", data.validation), ("test", data.test)):
            if shards is not None and len(shards.x):
                some = thinned(shards, most) if most else shards
                scores = self.scores(some)
                row |= columns(scores.mean() | self._measured(scores), name)
                if groups and isinstance(scores, Scores):
                    of_groups = by_labels(scores, some.y.cpu().numpy(), groups)
                    row |= {f"{name}_{metric}": value for metric, value in of_groups.items()}
        if gradients is not None:
            n, lanes = data.train.num_clients, self._workspace.lanes
            row |= gradient_figures(self._models.trained, self._workspace.clients, n, gradients, lanes)
        return row

    def newcomers(self, data: FederatedData, algorithm: Algorithm, version: int, seed: int) -> dict[str, float]:
        """Return how well clients who never trained are served by personal parts that they fit to their data."""
        space, params = self._workspace, self._models.params
        if algorithm.personal is None or data.unseen_train is None or not data.unseen_train.num_clients:
            return {}
        test = None if data.unseen_test is None else space.data(data.unseen_test)
        first = data.num_clients
        group = ClientGroup(space.data(data.unseen_train), test, space.objective, space.data.transforms, first)
        own = algorithm.personal.first(space.objective.initial, len(params))
        return unseen_figures(algorithm.personal, algorithm.local, Task(params, version, seed), own, group, space.lanes)

    def by_client(self, data: FederatedData) -> dict[str, np.ndarray]:
        """Return how well each client is served, on its training and its own test examples."""
        by_client: dict[str, np.ndarray] = {}
        own_test = None if data.client_test is None else self._workspace.data(data.client_test)
        here = self._workspace.data
        for name, shards in (("train", here.train), ("validation", here.client_validation), ("test", own_test)):
            if shards is not None:
                scores = self.scores(shards)
                figures = scores.by_client() | self._measured_by_client(scores, shards.num_clients)
                by_client |= {f"{name}_{figure}": values for figure, values in figures.items()}
        return by_client

    def _measured(self, scores: Scores | OwnScores) -> dict[str, float]:
        """Return the metrics over all examples."""
        if not self._metrics:
            return {}
        if isinstance(scores, Scores) and scores.outputs is not None and scores.targets is not None:
            return measured(self._metrics, scores.outputs, scores.targets)
        return measured(self._metrics, *map(torch.cat, zip(*scores.pairs.values(), strict=True)))

    def _measured_by_client(self, scores: Scores | OwnScores, num_clients: int) -> dict[str, np.ndarray]:
        """Return the metrics of each client, float64 ``[N]``; NaN for a client without examples."""
        table = {name: np.full(num_clients, np.nan) for name in self._metrics}
        for client, pair in scores.pairs.items() if self._metrics else ():
            for name, value in measured(self._metrics, *pair).items():
                table[name][client] = value
        return table


def client_weights(algorithm: Algorithm, state: ServerState, federation: Federation) -> np.ndarray | None:
    """Return each client's weight in the round to come, before normalisation; None where it depends on reports."""
    weights = np.ones(federation.num_clients)
    for i, piece in enumerate(algorithm.weighting[:-1]):
        if not isinstance(piece, KnownInAdvance):
            return None
        weights = weights * piece.client_weights(state.version, state.slots[f"weighting.{i}"], federation)
    return weights


class PresentModels:
    """The server's model with what each client keeps for itself, as far as it keeps something.

    Args:
        params: the shared parameters, ``[P_u]``; to be replaced with every step.
        memory: where personal ones are.
        personal: what is personal; None is nothing.
    """

    def __init__(self, params: torch.Tensor, memory: ClientMemory, personal: Personalization | None) -> None:
        self.params, self.personal, self._memory = params, personal, memory

    def serving(self, ids: np.ndarray) -> torch.Tensor:
        """Return the model that serves each of these clients, ``[B, P]``."""
        if self.personal is None:
            return self.params.expand(len(ids), -1)
        return self.personal.serving(self.params, self._memory.gather(ids))

    def trained(self, ids: np.ndarray) -> torch.Tensor:
        """Return the model that each of these clients would train, ``[B, P]``."""
        params = self.params if self.personal is None else self.personal.join(self.params, self._memory.gather(ids))
        return params.expand(len(ids), -1)
