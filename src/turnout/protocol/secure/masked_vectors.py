"""Run the server of a secure sum on stored messages, phase by phase.

It has no secret and no state: everything follows from the received messages, so that a restarted server continues in
the middle of a sum.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch

from turnout.base.phases import Form, Messages, Shapes
from turnout.core.types import State
from turnout.protocol.secure import shamir
from turnout.protocol.secure.attendance import Attendance
from turnout.protocol.secure.disputes import DEALS, LIES, unreadable
from turnout.protocol.secure.evidence import EVIDENCE_BYTES
from turnout.protocol.secure.masking import Masking
from turnout.protocol.secure.masks import word
from turnout.protocol.secure.messages import KEY_BYTES, SEALED_BYTES, Keys, Opening, ProtocolError
from turnout.protocol.secure.server import SecureServer

CODES = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""The type in which masked numbers are sent, by their size in bytes."""


_OPENED = (("there", "self_masks"), ("gone", "masking_keys"))
"""Lists of clients in the inputs of the last phase, and the shares that are sent for them."""


def form_of_keys() -> Form:
    """Return the form of the first message of a client: its public keys."""
    return {"keys": (torch.uint8, (1, 2 * KEY_BYTES))}


def form_of(phase: str, bits: int, inputs: Shapes, length: int) -> Form:
    """Return the form of a client's message in a phase, whose shapes depend on the inputs of its task."""

    def number(name: str) -> int:
        return inputs[name][-1]

    match phase:
        case "share":
            return {"sealed": (torch.uint8, (1, number("neighbours"), SEALED_BYTES))}
        case "mask":
            code = CODES[word(bits).itemsize]
            senders = number("senders")
            evidence = (torch.uint8, (1, senders, EVIDENCE_BYTES))
            return {"masked": (code, (1, length)), "refused": (torch.uint8, (1, senders)), "evidence": evidence}
        case _:
            sizes = {"self_masks": number("there"), "masking_keys": number("gone")}
            return {name: (torch.uint8, (1, size, shamir.SHARE_BYTES)) for name, size in sizes.items()}


