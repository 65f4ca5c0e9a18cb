"""Send the requests of an administrator to a server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from turnout.core.checks import TurnoutError, check_plain
from turnout_serve.client.calls import Call, bearer
from turnout_serve.client.connection import Connection
from turnout_serve.client.exchange import send
from turnout_serve.wire.edge import Body

_DEPTH = 6  # levels of nesting of an answer: figures of a survey are lists of lists


class AdministrationFailed(TurnoutError):
    """The server has refused a request of its administrator, or has not answered."""


@dataclass(frozen=True)
class Administrator:
    """Send requests with the administrator's token.

    Attributes:
        connection: connection to the server.
        token: token of the administrator.
    """

    connection: Connection
    token: str = field(repr=False)

    def ask(self, form: type[Body], method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Send a request and return the answer, a JSON object.

        Args:
            form: form that the answer must have.
            method, path: method and path of HTTP; paths begin with ``/v1/admin/``.
            body: plain values; None sends no body.

        Raises:
            AdministrationFailed: if the server does not answer, or refuses, or its answer has another form.
        """
        call = Call(method, path, body, headers=bearer(self.token))
        with self.connection.client() as http:
            answer = send(http, call)
        if answer.status not in (200, 201):
            also = ", and does it need --certificate FILE --key FILE" if self.connection.wants_certificate else ""
            silent = f"no server answers there: is it running{also}? ({answer.reason})"
            raise AdministrationFailed(f"{self.connection.url}: {answer.reason if answer.status else silent}")
        table = answer.table()
        try:
            check_plain(table, _DEPTH)
            form.read(table)
        except ValueError as error:
            raise AdministrationFailed(
                f"what answers at {self.connection.url} is no turnout server of this version: {error}"
            ) from None
        return table
