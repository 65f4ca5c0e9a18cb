"""Hold the model of a federation and the state of its pieces, and take server steps, without I/O, clock or data."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import partial

import numpy as np
import torch

from turnout.base import RecordingSelection
from turnout.base.algorithm import Algorithm
from turnout.base.rollback import Rollback
from turnout.base.server_step import server_prepares
from turnout.core.checks import BudgetSpent
from turnout.core.device import to_device
from turnout.core.types import Federation, Report, ServerState, State
from turnout.protocol.batch import Stepped
from turnout.protocol.blamable_step import blamable_step
from turnout.protocol.client_arrays import Influence, ParticipationLimit, Participations
from turnout.protocol.cohorts import Cohorts
from turnout.protocol.pace import Phase
from turnout.protocol.tensors import check_form, report_as_tensors, report_of_tensors


class FederatedServer:
    """Take server steps with the reports of clients, and hold the state between them.

    Args:
        algorithm: the algorithm.
        params: initial model, ``[P]``.
        federation: known properties of the federation.
        cohorts: selection of the cohort of a round, which may depend on measurements and on the state.
        rounds: planned number of server steps; None is unlimited.
        records_influence: whether to record the contributions of each client.
        blames: whether to raise an error if a step overflows, so that the driver can find the reports that cause it
            (see `blamable_step`).
        attack: in a simulation, the change that colluding attackers, who know all reports of a step, make to them.

        separation: smallest number of rounds between participations of a client, beside the limit of its privacy; None
            adds no limit.

    Attributes:
        algorithm: the algorithm.
        state: state of the server; ``state.version`` counts the steps.
        federation: known properties of the federation.
        rounds: planned number of server steps.
        models: model ``[P]`` of each version that a report may still refer to.
        influence: contributions of each client; None if they are not recorded.
        measured: measurements before the selection of the present round's cohort; None if there were none.
        participations: records of participation, which limit the clients of a step.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        params: torch.Tensor,
        federation: Federation,
        cohorts: Cohorts,
        *,
        rounds: int | None = None,
        records_influence: bool = False,
        blames: bool = False,
        attack: Callable[[FederatedServer, Report], Report] | None = None,
        separation: int | None = None,
    ) -> None:
        self.algorithm, self.federation, self.rounds = algorithm, federation, rounds
        self.state: ServerState = algorithm.init(params, federation)
        self.models = {0: self.state.params}
        self.influence = Influence(federation.num_clients) if records_influence else None
        self.measured: Report | None = None
        limit = ParticipationLimit.of(algorithm.privacy, separation)
        self.participations = Participations(federation.num_clients, limit)
        self._cohorts, self._attack = cohorts, attack
        self._step = partial(blamable_step, algorithm, cohorts, blames)
        if limit is not None:
            cohorts.may = self.participations.may
        if isinstance(algorithm.selection, RecordingSelection):
            cohorts.record = lambda: self.state.slots["selection"]
        self._prepared: Report | None = None
        self._shared: tuple[ServerState | None, State] = (None, {})

    @property
    def over(self) -> str | None:
        """The reason why there are no further steps; None if there may be one."""
        if self.rounds is not None and self.state.version >= self.rounds:
            return "the run is over"
        return self._exhausted()

    def _exhausted(self) -> str | None:
        """Return the reason why the next step would exceed the privacy budget; None if it would not."""
        plan = self.algorithm.privacy
        if plan is None or plan.budget is None:
            return None
        known = self.federation.lost_releases, self.federation.noised_answers
        return plan.of(self.state.slots["aggregation"]).exhausted(self.state.version, self.rounds, *known)

    def settle(self, searched: list[float]) -> None:
        """Restore the noise correlation that was searched at the start of this run."""
        if (plan := self.algorithm.privacy) is not None:
            self.state.slots["aggregation"] = plan.settled(self.state.slots["aggregation"], searched)

    def noise_of(self, secret: int | None, lost_releases: tuple[tuple[int, int], ...]) -> None:
        """Set the secret from which the noise of the next step derives, and account for lost releases."""
        self.federation = replace(self.federation, secret=secret, lost_releases=lost_releases)

    def count_answers(self, number: int) -> None:
        """Set the number of noised answers to evaluations and queries that count toward the privacy budget."""
        self.federation = replace(self.federation, noised_answers=number)

    def grow(self, num_clients: int) -> None:
        """Extend the state to newly enrolled clients."""
        before, more = self.federation, num_clients - self.federation.num_clients
        self.federation = replace(before, num_clients=num_clients)
        self.state = self.algorithm.grown(self.state, before, self.federation)
        self.participations.grow(more)
        if self.influence is not None:
            self.influence.grow(more)

    def shared(self) -> State:
        """Return the tensors that are broadcast with the model; they are the same for all tasks until the next step."""
        if self._shared[0] is not self.state:
            self._shared = self.state, self.algorithm.shared(self.state)
        return self._shared[1]

    def prepare(self, reports: Report) -> None:
        """Process the reports of the phase ``"prepare"``, before the first step."""
        self.state = server_prepares(self.algorithm, self.state, reports, self.federation)
        self.models[self.state.version] = self.state.params
        self._prepared = reports

    def measure_by(self, measured: Report) -> None:
        """Use these measurements to select the next cohort and to take the next step."""
        self.measured = self._cohorts.measured = measured

    def step(self, reports: Report, needed: Collection[int]) -> Stepped:
        """Take a server step.

        Args:
            reports: reports of the step, ordered by client.
            needed: versions of the model from which clients still train.

        Raises:
            BudgetSpent: if the step would exceed the privacy budget.
        """
        if (why := self._exhausted()) is not None:
            raise BudgetSpent(why)
        reports, early = self.participations.in_time(self._complete(reports), self.state.version)
        if self._attack is not None:
            reports = self._attack(self, reports)
        before = self.state
        self.state, info = self._step(before, reports, self.federation)
        info |= early
        self.participations.note(reports.client, before.version)
        if self.influence is not None and len(weights := info["weights"]):
            used = reports if len(weights) == len(reports) else reports.screened()[0]
            self.influence.add(used.client, before.version - used.version, weights.cpu().numpy())
        models = {version: model for version, model in self.models.items() if version in needed}
        self.models = models | {self.state.version: self.state.params}
        prepared, self._prepared, self.measured = self._prepared, None, None
        return Stepped(reports, info, before.version, prepared)

    def check(self, phase: Phase, reports: Report) -> None:
        """Try the reports of a phase without changing any state, and raise the error that they would raise."""
        undo = Rollback.of(self.algorithm, self.state, reports)
        try:
            if phase == "train":
                in_time, _ = self.participations.in_time(self._complete(reports), self.state.version)
                self._step(self.state, in_time, self.federation)
            elif phase == "prepare":
                server_prepares(self.algorithm, self.state, reports, self.federation)
        finally:
            undo()

    def _complete(self, reports: Report) -> Report:
        """Return the reports with the measurements of the round, and with the offsets of stale models."""
        if self.measured is not None:
            reports = replace(reports, measured=self.measured)
        stale = reports.version != self.state.version
        if "offset" not in self.algorithm.aggregation.reads or not stale.any():
            return reports
        used, rows = np.unique(reports.version, return_inverse=True)
        behind = torch.stack([self.models[version] - self.state.params for version in used.tolist()])
        return replace(reports, model_offset=behind[to_device(rows, behind.device)])

    def groups(self) -> dict[str, State]:
        """Return the tensors of the state, in groups."""
        groups = {f"server.{slot}": state for slot, state in self.state.slots.items()}
        earlier = {str(version): model for version, model in self.models.items() if version != self.state.version}
        groups |= {"model": {"params": self.state.params}, "models": earlier}
        return groups if self.measured is None else groups | {"measured": report_as_tensors(self.measured)}

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the rest of the state as arrays."""
        facts = {
            "versions": np.array(list(self.models)[:-1], dtype=np.int64),
            "version": np.array(self.state.version),
            "clients": np.array(self.federation.num_clients),
        }
        return facts | self.participations.state() | ({} if self.influence is None else self.influence.state())

    def restore(self, arrays: Mapping[str, np.ndarray], group: Callable[[str], State]) -> None:
        """Restore what `arrays` and `groups` returned, for the same number of clients.

        Raises:
            ValueError: if the model or a slot has another shape or type, or holds NaN or infinity.
        """
        device = self.federation.device
        slots = {}
        for slot, fresh in self.state.slots.items():
            saved = group(f"server.{slot}")
            slots[slot] = {name: _like(fresh[name], saved[name], name) for name in fresh}
        params = _like(self.state.params, group("model")["params"], "params")
        self.state = ServerState(params, int(arrays["version"]), slots)
        models = group("models")
        versions = arrays["versions"].tolist()
        earlier = {version: _like(params, models[str(version)], str(version)) for version in versions}
        self.models = earlier | {self.state.version: self.state.params}
        self.participations.restore(arrays)
        if self.influence is not None and "contributions" in arrays:  # checkpoints of earlier versions may lack it
            self.influence.restore(arrays)
        self.measured = None
        if measured := group("measured"):
            self.measure_by(report_of_tensors(measured, device))


def _like(fresh: torch.Tensor, saved: torch.Tensor, name: str) -> torch.Tensor:
    """Return a saved tensor on the device of the initial one, whose shape and type it must have.

    It must be finite if the initial tensor is, because a server step never leads to NaN or infinity. Some pieces start
    with infinity.
    """
    check_form(saved, fresh, name)
    if not saved.isfinite().all() and fresh.isfinite().all():
        raise ValueError(f"{name}: got NaN or infinity, needed finite numbers")
    return saved.to(fresh.device)
