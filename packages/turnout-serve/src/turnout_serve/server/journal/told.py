"""Write a line to the log of a server for each event that its operator may look for later, with client, name and reason."""

from __future__ import annotations

import logging
from typing import Any

from turnout.protocol.survey import FIRST_TASK
from turnout_serve.server.journal.driver import Driver
from turnout_serve.server.journal.entries import Effects, Entry
from turnout_serve.server.run.served_run import OVER

log = logging.getLogger("turnout.server")

_CHANGES = {"ban": "client banned", "unban": "client unbanned", "remove": "client removed", "name": "client named"}


def tell(driver: Driver, entry: Entry, effects: Effects, version: int) -> None:
    """Log what an entry has brought about: enrollments, changes, reports that do not count, and server steps.

    Args:
        driver: the run after the entry.
        entry, effects: the entry, and its effects.
        version: version before the entry.
    """
    text = str(entry.data.get("text", ""))
    match entry.kind:
        case "enrol":
            log.info("client enrolled", extra=_who(driver, entry.sender))
        case kind if kind in _CHANGES:
            log.info(_CHANGES[kind], extra=_who(driver, entry.sender) | ({"reason": text} if kind == "ban" else {}))
        case "fail" if "refused" in entry.data:
            reason = {"task": entry.task, "reason": entry.data["refused"]}
            log.warning("report refused", extra=_who(driver, entry.sender) | reason)
    for outcome in effects.outcomes:
        if outcome.outcome in ("taken", OVER) or (outcome.task == entry.task and "refused" in entry.data):
            continue
        what = "answer not given" if outcome.task >= FIRST_TASK else "task dropped"
        log.info(what, extra=_who(driver, outcome.client) | {"task": outcome.task, "reason": outcome.outcome})
    if driver.version > version:
        run = driver.run
        log.info("server step", extra={"step": driver.version, "reports": 0 if run is None else len(run.used)})


def _who(driver: Driver, client: int) -> dict[str, Any]:
    """Return the number and the name of a client."""
    name = driver.roster.names.get(client, "")
    return {"client": client} | ({"client_name": name} if name else {})
