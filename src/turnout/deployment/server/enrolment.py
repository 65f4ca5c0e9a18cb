"""Enrol clients: tokens, one-time codes and bans."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from turnout.deployment.server.happening import Happening
from turnout.deployment.server.store import Entry, Store, forgotten
from turnout.deployment.server.verdicts import Verdict, hashed

NEEDS_CODE = "this takes a one-time code that nobody has used: ask whoever runs the server"


class Enrolment:
    """All clients by the hash of their token, and the one-time codes.

    Args:
        store: where they are.
        max_clients: no more are enrolled.
        needs_code: whether enrolment takes a one-time code.
        over: why the run has ended; None while it has not.
        bans: why clients may take part no more; None bans nobody.
    """

    def __init__(
        self,
        store: Store,
        max_clients: int,
        needs_code: bool,
        over: Callable[[], str | None],
        bans: Mapping[int, str] | None = None,
    ) -> None:
        self.max_clients, self.needs_code, self._over, self._run = max_clients, needs_code, over, store.run
        self._bans = {} if bans is None else bans
        self._clients, self._codes = store.clients(), store.codes()

    def __len__(self) -> int:
        return len(self._clients)

    def client_of(self, token: str) -> int | None:
        """Return whose token this is."""
        return self._clients.get(hashed(token))

    def verdict(self, client: int, *, new: bool) -> Verdict:
        """Return the answer to a client that is enrolled."""
        return Verdict(201 if new else 200, {"client": client, "run": self._run})

    def admit(self, request: Happening, codes: set[str]) -> Verdict | None:
        """Give a newcomer its number; return the answer where there is nothing to be written.

        Args:
            request: an enrolment.
            codes: one-time codes that others use at this moment; that of the newcomer is added.
        """
        token, code = request.digest, request.data.get("code")
        assert token is not None
        if request.client is not None:  # it was admitted before, and the journal could not be written then
            codes.update(() if code is None else (code,))
            return None
        if (known := self._clients.get(token)) is not None:
            ban = self._bans.get(known)
            return self.verdict(known, new=False) if ban is None else Verdict(403, {"reason": banned(ban)})
        if (over := self._over()) is not None:
            return Verdict(410, {"reason": over})
        if len(self) >= self.max_clients:
            return Verdict(403, {"reason": f"this federation has its {self.max_clients} clients"})
        if self.needs_code and (code is None or self._codes.get(code, -1) is not None or code in codes):
            return Verdict(403, {"reason": NEEDS_CODE})
        if not self.needs_code:
            request.data.pop("code", None)
        elif code is not None:
            codes.add(code)
        request.client = self._clients[token] = len(self)
        return None

    def written(self, entry: Entry) -> Verdict:
        """Take note of an enrolment that is in the journal, and return the answer."""
        if (code := entry.data.get("code")) is not None:
            self._codes[code] = entry.client
        assert entry.client is not None
        return self.verdict(entry.client, new=True)

    def admit_change(self, request: Happening, codes: set[str]) -> Verdict | None:
        """Return the answer to a change of codes where there is nothing to be written.

        Args:
            asks: what to add or to withdraw.
            codes: one-time codes that others use at this moment; those that are withdrawn are added.
        """
        if "withdraw" not in request.data:
            return None
        free = {code for code, client in self._codes.items() if client is None and code not in codes}
        withdrawn = free if request.data["withdraw"] is None else free & {request.data["withdraw"]}
        codes |= withdrawn
        return None if withdrawn else Verdict(404, {"reason": "there is no such code that nobody has used"})

    def changed(self, entry: Entry) -> Verdict:
        """Take note of a change of codes that is in the journal, and return the answer."""
        self._codes |= dict.fromkeys(entry.data.get("add", ()))
        only = entry.data.get("withdraw")
        withdrawn = [code for code, client in self._codes.items() if client is None and only in (None, code)]
        if "withdraw" in entry.data:
            self._codes = {code: client for code, client in self._codes.items() if code not in withdrawn}
        return Verdict(200, {**self.counts(), "withdrawn": len(withdrawn)})

    def counts(self) -> dict[str, int]:
        """Return how many codes were used, and how many were not."""
        clients = list(self._codes.values())
        unused = clients.count(None)
        return {"used": len(clients) - unused, "unused": unused}

    def forget(self, client: int) -> None:
        """Forget the token of a client; its number is nobody else's."""
        token = next(token for token, number in self._clients.items() if number == client)
        self._clients = {(forgotten(client) if t == token else t): number for t, number in self._clients.items()}


def banned(reason: str) -> str:
    """Return what a client is told that may take part no more."""
    return f"this client is banned: {reason}"
