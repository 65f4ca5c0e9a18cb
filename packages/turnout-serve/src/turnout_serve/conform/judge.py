"""Find violations of the protocol in the requests of a client."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import Any

from turnout.core.types import State
from turnout.protocol.survey import SURVEYS
from turnout_serve.client.worker import Worker
from turnout_serve.conform.faults import Exchange
from turnout_serve.conform.reference import reference_report
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


def in_general(log: Sequence[Exchange]) -> dict[str, str | None]:
    """Return the violation of each general rule; None without one."""
    return {
        "requests have their form": next(_refusals(log), None),
        "one token": _tokens(log),
        "pauses as the server asks": next(_impatience(log), None),
        "pauses between attempts": next(_bursts(log), None),
        "fingerprints of tasks": next(_fingerprints(log), None),
        "signs of life at work": next(_silences(log), None),
        "evaluates or declines": next(_unanswered(log), None),
    }


def _refusals(log: Sequence[Exchange]) -> Iterator[str]:
    for exchange in log:
        if exchange.fault is None and exchange.status in _WRONG:
            yield f"{exchange.method} {exchange.path} is answered with {exchange.status}: {exchange.table.get('reason')}"


def _tokens(log: Sequence[Exchange]) -> str | None:
    tokens = {exchange.headers.get("authorization") for exchange in log if exchange.path != "/v1/run"}
    return None if len(tokens) == 1 else f"requests come with {len(tokens)} tokens"


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
        if exchange.path != "/v1/checkin" or "task" not in exchange.table:
            continue
        task = exchange.table["task"]
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
        task = exchange.table.get("task", {}) if exchange.path == "/v1/checkin" else {}
        if task.get("phase") not in SURVEYS:
            continue
        path = f"/v1/tasks/{task['task']}"
        before = takewhile(lambda later: later.path != "/v1/checkin", log[i + 1 :])
        if not any(later.path in (f"{path}/report", f"{path}/fail") for later in before):
            yield f"task {task['task']} of the phase {task['phase']} is neither done nor given up"


def of_training(worker: Worker, log: Sequence[Exchange], specified: bool) -> str | None:
    """Return the first difference from the reports of the reference client with the same data; None without one.

    Args:
        worker: the reference client.
        log: exchanges of the client.
        specified: True where its minibatches are those of the protocol; otherwise, only counts are compared.
    """
    tasks: dict[str, dict[str, Any]] = {}
    models: dict[str, State] = {}
    memory, taken = worker.first_memory(), set[str]()
    for exchange in log:
        task = exchange.table.get("task", {}) if exchange.path == "/v1/checkin" else {}
        if task and task["phase"] not in SURVEYS:
            tasks[f"/v1/tasks/{task['task']}/report"] = task
        elif exchange.path.startswith("/v1/models/") and _is_whole(exchange):
            models[exchange.path.rpartition("/")[2]] = decode(exchange.answer, worker.model)
        elif exchange.path in tasks and exchange.path not in taken and _is_taken(exchange):
            task = tasks[exchange.path]
            if task["model"] not in models:
                return f"a report comes on task {task['task']}, whose model was never downloaded"
            body, memory = reference_report(worker, Assignment.read(task), models[task["model"]], memory)
            if _is_whole_report(exchange) and (why := _difference(exchange.body, body, specified)) is not None:
                return f"the report on task {task['task']} (version {task['version']}): {why}"
            taken.add(exchange.path)
    return None


def of_queries(worker: Worker, log: Sequence[Exchange]) -> str | None:
    """Return the first answer to a query that differs from the reference client's; None without one.

    A client may decline any query.
    """
    tasks: dict[str, dict[str, Any]] = {}
    for exchange in log:
        task = exchange.table.get("task", {}) if exchange.path == "/v1/checkin" else {}
        if task.get("phase") == "query":
            tasks[f"/v1/tasks/{task['task']}/report"] = task
        elif exchange.path in tasks and _is_taken(exchange) and _is_whole_report(exchange):
            assignment = Assignment.read(tasks[exchange.path])
            done = worker.do(0, assignment, {}, {})
            if done is None:
                return f"task {assignment.task} is a query of a function that the client cannot have, and it answers"
            if (why := _difference(exchange.body, done[0], specified=True)) is not None:
                return f"the answer to the query of task {assignment.task}: {why}"
    return None


def _is_whole(exchange: Exchange) -> bool:
    """Return whether an answer is a model, undamaged."""
    if exchange.status != 200 or exchange.fault is not None:
        return False
    return digest(exchange.answer) == exchange.path.rpartition("/")[2]


def _is_taken(exchange: Exchange) -> bool:
    """Return whether a request sent a report, or the rest of one, that was taken."""
    return exchange.served in (200, 201)


def _is_whole_report(exchange: Exchange) -> bool:
    """Return whether a request sent a report from its first byte on."""
    return exchange.headers.get("upload-offset", "0") == "0"


def _difference(body: bytes, reference_body: bytes, specified: bool) -> str | None:
    """Return the difference between a report and the reference; None within the tolerance."""
    expected = read_manifest(reference_body)
    received, reference = decode(body, expected), decode(reference_body, expected)
    for name in reference if specified else ("num_examples", "num_steps"):
        tolerance = 1e-9 if reference[name].itemsize == 8 else 1e-5
        apart = (
            0.0
            if not reference[name].numel()
            else (received[name].double() - reference[name].double()).abs().max().item()
        )
        if not apart <= tolerance:
            return f"{name} is off by {apart:.3g}"
    return None
