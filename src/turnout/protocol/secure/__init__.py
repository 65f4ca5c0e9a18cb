"""Secure aggregation (SecAgg+): the server learns the sum of the clients' vectors, and no single vector."""

from turnout.protocol.secure.client import SecureClient
from turnout.protocol.secure.fixed_point import FixedPoint
from turnout.protocol.secure.messages import Keys, Opening, ProtocolError, Request, TooFewClients
from turnout.protocol.secure.server import SecureServer
from turnout.protocol.secure.sizes import Sizes, sizes

__all__ = [
    "FixedPoint", "Keys", "Opening", "ProtocolError", "Request", "SecureClient", "SecureServer", "Sizes", "TooFewClients",
    "sizes",
]  # fmt: skip
