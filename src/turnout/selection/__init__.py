"""Who takes part in a round."""

from turnout.selection.everyone import AllAvailable
from turnout.selection.uniform import Uniform

__all__ = ["AllAvailable", "Uniform"]
