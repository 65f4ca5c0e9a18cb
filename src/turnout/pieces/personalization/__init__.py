"""What of a model each client keeps for itself."""

from turnout.core.registry import lookup
from turnout.pieces.personalization.ditto import Ditto
from turnout.pieces.personalization.partial import Personal

__all__ = ["Ditto", "Personal"]

__getattr__ = lookup(__name__)
