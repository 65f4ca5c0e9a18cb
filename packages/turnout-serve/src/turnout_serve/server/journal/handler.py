"""Apply journal entries on a server, log what their operator may look for later, and answer the events that they were."""

from __future__ import annotations

import logging
from typing import Any

from turnout.protocol.survey import FIRST_TASK
from turnout_serve.server.enrollment import Enrollment
from turnout_serve.server.journal.driver import Driver
from turnout_serve.server.journal.entries import Effects, Entry
from turnout_serve.server.journal.events import Event
from turnout_serve.server.journal.timeouts import Timeouts
from turnout_serve.server.run import noise
from turnout_serve.server.run.roster import REASONS
from turnout_serve.server.run.served_run import OVER
from turnout_serve.server.verdicts import Verdict
from turnout_serve.wire.administrator import CHANGES

log = logging.getLogger("turnout.server")

_LOGGED = {"ban": "client banned", "unban": "client unbanned", "name": "client named"}


class EntryHandler:
    """Apply entries to a driver and answer their events, in the thread of a `JournalWriter` alone.

    Args:
        driver: the run, after all entries of the journal.
        enrollment: tokens and one-time codes.
        timeouts: leases, deadlines and timers.
        min_clients: number of clients that must be present before training begins.
    """

    def __init__(self, driver: Driver, enrollment: Enrollment, timeouts: Timeouts, min_clients: int) -> None:
        self._driver, self._enrollment, self._timeouts = driver, enrollment, timeouts
        self._min_clients, self._starting = min_clients, driver.run is not None
        self.forgive = timeouts.forgive

    def tick(self) -> float:
        """Begin the run once enough clients are present, and queue what is due; return the seconds until more can be."""
        if not self._starting and len(self._enrollment) >= self._min_clients <= len(self._timeouts.presence):
            self._starting = True
            setting = self._driver.setting
            planned = {"rounds": setting.rounds, "min_clients": self._min_clients}
            self._timeouts.put(Event("start", data=planned | noise.first(setting.algorithm)))
        return self._timeouts.expire()

    def admit(self, event: Event, used: set[str]) -> bool:
        """Return whether an event is to be written; an enrollment or a change of codes may be answered without.

        It is answered at once, unless an event before it in the group is to be written: the answer may follow from it.

        Args:
            event: the next one of a group.
            used: tokens and one-time codes that events before it in the group use; those of the event are added.
        """
        if event.kind not in ("enrol", "codes"):
            return True
        admit = self._enrollment.admit if event.kind == "enrol" else self._enrollment.admit_change
        try:
            verdict = admit(event, used)
        except Exception as error:  # it fails this event alone
            log.exception("an event failed", extra={"kind": event.kind, "client": event.client})
            event.fail(error)
            return False
        if verdict is not None and not used:
            event.answer(verdict)
        return verdict is None

    def apply(self, entry: Entry, event: Event) -> Effects:
        """Apply an entry and answer its event; return the effects of the entry."""
        version = self._driver.version
        removed = self._driver.roster.named(entry.sender) if entry.kind == "remove" else {}
        effects = self._driver.apply(entry)
        if removed:
            log.info("client removed", extra=removed)
        _tell(self._driver, entry, effects, version)
        self._driver.store.outcomes.add(effects.outcomes)
        self._timeouts.update(effects)
        if effects.error is not None:
            event.fail(effects.error)
            return effects
        if entry.kind in REASONS and entry.client is not None and self._timeouts.presence.end(entry.client):
            effects.excluded.append(entry.client)  # its long poll is answered with the ban
        event.answer(self._answer(entry, effects))
        return effects

    def _answer(self, entry: Entry, effects: Effects) -> Any:
        """Return the answer to the event of an entry."""
        match entry.kind:
            case "enrol":
                return self._enrollment.written(entry)
            case "codes":
                return self._enrollment.changed(entry)
            case "survey":
                return self._driver.surveys.number - 1
            case "report":
                return self._answer_to_report(entry, effects)
            case kind if kind in CHANGES:
                if kind == "remove":
                    self._enrollment.forget(entry.sender)
                return Verdict(200, {"client": entry.sender, "state": standing(self._driver, entry.sender)})
        return None

    def _answer_to_report(self, entry: Entry, effects: Effects) -> Verdict:
        """Return 201 for a report that this entry has taken, and otherwise the answer of the task that had ended before."""
        outcome = next((outcome for outcome in effects.outcomes if outcome.task == entry.task), None)
        if outcome is None:
            return self._driver.store.outcomes.get(entry.sender, entry.done).answer(entry.body)
        verdict = outcome.answer(entry.body)
        return Verdict(201, verdict.body) if verdict.status == 200 else verdict


def standing(driver: Driver, client: int) -> str:
    """Return the state of a client: ``"there"``, ``"away"``, ``"at work"``, ``"banned"`` or ``"removed"``."""
    roster = driver.roster
    if client in roster.bans:
        return "removed" if client in roster.removed else "banned"
    if driver.task_of(client) is not None:
        return "at work"
    return "there" if roster.is_present(client) else "away"


def _tell(driver: Driver, entry: Entry, effects: Effects, version: int) -> None:
    """Log what an entry has brought about: enrollments, changes, reports that do not count, and server steps.

    Args:
        driver: the run after the entry.
        entry, effects: the entry, and its effects.
        version: version before the entry.
    """
    text = str(entry.data.get("text", ""))
    match entry.kind:
        case "enrol":
            log.info("client enrolled", extra=driver.roster.named(entry.sender))
        case kind if kind in _LOGGED:
            reason = {"reason": text} if kind == "ban" else {}
            log.info(_LOGGED[kind], extra=driver.roster.named(entry.sender) | reason)
        case "fail" if "refused" in entry.data:
            reason = {"task": entry.task, "reason": entry.data["refused"]}
            log.warning("report refused", extra=driver.roster.named(entry.sender) | reason)
    for outcome in effects.outcomes:
        if outcome.outcome in ("taken", OVER) or (outcome.task == entry.task and "refused" in entry.data):
            continue
        what = "answer not given" if outcome.task >= FIRST_TASK else "task dropped"
        log.info(what, extra=driver.roster.named(outcome.client) | {"task": outcome.task, "reason": outcome.outcome})
    if driver.version > version:
        run = driver.run
        log.info("server step", extra={"step": driver.version, "reports": 0 if run is None else len(run.used)})
