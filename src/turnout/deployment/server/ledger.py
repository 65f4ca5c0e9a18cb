"""The tables of a deployment, the same as those of a simulation, and the figures that its operator looks at."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from turnout.deployment.server.curves import Curves
from turnout.deployment.server.setting import Setting
from turnout.evaluation.evaluate import evaluate
from turnout.population import participation_table
from turnout.protocol import records
from turnout.protocol.batch import Stepped
from turnout.protocol.coordinator import Coordinator
from turnout.protocol.published import Published
from turnout.record.history import History


class Ledger:
    """Records of every server step, in the folder of a run.

    Args:
        folder: where tables go.
        setting: what is run.

    Attributes:
        history: the tables.
        curves: the figures that a status shows, as plain numbers.
        dropped: tasks that ended without being used, by reason.
        begun: when the last step was taken, or the run began, in seconds of the server.
    """

    def __init__(self, folder: Path, setting: Setting) -> None:
        self.folder, self._setting = folder, setting
        self.history, self._published = History(), Published(setting.algorithm)
        self.curves = Curves()
        self.dropped: Counter[str] = Counter()
        self.begun = 0.0
        self._unused = 0
        self._examples: dict[int, int] = {}

    def step(self, coordinator: Coordinator, stepped: Stepped, time: float, last: bool) -> None:
        """Record a server step."""
        algorithm, state, federation = coordinator.algorithm, coordinator.state, coordinator.federation
        reports, version = stepped.reports, state.version
        row = records.of_round(algorithm, state, federation, reports, stepped.info, self._setting.rounds)
        row |= {"seconds": time - self.begun, "num_unused": self._unused}
        if stepped.prepared is not None:
            more = records.traffic(algorithm, state, federation, stepped.prepared, state.params.nbytes)
            row |= {name: row[name] + extra for name, extra in more.items()}
        self.begun, self._unused = time, 0
        if len(reports):
            staleness = stepped.version - reports.version
            row |= {"staleness_mean": staleness.mean(), "staleness_max": staleness.max()}
        self._examples.update(zip(reports.client.tolist(), reports.num_examples.tolist(), strict=True))
        if self._setting.test is not None and (version % self._setting.evaluate_every == 0 or last):
            shards, transforms = self._setting.test
            scores = evaluate(self._setting.objective, state.params, shards, transforms)
            figures = {f"test_{figure}": float(value) for figure, value in scores.mean().items()}
            row |= {name: value for name, value in figures.items() if name == "test_loss" or not np.isnan(value)}
        participants = np.unique(reports.client)
        row = self._published.row({"num_participants": len(participants)} | row)
        self.history.record(round=version, participants=participants, **row)
        self.curves.add(version, row)

    def drop(self, reason: str, number: int) -> None:
        """Count tasks that ended without being used."""
        self.dropped[reason] += number
        self._unused += number

    def facts(self) -> dict[str, Any]:
        """Return what is kept beside the tables, as plain values."""
        examples = {str(client): number for client, number in self._examples.items()}
        return {"dropped": dict(self.dropped), "begun": self.begun, "unused": self._unused, "examples": examples}

    def save(self, num_clients: int, names: dict[int, str]) -> None:
        """Write the tables."""
        if num_clients and len(self.history):
            self._set_clients(num_clients, names)
        self.history.save(self.folder)

    def restore(self, version: int, facts: dict[str, Any]) -> None:
        """Take over what was saved."""
        self.history = History.load(self.folder)
        self.history.rewind(version)
        self.curves.restore(self.history)
        self.dropped, self.begun, self._unused = Counter(facts["dropped"]), facts["begun"], facts["unused"]
        self._examples = {int(client): number for client, number in facts["examples"].items()}

    def _set_clients(self, num_clients: int, names: dict[int, str]) -> None:
        """Make the table of clients."""
        rounds, taken_part = self.history.last_round, self.history.participation
        offsets = np.searchsorted(taken_part["round"].to_numpy(), np.arange(1, rounds + 2))
        realised = participation_table((taken_part["client"].to_numpy(), offsets), num_clients, rounds)
        columns = {
            "name": [names.get(client) or str(client) for client in range(num_clients)],
            "num_examples": [self._examples.get(client) for client in range(num_clients)],
            "participations": realised["participations"],
            "realised_rate": realised["rate"],
            "mean_interval": realised["mean_interval"],
        }
        self.history.set_clients(**self._published.clients(columns))
