"""What of all that a client sent breaks the protocol."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import Any

from turnout.core.types import State
from turnout.deployment.client.worker import Worker
from turnout.deployment.conform.faults import Exchange
from turnout.deployment.conform.scenarios import Scenario
from turnout.deployment.wire.format import Assignment, decode, digest, read_manifest
from turnout.protocol.survey import SURVEYS

_WRONG = {400, 401, 403, 404, 405, 408, 413, 422, 426, 431}
"""What a server answers only to a client that does something wrong."""
_BURST, _WITHIN = 10, 0.25  # as many attempts of one request in so many seconds are no pauses


def of_scenarios(scenarios: Sequence[Scenario], log: Sequence[Exchange]) -> dict[str, str | None]:
    """Return what the client did wrong when things went wrong, by scenario; None is nothing."""
    found: dict[str, str | None] = {}
    for scenario in scenarios:
        at = next((i for i, each in enumerate(log) if each.fault == scenario.name), None)
        found[scenario.name] = "not reached" if at is None else scenario.check(log[at], log[at + 1 :])
    return found


def in_general(log: Sequence[Exchange]) -> dict[str, str | None]:
    """Return what the client did wrong at any time, by rule; None is nothing."""
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
    for each in log:
        if each.fault is None and each.status in _WRONG:
            yield f"{each.method} {each.path} is answered with {each.status}: {each.table.get('reason')}"


def _tokens(log: Sequence[Exchange]) -> str | None:
    tokens = {each.headers.get("authorization") for each in log if each.path != "/v1/run"}
    return None if len(tokens) == 1 else f"requests come with {len(tokens)} tokens"


def _impatience(log: Sequence[Exchange]) -> Iterator[str]:
    """Yield requests that came before the time for which the server had asked."""
    for i, each in enumerate(log):
        least = each.table.get("come_back", [each.retry_after])[0] if each.status else 0.0
        if not least or each.path.endswith("/heartbeat"):
            continue
        follow = next((later for later in log[i + 1 :] if not later.path.endswith("/heartbeat")), None)
        if follow is not None and follow.begun - each.ended < least - 0.05:
            waited = follow.begun - each.ended
            yield f"{follow.method} {follow.path} comes {waited:.2f} s after an answer that asks for {least:g} s"


def _bursts(log: Sequence[Exchange]) -> Iterator[str]:
    """Yield requests that come again and again without pauses."""
    attempts: dict[tuple[str, str], list[float]] = {}
    for each in log:
        times = attempts.setdefault((each.method, each.path), [])
        if each.status in (200, 201, 206):
            times.clear()
            continue
        times.append(each.begun)
        if len(times) >= _BURST and times[-1] - times[-_BURST] < _WITHIN:
            yield f"{_BURST} attempts of {each.method} {each.path} come within {_WITHIN} s"


def _fingerprints(log: Sequence[Exchange]) -> Iterator[str]:
    for each in log:
        if each.method == "PUT" and "task-fingerprint" not in each.headers:
            yield "a report comes without Task-Fingerprint"


def _silences(log: Sequence[Exchange]) -> Iterator[str]:
    """Yield tasks that took longer than two heartbeats, and came without one."""
    for i, each in enumerate(log):
        if each.path != "/v1/checkin" or "task" not in each.table:
            continue
        task = each.table["task"]
        place, every = f"/v1/tasks/{task['task']}", task["heartbeat"]
        for later in log[i + 1 :]:
            if later.path.startswith(place) or later.path == "/v1/checkin":
                silent = later.begun - each.ended
                if silent > 2 * every:
                    yield f"no heartbeat comes on task {task['task']} for {silent:.1f} s, needed every {every:g} s"
                break


def _unanswered(log: Sequence[Exchange]) -> Iterator[str]:
    """Yield tasks of evaluations on which neither an answer nor a refusal comes before the client asks for work again."""
    for i, each in enumerate(log):
        task = each.table.get("task", {}) if each.path == "/v1/checkin" else {}
        if task.get("phase") not in SURVEYS:
            continue
        place = f"/v1/tasks/{task['task']}"
        before = takewhile(lambda later: later.path != "/v1/checkin", log[i + 1 :])
        if not any(later.path in (f"{place}/report", f"{place}/fail") for later in before):
            yield f"task {task['task']} of the phase {task['phase']} is neither done nor given up"


def of_training(worker: Worker, log: Sequence[Exchange], specified: bool) -> str | None:
    """Return how reports differ from those of our own client with the same data; None where they do not.

    Args:
        worker: our own client.
        log: what the client sent.
        specified: whether its minibatches are those that the protocol specifies. Else the counts alone are compared.
    """
    tasks: dict[str, dict[str, Any]] = {}
    models: dict[str, State] = {}
    memory, taken = worker.first_memory(), set[str]()
    for each in log:
        if each.path == "/v1/checkin" and "task" in each.table:
            tasks[f"/v1/tasks/{each.table['task']['task']}/report"] = each.table["task"]
        elif each.path.startswith("/v1/models/") and each.status == 200 and each.fault is None:
            if digest(each.answer) == each.path.rpartition("/")[2]:
                models[each.path.rpartition("/")[2]] = decode(each.answer, worker.model)
        elif each.method == "PUT" and each.path not in taken and _holds(each):
            task = tasks[each.path]
            if task["model"] not in models:
                return f"a report comes on task {task['task']}, whose model was never downloaded"
            done = worker.do(0, Assignment.read(task), models[task["model"]], memory)
            assert done is not None
            whole = each.headers.get("upload-offset", "0") == "0"
            if whole and (why := _difference(each.body, done[0], specified)) is not None:
                return f"the report on task {task['task']} (version {task['version']}): {why}"
            memory = done[1]
            taken.add(each.path)
    return None


def _holds(exchange: Exchange) -> bool:
    """Return whether a request brought a report, or the rest of one, that was taken."""
    return exchange.served in (200, 201)


def _difference(theirs: bytes, ours: bytes, specified: bool) -> str | None:
    """Return how a report differs from ours."""
    expected = read_manifest(ours)
    found, wanted = decode(theirs, expected), decode(ours, expected)
    for name in wanted if specified else ("num_examples", "num_steps"):
        tolerance = 1e-9 if wanted[name].itemsize == 8 else 1e-5
        apart = (found[name].double() - wanted[name].double()).abs().max().item()
        if not apart <= tolerance:
            return f"{name} is off by {apart:.3g}"
    return None
