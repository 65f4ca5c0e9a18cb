"""The server's side of a secure sum between machines: what its clients sent, phase by phase, and what each is told next.

It keeps no secret and no state of its own: all follows from the bodies that arrived, so that a server which died goes on in
the middle of a sum.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch

from turnout.core.types import Report, State
from turnout.deployment.wire.format import Assignment, Manifest, Spec, decode, size_limit
from turnout.deployment.wire.messages import ReportFormat
from turnout.distributed.updates import Summed
from turnout.pieces.aggregation import SecureSum
from turnout.protocol.coordinator import Coordinator
from turnout.protocol.secure import Keys, Opening, SecureServer, shamir
from turnout.protocol.secure.masks import word
from turnout.protocol.secure.messages import KEY_BYTES, SEALED_BYTES
from turnout.protocol.streaming import product_of_factors

CODES = {1: ("U8", torch.uint8), 2: ("I16", torch.int16), 4: ("I32", torch.int32), 8: ("I64", torch.int64)}
"""As which type masked numbers travel, by their bytes."""


class MaskedFormat:
    """Read a report of one phase of a secure sum, whose form depends on what its client was told.

    Attributes:
        manifest: the tensors of the message.
    """

    def __init__(self, task: Assignment, aggregation: SecureSum, num_params: int) -> None:
        def length(name: str) -> int:
            return task.told[name][1][0]

        found: Manifest
        match task.phase:
            case "share":
                found = {"sealed": Spec("U8", (1, length("neighbours"), SEALED_BYTES))}
            case "mask":
                found = _masked(aggregation, num_params, length("senders"))
            case _:
                asked = {"self_masks": length("there"), "masking_keys": length("gone")}
                found = {name: Spec("U8", (1, number, shamir.SHARE_BYTES)) for name, number in asked.items()}
        self.manifest = found

    @property
    def size_limit(self) -> int:
        """The most bytes that such a report can have."""
        return size_limit(self.manifest)

    def read(self, body: bytes, client: int = 0, version: int = 0, repeat: int = 0) -> State:
        """Return the tensors of a report.

        Raises:
            WireError: where they are others than were asked for.
        """
        del client, version, repeat
        return decode(body, self.manifest)


def _masked(aggregation: SecureSum, num_params: int, num_senders: int) -> Manifest:
    """Return the tensors of a masked input: the input, and whose shares its client could not read."""
    code = CODES[word(aggregation.bits).itemsize][0]
    return {"masked": Spec(code, (1, num_params)), "refused": Spec("U8", (1, num_senders))}


class MaskedSum:
    """The sum of one round.

    Args:
        coordinator: whose round it is.
        announced: the format of what clients send when they have trained.
        read: the body of a client's report in a phase.

    Attributes:
        culprits: clients that provably broke the protocol, and how, once `report` was called.
    """

    def __init__(self, coordinator: Coordinator, announced: ReportFormat, read: Callable[[str, int], bytes]) -> None:
        aggregation, attendance = coordinator.algorithm.aggregation, coordinator.attendance
        assert isinstance(aggregation, SecureSum)
        assert attendance is not None
        self._coordinator, self._aggregation, self._attendance = coordinator, aggregation, attendance
        self._announced, self._read = announced, read
        self._dealt = sorted(attendance.neighbours)
        self.culprits: dict[int, str] = {}

    def told(self, phase: str, clients: Sequence[int]) -> dict[int, State]:
        """Return what clients are told with their task of a phase, ``[1, ...]`` by name."""
        server, neighbours = self._begun()
        if phase == "share":
            factors = dict(zip(self._dealt, self._factors().tolist(), strict=True))
            return {client: _row(_keys(neighbours[client + 1]), weight=factors[client]) for client in clients}
        sealed = self._shared(server)
        if phase == "mask":
            return {client: _row(_texts(sealed[client + 1])) for client in clients}
        self._add_masked(server)
        requests = server.requests()
        return {
            client: _row({name: sorted(getattr(requests[client + 1], name)) for name in ("there", "gone")})
            for client in clients
        }

    def refused(self, clients: Sequence[int]) -> dict[int, list[int]]:
        """Return whose shares these clients, who have masked their updates, could not read."""
        found = {}
        for client in clients:
            senders = self._senders(client)
            flags = self._of_mask(client, len(senders))["refused"][0].tolist()
            found[client] = [sender for sender, flag in zip(senders, flags, strict=True) if flag]
        return {client: senders for client, senders in found.items() if senders}

    def report(self, opened: Mapping[int, Assignment]) -> Report:
        """Return the reports of those who are in the sum, with the sum in place of their updates.

        Args:
            opened: the task of each client that helped to take off the masks.

        Raises:
            ProtocolError: where the masks cannot be taken off, because clients have cheated.
        """
        server, _ = self._begun()
        self._shared(server)
        self._add_masked(server)
        server.requests()
        for client, task in opened.items():
            got = MaskedFormat(task, self._aggregation, self._num_params).read(self._read("open", client))
            told = {name: value[0].tolist() for name, value in task.tensors().items()}
            server.opened(
                client + 1,
                Opening(_shares(told["there"], got["self_masks"]), _shares(told["gone"], got["masking_keys"])),
            )
        state, code = self._coordinator.state, self._aggregation.code
        try:
            total = torch.from_numpy(code.decode(server.total())).to(state.params.device)
        finally:
            self.culprits = {number - 1: how for number, how in server.culprits.items()}
        rows = np.searchsorted(self._dealt, self._attendance.masked)
        reports, factors = self._announcements().take(rows), self._factors()[torch.from_numpy(rows)]
        delta = Summed(total, factors, state.params.dtype)
        return Report(
            reports.client,
            reports.version,
            reports.num_examples,
            reports.num_steps,
            delta,
            seen=reports.seen,
            good=np.ones(len(rows), dtype=bool),
        )

    @property
    def _num_params(self) -> int:
        return len(self._coordinator.state.params)

    def _announcements(self) -> Report:
        """Return what all who are in the graph said of their training: numbers alone."""
        version = self._coordinator.state.version
        return Report.cat(
            self._announced.read(self._read("train", client), client, version, checked=True) for client in self._dealt
        )

    def _factors(self) -> torch.Tensor:
        """Return what the update of each of them is multiplied by, float64 ``[n]``."""
        coordinator = self._coordinator
        chain = coordinator.algorithm.weighting
        return product_of_factors(chain, coordinator.state, coordinator.federation, self._announcements())

    def _begun(self) -> tuple[SecureServer, dict[int, dict[int, Keys]]]:
        """Return a server that has dealt the keys, and those of each client's neighbours."""
        aggregation, coordinator = self._aggregation, self._coordinator
        seed = (coordinator.federation.seed, coordinator.state.version)
        server = SecureServer(self._num_params, aggregation.bits, self._attendance.threshold, aggregation.degree, seed)
        for client in self._dealt:
            both = decode(self._read("train", client), self._announced.manifest)["keys"][0].numpy().tobytes()
            server.advertised(client + 1, Keys(both[:KEY_BYTES], both[KEY_BYTES:]))
        return server, server.keys()

    def _shared(self, server: SecureServer) -> dict[int, dict[int, bytes]]:
        """Pass on the shares of secrets."""
        for client in self._attendance.shared:
            others = self._attendance.neighbours[client]
            manifest = {"sealed": Spec("U8", (1, len(others), SEALED_BYTES))}
            rows = decode(self._read("share", client), manifest)["sealed"][0].numpy()
            server.shared(client + 1, {other + 1: row.tobytes() for other, row in zip(others, rows, strict=True)})
        return server.sealed()

    def _add_masked(self, server: SecureServer) -> None:
        """Add up the masked updates."""
        kind = word(self._aggregation.bits)
        for client in self._attendance.masked:
            values = self._of_mask(client, len(self._senders(client)))["masked"][0].numpy().view(kind)
            refused = frozenset(other + 1 for other in self._attendance.refused.get(client, ()))
            server.masked(client + 1, values, refused)

    def _senders(self, client: int) -> list[int]:
        """Return whose shares a client was sent, ascending."""
        return sorted(set(self._attendance.neighbours[client]).intersection(self._attendance.shared))

    def _of_mask(self, client: int, num_senders: int) -> State:
        """Return what a client sent when it masked its update."""
        return decode(self._read("mask", client), _masked(self._aggregation, self._num_params, num_senders))


