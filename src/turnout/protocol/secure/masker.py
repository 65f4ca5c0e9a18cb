"""Run the client of a secure sum between machines; it holds its update until it has masked it."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import torch

from turnout.base.aggregation import ExtraPhases
from turnout.core.checks import ConfigurationError
from turnout.core.types import Report, State
from turnout.protocol.secure import shamir
from turnout.protocol.secure.attendance import threshold_of
from turnout.protocol.secure.client import SecureClient
from turnout.protocol.secure.evidence import EVIDENCE_BYTES
from turnout.protocol.secure.masked_vectors import CODES
from turnout.protocol.secure.masking import Masking
from turnout.protocol.secure.messages import KEY_BYTES, SEALED_BYTES, Keys, ProtocolError, Request
from turnout.protocol.tensors import as_tensors

log = logging.getLogger("turnout.client")


class VectorMasker:
    """Mask the vectors of a client, one sum after another.

    The state is only in memory, on purpose: secrets on disk could be read, and a client that loses them drops out of
    one sum. The client's new memory takes effect when its masked update is sent.

    Args:
        masking: options of the sum.
    """

    def __init__(self, masking: Masking) -> None:
        self._masking = masking
        # The secrets, a function that returns the codes of the weighted vector, and the memory after they are sent.
        self._round: tuple[SecureClient, Callable[[float], np.ndarray], State] | None = None
        self._codes = np.zeros(0)
        self._version = -1

    def advertise(self, client: int, version: int, encoded: Callable[[float], np.ndarray], memory: State) -> State:
        """Start a sum, and return the client's public keys, ``keys [1, 64]``.

        Args:
            client: number of the client.
            version: version of the round, or number of another sum, which identifies its later phases.
            encoded: function that returns the codes of the vector multiplied by a weight.
            memory: memory of the client after its masked vector is sent.
        """
        secret = SecureClient(client + 1, 1, self._masking.code.bits)
        keys = secret.advertise()
        self._version, self._round = version, (secret, encoded, memory)
        return {"keys": _tensor([keys.sealing + keys.masking], 2 * KEY_BYTES)[0]}

    def answer(self, phase: str, version: int, inputs: State, memory: State) -> tuple[State, State] | None:
        """Answer a later phase of the same round; None if that is impossible."""
        if self._round is None or version != self._version:
            log.info("the vector of this sum is gone", extra={"version": version})
            return None
        try:
            secret, encoded, memory_after = self._round
            match phase:
                case "share":
                    return self._share(secret, encoded, inputs), memory
                case "mask":
                    return self._mask(secret, inputs), memory_after
                case _:
                    return self._open(secret, inputs), memory
        except (ProtocolError, ConfigurationError) as error:
            self.drop_out(str(error))
            return None

    def drop_out(self, reason: str) -> None:
        """Drop out of the round, and delete its secrets and its vector."""
        log.warning("this client drops out of a secure sum", extra={"version": self._version, "reason": reason})
        self._round = None

    def _share(self, secret: SecureClient, encoded: Callable[[float], np.ndarray], inputs: State) -> State:
        """Share the secrets of the round among neighbors, and encode the weighted vector."""
        order = _clients(inputs, "neighbours")
        rows = _rows(inputs, "keys", order, 2 * KEY_BYTES)
        keys = {other: Keys(both[:KEY_BYTES], both[KEY_BYTES:]) for other, both in rows.items()}
        weight = self._check(order, inputs.get("weight"))
        secret.threshold = threshold_of(self._masking.threshold, len(order))
        sealed = secret.share(keys)
        self._codes = encoded(weight)
        return {"sealed": _tensor([sealed[other] for other in order], SEALED_BYTES)}

    def _check(self, neighbors: list[int], weight: torch.Tensor | None) -> float:
        """Validate the neighbors and the weight from the server, and return the weight.

        Raises:
            ProtocolError: if the number of neighbors or the weight violates the settings of the run.
        """
        masking, k = self._masking, len(neighbors)
        most = math.inf if masking.even_degree is None else masking.even_degree
        least = min(masking.min_clients - 1, most)
        if not least <= k <= most:
            others = "all others" if masking.even_degree is None else f"{most} at most"
            raise ProtocolError(
                f"the server gives this client {k} neighbors; by the run's settings it has {others}, and at least {least}"
            )
        value = math.nan if weight is None or weight.numel() != 1 else float(weight)
        low, high = masking.weights or (0.0, math.inf)
        if not (math.isfinite(value) and low <= value <= high):
            raise ProtocolError(f"the server gives this client the weight {value:g}, allowed are {low:g} to {high:g}")
        return value

    def _mask(self, secret: SecureClient, inputs: State) -> State:
        """Mask the vector."""
        senders = _clients(inputs, "senders")
        sealed = _rows(inputs, "sealed", senders, SEALED_BYTES)
        self._check_members(secret.number, senders, inputs, "forms")
        values = secret.mask(self._codes, sealed)
        masked = torch.frombuffer(bytearray(values.tobytes()), dtype=CODES[values.dtype.itemsize])
        if secret.refused:
            log.warning("the shares of some clients cannot be read", extra={"clients": [c - 1 for c in secret.refused]})
        refused = torch.tensor([[sender in secret.refused for sender in senders]], dtype=torch.uint8)
        evidence = [secret.evidence(c) if c in secret.refused else bytes(EVIDENCE_BYTES) for c in senders]
        return {"masked": masked[None], "refused": refused, "evidence": _tensor(evidence, EVIDENCE_BYTES)}

    def _open(self, secret: SecureClient, inputs: State) -> State:
        """Return the requested shares, in the order of the request."""
        there, gone = _clients(inputs, "there"), _clients(inputs, "gone")
        self._check_members(secret.number, there, inputs, "opens")
        opening = secret.open(Request(frozenset(there), frozenset(gone)))
        return {
            "self_masks": _tensor([opening.self_masks[c] for c in there], shamir.SHARE_BYTES),
            "masking_keys": _tensor([opening.masking_keys[c] for c in gone], shamir.SHARE_BYTES),
        }

    def _check_members(self, number: int, neighbors: list[int], inputs: State, does: str) -> None:
        """Validate the clients of a sum: its neighbors and this client, or those that the server lists.

        Raises:
            ProtocolError: if they are fewer than the settings of the run require, or the list contradicts the neighbors.
        """
        members = {*neighbors, number}
        if self._masking.degree is not None:
            listed = set(_clients(inputs, "clients"))
            if not members <= listed:
                raise ProtocolError(f"the server's list of the sum's clients lacks {sorted(members - listed)}")
            members = listed
        if len(members) < (least := self._masking.min_clients):
            raise ProtocolError(
                f"the server {does} a sum of {len(members)} clients, and by the run's settings it has {least} at least"
            )


class Masker(VectorMasker):
    """Mask the updates of a client, one round after another.

    Args:
        phases: the phases of the run, with the options of the sum and the summands of updates.
    """

    def __init__(self, phases: ExtraPhases) -> None:
        super().__init__(phases.masking)
        self._phases = phases

    def announce(self, client: int, version: int, report: Report, memory: State) -> State | None:
        """Return the message before the masked update: the keys, and the numbers from which weights are computed."""
        self._round = None
        if self._phases.nulls_dropped:
            report = replace(report.nulled()[0], good=None)
        if not report.finite()[0]:
            log.warning("no update is sent, because it holds NaN or infinity")
            return None
        keys = self.advertise(client, version, lambda weight: self._encoded(weight, report), memory)
        numbers = as_tensors({"num_examples": report.num_examples, "num_steps": report.num_steps})
        return numbers | {f"seen.{name}": value for name, value in report.seen.items()} | keys

    def _encoded(self, weight: float, report: Report) -> np.ndarray:
        """Return the codes of an update multiplied by its weight."""
        factors = torch.tensor([weight], dtype=torch.float64, device=report.delta.device)
        return self._masking.code.encode(self._phases.summand(factors, report, None)[0].cpu().numpy())


def _tensor(rows: Sequence[bytes], size: int) -> torch.Tensor:
    """Return rows of bytes as uint8 ``[1, n, size]``."""
    return torch.tensor(list(b"".join(rows)), dtype=torch.uint8).view(1, len(rows), size)


def _clients(inputs: State, name: str) -> list[int]:
    """Return a list of clients from the inputs of a task.

    Raises:
        ProtocolError: if it is missing or has repeats.
    """
    value = inputs.get(name)
    if value is None or value.dtype != torch.int64 or value.dim() != 1 or len(value.unique()) != len(value):
        raise ProtocolError(f"the server's task has no list of different clients called {name}")
    return value.tolist()


def _rows(inputs: State, name: str, clients: list[int], size: int) -> dict[int, bytes]:
    """Return the bytes for each client from the inputs of a task.

    Raises:
        ProtocolError: if they are missing or of another size.
    """
    value = inputs.get(name)
    if value is None or value.dtype != torch.uint8 or value.shape != (len(clients), size):
        raise ProtocolError(f"the server's task has no {name} of {size} bytes for each of {len(clients)} clients")
    return {client: row.tobytes() for client, row in zip(clients, value.numpy(), strict=True)}