class MaskedVectors:
    """Compute the sum of clients' vectors from their messages, phase by phase. Subclasses may give vectors `factors`.

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
        server, neighbors = self._begun()
        if phase == "share":
            factors = dict(zip(self.dealt, self.factors().tolist(), strict=True))
            return {client: _row(_keys(neighbors[client + 1]), weight=factors[client]) for client in clients}
        sealed = self._shared(server)
        if phase == "mask":
            common = _members(self._masking, self._attendance.shared)
            return {client: _row(_texts(sealed[client + 1]) | common) for client in clients}
        self._add_masked(server)
        requests, common = server.requests(), _members(self._masking, self._attendance.masked)
        return {
            client: _row({name: sorted(getattr(requests[client + 1], name)) for name in ("there", "gone")} | common)
            for client in clients
        }

    def gathered(self, phase: str, clients: Sequence[int]) -> tuple[list[int], dict[int, str]]:
        """Exclude the client at fault of each pair in which one client refuses the shares of the other."""
        if phase != "mask":
            return [], {}
        attendance = self._attendance
        attendance.refused = self._refused(clients)
        numbers = {client + 1: [other + 1 for other in others] for client, others in attendance.refused.items()}
        sealing = lambda number: self._keys_of(number - 1).sealing  # noqa: E731
        attendance.unreadable = {number - 1 for number in unreadable(numbers, self._evidence, self._sealed, sealing)}
        excluded = attendance.cheats()
        return excluded, {client: DEALS if client in attendance.unreadable else LIES for client in excluded}

    def _evidence(self, number: int, dealer: int) -> bytes:
        """Return the evidence of a client against a dealer, by their numbers in the sum."""
        row = self._senders(number - 1).index(dealer - 1)
        return self._messages.tensors("mask", number - 1)["evidence"][0, row].numpy().tobytes()

    def _sealed(self, dealer: int, number: int) -> bytes:
        """Return the shares that a dealer sealed for a client, by their numbers in the sum."""
        row = self._attendance.neighbors[dealer - 1].index(number - 1)
        return self._messages.tensors("share", dealer - 1)["sealed"][0, row].numpy().tobytes()

    def _refused(self, clients: Sequence[int]) -> dict[int, list[int]]:
        """Return the neighbors whose shares these clients could not read, by client."""
        refused = {}
        for client in clients:
            flags = self._messages.tensors("mask", client)["refused"][0].tolist()
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
        if not self._attendance.opens:
            return None, {}, "too few clients are left"
        try:
            server = self._opened(clients)
        except ProtocolError as error:
            return None, {}, str(error)
        try:
            return self._masking.code.decode(server.total()), _culprits(server), ""
        except ProtocolError as error:
            return None, _culprits(server), str(error)

    def _opened(self, clients: Sequence[int]) -> SecureServer:
        """Return a server with all messages of the round."""
        server, _ = self._begun()
        self._shared(server)
        self._add_masked(server)
        server.requests()
        for client in clients:
            message = self._messages.tensors("open", client)
            inputs = {name: value[0].tolist() for name, value in self._messages.inputs("open", client).items()}
            there, gone = (_shares(inputs[side], message[of]) for side, of in _OPENED)
            server.opened(client + 1, Opening(there, gone))
        return server

    def _begun(self) -> tuple[SecureServer, dict[int, dict[int, Keys]]]:
        """Return a server with the keys of all clients, and the keys of each client's neighbors."""
        masking, attendance = self._masking, self._attendance
        server = SecureServer(self._length, masking.bits, attendance.threshold, masking.degree, attendance.seed)
        for client in self.dealt:
            server.advertised(client + 1, self._keys_of(client))
        return server, server.keys()

    def _keys_of(self, client: int) -> Keys:
        """Return the public keys of a client."""
        both = self._messages.tensors("train", client)["keys"][0].numpy().tobytes()
        return Keys(both[:KEY_BYTES], both[KEY_BYTES:])

    def _shared(self, server: SecureServer) -> dict[int, dict[int, bytes]]:
        """Pass on the encrypted shares."""
        for client in self._attendance.shared:
            others = self._attendance.neighbors[client]
            rows = self._messages.tensors("share", client)["sealed"][0].numpy()
            server.shared(client + 1, {other + 1: row.tobytes() for other, row in zip(others, rows, strict=True)})
        return server.sealed()

    def _add_masked(self, server: SecureServer) -> None:
        """Add the masked updates."""
        kind = word(self._masking.bits)
        for client in self._attendance.masked:
            values = self._messages.tensors("mask", client)["masked"][0].numpy().view(kind)
            refused = frozenset(other + 1 for other in self._attendance.refused.get(client, ()))
            server.masked(client + 1, values, refused)

    def _senders(self, client: int) -> list[int]:
        """Return the clients whose shares a client received, ascending."""
        return sorted(set(self._attendance.neighbors[client]).intersection(self._attendance.shared))


def _culprits(server: SecureServer) -> dict[int, str]:
    """Return the violation of each client that provably violated the protocol."""
    return {number - 1: how for number, how in server.culprits.items()}


def _keys(neighbors: Mapping[int, Keys]) -> dict[str, object]:
    """Return neighbors and their public keys, ascending."""
    order = sorted(neighbors)
    keys = [list(neighbors[other].sealing + neighbors[other].masking) for other in order]
    return {"neighbours": order, "keys": torch.tensor(keys, dtype=torch.uint8)}


def _members(masking: Masking, clients: Sequence[int]) -> dict[str, object]:
    """Return all clients of a sum, ascending, if they are not all neighbors of each other; otherwise nothing."""
    return {} if masking.degree is None else {"clients": [client + 1 for client in clients]}


def _texts(sealed: Mapping[int, bytes]) -> dict[str, object]:
    """Return the senders of encrypted shares, ascending, with the shares."""
    order = sorted(sealed)
    return {
        "senders": order,
        "sealed": torch.tensor([list(sealed[other]) for other in order], dtype=torch.uint8).view(-1, SEALED_BYTES),
    }


def _row(values: Mapping[str, object], weight: float | None = None) -> State:
    """Return lists of clients and tensors with a leading axis of 1."""
    tensors = {
        name: value[None] if isinstance(value, torch.Tensor) else torch.tensor([value], dtype=torch.int64)
        for name, value in values.items()
    }
    return tensors if weight is None else tensors | {"weight": torch.tensor([weight], dtype=torch.float64)}


def _shares(clients: Sequence[int], rows: torch.Tensor) -> dict[int, bytes]:
    """Return one share by client."""
    return {client: row.tobytes() for client, row in zip(clients, rows[0].numpy(), strict=True)}
