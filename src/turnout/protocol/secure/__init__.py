"""Secure aggregation (SecAgg+): the server learns the sum of the clients' vectors, and no single vector."""

from turnout.protocol.secure.client import SecureClient as SecureClient
from turnout.protocol.secure.fixed_point import FixedPoint as FixedPoint
from turnout.protocol.secure.graph import Sizes as Sizes
from turnout.protocol.secure.graph import sizes as sizes
from turnout.protocol.secure.messages import Keys as Keys
from turnout.protocol.secure.messages import Opening as Opening
from turnout.protocol.secure.messages import ProtocolError as ProtocolError
from turnout.protocol.secure.messages import Request as Request
from turnout.protocol.secure.messages import TooFewClients as TooFewClients
from turnout.protocol.secure.server import SecureServer as SecureServer
