"""The routes of an administrator: list and change clients, manage one-time codes, begin evaluations and queries."""

from __future__ import annotations

import secrets
import time
from typing import Any

from starlette.responses import JSONResponse, Response

from turnout.core.checks import ConfigurationError
from turnout.evaluation.queries import Question
from turnout_serve.server.enrollment import hashed
from turnout_serve.server.http.endpoints import answer, written
from turnout_serve.server.http.routes import route
from turnout_serve.server.journal.events import Event
from turnout_serve.server.journal.handler import standing
from turnout_serve.server.service import Service
from turnout_serve.server.verdicts import Refused
from turnout_serve.wire import admin_bodies as bodies

MOST_CLIENTS = 1000
"""Number of clients on a page of the list."""
_OPEN = {409: "Anyone may enroll at this server: there are no codes."}


class Administration:
    """The endpoints of an administrator, whose token `Gate` has checked.

    Args:
        service: answers the requests.
    """

    def __init__(self, service: Service) -> None:
        self._service = service

    @route(
        "GET",
        "/v1/admin/clients",
        {200: (bodies.Clients, "The clients from number `first` on, and the number from which the next page goes on.")},
        "administrator",
        query=("first",),
    )
    async def clients(self, first: int) -> Response:
        """List clients, a thousand at a time."""
        service = self._service
        behind = min(first + MOST_CLIENTS, service.num_clients)
        codes = service.enrollment.used_codes()
        rows = [{**self._row(client), "code": codes.get(client)} for client in range(first, behind)]
        following = behind if behind < service.num_clients else None
        return JSONResponse({"clients": rows, "next": following, "version": service.writer.figures.version})

    def _row(self, client: int) -> dict[str, Any]:
        """Return the row of a client."""
        service, roster = self._service, self._service.driver.roster
        refused, why = roster.refused.get(client, (0, ""))
        reports, steps = service.writer.figures.reports_of(client), service.writer.figures.version
        ages = [time.time() - roster.seen[client]] if client in roster.seen else []
        if client in service.seen:  # by a clock that nobody sets
            ages = [service.clock() - service.seen[client]]
        return {
            "client": client,
            "name": roster.names.get(client, ""),
            "state": standing(service.driver, client),
            "reason": roster.bans.get(client),
            "seen": round(max(0.0, *ages), 1) if ages else None,
            "reports": reports,
            "participation": reports / steps if steps else 0.0,
            "unusable": service.writer.figures.unusable.get(client, 0),
            "dropped": 0 if service.driver.ledger is None else service.driver.ledger.lost[client],
            "refused": refused,
            "refusal": why or None,
            "certificate": service.certificates.get(client),
        }

    @route(
        "POST",
        "/v1/admin/clients/{client}",
        {
            200: (bodies.Changed, "The change is in the journal."),
            404: "There is no such client.",
            409: "The client was removed.",
        },
        "administrator",
        body=bodies.ClientChange,
    )
    async def client(self, client: int, body: bodies.ClientChange) -> Response:
        """Name, ban, unban or remove a client."""
        if not 0 <= client < self._service.num_clients:
            raise Refused(404, f"there is no client {client}")
        if client in self._service.driver.roster.removed:
            raise Refused(409, f"client {client} was removed")
        if body.change == "ban" and not body.text:
            raise Refused(400, "a ban needs a reason, which the client is told: give it as text")
        return answer(
            await written(self._service.writer.put(Event(body.change, client, data={"text": body.text or ""})))
        )

    @route(
        "GET",
        "/v1/admin/codes",
        {200: (bodies.Codes, "How many were used, and how many were not."), **_OPEN},
        "administrator",
    )
    async def codes(self) -> Response:
        """Count the one-time codes."""
        self._check_codes()
        return JSONResponse(self._service.enrollment.counts())

    @route(
        "POST",
        "/v1/admin/codes/add",
        {
            200: (
                bodies.NewCodes,
                "The codes. The server keeps hashes of them alone, so that they are shown this once.",
            ),
            **_OPEN,
        },
        "administrator",
        body=bodies.NumberOfCodes,
    )
    async def add_codes(self, body: bodies.NumberOfCodes) -> Response:
        """Draw one-time codes."""
        self._check_codes()
        codes = [secrets.token_urlsafe(12) for _ in range(body.number)]
        await written(self._service.writer.put(Event("codes", data={"add": [hashed(code) for code in codes]})))
        return JSONResponse({"codes": codes})

    @route(
        "POST",
        "/v1/admin/codes/withdraw",
        {200: (bodies.Codes, "They can no longer be used."), 404: "There is no such unused code.", **_OPEN},
        "administrator",
        body=bodies.Code,
    )
    async def withdraw_codes(self, body: bodies.Code) -> Response:
        """Withdraw an unused one-time code, or all of them."""
        self._check_codes()
        code = None if body.code is None else hashed(body.code)
        return answer(await written(self._service.writer.put(Event("codes", data={"withdraw": code}))))

    @route(
        "POST",
        "/v1/admin/surveys",
        {
            201: (bodies.SurveyNumber, "Clients are asked."),
            409: "The privacy budget of the run has no room for it, or 16 evaluations and queries go on.",
        },
        "administrator",
        body=bodies.Survey,
    )
    async def begin_survey(self, body: bodies.Survey) -> Response:
        """Begin an evaluation of the model by clients, or a query."""
        if (body.phase == "query") != (body.question is not None):
            raise Refused(400, "a query has a question, and an evaluation none")
        try:
            question = None if body.question is None else Question(**body.question)
            begun = self._service.survey(body.phase, body.share, body.seconds, question)
        except (ConfigurationError, TypeError) as error:
            raise Refused(400, str(error)) from None
        return JSONResponse({"survey": await written(begun)}, 201)

    @route(
        "GET",
        "/v1/admin/surveys/{survey}",
        {
            200: (bodies.SurveyState, "How many were asked and have answered; figures once it has ended."),
            404: "There is none of this number.",
        },
        "administrator",
    )
    async def survey(self, survey: int) -> Response:
        """Return the state of an evaluation or query, and its result once it is closed."""
        driver, name = self._service.driver, {"survey": survey}
        if (opened := driver.surveys.open.get(survey)) is not None:
            answers, lost, request = opened.survey.answers, opened.survey.reasons, opened.survey.request
            num_asked = len(answers) + sum(lost.values()) + len(opened.survey.open)
            facts = {"phase": request.phase, "version": request.version, "asked": num_asked, "answered": len(answers)}
            return JSONResponse({**name, **facts, "state": "open", "lost": lost})
        outcome = None if driver.ledger is None else driver.ledger.survey(survey)
        if outcome is None:
            raise Refused(404, "there is no such evaluation or query")
        return JSONResponse({**name, **outcome, "state": "closed"})

    def _check_codes(self) -> None:
        if not self._service.enrollment.needs_code:
            raise Refused(409, "anyone may enroll at this server: start it with --enrollment codes")
