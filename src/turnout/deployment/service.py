"""What a server does with what clients ask of it, without HTTP: who is there, who works on what, what has happened.

Whatever changes anything waits in a queue. One thread takes all that waits, writes it to the journal together, applies it in
the order of the journal, and only then answers. So the coordinator hears of nothing that could be lost.
"""

from __future__ import annotations

import hashlib
import heapq
import logging
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

from turnout.core.checks import CheckpointError, TurnoutError, count, positive
from turnout.deployment.driver import Applied, Driver
from turnout.deployment.store import Entry, Outcome, Store, StoreUnavailable
from turnout.deployment.wire import Assignment

log = logging.getLogger("turnout.server")


@dataclass(frozen=True)
class Leases:
    """How long a server believes in clients that it does not hear.

    Attributes:
        heartbeat: seconds between two signs of life of a client at work.
        missed: so many of them may be missed before its task is given to somebody else.
        grace: seconds that a waiting client may come later than it was asked to.
        longest_wait: most seconds that a question for work is held.
        checkins: questions for work per second that the server wants at most; beyond, clients are sent away for longer.
        max_waiting: questions for work that are held at a time.
    """

    heartbeat: float = 10.0
    missed: int = 3
    grace: float = 10.0
    longest_wait: float = 55.0
    checkins: float = 1000.0
    max_waiting: int = 20_000

    def __post_init__(self) -> None:
        for name in ("heartbeat", "grace", "longest_wait", "checkins"):
            positive(name, getattr(self, name))
        count("missed", self.missed)
        count("max_waiting", self.max_waiting)

    @property
    def at_work(self) -> float:
        """Seconds after which a silent client at work is given up."""
        return self.heartbeat * self.missed


class Verdict(NamedTuple):
    """What becomes of a request, as an HTTP status, and why."""

    status: int
    body: dict[str, Any]


class Refused(TurnoutError):
    """A request that is not done; `verdict` says what is answered."""

    def __init__(self, status: int, reason: str, **more: Any) -> None:
        super().__init__(reason)
        self.verdict = Verdict(status, {"reason": reason, **more})


Kind = Literal["start", "enrol", "join", "leave", "report", "fail", "timer"]


@dataclass(eq=False)
class _Waiting:
    """Something that has happened and is not yet in the journal."""

    kind: Kind
    client: int | None = None
    task: int | None = None
    digest: str | None = None
    data: dict[str, Any] = field(default_factory=dict)
    file: Path | None = None
    done: Future[Any] = field(default_factory=Future)


class RunClock:
    """Seconds that a server has run, over all its starts; clocks that are put forward or back do not matter."""

    def __init__(self, before: float = 0.0) -> None:
        self._before, self._begun = before, time.monotonic()

    def __call__(self) -> float:
        """Return the time."""
        return self._before + time.monotonic() - self._begun


