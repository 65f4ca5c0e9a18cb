"""A client's side of a secure sum between machines: it keeps its update until it has masked it."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch

from turnout.core.checks import ConfigurationError
from turnout.core.types import Report, State
from turnout.protocol.secure.attendance import threshold_of
from turnout.protocol.secure.client import SecureClient
from turnout.protocol.secure.masked_sum import CODES, Masking
from turnout.protocol.secure.messages import KEY_BYTES, SEALED_BYTES, Keys, ProtocolError, Request

log = logging.getLogger("turnout.client")


class VectorMasker:
    """Take a client through the sum of one vector after the other.

    What it holds is lost with its process, on purpose: a secret that was written down could be read, and a client without
    it drops out of one sum. What training has the client remember counts once its update has left, masked.

    Args:
        masking: the options of the sum.
    """

    def __init__(self, masking: Masking) -> None:
        self._masking = masking
        self._round: tuple[SecureClient, Callable[[float], np.ndarray], State] | None = None
        self._codes = np.zeros(0)
        self._version = -1

    def advertise(self, client: int, version: int, encoded: Callable[[float], np.ndarray], memory: State) -> State:
        """Begin a sum, and return the client's public keys, ``keys [1, 64]``.

        Args:
            client: its number.
            version: of the round, or the number of another sum, by which later phases are told from those of others.
            encoded: returns the codes of the vector with a weight.
            memory: what the client remembers once its vector has left, masked.
        """
        secret = SecureClient(client + 1, 1, self._masking.bits)
        keys = secret.advertise()
        self._version, self._round = version, (secret, encoded, memory)
        both = torch.frombuffer(bytearray(keys.sealing + keys.masking), dtype=torch.uint8)
        return {"keys": both[None]}

    def answer(self, phase: str, version: int, told: State, memory: State) -> tuple[State, State] | None:
        """Do a later phase of the same round; None where it cannot be done."""
        if self._round is None or version != self._version:
            log.info("the vector of this sum is gone", extra={"version": version})
            return None
        try:
            match phase:
                case "share":
                    return self._share(told), memory
                case "mask":
                    return self._mask(told), self._round[2]
                case _:
                    return self._open(told), memory
        except (ProtocolError, ConfigurationError) as error:
            self.drop_out(str(error))
            return None

    def drop_out(self, reason: str) -> None:
        """Give the round up."""
        log.warning("this client drops out of a secure sum", extra={"version": self._version, "reason": reason})
        self._round = None

    def _share(self, told: State) -> State:
        """Share the round's secrets among neighbours, and weigh the vector."""
        assert self._round is not None
        secret, encoded, _ = self._round
        order = _clients(told, "neighbours")
        rows = _rows(told, "keys", order, 2 * KEY_BYTES)
        keys = {other: Keys(both[:KEY_BYTES], both[KEY_BYTES:]) for other, both in rows.items()}
        weight = self._checked(order, told.get("weight"))
        secret.threshold = threshold_of(self._masking.threshold, len(order))
        sealed = secret.share(keys)
        self._codes = encoded(weight)
        return {"sealed": torch.tensor([[list(sealed[other]) for other in order]], dtype=torch.uint8)}

    def _checked(self, neighbours: list[int], weight: torch.Tensor | None) -> float:
        """Return the weight of this client's update, held with its neighbours against what the run's settings say.

        Raises:
            ProtocolError: for other numbers of neighbours than the graph has, and for weights that are not allowed.
        """
        piece, k = self._masking, len(neighbours)
        if not piece.min_clients - 1 <= k <= piece.num_neighbours(k + 1 if piece.degree is None else 1 << 40):
            raise ProtocolError(
                f"the server gives this client {k} neighbours; by the run's settings it has "
                f"{'all others' if piece.degree is None else f'{piece.num_neighbours(1 << 40)} at most'}, and at least "
                f"{piece.min_clients - 1}"
            )
        value = math.nan if weight is None or weight.numel() != 1 else float(weight)
        low, high = piece.weights or (0.0, math.inf)
        if not (math.isfinite(value) and low <= value <= high):
            raise ProtocolError(f"the server gives this client the weight {value:g}, allowed are {low:g} to {high:g}")
        return value

    def _mask(self, told: State) -> State:
        """Mask the vector."""
        assert self._round is not None
        secret, values = self._round[0], self._codes
        senders = _clients(told, "senders")
        sealed = _rows(told, "sealed", senders, SEALED_BYTES)
        kind = CODES[values.dtype.itemsize]
        masked = torch.frombuffer(bytearray(secret.mask(values, sealed).tobytes()), dtype=kind)
        if secret.refused:
            log.warning("the shares of some clients cannot be read", extra={"clients": [c - 1 for c in secret.refused]})
        refused = torch.tensor([[sender in secret.refused for sender in senders]], dtype=torch.uint8)
        return {"masked": masked[None], "refused": refused}

    def _open(self, told: State) -> State:
        """Give the shares that were asked for, in the order in which they were."""
        assert self._round is not None
        there, gone = _clients(told, "there"), _clients(told, "gone")
        piece = self._masking
        if piece.degree is None and len(there) + 1 < piece.min_clients:  # of a graph, it does not see all
            raise ProtocolError(
                f"the server opens a sum of {len(there) + 1} clients, and by the run's settings it has {piece.min_clients} "
                "at least"
            )
        opening = self._round[0].open(Request(frozenset(there), frozenset(gone)))
        shares_of = {
            "self_masks": [opening.self_masks[c] for c in there],
            "masking_keys": [opening.masking_keys[c] for c in gone],
        }
        size = {name: (1, len(shares), 33) for name, shares in shares_of.items()}
        return {
            name: torch.tensor(list(b"".join(shares)), dtype=torch.uint8).view(size[name])
            for name, shares in shares_of.items()
        }


