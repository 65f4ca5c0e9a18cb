"""What a client does to its report before it leaves: a chain on the update."""

from turnout.guard.clip import Clip

__all__ = ["Clip"]
