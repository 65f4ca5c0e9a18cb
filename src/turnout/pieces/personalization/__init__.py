"""Personalizations: parts of a model, or whole models, that each client keeps for itself."""

from turnout.core.registry import lookup
from turnout.pieces.personalization.ditto import Ditto
from turnout.pieces.personalization.frozen import Frozen
from turnout.pieces.personalization.pair_models import AggregatedModel, Mixture, MoreauModel
from turnout.pieces.personalization.partial import Personal

__all__ = ["AggregatedModel", "Ditto", "Frozen", "Mixture", "MoreauModel", "Personal"]

__getattr__ = lookup(__name__)
