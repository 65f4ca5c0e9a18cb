"""Run the server of a secure sum on stored messages, phase by phase.

It has no secret and no state: everything follows from the received messages, so that a restarted server continues in
the middle of a sum.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

import numpy as np
import torch

from turnout.core.types import Report, State
from turnout.protocol.secure import shamir
from turnout.protocol.secure.attendance import Attendance
from turnout.protocol.secure.disputes import DEALS, LIES, unreadable
from turnout.protocol.secure.evidence import EVIDENCE_BYTES
from turnout.protocol.secure.masking import Masking
from turnout.protocol.secure.masks import word
from turnout.protocol.secure.messages import KEY_BYTES, SEALED_BYTES, Keys, Opening, ProtocolError
from turnout.protocol.secure.server import SecureServer

Form = dict[str, tuple[torch.dtype, tuple[int, ...]]]
"""Type and shape of the tensors of a message, by name."""

Shapes = Mapping[str, tuple[int, ...]]
"""Shapes of the inputs of a task, by name."""

CODES = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""The type in which masked numbers are sent, by their size in bytes."""


def form_of_keys() -> Form:
    """Return the form of the first message of a client: its public keys."""
    return {"keys": (torch.uint8, (1, 2 * KEY_BYTES))}


def form_of(phase: str, bits: int, inputs: Shapes, length: int) -> Form:
    """Return the form of a client's message in a phase, whose shapes depend on the inputs of its task."""
    match phase:
        case "share":
            return {"sealed": (torch.uint8, (1, inputs["neighbours"][-1], SEALED_BYTES))}
        case "mask":
            masked, senders = (CODES[word(bits).itemsize], (1, length)), inputs["senders"][-1]
            evidence = (torch.uint8, (1, senders, EVIDENCE_BYTES))
            return {"masked": masked, "refused": (torch.uint8, (1, senders)), "evidence": evidence}
        case _:
            sizes = {"self_masks": inputs["there"][-1], "masking_keys": inputs["gone"][-1]}
            return {name: (torch.uint8, (1, size, shamir.SHARE_BYTES)) for name, size in sizes.items()}


class Messages(Protocol):
    """The messages of one round that a server has received, by phase and client."""

    def report(self, client: int) -> Report:
        """Return the report of a client's training without its update."""
        ...

    def tensors(self, phase: str, client: int) -> State:
        """Return the tensors of a message, ``[1, ...]`` by name."""
        ...

    def inputs(self, phase: str, client: int) -> State:
        """Return the inputs of a client's task in a phase, ``[1, ...]`` by name."""
        ...


