"""Answer an administrator while a run goes on: list and change clients, deal one-time codes, begin surveys."""

from __future__ import annotations

import secrets
import time
from concurrent.futures import Future
from typing import Any

from turnout.core.checks import ConfigurationError
from turnout.deployment.server.service import Service
from turnout.deployment.server.verdicts import Refused, Verdict, hashed
from turnout.deployment.wire.administrator import CHANGES
from turnout.deployment.wire.edge import number
from turnout.evaluation.queries import Question
from turnout.protocol.survey import SURVEYS

_LONGEST = 30 * 86_400.0  # seconds that an evaluation can go on

MOST_CLIENTS = 1000
"""Clients of one page of the list."""


class Administration:
    """Answer an administrator.

    Args:
        service: a federation that is asked by clients.
    """

    def __init__(self, service: Service) -> None:
        self._service = service

    def clients(self, first: int = 0, most: int = MOST_CLIENTS) -> dict[str, Any]:
        """Return a page of the list of clients.

        Args:
            first: the number of its first client.
            most: how many clients it has.

        Returns:
            ``clients``, ``next`` (the number from which the next page goes on, or None), ``version``.
        """
        service = self._service
        behind = min(first + most, service.num_clients)
        rows = [self._row(client, time.time()) for client in range(first, behind)]
        following = behind if behind < service.num_clients else None
        return {"clients": rows, "next": following, "version": service.figures.version}

    def _row(self, client: int, now: float) -> dict[str, Any]:
        """Return what is known of a client."""
        service, roster = self._service, self._service.driver.roster
        reports, steps = service.figures.reports_of(client), service.figures.version
        seen = max(roster.seen.get(client, 0.0), service.seen.get(client, 0.0))
        return {
            "client": client,
            "name": roster.names.get(client, ""),
            "state": service.standing(client),
            "reason": roster.bans.get(client),
            "seen": round(max(0.0, now - seen), 1) if seen else None,
            "reports": reports,
            "participation": reports / steps if steps else 0.0,
            "unusable": service.figures.unusable.get(client, 0),
        }

    def ask(self, body: dict[str, Any]) -> Future[int]:
        """Begin an evaluation or query, and answer with its number.

        Args:
            body: ``phase``, and optionally ``share``, ``seconds`` and ``question``; see `Service.survey`.

        Raises:
            Refused: for what cannot be asked.
            Malformed: for values of another form.
        """
        phase, question = body.get("phase"), body.get("question")
        if phase not in SURVEYS or (question is not None and not isinstance(question, dict)):
            raise Refused(400, f"phase is one of {', '.join(SURVEYS)}, and question an object")
        if (phase == "query") != (question is not None):
            raise Refused(400, "a query has a question, and an evaluation none")
        share = number(body, "share", 0.0, 1.0, default=1.0)
        seconds = None if body.get("seconds") is None else number(body, "seconds", 0.0, _LONGEST, default=0.0)
        try:
            question = None if question is None else Question(**question)
            return self._service.survey(phase, share, seconds, question)
        except (ConfigurationError, TypeError) as error:
            raise Refused(400, str(error)) from None

    def survey(self, survey_number: int) -> dict[str, Any]:
        """Return how an evaluation or query stands, or what came of it.

        Raises:
            Refused: where there is none of this number.
        """
        driver, name = self._service.driver, {"survey": survey_number}
        if (survey := driver.surveys.open.get(survey_number)) is not None:
            answered, lost = len(survey.answers), survey.reasons
            asked = answered + sum(lost.values()) + len(survey.open)
            facts = {"phase": survey.asked.phase, "version": survey.asked.version}
            return {**name, **facts, "state": "open", "asked": asked, "answered": answered, "lost": lost}
        outcome = None if driver.ledger is None else driver.ledger.survey(survey_number)
        if outcome is None:
            raise Refused(404, "there is no such evaluation or query")
        return {**name, **outcome, "state": "closed"}

    def change(self, client: int, change: str, text: str) -> Future[Verdict]:
        """Name, ban, admit again or remove a client.

        Args:
            client: its number.
            change: one of `CHANGES`.
            text: the name, or the reason of a ban; a ban needs one.

        Raises:
            Refused: for a client or a change that there is not, a ban without a reason, and a client that was removed.
        """
        if not 0 <= client < self._service.num_clients:
            raise Refused(404, f"there is no client {client}")
        if client in self._service.driver.roster.removed:
            raise Refused(409, f"client {client} was removed")
        if change not in CHANGES:
            raise Refused(400, f"change is one of {', '.join(CHANGES)}")
        if change == "ban" and not text:
            raise Refused(400, "a ban needs a reason, which the client is told: give it as text")
        return self._service.change(change, client, text)

    def add_codes(self, number: int) -> tuple[list[str], Future[Verdict]]:
        """Draw one-time codes; they can be used once the journal has them.

        Raises:
            Refused: where enrolment takes no codes.
        """
        self._check_codes()
        codes = [secrets.token_urlsafe(12) for _ in range(number)]
        return codes, self._service.change_codes({"add": [hashed(code) for code in codes]})

    def withdraw(self, code: str | None) -> Future[Verdict]:
        """Withdraw a one-time code that nobody has used; None withdraws all of them.

        Raises:
            Refused: where enrolment takes no codes.
        """
        self._check_codes()
        return self._service.change_codes({"withdraw": None if code is None else hashed(code)})

    def codes(self) -> dict[str, int]:
        """Return how many one-time codes were used, and how many were not.

        Raises:
            Refused: where enrolment takes no codes.
        """
        self._check_codes()
        return self._service.enrolment.counts()

    def _check_codes(self) -> None:
        if not self._service.enrolment.needs_code:
            raise Refused(409, "anyone may enrol at this server: start it with --enrolment codes")