def _keys(neighbours: Mapping[int, Keys]) -> dict[str, object]:
    """Return neighbours and their public keys, ascending."""
    order = sorted(neighbours)
    keys = [list(neighbours[other].sealing + neighbours[other].masking) for other in order]
    return {"neighbours": order, "keys": torch.tensor(keys, dtype=torch.uint8)}


def _texts(sealed: Mapping[int, bytes]) -> dict[str, object]:
    """Return who encrypted something for a client, and what."""
    order = sorted(sealed)
    return {
        "senders": order,
        "sealed": torch.tensor([list(sealed[other]) for other in order], dtype=torch.uint8).view(-1, SEALED_BYTES),
    }


def _row(values: Mapping[str, object], weight: float | None = None) -> State:
    """Return lists of clients and tensors with a leading axis of 1."""
    found = {
        name: value[None] if isinstance(value, torch.Tensor) else torch.tensor([value], dtype=torch.int64)
        for name, value in values.items()
    }
    return found if weight is None else found | {"weight": torch.tensor([weight], dtype=torch.float64)}


def _shares(clients: Sequence[int], rows: torch.Tensor) -> dict[int, bytes]:
    """Return one share by client."""
    return {client: row.tobytes() for client, row in zip(clients, rows[0].numpy(), strict=True)}