class MaskedVectors:
    """Compute the sum of clients' vectors from their messages, phase by phase. Subclasses may give vectors `factors`.

    In the sum and in its messages, the number of a client is larger by 1.

    Args:
        masking: options of the sum.
        length: length of a vector.
        attendance: clients in each phase.
        messages: messages of the clients; those of the phase ``"train"`` hold their keys.

    Attributes:
        dealt: clients that have neighbors, ascending.
    """

    def __init__(self, masking: Masking, length: int, attendance: Attendance, messages: Messages) -> None:
        self._masking, self._length, self._attendance, self._messages = masking, length, attendance, messages
        self.dealt = sorted(attendance.neighbors)

    def factors(self) -> torch.Tensor:
        """Return the factor of each client's vector, float64 ``[n]``, in the order of `dealt`."""
        return torch.ones(len(self.dealt), dtype=torch.float64)

    def inputs(self, phase: str, clients: Sequence[int]) -> dict[int, State]:
        """Return the inputs of clients for their task of a phase, tensors ``[1, ...]`` by name."""
        attendance, neighbors = self._attendance, self._attendance.neighbors
        if phase == "share":
            keys = {client: self._messages.tensors("train", client)["keys"] for client in self.dealt}
            factors = dict(zip(self.dealt, self.factors().cpu().split(1), strict=True))
            return {
                client: {
                    "neighbours": _numbers(neighbors[client]),
                    "keys": torch.stack([keys[other] for other in neighbors[client]], dim=1),
                    "weight": factors[client],
                }
                for client in clients
            }
        senders = {client: self._senders(client) for client in clients}
        members = attendance.shared if phase == "mask" else attendance.masked
        common = {} if self._masking.degree is None else {"clients": _numbers(members)}
        if phase == "mask":
            sealed = {
                dealer: dict(zip(neighbors[dealer], self._rows("share", dealer, "sealed"), strict=True))
                for dealer in attendance.shared
            }
            return {
                client: {
                    "senders": _numbers(senders[client]),
                    "sealed": torch.stack([sealed[dealer][client] for dealer in senders[client]])[None],
                    **common,
                }
                for client in clients
            }
        asked = {client: set(senders[client]).difference(attendance.refused.get(client, ())) for client in clients}
        return {
            client: {
                "there": _numbers(sorted(asked[client].intersection(members))),
                "gone": _numbers(sorted(asked[client].difference(members))),
                **common,
            }
            for client in clients
        }

    def gathered(self, phase: str, clients: Sequence[int]) -> dict[int, str]:
        """Exclude the client at fault of each pair in which one client refuses the shares of the other.

        Returns:
            The violation of each client that is excluded.
        """
        if phase != "mask":
            return {}
        attendance = self._attendance
        attendance.refused = self._refused(clients)
        numbers = {client + 1: [other + 1 for other in others] for client, others in attendance.refused.items()}
        sealing = lambda number: self._keys(number - 1).sealing  # noqa: E731
        attendance.unreadable = {number - 1 for number in unreadable(numbers, self._evidence, self._sealed, sealing)}
        return {client: DEALS if client in attendance.unreadable else LIES for client in attendance.cheats()}

    def _refused(self, clients: Sequence[int]) -> dict[int, list[int]]:
        """Return the neighbors whose shares these clients could not read, by client."""
        refused = {}
        for client in clients:
            flags = self._rows("mask", client, "refused").tolist()
            refused[client] = [sender for sender, flag in zip(self._senders(client), flags, strict=True) if flag]
        return {client: senders for client, senders in refused.items() if senders}

    def total(self, clients: Sequence[int]) -> tuple[np.ndarray | None, dict[int, str], str]:
        """Open the sum, if enough clients have helped to remove the masks.

        Args:
            clients: clients that completed the last phase.

        Returns:
            The sum, float64 ``[length]``, or None; the violation of each client that violated the protocol; and the
            reason if there is no sum.
        """
        masking, attendance = self._masking, self._attendance
        if not attendance.opens:
            return None, {}, "too few clients are left"
        server = SecureServer(self._length, masking.code.bits, attendance.threshold, masking.degree, attendance.seed)
        total, why = None, ""
        try:
            self._replay(server, clients)
            total = masking.code.decode(server.total())
        except ProtocolError as error:
            why = str(error)
        return total, {number - 1: how for number, how in server.culprits.items()}, why

    def _replay(self, server: SecureServer, clients: Sequence[int]) -> None:
        """Pass all messages of the round to a server; `clients` have completed the last phase."""
        attendance = self._attendance
        for client in self.dealt:
            server.advertised(client + 1, self._keys(client))
        server.keys()
        for client in attendance.shared:
            sealed = self._rows("share", client, "sealed")
            server.shared(client + 1, _shares((other + 1 for other in attendance.neighbors[client]), sealed))
        server.sealed()
        for client in attendance.masked:
            values = self._rows("mask", client, "masked").numpy().view(word(self._masking.code.bits))
            refused = frozenset(other + 1 for other in attendance.refused.get(client, ()))
            server.masked(client + 1, values, refused)
        server.requests()
        for client in clients:
            message, inputs = self._messages.tensors("open", client), self._messages.inputs("open", client)
            there = _shares(inputs["there"][0].tolist(), message["self_masks"][0])
            server.opened(client + 1, Opening(there, _shares(inputs["gone"][0].tolist(), message["masking_keys"][0])))

    def _rows(self, phase: str, client: int, name: str) -> torch.Tensor:
        """Return a tensor of a message, without its leading axis."""
        return self._messages.tensors(phase, client)[name][0]

    def _keys(self, client: int) -> Keys:
        """Return the public keys of a client."""
        both = self._rows("train", client, "keys").numpy().tobytes()
        return Keys(both[:KEY_BYTES], both[KEY_BYTES:])

    def _evidence(self, number: int, dealer: int) -> bytes:
        """Return the evidence of a client against a dealer, by their numbers in the sum."""
        row = self._senders(number - 1).index(dealer - 1)
        return self._rows("mask", number - 1, "evidence")[row].numpy().tobytes()

    def _sealed(self, dealer: int, number: int) -> bytes:
        """Return the shares that a dealer sealed for a client, by their numbers in the sum."""
        row = self._attendance.neighbors[dealer - 1].index(number - 1)
        return self._rows("share", dealer - 1, "sealed")[row].numpy().tobytes()

    def _senders(self, client: int) -> list[int]:
        """Return the clients whose shares a client received, ascending."""
        return sorted(set(self._attendance.neighbors[client]).intersection(self._attendance.shared))


def _numbers(clients: Sequence[int]) -> torch.Tensor:
    """Return the numbers of clients in the sum, int64 ``[1, n]``."""
    return torch.tensor([clients], dtype=torch.int64) + 1


def _shares(numbers: Iterable[int], rows: torch.Tensor) -> dict[int, bytes]:
    """Return one row of bytes by the number of each client."""
    return {number: row.tobytes() for number, row in zip(numbers, rows.numpy(), strict=True)}
