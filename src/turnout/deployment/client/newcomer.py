"""Become a client of a run, and send requests with its token until they are answered."""

from __future__ import annotations

import random
from collections.abc import Collection, Generator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from turnout.deployment.client.calls import Action, Answer, Call, JoinError, Session, Sleep
from turnout.deployment.client.state import ClientState
from turnout.deployment.wire.format import PROTOCOL


@dataclass(frozen=True)
class Manners:
    """Waits and retries of a client, and the object stores that it trusts.

    Attributes:
        wait: seconds that the server may hold a question for work.
        backoff: seconds before the first new attempt, twice as many before every further one; drawn between 0 and this.
        longest: the most that this grows to.
        comes_back: whether a client that left because of the model looks at later ones.
        stores: hosts of object stores to which it follows links of the server; it exchanges the rest with the server.
    """

    wait: float = 25.0
    backoff: float = 0.5
    longest: float = 60.0
    comes_back: bool = True
    stores: frozenset[str] = frozenset()


class Newcomer:
    """A client before it has a model: it enrols, and tells a server that waits for it the shape of its examples.

    Args:
        state: what it keeps.
        name: what people call it; the server shows it to its operator.
        code: a one-time code, where the server asks for one.
        data: the shape of its examples, for a server that asks for it; see `turnout.deployment.wire.data_shape.DataShape`.
        manners: how patient it is.
        jitter: where its random pauses come from; they change no result.
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
        """Tell the server the shape; it is over once the server knows one.

        Raises:
            JoinError: where the server does not take this client, or knows another shape.
        """
        yield from self.enrol()
        return "the server knows the shape of the data"

    def leave(self) -> Call:
        """Return what tells the server that the client goes away."""
        return Call("POST", "/v1/leave", {}, headers=self.token)

    @property
    def token(self) -> dict[str, str]:
        """The header of every request."""
        return {"authorization": f"Bearer {self.state.token}"}

    def enrol(self) -> Generator[Action, Any, Answer]:
        """Ask to be a client of the run until that is answered."""
        call = Call("POST", "/v1/enrol", {name: value for name, value in self._body.items() if value is not None})
        answer = yield from self.ask(call, final=(404, 409, 410, 422))
        if answer.status == 422:
            raise JoinError(f"the server does not take this client: {answer.reason}")
        return answer

    def ask(self, call: Call, final: Collection[int] = (404, 409, 410)) -> Generator[Action, Any, Answer]:
        """Send a request until it is answered: with success, or with a status that another attempt has, too.

        Raises:
            JoinError: where the answer is that this cannot work.
        """
        attempt = 0
        while True:
            answer = yield from self.once(call)
            if 200 <= answer.status < 300 or answer.status in final:
                return answer
            attempt += 1
            yield self.pause(attempt, answer)

    def once(self, call: Call) -> Generator[Action, Any, Answer]:
        """Send a request with the token."""
        answer: Answer = yield replace(call, headers={**self.token, **call.headers})
        if answer.status in (400, 401, 403, 426):
            raise JoinError(f"the server does not take this client: {answer.reason}")
        return answer

    def pause(self, attempt: int, answer: Answer | None = None) -> Sleep:
        """Return the pause before a new attempt, at random so that not all clients come at once.

        Args:
            attempt: how many attempts have failed, from 1.
            answer: of the last one; the pause is at least as long as it asks for.
        """
        seconds = self.jitter.uniform(0.0, min(self.manners.longest, self.manners.backoff * 2.0 ** min(attempt, 30)))
        return Sleep(seconds if answer is None else max(seconds, answer.retry_after))
