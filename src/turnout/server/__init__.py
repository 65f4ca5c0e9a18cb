"""How the server steps along the direction."""

from turnout.server.sgd import ServerSgd

__all__ = ["ServerSgd"]
