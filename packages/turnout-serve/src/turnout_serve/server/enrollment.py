"""Enroll clients: tokens, one-time codes and bans."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any

from turnout_serve.server.journal.entries import Entry, is_void, void_token
from turnout_serve.server.journal.events import Event
from turnout_serve.server.store.store import Store
from turnout_serve.server.verdicts import Verdict

UNKNOWN = "this server does not know the token: enroll first"
MOST_LISTED = 1000
"""Number of unused codes whose hashes are listed."""
NEEDS_CODE = "this needs an unused one-time code: ask the operator of the server"


class Enrollment:
    """Look up clients by their token, and admit new ones.

    Args:
        store: has tokens and codes.
        max_clients: maximum number of clients; removed ones have given back their place.
        needs_code: True where enrollment requires a one-time code.
        over: function that returns the reason that the run is over; None while it goes on.
        bans: reasons for which clients are excluded; None bans nobody.
        most_numbers: maximum number of clients and removed ones together, whose numbers are not used again.
    """

    def __init__(
        self,
        store: Store,
        max_clients: int,
        needs_code: bool,
        over: Callable[[], str | None],
        bans: Mapping[int, str] | None = None,
        *,
        most_numbers: int,
    ) -> None:
        self._most_numbers = most_numbers
        self.max_clients, self.needs_code, self._over, self._run = max_clients, needs_code, over, store.facts.run
        self._bans = {} if bans is None else bans
        self._clients, self._codes = store.clients(), store.codes()

    def __len__(self) -> int:
        return len(self._clients)

    def client_of(self, token: str) -> int | None:
        """Return the client that a token belongs to; None for an unknown one."""
        return self._clients.get(hashed(token))

    def verdict(self, client: int, *, new: bool) -> Verdict:
        """Return the answer to an enrolled client."""
        return Verdict(201 if new else 200, {"client": client, "run": self._run})

    def admit(self, request: Event, used: set[str]) -> Verdict | None:
        """Give a new client its number; return the answer where nothing is to be written.

        Args:
            request: an enrollment.
            used: tokens and one-time codes of earlier requests of the same group; those of the new client are added.
        """
        token, code = request.digest, request.data.get("code")
        assert token is not None
        if request.client is not None:  # admitted before, when the journal could not be written
            used.update((token, code or token))
            return None
        if (known := self._clients.get(token)) is not None:
            ban = self._bans.get(known)
            return self.verdict(known, new=False) if ban is None else Verdict(403, {"reason": banned(ban)})
        if (refusal := self._refusal(code, used)) is not None:
            return refusal
        if not self.needs_code:
            request.data.pop("code", None)
        used.update((token, code or token))
        request.client = self._clients[token] = len(self)
        return None

    def _refusal(self, code: str | None, used: set[str]) -> Verdict | None:
        """Return the answer to a new client that is not admitted, with or without a code; None for one that is."""
        if (over := self._over()) is not None:
            return Verdict(410, {"reason": over})
        places = len(self) - sum(map(is_void, self._clients))  # removed clients have given back theirs
        if places >= self.max_clients or len(self) >= self._most_numbers:
            most = min(self.max_clients, self._most_numbers)
            return Verdict(403, {"reason": f"this federation has its {most} clients"})
        if self.needs_code and (code is None or self._codes.get(code, -1) is not None or code in used):
            return Verdict(403, {"reason": NEEDS_CODE})
        return None

    def written(self, entry: Entry) -> Verdict:
        """Record an enrollment that is in the journal, and return the answer."""
        if (code := entry.data.get("code")) is not None:
            self._codes[code] = entry.client
        return self.verdict(entry.sender, new=True)

    def admit_change(self, request: Event, used: set[str]) -> Verdict | None:
        """Return the answer to a change of codes where nothing is to be written.

        Args:
            request: codes to add or to withdraw.
            used: one-time codes that earlier requests of the same group use; those that are withdrawn are added.
        """
        if "withdraw" not in request.data:
            return None
        unused = {code for code, client in self._codes.items() if client is None and code not in used}
        withdrawn = unused if request.data["withdraw"] is None else unused & {request.data["withdraw"]}
        used |= withdrawn
        return None if withdrawn else Verdict(404, {"reason": "there is no such unused code"})

    def changed(self, entry: Entry) -> Verdict:
        """Record a change of codes that is in the journal, and return the answer."""
        self._codes |= dict.fromkeys(entry.data.get("add", ()))
        only = entry.data.get("withdraw")
        withdrawn = [code for code, client in self._codes.items() if client is None and only in (None, code)]
        if "withdraw" in entry.data:
            self._codes = {code: client for code, client in self._codes.items() if code not in withdrawn}
        return Verdict(200, {**self.counts(), "withdrawn": len(withdrawn)})

    def counts(self) -> dict[str, Any]:
        """Return the numbers of used and unused codes, and the hashes of the first unused ones."""
        unused = [code for code, client in self._codes.items() if client is None]
        return {"used": len(self._codes) - len(unused), "unused": len(unused), "free": unused[:MOST_LISTED]}

    def used_codes(self) -> dict[int, str]:
        """Return the hash of the one-time code of each client that enrolled with one."""
        return {client: code for code, client in self._codes.items() if client is not None}

    def forget(self, client: int) -> None:
        """Void the token of a client; its number is not used again."""
        token = next(token for token, number in self._clients.items() if number == client)
        self._clients = {(void_token(client) if t == token else t): number for t, number in self._clients.items()}


def banned(reason: str) -> str:
    """Return the message for a banned client."""
    return f"this client is banned: {reason}"


def hashed(secret: str) -> str:
    """Return the hash of a token or code. It was drawn at random, so a hash without salt reveals nothing of it."""
    return hashlib.sha256(secret.encode()).hexdigest()
