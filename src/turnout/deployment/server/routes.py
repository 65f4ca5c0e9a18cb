"""Every route of the protocol in one table: the application and ``openapi.json`` are built from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

JSON = "application/json"
BINARY = "application/octet-stream"

_ANY = {
    400: "The request breaks a rule of form; `reason` says which. Do not send it again.",
    405: "The route takes another method, which the header `Allow` names.",
    429: "Too many requests. Wait for the seconds of `Retry-After`.",
    431: "The request line and the headers are too large, or there are too many headers.",
    500: "This request failed for a reason that the server's log gives. Send it again later.",
    503: "The server cannot do this now. Send it again after `Retry-After`.",
}
"""Answers that every route can give."""

_TOKEN = {
    401: "The token is missing, or nobody is enrolled with it.",
    403: "An administrator has banned the client; `reason` says why.",
}
_ADMINISTRATOR = {
    401: "The token is missing, or is not the administrator's.",
    403: "The token is a client's.",
}
_JSON_BODY = {408: "The body did not come in time.", 413: "The body is too large."}
_TASK = {404: "The client has no such task."}
_OPEN = {409: "Anyone may enrol at this server: there are no codes."}


@dataclass(frozen=True)
class Route:
    """One route.

    Attributes:
        path, method: of HTTP; braces name the part of a path that varies.
        name: of the operation, and of the method of `turnout.deployment.server.app.Http` that answers it.
        summary: one sentence.
        answers: what each status means, beside those that every route can give.
        returns: the schema of the body of each status that has one other than `Reason`, or its media type.
        token: whether the request carries a token: the client's, or for paths below ``/v1/admin/`` the administrator's.
        body: the schema of a JSON body; None where there is none.
        headers: the request's headers beside the token, with a pattern of their values, and whether they are required.
        sends: headers of an answer with a file.
        query: names in the query, whose values are whole numbers; none is required.
    """

    path: str
    method: str
    name: str
    summary: str
    answers: Mapping[int, str]
    returns: Mapping[int, str] = field(default_factory=dict)
    token: bool = True
    body: str | None = None
    headers: Mapping[str, tuple[str, bool]] = field(default_factory=dict)
    sends: tuple[str, ...] = ()
    query: tuple[str, ...] = ()

    @property
    def security(self) -> str | None:
        """Return whose token the request carries: ``"token"`` is a client's, ``"administrator"`` or None."""
        if self.path.startswith("/v1/admin/"):
            return "administrator"
        return "token" if self.token else None

    @property
    def statuses(self) -> dict[int, str]:
        """Return every status that the route can answer with, and what it means."""
        access = {"token": _TOKEN, "administrator": _ADMINISTRATOR, None: {}}[self.security]
        return dict(sorted({**_ANY, **access, **self.answers}.items()))


