"""Secure aggregation (SecAgg+): the server learns the sum of what clients send, and no single one of it."""

from turnout.secure.client import SecureClient
from turnout.secure.fixed_point import FixedPoint
from turnout.secure.messages import Keys, Opening, ProtocolError, Request, TooFewClients
from turnout.secure.server import SecureServer
from turnout.secure.sizes import Sizes, sizes

__all__ = [
    "FixedPoint", "Keys", "Opening", "ProtocolError", "Request", "SecureClient", "SecureServer", "Sizes", "TooFewClients",
    "sizes",
]  # fmt: skip
