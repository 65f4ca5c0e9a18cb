"""Find violations of the protocol in the requests of a client."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import Any

from turnout.core.types import State
from turnout.protocol.survey import SURVEYS
from turnout_serve.client.worker import Worker
from turnout_serve.conform.faults import Exchange
from turnout_serve.conform.scenarios import Scenario
from turnout_serve.wire.assignment import Assignment
from turnout_serve.wire.format import decode, digest, read_manifest

_WRONG = {400, 401, 403, 404, 405, 408, 413, 422, 426, 431}
"""Statuses that only mistakes of a client cause."""
_BURST, _WITHIN = 10, 0.25  # attempts of one request within so many seconds that count as a burst


def of_scenarios(scenarios: Sequence[Scenario], log: Sequence[Exchange]) -> dict[str, str | None]:
    """Return the violation in each scenario; None without one."""
    results: dict[str, str | None] = {}
    for scenario in scenarios:
        index = next((i for i, exchange in enumerate(log) if exchange.fault == scenario.name), None)
        results[scenario.name] = "not reached" if index is None else scenario.check(log[index], log[index + 1 :])
    return results


def _refusals(log: Sequence[Exchange]) -> Iterator[str]:
    for exchange in log:
        if exchange.fault is None and exchange.status in _WRONG:
            yield f"{exchange.method} {exchange.path} is answered with {exchange.status}: {exchange.table.get('reason')}"


def _tokens(log: Sequence[Exchange]) -> Iterator[str]:
    tokens = {exchange.headers.get("authorization") for exchange in log if exchange.path != "/v1/run"}
    if len(tokens) != 1:
        yield f"requests come with {len(tokens)} tokens"


def _impatience(log: Sequence[Exchange]) -> Iterator[str]:
    """Yield requests before the time that the server has asked for."""
    for i, exchange in enumerate(log):
        least = exchange.table.get("come_back", [exchange.retry_after])[0] if exchange.status else 0.0
        if not least or exchange.path.endswith("/heartbeat"):
            continue
        follow = next((later for later in log[i + 1 :] if not later.path.endswith("/heartbeat")), None)
        if follow is not None and follow.begun - exchange.ended < least - 0.05:
            waited = follow.begun - exchange.ended
            yield f"{follow.method} {follow.path} comes {waited:.2f} s after an answer that asks for {least:g} s"


def _bursts(log: Sequence[Exchange]) -> Iterator[str]:
    """Yield requests that were repeated without pauses."""
    attempts: dict[tuple[str, str], list[float]] = {}
    for exchange in log:
        times = attempts.setdefault((exchange.method, exchange.path), [])
        if exchange.status in (200, 201, 206):
            times.clear()
            continue
        times.append(exchange.begun)
        if len(times) >= _BURST and times[-1] - times[-_BURST] < _WITHIN:
            yield f"{_BURST} attempts of {exchange.method} {exchange.path} come within {_WITHIN} s"


def _fingerprints(log: Sequence[Exchange]) -> Iterator[str]:
    for exchange in log:
        if exchange.method == "PUT" and "task-fingerprint" not in exchange.headers:
            yield "a report comes without Task-Fingerprint"


def _silences(log: Sequence[Exchange]) -> Iterator[str]:
    """Yield tasks that took longer than two intervals of heartbeats, without a heartbeat."""
    for i, exchange in enumerate(log):
        if not (task := exchange.task):
            continue
        path, every = f"/v1/tasks/{task['task']}", task["heartbeat"]
        for later in log[i + 1 :]:
            if later.path.startswith(path) or later.path == "/v1/checkin":
                silent = later.begun - exchange.ended
                if silent > 2 * every:
                    yield f"no heartbeat comes on task {task['task']} for {silent:.1f} s, needed every {every:g} s"
                break


def _unanswered(log: Sequence[Exchange]) -> Iterator[str]:
    """Yield tasks of evaluations and queries that the client neither answers nor declines before it asks for work again."""
    for i, exchange in enumerate(log):
        task = exchange.task
        if task.get("phase") not in SURVEYS:
            continue
        path = f"/v1/tasks/{task['task']}"
        before = takewhile(lambda later: later.path != "/v1/checkin", log[i + 1 :])
        if not any(later.path in (f"{path}/report", f"{path}/fail") for later in before):
            yield f"task {task['task']} of the phase {task['phase']} is neither done nor given up"


_RULES = {
    "requests have their form": _refusals,
    "one token": _tokens,
    "pauses as the server asks": _impatience,
    "pauses between attempts": _bursts,
    "fingerprints of tasks": _fingerprints,
    "signs of life at work": _silences,
    "evaluates or declines": _unanswered,
}


def in_general(log: Sequence[Exchange]) -> dict[str, str | None]:
    """Return the first violation of each general rule; None without one."""
    return {name: next(violations(log), None) for name, violations in _RULES.items()}


def reference_report(
    worker: Worker, task: Assignment, model: State, memory: State, client: int = 0
) -> tuple[bytes, State]:
    """Return the body of the report on a task, and the memory of the client afterwards.

    Raises:
        ValueError: if the client gives up the task.
    """
    if (done := worker.do(client, task, model, memory)) is None:
        raise ValueError(f"the reference client gives up task {task.task} of the phase {task.phase}")
    return done


def of_training(worker: Worker, log: Sequence[Exchange], specified: bool) -> str | None:
    """Return the first difference from the reports of the reference client with the same data; None without one.

    Args:
        worker: the reference client.
        log: exchanges of the client.
        specified: True where its minibatches are those of the protocol; otherwise, only counts are compared.
    """
    memory, judged = worker.first_memory(), set[int]()
    for task, report in _taken(log):
        if task.phase in SURVEYS or task.task in judged:
            continue
        models = [each.answer for each in log if each.path == f"/v1/models/{task.model}" and each.begun < report.begun]
        if (model := next((answer for answer in models if digest(answer) == task.model), None)) is None:
            return f"a report comes on task {task.task}, whose model was never downloaded"
        body, memory = reference_report(worker, task, decode(model, worker.model), memory)
        if (why := _difference(report, body, specified)) is not None:
            return f"the report on task {task.task} (version {task.version}): {why}"
        judged.add(task.task)
    return None


def of_queries(worker: Worker, log: Sequence[Exchange]) -> str | None:
    """Return the first answer to a query that differs from the reference client's; None without one.

    A client may decline any query.
    """
    for task, report in _taken(log):
        if task.phase != "query":
            continue
        if (done := worker.do(0, task, {}, {})) is None:
            return f"task {task.task} is a query of a function that the client cannot have, and it answers"
        if (why := _difference(report, done[0], specified=True)) is not None:
            return f"the answer to the query of task {task.task}: {why}"
    return None


def _taken(log: Sequence[Exchange]) -> Iterator[tuple[Assignment, Exchange]]:
    """Yield each request that sent a report, or the rest of one, which was taken, and its task."""
    tasks: dict[str, dict[str, Any]] = {}
    for exchange in log:
        if task := exchange.task:
            tasks[f"/v1/tasks/{task['task']}/report"] = task
        elif exchange.path in tasks and exchange.served in (200, 201):
            yield Assignment.read(tasks[exchange.path]), exchange


def _difference(report: Exchange, reference_body: bytes, specified: bool) -> str | None:
    """Return the difference between a report and the reference; None within the tolerance, or for the rest of one."""
    if report.headers.get("upload-offset", "0") != "0":
        return None
    expected = read_manifest(reference_body)
    received, reference = decode(report.body, expected), decode(reference_body, expected)
    for name in reference if specified else ("num_examples", "num_steps"):
        tolerance = 1e-9 if reference[name].itemsize == 8 else 1e-5
        differences = (received[name].double() - reference[name].double()).abs()
        apart = differences.max().item() if differences.numel() else 0.0
        if not apart <= tolerance:
            return f"{name} is off by {apart:.3g}"
    return None
