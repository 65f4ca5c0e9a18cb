"""Name what every recipe is written with: `compose`, the registry, and the types and defaults of common arguments."""

from turnout.algorithms.compose import compose as compose
from turnout.base import ALGORITHMS as ALGORITHMS
from turnout.base import Algorithm as Algorithm
from turnout.base import Piece as Piece
from turnout.core.schedule import Schedule as Schedule
from turnout.pieces.local import Sgd as Sgd
from turnout.pieces.local import Solver as Solver
from turnout.pieces.selection.fixed_size import TEN as TEN
from turnout.pieces.selection.fixed_size import Size as Size
