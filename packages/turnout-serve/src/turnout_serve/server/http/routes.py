"""Declare routes on the methods that answer them; the application and ``openapi.json`` are built from these."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, TypeVar

from turnout_serve.wire.bodies import Reason

JSON = "application/json"
BINARY = "application/octet-stream"
Sender = Literal["anyone", "newcomer", "client", "administrator", "operator"]
Handler = TypeVar("Handler", bound=Callable[..., Any])
Answers = Mapping[int, "str | tuple[Any, str]"]

_ANY: Answers = {
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
_ADMINISTRATOR = {401: "The token is missing, or is not the administrator's.", 403: "The token is a client's."}
_ACCESS: Mapping[Sender, Answers] = {
    "anyone": {},
    "newcomer": _TOKEN,
    "client": _TOKEN,
    "administrator": _ADMINISTRATOR,
    "operator": _ADMINISTRATOR,
}
_JSON_BODY = {408: "The body did not come in time.", 413: "The body is too large."}


@dataclass(frozen=True)
class Route:
    """One route.

    Attributes:
        method, path: method and path of HTTP; names in braces are parameters of the path.
        name: name of the operation, and of the method that answers it.
        summary: one sentence.
        answers: type or media type of the body and a description, by status; without the answers that all routes have.
        sender: owner of the token of a request; that of a newcomer is not known yet. The operator is the administrator, or
            anyone at a server whose status is public.
        body: type of a JSON body, `BINARY`, or None without a body.
        headers: headers of the request beside the token, with a pattern of the value, and True where they are required.
        sends: headers of an answer with a file.
        query: names of whole numbers in the query, 0 by default.
        takes: names of the parameters of the method that answers.
    """

    method: str
    path: str
    name: str
    summary: str
    answers: Answers
    sender: Sender
    body: Any = None
    headers: Mapping[str, tuple[str, bool]] = field(default_factory=dict)
    sends: tuple[str, ...] = ()
    query: tuple[str, ...] = ()
    takes: tuple[str, ...] = ()

    @property
    def statuses(self) -> dict[int, tuple[Any, str]]:
        """All statuses of the route: type of the body, and description."""
        body = _JSON_BODY if self.takes_json else {}
        answers = {**_ANY, **_ACCESS[self.sender], **body, **self.answers}
        return {k: (Reason, v) if isinstance(v, str) else v for k, v in sorted(answers.items())}

    @cached_property
    def takes_json(self) -> bool:
        """True where the request has a JSON body."""
        return self.body not in (None, BINARY)

    @cached_property
    def parameters(self) -> list[str]:
        """Names of the parameters of the path."""
        return re.findall(r"{(\w+)}", self.path)


def route(
    method: str, path: str, answers: Answers, sender: Sender = "client", **more: Any
) -> Callable[[Handler], Handler]:
    """Declare that a method answers a route, which takes its name and the first line of its docstring from the method.

    The method is called with what its parameters name: ``request``; ``client``, the number of the sender, or the ``token``
    of a newcomer; ``body``, where it is JSON; and the parameters of the path and of the query.

    Args:
        method, path, answers, sender: see `Route`.
        more: further attributes of `Route`.
    """

    def declared(handler: Handler) -> Handler:
        takes = tuple(inspect.signature(handler).parameters)[1:]
        summary = (handler.__doc__ or "").partition("\n")[0]
        handler.route = Route(method, path, handler.__name__, summary, answers, sender, takes=takes, **more)  # type: ignore[attr-defined]
        return handler

    return declared


def routes_of(*kinds: type) -> tuple[Route, ...]:
    """Return the routes that the methods of classes declare, in order."""
    return tuple(
        handler.route for kind in kinds for base in reversed(kind.__mro__) for handler in vars(base).values()
        if isinstance(getattr(handler, "route", None), Route)
    )  # fmt: skip