class Service:
    """A federation that is asked by clients.

    Args:
        driver: the coordinator in motion, after all that is in the journal.
        store: where the journal is.
        last: the last entry of the journal; None where it is empty.
        leases: how long it believes in silent clients.
        min_clients: so many have to be enrolled and there before the first task is given.
        max_clients: no more are enrolled.
        needs_code: whether enrolment takes a one-time code.
        clock: seconds that the server has run; for tests.
        checkpoint_every: seconds between two checkpoints, if there was a step in between.
        discard: delete reports that no checkpoint needs any more; there is no replay then.

    Attributes:
        woken: called with clients whose question for work can be answered now, by whichever thread found out.
        healthy: whether the journal could be written when it was last tried.
        failure: why the server cannot go on, if it cannot; nothing is saved then but what is in the journal.
        draining: whether the server is about to stop, and nobody is to wait for work any more.
    """

    def __init__(
        self,
        driver: Driver,
        store: Store,
        last: Entry | None = None,
        *,
        leases: Leases | None = None,
        min_clients: int = 1,
        max_clients: int = 1_000_000,
        needs_code: bool = False,
        clock: Callable[[], float] | None = None,
        checkpoint_every: float = 60.0,
        discard: bool = False,
    ) -> None:
        count("min_clients", min_clients)
        self.driver, self.store, self.leases = driver, store, leases or Leases()
        self.min_clients, self.max_clients, self.needs_code = min_clients, max_clients, needs_code
        self.clock = clock or RunClock(last.time if last else 0.0)
        self.run = store.run
        self.woken: Callable[[Iterable[int]], None] = lambda _: None
        self.healthy = True
        self.failure: Exception | None = None
        self.draining = self.stopping = False
        self._number = last.number if last else 0
        self._clients, self._codes = store.clients(), store.codes()
        self._lock, self._queue = threading.Condition(), list[_Waiting]()
        self._until: dict[int, float] = {}
        self._ends: list[tuple[float, int]] = []
        self._timers: list[tuple[float, int]] = []
        self._outcomes: list[Outcome] = []
        self._recent: dict[int, Outcome] = {}
        self._thread: threading.Thread | None = None
        self._starting = driver.started
        self._saved, self._every, self._discard = (time.monotonic(), driver.version), checkpoint_every, discard
        if discard:
            store.fact("discards", "since the first start with --discard-reports")
        now = self.clock()
        for client in driver.present():  # they get the time to notice that the server is back
            self._believe(client, now + self.leases.at_work + self.leases.grace + self.leases.longest_wait)
        for timer, due in driver.timers():
            heapq.heappush(self._timers, (max(due, now), timer))

    # What clients ask. Each of these may be called by any thread.

    def client_of(self, token: str) -> int | None:
        """Return whose token this is."""
        return self._clients.get(hashed(token))

    @property
    def num_clients(self) -> int:
        """How many clients were ever enrolled."""
        return len(self._clients)

    def enrol(self, token: str, code: str | None = None, name: str | None = None) -> Future[Verdict]:
        """Make whoever has this token a client, if they are none yet."""
        data = {"name": name, "code": None if code is None else hashed(code)}
        return self._put(_Waiting("enrol", digest=hashed(token), data={k: v for k, v in data.items() if v is not None}))

    def work_of(self, client: int, wait: float = 0.0, after: int = -1) -> dict[str, Any] | None:
        """Answer a question for work; None where there is nothing to do yet.

        Args:
            wait: seconds that the client is going to wait for an answer.
            after: the client wants no model of this version, or of an earlier one.
        """
        if self.driver.over is not None:
            return {"over": self.driver.over, "model": self.driver.digest}
        if after >= self.driver.version:
            return None
        with self._lock:
            if client not in self._until:
                self._put(_Waiting("join", client))
            self._believe(client, self.clock() + wait + self.leases.grace)
        task = self.driver.task_of(client)
        if task is not None:
            self._heard(client, self.leases.at_work)
            return {"task": task.json()}
        return None

    def come_back(self, client: int, num_waiting: int) -> tuple[float, float]:
        """Return in how many seconds a client without work should ask again: at least, and at most."""
        least = 0.0
        if num_waiting >= self.leases.max_waiting or self.num_clients > self.leases.checkins * self.leases.longest_wait:
            least = max(5.0, 0.5 * self.num_clients / self.leases.checkins)
        most = 2.0 * least + 1.0
        self._heard(client, most + self.leases.grace)
        return least, most

    def leave(self, client: int) -> Future[None]:
        """Note that a client goes away; its task is given up."""
        with self._lock:
            if self._until.pop(client, None) is None:
                return _done()
        return self._put(_Waiting("leave", client))

    def alive(self, client: int, task: int) -> Verdict:
        """Note a sign of life of a client at work; the answer is whether its work is still wanted."""
        verdict = self.state_of(client, task)
        if verdict.body["state"] == "open":
            self._heard(client, self.leases.at_work)
        return verdict

    def heard(self, client: int) -> None:
        """Note a sign of life of a client that sends a report."""
        self._heard(client, self.leases.at_work)

    def fail(self, client: int, task: int, why: str) -> Future[None]:
        """Note that a client cannot do its task: it left, or its work came to nothing.

        Raises:
            Refused: where it has no such task.
        """
        self.own(client, task)
        return self.leave(client) if why == "left" else self._put(_Waiting("fail", client, task))

    def state_of(self, client: int, task: int) -> Verdict:
        """Return what became of a client's own task.

        Raises:
            Refused: where it has no such task.
        """
        if self.open(client, task) is not None:
            return Verdict(200, {"state": "open"})
        outcome = self._outcome(client, task)
        if outcome.outcome == "taken":
            return Verdict(200, {"state": "taken", "digest": outcome.digest})
        return Verdict(200, {"state": "dropped", "reason": outcome.outcome})

    def own(self, client: int, task: int) -> Assignment | Outcome:
        """Return a client's own task, open or ended.

        Raises:
            Refused: where it has no such task.
        """
        return self.open(client, task) or self._outcome(client, task)

    def open(self, client: int, task: int) -> Assignment | None:
        """Return a client's task, if it is open."""
        found = self.driver.task_of(client)
        return found if found is not None and found.task == task else None

    def ended(self, client: int, task: int, digest: str) -> Verdict | None:
        """Return the answer to a report on a task that has ended; None where it is open.

        Raises:
            Refused: where the client has no such task.
        """
        if self.open(client, task) is not None:
            return None
        return _answer(self._outcome(client, task), digest)

    def report(self, client: int, task: int, digest: str, file: Path) -> Future[Verdict]:
        """Take a report that has been checked, and lies in a file."""
        self._heard(client, self.leases.at_work)
        return self._put(_Waiting("report", client, task, digest, file=file))

    # What the thread does. Tests call these without a thread.

    def begin(self) -> None:
        """Start the thread that writes, applies and answers."""
        self._thread = threading.Thread(target=self._work, name="journal", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Write and answer what waits, save a checkpoint, and end."""
        with self._lock:
            self.draining = self.stopping = True
            self._lock.notify_all()
        if self._thread is not None:
            self._thread.join()
        if self.failure is None:
            self.finish()

    def finish(self) -> None:
        """Write what is left, and a checkpoint; where it cannot be written, the journal goes on without."""
        try:
            self.store.commit([], outcomes=self._outcomes)
            self._outcomes = []
            self.driver.save(self._discard)
        except CheckpointError as error:
            log.error("no checkpoint", extra={"reason": str(error)})
        self._saved = time.monotonic(), self.driver.version

    def tick(self) -> float:
        """Note whose time is up; return how many seconds nothing more of this kind will happen."""
        now = self.clock()
        if not self._starting and self.num_clients >= self.min_clients <= len(self._until):
            self._starting = True
            self._put(_Waiting("start"))
        with self._lock:
            while self._timers and self._timers[0][0] <= now:
                self._put(_Waiting("timer", data={"timer": heapq.heappop(self._timers)[1]}))
            while self._ends and self._ends[0][0] <= now:
                _, client = heapq.heappop(self._ends)
                until = self._until.get(client)
                if until is None:
                    continue
                if until > now:  # it was heard in the meantime
                    heapq.heappush(self._ends, (until, client))
                    continue
                del self._until[client]
                self._put(_Waiting("leave", client))
            due = [heap[0][0] for heap in (self._timers, self._ends) if heap]
        return max(0.0, min([*due, now + 1.0]) - now)

    def flush(self) -> bool:
        """Write, apply and answer all that waits; return whether there was anything.

        Raises:
            StoreUnavailable: where the journal cannot be written now; everything waits on then.
        """
        with self._lock:
            batch, self._queue = self._queue, []
        if not batch and not self._outcomes:
            return False
        codes: dict[str, int] = {}
        admitted = [waiting for waiting in batch if self._admit(waiting, codes)]
        wall, now = time.time(), self.clock()
        entries = [
            Entry(number, now, wall, each.kind, each.client, each.task, each.digest, each.data)
            for number, each in enumerate(admitted, self._number + 1)
        ]
        arrived = [
            (each.file, self.store.report(each.digest)) for each in admitted if each.file is not None and each.digest
        ]
        outcomes = list(self._outcomes)
        try:
            self.store.commit(entries, arrived, outcomes)
        except StoreUnavailable:
            self.healthy = False
            with self._lock:
                self._queue = admitted + self._queue
            raise
        self.healthy = True
        self._number += len(entries)
        self._outcomes = self._outcomes[len(outcomes) :]
        woken: list[int] = []
        for entry, waiting in zip(entries, admitted, strict=True):
            woken += self._apply(entry, waiting)
        if woken or self.driver.over is not None:
            self.woken(woken)
        then, version = self._saved
        if self.driver.version > version and (self.driver.over or time.monotonic() - then >= self._every):
            self.finish()
        return True

    def _work(self) -> None:
        """Write, apply and answer until told to stop."""
        failures = 0
        while True:
            pause = self.tick()
            try:
                busy = self.flush()
                failures = 0
            except StoreUnavailable as error:
                failures += 1
                log.error("journal cannot be written", extra={"reason": str(error), "attempt": failures})
                if self.stopping and failures > 3:
                    return
                time.sleep(min(2.0, 0.05 * 2**failures))
                continue
            except Exception as error:
                self.failure = error
                log.critical("the server cannot go on: start it again, and it will from its journal", exc_info=True)
                self.draining, self.stopping, self.healthy = True, True, False
                self.woken(())
                return
            with self._lock:
                if self.stopping and not self._queue:
                    return
                if not busy and not self._queue:
                    self._lock.wait(min(pause, 1.0))

    def _put(self, waiting: _Waiting) -> Future[Any]:
        """Have something wait for the journal."""
        with self._lock:
            self._queue.append(waiting)
            self._lock.notify()
        return waiting.done

    def _admit(self, waiting: _Waiting, codes: dict[str, int]) -> bool:
        """Return whether something is to be written; if not, it is answered."""
        if waiting.kind != "enrol" or waiting.client is not None:
            return True
        token, code = waiting.digest, waiting.data.get("code")
        assert token is not None
        refusal: Verdict | None = None
        if (known := self._clients.get(token)) is not None:
            refusal = Verdict(200, {"client": known, "run": self.run})
        elif self.driver.over is not None:
            refusal = Verdict(410, {"reason": self.driver.over})
        elif self.num_clients >= self.max_clients:
            refusal = Verdict(403, {"reason": f"this federation has its {self.max_clients} clients"})
        elif self.needs_code and (code is None or self._codes.get(code, -1) is not None or code in codes):
            refusal = Verdict(
                403, {"reason": "this takes a one-time code that nobody has used: ask whoever runs the server"}
            )
        if refusal is not None:
            waiting.done.set_result(refusal)
            return False
        if not self.needs_code:
            waiting.data.pop("code", None)
        elif code is not None:
            codes[code] = 1
        waiting.client = self.num_clients
        self._clients[token] = waiting.client
        return True

    def _apply(self, entry: Entry, waiting: _Waiting) -> list[int]:
        """Do what follows of an entry, and answer; return whose question for work can be answered now."""
        applied = self.driver.apply(entry)
        now = self.clock()
        self._note(applied, now)
        if entry.kind == "enrol":
            if (code := entry.data.get("code")) is not None:
                self._codes[code] = entry.client
            waiting.done.set_result(Verdict(201, {"client": entry.client, "run": self.run}))
        elif entry.kind == "report":
            assert entry.task is not None
            assert entry.client is not None
            outcome = next((each for each in applied.outcomes if each.task == entry.task), None)
            outcome = outcome or self._outcome(entry.client, entry.task)
            assert entry.digest is not None
            fresh = outcome in applied.outcomes
            verdict = _answer(outcome, entry.digest)
            waiting.done.set_result(Verdict(201, verdict.body) if fresh and verdict.status == 200 else verdict)
        else:
            waiting.done.set_result(None)
        return applied.asked

    def _note(self, applied: Applied, now: float) -> None:
        """Take up what the driver says has followed."""
        self._outcomes += applied.outcomes
        for outcome in applied.outcomes:
            self._recent[outcome.task] = outcome
            if len(self._recent) > 100_000:
                del self._recent[next(iter(self._recent))]
        with self._lock:
            for client in applied.asked:
                self._believe(client, max(self._until.get(client, 0.0), now + self.leases.at_work))
            for timer, due in applied.timers:
                heapq.heappush(self._timers, (due, timer))

    def _heard(self, client: int, seconds: float) -> None:
        """Believe for so long that a client is there, if it has come and not gone since."""
        with self._lock:
            if client in self._until:
                self._believe(client, self.clock() + seconds)

    def _believe(self, client: int, until: float) -> None:
        """Believe that a client is there until then."""
        with self._lock:
            if client not in self._until:
                heapq.heappush(self._ends, (until, client))
            self._until[client] = until

    def _outcome(self, client: int, task: int) -> Outcome:
        """Return what became of a client's task that is not open.

        Raises:
            Refused: where it never had such a task.
        """
        found = self._recent.get(task) or self.store.outcome(task)
        if found is None or found.client != client:
            raise Refused(404, f"client {client} has no task {task}")
        return found


def _done() -> Future[None]:
    """Return what is answered already."""
    done: Future[None] = Future()
    done.set_result(None)
    return done


def hashed(secret: str) -> str:
    """Return what is kept of a token or code: it was drawn at random, so a plain hash tells nothing."""
    return hashlib.sha256(secret.encode()).hexdigest()


def _answer(outcome: Outcome, digest: str) -> Verdict:
    """Return the answer to a report on a task that has ended so."""
    if outcome.outcome != "taken":
        return Verdict(410, {"reason": outcome.outcome})
    if outcome.digest != digest:
        return Verdict(409, {"reason": "another report on this task was taken"})
    return Verdict(200, {"state": "taken"})
