"""Who is a client of the run, and who may become one."""

from __future__ import annotations

from collections.abc import Callable

from turnout.deployment.server.happening import Happening
from turnout.deployment.server.store import Entry, Store
from turnout.deployment.server.verdicts import Verdict, hashed


class Enrolment:
    """All clients by the hash of their token, and the one-time codes.

    Args:
        store: where they are.
        max_clients: no more are enrolled.
        needs_code: whether enrolment takes a one-time code.
        over: why the run has ended; None while it has not.
    """

    def __init__(self, store: Store, max_clients: int, needs_code: bool, over: Callable[[], str | None]) -> None:
        self.max_clients, self.needs_code, self._over, self._run = max_clients, needs_code, over, store.run
        self._clients, self._codes = store.clients(), store.codes()

    def __len__(self) -> int:
        return len(self._clients)

    def client_of(self, token: str) -> int | None:
        """Return whose token this is."""
        return self._clients.get(hashed(token))

    def verdict(self, client: int, *, new: bool) -> Verdict:
        """Return the answer to a client that is enrolled."""
        return Verdict(201 if new else 200, {"client": client, "run": self._run})

    def admit(self, asks: Happening, codes: set[str]) -> Verdict | None:
        """Give a newcomer its number; return the answer where there is nothing to be written.

        Args:
            asks: an enrolment.
            codes: one-time codes that others use at this moment; that of the newcomer is added.
        """
        token, code = asks.digest, asks.data.get("code")
        assert token is not None
        if (known := self._clients.get(token)) is not None:
            return self.verdict(known, new=False)
        if (over := self._over()) is not None:
            return Verdict(410, {"reason": over})
        if len(self) >= self.max_clients:
            return Verdict(403, {"reason": f"this federation has its {self.max_clients} clients"})
        if self.needs_code and (code is None or self._codes.get(code, -1) is not None or code in codes):
            reason = "this takes a one-time code that nobody has used: ask whoever runs the server"
            return Verdict(403, {"reason": reason})
        if not self.needs_code:
            asks.data.pop("code", None)
        elif code is not None:
            codes.add(code)
        asks.client = self._clients[token] = len(self)
        return None

    def written(self, entry: Entry) -> Verdict:
        """Take note that an enrolment is in the journal, and return the answer."""
        if (code := entry.data.get("code")) is not None:
            self._codes[code] = entry.client
        assert entry.client is not None
        return self.verdict(entry.client, new=True)