class Masker(VectorMasker):
    """Take a client through the sum of updates of a round after the other.

    Args:
        masking: the options of the sum.
        summand: `Aggregation.summand`, which makes what is added up of a weight and an update.
        nulls: whether an update that holds NaN or infinity is sent as zeros, so that the client takes part as any other.
    """

    def __init__(
        self,
        masking: Masking,
        summand: Callable[[torch.Tensor, Report, None], torch.Tensor | None],
        nulls: bool = False,
    ) -> None:
        super().__init__(masking)
        self._summand, self._nulls = summand, nulls

    def announce(self, client: int, version: int, report: Report, memory: State) -> State | None:
        """Return what is sent of an update that stays here: keys, and the numbers that weights are made of."""
        self._round = None
        if self._nulls:
            report = replace(report.nulled()[0], good=None)
        if not report.finite()[0]:
            log.warning("no update is sent, because it holds NaN or infinity")
            return None
        keys = self.advertise(client, version, lambda weight: self._encoded(weight, report), memory)
        counts = {"num_examples": report.num_examples, "num_steps": report.num_steps}
        found = {name: torch.from_numpy(np.array(value, dtype=np.int64)) for name, value in counts.items()}
        return found | {f"seen.{name}": value for name, value in report.seen.items()} | keys

    def _encoded(self, weight: float, report: Report) -> np.ndarray:
        """Return the codes of what an update adds to the sum with its weight."""
        factors = torch.tensor([weight], dtype=torch.float64, device=report.delta.device)
        summand = self._summand(factors, report, None)
        assert summand is not None
        return self._masking.code.encode(summand[0].cpu().numpy())


def _clients(told: State, name: str) -> list[int]:
    """Return a list of clients that the server sent.

    Raises:
        ProtocolError: where there is none, or a client is in it twice.
    """
    value = told.get(name)
    if value is None or value.dtype != torch.int64 or value.dim() != 1 or len(value.unique()) != len(value):
        raise ProtocolError(f"the server's task has no list of different clients called {name}")
    return value.tolist()


def _rows(told: State, name: str, clients: list[int], size: int) -> dict[int, bytes]:
    """Return the bytes that the server sent for each of these clients.

    Raises:
        ProtocolError: where there are none, or of another size.
    """
    value = told.get(name)
    if value is None or value.dtype != torch.uint8 or value.shape != (len(clients), size):
        raise ProtocolError(f"the server's task has no {name} of {size} bytes for each of {len(clients)} clients")
    return {client: row.tobytes() for client, row in zip(clients, value.numpy(), strict=True)}
