"""How weighted updates become one direction."""

from turnout.aggregation.fedvarp import FedVarp
from turnout.aggregation.mifa import Mifa
from turnout.aggregation.models import WeightedModels
from turnout.aggregation.weighted_sum import WeightedSum

__all__ = ["FedVarp", "Mifa", "WeightedModels", "WeightedSum"]
