"""What of a model each client keeps for itself."""

from turnout.pieces.personalization.ditto import Ditto
from turnout.pieces.personalization.partial import Personal

__all__ = ["Ditto", "Personal"]
