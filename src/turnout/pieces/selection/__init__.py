"""Selections: which of the available clients form the cohort of a round."""

from turnout.core.registry import lookup as _lookup
from turnout.pieces.selection.by_gradient import ByAlignment as ByAlignment
from turnout.pieces.selection.by_gradient import ByAlignmentAndInexactness as ByAlignmentAndInexactness
from turnout.pieces.selection.by_gradient import ByGradientNorm as ByGradientNorm
from turnout.pieces.selection.by_record import LeastServed as LeastServed
from turnout.pieces.selection.by_record import LongestAbsent as LongestAbsent
from turnout.pieces.selection.one_place import OnePlace as OnePlace
from turnout.pieces.selection.oort import Oort as Oort
from turnout.pieces.selection.power_of_choice import PowerOfChoice as PowerOfChoice
from turnout.pieces.selection.power_of_choice import RecentLoss as RecentLoss
from turnout.pieces.selection.uniform import AllAvailable as AllAvailable
from turnout.pieces.selection.uniform import Poisson as Poisson
from turnout.pieces.selection.uniform import TwoCohorts as TwoCohorts
from turnout.pieces.selection.uniform import Uniform as Uniform
from turnout.pieces.selection.uniform import WithReplacement as WithReplacement

__getattr__ = _lookup(__name__)
