"""Personalizations: parts of a model, or whole models, that each client keeps for itself."""

from turnout.core.registry import lookup as _lookup
from turnout.pieces.personalization.ditto import Ditto as Ditto
from turnout.pieces.personalization.frozen import Frozen as Frozen
from turnout.pieces.personalization.pair_models import AggregatedModel as AggregatedModel
from turnout.pieces.personalization.pair_models import Mixture as Mixture
from turnout.pieces.personalization.pair_models import MoreauModel as MoreauModel
from turnout.pieces.personalization.partial import Personal as Personal

__getattr__ = _lookup(__name__)
