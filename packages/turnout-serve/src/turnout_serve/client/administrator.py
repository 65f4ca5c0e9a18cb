"""Send the requests of an administrator to a server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from turnout.core.checks import TurnoutError
from turnout_serve.client.calls import Call
from turnout_serve.client.exchange import send
from turnout_serve.client.join import Connection


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

    def ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Send a request and return the answer, a JSON object.

        Args:
            method, path: method and path of HTTP; paths begin with ``/v1/admin/``.
            body: plain values; None sends no body.

        Raises:
            AdministrationFailed: if the server does not answer, or refuses.
        """
        call = Call(method, path, body, headers={"authorization": f"Bearer {self.token}"})
        with self.connection.client() as http:
            answer = send(http, call)
        if answer.status not in (200, 201):
            raise AdministrationFailed(f"{self.connection.url}: {answer.headers.get('error') or answer.reason}")
        return answer.table()
