"""Record the tables of a run on a server, and the curves of its status."""

from __future__ import annotations

import logging
import math
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from operator import itemgetter
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from turnout.core.checks import counted
from turnout.evaluation.queries import Question
from turnout.evaluation.sums import ClientSums, TotalSums
from turnout.protocol.batch import Stepped
from turnout.protocol.federated_server import FederatedServer
from turnout.protocol.survey import ClosedSurvey, OpenedSum
from turnout.record import storage
from turnout.record.query import History
from turnout.record.rows import Recorder, staleness
from turnout_serve.server.run.setting import RunSetting

log = logging.getLogger("turnout.server")

QUERIES = "queries"
"""Folder of the results of queries, in the folder of a run."""

_NAMES = ("test_loss", "test_accuracy", "local_loss", "staleness_mean", "num_participants", "seconds")
_MAX_POINTS = 200  # of a curve in a snapshot
_MAX_UPDATES, _ENOUGH_UPDATES = 50, 5  # norms of updates of steps from which the usual one follows
_FAR = 10.0  # times the usual norm

Curve = list[tuple[int, float | None]]


class Curves:
    """Figures of every version, as plain numbers."""

    def __init__(self) -> None:
        self._points: dict[str, Curve] = {}
        self._thinned: dict[str, Curve] | None = None  # cached until a figure is added

    def add(self, version: int, row: Mapping[str, Any]) -> None:
        """Add the figures of a version; those that are missing, None or present already are left out.

        An evaluation by clients may end after later steps, so a version may be added out of order. Figures of the server's
        own evaluation were added before, and stay, as in the table of rounds.
        """
        self._thinned = None
        for name in _NAMES:
            if row.get(name) is not None:
                value = float(row[name])
                points = self._points.setdefault(name, [])
                index = bisect_left(points, version, key=itemgetter(0))
                if index == len(points) or points[index][0] != version:
                    points.insert(index, (version, value if math.isfinite(value) else None))

    def restore(self, history: History) -> None:
        """Restore the figures from the tables of a run."""
        self._points, self._thinned = {}, None
        for name in set(_NAMES).intersection(history.column_names):
            for version, value in zip(*history.column(name), strict=True):
                self.add(int(version), {name: value})

    def thinned(self) -> dict[str, Curve]:
        """Return at most 200 points of each curve, the last one among them."""
        if self._thinned is None:
            points = {name: self._points[name] for name in _NAMES if self._points.get(name)}
            steps = {name: -(-len(of) // _MAX_POINTS) for name, of in points.items()}
            self._thinned = {name: of[(len(of) - 1) % steps[name] :: steps[name]] for name, of in points.items()}
        return self._thinned


class Ledger:
    """Record every server step, evaluation and query.

    Args:
        folder: folder of the run.
        setting: setting of the run.

    Attributes:
        recorder: the tables.
        curves: figures of the status.
        dropped: number of tasks that ended without being used, by reason.
        unusable: number of unusable reports by client, those in an unusable sum among them; replaced when it changes.
        lost: number of each client's tasks that ended without being used, while the run went on.
        begun: time of the last step, or of the start of the run, in seconds of the server.
        sums: number of steps, and of those whose secure sum was opened; None for runs without one.
        unusual: the last step whose update was far larger than those before; None without one.
    """

    def __init__(self, folder: Path, setting: RunSetting) -> None:
        self.folder, self._setting = folder, setting
        self.recorder = Recorder(setting.algorithm, setting.evaluate_every, setting.record_weights)
        self.curves = Curves()
        self.dropped: Counter[str] = Counter()
        self.unusable: dict[int, int] = {}
        self.lost: Counter[int] = Counter()
        self.begun = 0.0
        self.sums: dict[str, int] | None = {"steps": 0, "opened": 0} if _has_secure_sum(setting) else None
        self.unusual: dict[str, Any] | None = None
        self._updates = deque[float](maxlen=_MAX_UPDATES)  # norms of the last steps
        self._unused = 0
        self._examples: dict[int, int] = {}

    @property
    def history(self) -> History:
        """The tables."""
        return self.recorder.history

    def step(self, server: FederatedServer, stepped: Stepped, time: float) -> None:
        """Record a server step."""
        reports, state = stepped.reports, server.state
        figures = {"seconds": time - self.begun, "num_unused": self._unused, **staleness(stepped)}
        row = self.recorder.step(
            server, stepped, figures, lambda: self._setting.evaluate(state.version, state.params, server.shared())
        )
        self.begun, self._unused = time, 0
        self._examples.update(zip(reports.client.tolist(), reports.num_examples.tolist(), strict=True))
        self.curves.add(state.version, row)
        self._note_update(state.version, row.get("update_norm"))
        self._note_sum(row.get("num_participants"))

    def _note_sum(self, participants: float | None) -> None:
        """Count a step, and whether its secure sum was opened; None if the run does not publish that."""
        if self.sums is not None and participants is not None:
            self.sums = {"steps": self.sums["steps"] + 1, "opened": self.sums["opened"] + (participants > 0)}

    def _note_update(self, version: int, norm: float | None) -> None:
        """Note a step whose update is far larger than those before, or not finite."""
        if norm is None:
            return
        usual = median(self._updates) if len(self._updates) >= _ENOUGH_UPDATES else 0.0
        if usual and not norm <= _FAR * usual:
            self.unusual = {"step": version, "norm": norm if math.isfinite(norm) else None, "usual": usual}
            log.warning("the update of a step is far larger than those before", extra=self.unusual)
        if math.isfinite(norm):
            self._updates.append(norm)

    def surveyed(self, closed: ClosedSurvey) -> None:
        """Record the result of an evaluation or query.

        Raises:
            CheckpointError: if it cannot be written.
        """
        closed = self._withheld(closed)
        request, survey = closed.survey.request, closed.survey
        facts = {
            "version": request.version, "asked": len(survey.answers) + len(survey.lost), "share": request.share,
            "answered": len(survey.answers), "lost": survey.reasons, **self._of_sum(closed.opened),
        }  # fmt: skip
        if request.phase == "query":
            question = Question(**request.question)
            total = closed.opened.total if closed.opened else {n: v.sum(axis=0) for n, v in closed.sums.items()}
            figures = {"figures": question.figures(total)} if total else {}
            answer = {"question": question.table(), **facts, **figures}
            storage.save(self.folder / QUERIES, {f"{request.number:08d}.json": storage.json_writer(answer)})
            return
        row = self.history.evaluations.save(self.folder, request.number, facts, self._answers(closed))
        if request.version:
            self.curves.add(request.version, row)

    def _withheld(self, closed: ClosedSurvey) -> ClosedSurvey:
        """Return a result without figures if too few clients have answered, and no noise protects them."""
        answered, least = len(closed.survey.answers), self._setting.min_answers
        if not 0 < answered < least or (closed.opened is not None and closed.opened.epsilon is not None):
            return closed
        reason = f"{counted(answered, 'client')} answered, and figures of fewer than {least} are not published"
        return replace(closed, opened=OpenedSum(None, reason))

    def _answers(self, closed: ClosedSurvey) -> ClientSums | TotalSums:
        """Return the answers of clients to an evaluation, or their sum where the server sees no more."""
        form = self._setting.sums
        zeros = {name: np.zeros(shape) for name, shape in form.shapes.items()}
        if (opened := closed.opened) is None:
            none = {name: value[None][:0] for name, value in zeros.items()}
            return ClientSums(closed.clients, closed.seen, closed.sums or none, form.facts)
        if opened.total is None:
            return TotalSums(closed.clients[:0], closed.seen[:0], zeros, form.facts)  # nothing is known of any client
        return TotalSums(closed.clients, closed.seen, opened.total, form.facts, opened.least)

    def _of_sum(self, opened: OpenedSum | None) -> dict[str, Any]:
        """Return what is recorded of a sum of answers: its noise and cost, or why it could not be opened."""
        if opened is None:
            return {}
        facts: dict[str, Any] = {"unopened": opened.why} if opened.total is None else {}
        if opened.epsilon is not None:
            plan = self._setting.algorithm.privacy
            assert plan is not None
            facts |= {"epsilon": opened.epsilon, "delta": plan.delta}
            facts |= {"deviations": dict(opened.deviations), "grid": dict(opened.grid)}
        return facts

    def survey(self, number: int) -> dict[str, Any] | None:
        """Return the result of an evaluation or query, as plain values; None where it has not ended."""
        path = self.folder / QUERIES / f"{number:08d}.json"
        if path.exists():
            return {"phase": "query", **storage.read_json(path, instead="ask again")}
        row = self.history.evaluations.row(number)
        return None if row is None else {"phase": "evaluate", **_described(row)}

    @property
    def evaluation(self) -> dict[str, Any] | None:
        """Result of the evaluation that ended last, as plain values; None before the first."""
        row = self.history.evaluations.last
        return None if row is None else _described(row)

    def drop(self, reason: str, clients: Sequence[int]) -> None:
        """Count tasks of clients that ended without being used."""
        self.dropped[reason] += len(clients)
        self._unused += len(clients)
        self.lost.update(clients if reason != "the run is over" else ())
        if reason == "unusable":
            self.unusable = dict(Counter(self.unusable) + Counter(clients))

    def facts(self) -> dict[str, Any]:
        """Return the state beside the tables, as plain values."""
        examples = {str(client): number for client, number in self._examples.items()}
        unusable = list(self.unusable.items())
        counts = {"dropped": dict(self.dropped), "unusable": unusable, "unused": self._unused}
        counts |= {"lost": list(self.lost.items())}
        return {**counts, "begun": self.begun, "examples": examples}

    def restore(self, version: int, facts: dict[str, Any]) -> None:
        """Restore the tables up to a version, and what `facts` returned."""
        self.recorder.history = History.load(self.folder, version)
        self.curves.restore(self.history)
        if "update_norm" in self.history.column_names:
            for step, norm in zip(*self.history.column("update_norm"), strict=True):
                self._note_update(int(step), float(norm))
        if "num_participants" in self.history.column_names:
            for number in self.history.column("num_participants")[1]:
                self._note_sum(float(number))
        self.dropped, self.begun, self._unused = Counter(facts["dropped"]), facts["begun"], facts["unused"]
        self.unusable, self.lost = dict(facts.get("unusable", ())), Counter(dict(facts.get("lost", ())))
        self._examples = {int(client): number for client, number in facts["examples"].items()}

    def set_clients(self, num_clients: int, names: dict[int, str]) -> None:
        """Set the table of clients."""
        self.recorder.set_clients(
            num_clients,
            name=[names.get(client) or str(client) for client in range(num_clients)],
            num_examples=[self._examples.get(client) for client in range(num_clients)],
            **self.history.evaluations.by_client(num_clients),
        )


def _has_secure_sum(setting: RunSetting) -> bool:
    """Return whether the updates of a step are masked."""
    aggregation = setting.description["algorithm"]["aggregation"]
    return aggregation["kind"] == "SecureSum" or bool(aggregation.get("secure"))


def _described(row: dict[str, Any]) -> dict[str, Any]:
    """Return the row of an evaluation as nested plain values."""
    lost = {name: row[name] for name in row if name.startswith("lost_")}
    counts = {name: row.get(name) for name in ("version", "asked", "answered", "unopened")}
    figures = {name: value for name, value in row.items() if name not in {"evaluation", *counts, *lost}}
    return {
        **{name: value for name, value in counts.items() if value is not None},
        "lost": {name.removeprefix("lost_").replace("_", " "): number for name, number in lost.items()},
        "figures": {} if row.get("unopened") else figures,
    }
