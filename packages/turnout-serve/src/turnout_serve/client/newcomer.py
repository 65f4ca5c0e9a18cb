"""Enroll a client, and send requests with its token until they are answered."""

from __future__ import annotations

import random
from collections.abc import Collection, Generator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from turnout_serve.client.calls import Action, Answer, Call, JoinError, Session, Sleep, bearer
from turnout_serve.client.state import ClientState
from turnout_serve.wire.format import PROTOCOL


@dataclass(frozen=True)
class Manners:
    """Waits and retries of a client, and the object stores that it trusts.

    Attributes:
        wait: seconds of a long poll for work.
        backoff: maximum seconds before the second attempt, doubled before each further one; the pause is drawn from 0 to it.
        longest: limit of that maximum.
        comes_back: True where a client that left because of the model tries later ones.
        stores: hosts of object stores whose links it follows; with other ones, it uses the server.
    """

    wait: float = 25.0
    backoff: float = 0.5
    longest: float = 60.0
    comes_back: bool = True
    stores: frozenset[str] = frozenset()


class Newcomer:
    """A client before it has a model: it enrolls, and reports the shape of its examples to a server that has no data.

    Args:
        state: identity, memory and pending report.
        name: shown to the operator of the server.
        code: one-time code, where the server requires one.
        data: shape of its examples; see `turnout_serve.wire.data_shape.DataShape`.
        manners: waits and retries.
        jitter: random numbers of pauses, which change no result.
    """

    def __init__(
        self,
        state: ClientState,
        *,
        name: str | None = None,
        code: str | None = None,
        data: Mapping[str, Any] | None = None,
        manners: Manners | None = None,
        jitter: random.Random | None = None,
    ) -> None:
        self.state, self._body = state, {"protocol": PROTOCOL, "name": name, "code": code, "data": data}
        self.manners, self.jitter = manners or Manners(), jitter or random.Random()

    def session(self) -> Session:
        """Report the shape to the server, and end once the server has one.

        Raises:
            JoinError: if the server refuses this client, or has another shape.
        """
        yield from self.enroll()
        return "the server knows the shape of the data"

    def leave(self) -> Call:
        """Return the request by which the client leaves."""
        return Call("POST", "/v1/leave", {}, headers=self.token)

    @property
    def token(self) -> dict[str, str]:
        """Header of all requests."""
        return bearer(self.state.token)

    def enroll(self) -> Generator[Action, Any, Answer]:
        """Enroll, and try again until there is an answer."""
        call = Call("POST", "/v1/enrol", {name: value for name, value in self._body.items() if value is not None})
        answer = yield from self.ask(call, final=(404, 409, 410, 422))
        if answer.status == 422:
            raise JoinError(f"the server does not take this client: {answer.reason}")
        return answer

    def ask(self, call: Call, final: Collection[int] = (404, 409, 410)) -> Generator[Action, Any, Answer]:
        """Send a request until it succeeds, or is answered with a status that another attempt would have, too.

        Raises:
            JoinError: if the server refuses this client.
        """
        attempt = 0
        while True:
            answer = yield from self.once(call)
            if 200 <= answer.status < 300 or answer.status in final:
                return answer
            attempt += 1
            yield self.pause(attempt, answer)

    def once(self, call: Call) -> Generator[Action, Any, Answer]:
        """Send a request with the token, once."""
        answer: Answer = yield replace(call, headers={**self.token, **call.headers})
        if not answer.is_of_server:
            return replace(answer, status=0, body=b"")
        if answer.status in (400, 401, 403, 426):
            raise JoinError(f"the server does not take this client: {answer.reason}")
        return answer

    def pause(self, attempt: int, answer: Answer | None = None) -> Sleep:
        """Return the pause before another attempt, random so that not all clients try at once.

        Args:
            attempt: number of failed attempts.
            answer: answer of the last one; the pause is at least its Retry-After.
        """
        seconds = self.jitter.uniform(0.0, min(self.manners.longest, self.manners.backoff * 2.0 ** min(attempt, 30)))
        return Sleep(seconds if answer is None else max(seconds, answer.retry_after))
