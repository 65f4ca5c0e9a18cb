"""What clients do: a solver, and corrections of its gradient."""

from turnout.local.prox import Prox
from turnout.local.sgd import Sgd

__all__ = ["Prox", "Sgd"]