ROUTES = (
    Route(
        "/v1/run",
        "GET",
        "run",
        "Describe the run.",
        {200: "The protocol's version, and what clients compute."},
        {200: "Run"},
        token=False,
    ),
    Route(
        "/v1/enrol",
        "POST",
        "enrol",
        "Make the bearer of the token a client of the run.",
        {
            200: "The token's bearer was a client before.",
            201: "The token's bearer is a client now.",
            202: "The server knew no shape of the data, and takes that of the client, who enrols again.",
            403: "The run takes no more clients, needs a one-time code that nobody has used, or has banned this client.",
            410: "The run is over.",
            422: "The client's examples have another shape than those of the run; `reason` has both.",
            426: "The server speaks another version of the protocol.",
            429: "Too many requests, or new clients, of this address. Wait for the seconds of `Retry-After`.",
            **_JSON_BODY,
        },
        {200: "Client", 201: "Client", 202: "DataShape"},
        body="Enrol",
    ),
    Route(
        "/v1/checkin",
        "POST",
        "checkin",
        "Ask for work, and wait for it.",
        {200: "A task, or when to ask again, or that the run is over.", **_JSON_BODY},
        {200: "Work"},
        body="Checkin",
    ),
    Route(
        "/v1/leave",
        "POST",
        "leave",
        "Go away; an open task is given up.",
        {200: "The client counts as absent until it asks for work again."},
        {200: "Nothing"},
    ),
    Route(
        "/v1/models/{digest}",
        "GET",
        "model",
        "Download a model.",
        {
            200: "The whole file, safetensors.",
            206: "The range that was asked for.",
            304: "The client has this file already, as its header `If-None-Match` says.",
            404: "There is no such model, or no longer.",
            416: "The file ends before the range begins.",
        },
        {200: BINARY, 206: BINARY, 304: "", 416: ""},
        headers={"range": (r"^bytes=[0-9]{1,18}-[0-9]{0,18}$", False)},
    ),
    Route(
        "/v1/model",
        "GET",
        "current",
        "Download the present model as named tensors.",
        {
            200: "The whole file, safetensors.",
            206: "The range that was asked for.",
            304: "The client has this file already, as its header `If-None-Match` says.",
            404: "Training has not begun.",
            416: "The file ends before the range begins.",
        },
        {200: BINARY, 206: BINARY, 304: "", 416: ""},
        headers={"range": (r"^bytes=[0-9]{1,18}-[0-9]{0,18}$", False)},
        sends=("etag", "repr-digest", "model-version"),
    ),
    Route(
        "/v1/tasks/{task}",
        "GET",
        "task",
        "Ask what became of a task.",
        {200: "The state of the task; of an open one, how many bytes of a report have arrived.", **_TASK},
        {200: "TaskState"},
    ),
    Route(
        "/v1/tasks/{task}/report",
        "PUT",
        "report",
        "Send a report, or what is missing of it.",
        {
            200: "This report was taken before.",
            201: "The report is taken.",
            408: "The body comes too slowly. Send what is missing later.",
            409: "Another report on this task was taken; or, with `offset`, the report goes on at that byte.",
            410: "The task has ended without a report, for `reason`.",
            413: "The report is larger than one on this task can be.",
            422: "The report is not what was asked for; the task has ended.",
            **_TASK,
        },
        {200: "TaskState", 201: "TaskState", 409: "Offset"},
        body=BINARY,
        headers={
            "repr-digest": (r"sha-256=:[A-Za-z0-9+/]{43}=:", True),
            "upload-length": (r"^[0-9]{1,15}$", False),
            "upload-offset": (r"^[0-9]{1,15}$", False),
            "task-fingerprint": (r"^[0-9a-f]{32}$", False),
        },
    ),
    Route(
        "/v1/tasks/{task}/heartbeat",
        "POST",
        "heartbeat",
        "Give a sign of life while at work.",
        {200: "The state of the task: whether a report is still wanted.", **_TASK},
        {200: "TaskState"},
    ),
    Route(
        "/v1/tasks/{task}/fail",
        "POST",
        "fail",
        "Give a task up.",
        {200: "The task has ended.", **_JSON_BODY, **_TASK},
        {200: "Nothing"},
        body="Fail",
    ),
    Route(
        "/v1/admin/clients",
        "GET",
        "clients",
        "List clients, a thousand at a time.",
        {200: "The clients from number `first` on, and the number from which the next page goes on."},
        {200: "Clients"},
        query=("first",),
    ),
    Route(
        "/v1/admin/clients/{client}",
        "POST",
        "client",
        "Name a client, ban it, admit it again, or remove it.",
        {
            200: "The change is in the journal.",
            404: "There is no such client.",
            409: "The client was removed.",
            **_JSON_BODY,
        },
        {200: "Changed"},
        body="Change",
    ),
    Route(
        "/v1/admin/codes",
        "GET",
        "codes",
        "Count the one-time codes.",
        {200: "How many were used, and how many were not.", **_OPEN},
        {200: "Codes"},
    ),
    Route(
        "/v1/admin/codes/add",
        "POST",
        "add_codes",
        "Draw one-time codes.",
        {
            200: "The codes. The server keeps hashes of them alone, so that they are shown this once.",
            **_OPEN,
            **_JSON_BODY,
        },
        {200: "NewCodes"},
        body="Number",
    ),
    Route(
        "/v1/admin/codes/withdraw",
        "POST",
        "withdraw_codes",
        "Withdraw a one-time code that nobody has used, or all of them.",
        {200: "They can no longer be used.", 404: "There is no such unused code.", **_OPEN, **_JSON_BODY},
        {200: "Codes"},
        body="Code",
    ),
    Route(
        "/v1/admin/surveys",
        "POST",
        "begin_survey",
        "Have clients evaluate the model, or answer a query.",
        {
            201: "Clients are asked.",
            409: "The privacy budget of the run has no room for it, or 16 evaluations and queries go on.",
            **_JSON_BODY,
        },
        {201: "SurveyNumber"},
        body="Survey",
    ),
    Route(
        "/v1/admin/surveys/{survey}",
        "GET",
        "survey",
        "Give how an evaluation or query stands, or what came of it.",
        {
            200: "How many were asked and have answered; figures once it has ended.",
            404: "There is none of this number.",
        },
        {200: "SurveyState"},
    ),
    Route("/v1/status", "GET", "status", "Give the figures of the run.", {200: "The figures."}, {200: "Status"}, False),
    Route(
        "/metrics",
        "GET",
        "metrics",
        "Give the figures of the run as Prometheus reads them.",
        {200: "The figures."},
        {200: "text/plain"},
        False,
    ),
    Route(
        "/openapi.json",
        "GET",
        "openapi",
        "Give this description.",
        {200: "An OpenAPI document."},
        {200: "Nothing"},
        False,
    ),
    Route("/", "GET", "page", "Show the run to people.", {200: "A page."}, {200: "text/html"}, False),
)
"""The routes of every server."""

PAGE_ROUTES = (
    Route(
        "/join",
        "GET",
        "join",
        "Show a page in which a browser becomes a client.",
        {200: "A page."},
        {200: "text/html"},
        False,
    ),
    Route(
        "/turnout.js",
        "GET",
        "module",
        "Give the client for browsers and for Node.",
        {200: "A module."},
        {200: "text/javascript"},
        False,
    ),
)
"""Routes that ``turnout serve --page`` adds."""
