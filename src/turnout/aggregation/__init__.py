"""How weighted updates become one direction."""

from turnout.aggregation.aced import Aced
from turnout.aggregation.area import Area
from turnout.aggregation.centred_clipping import CentredClipping
from turnout.aggregation.fedstale import FedStale
from turnout.aggregation.fedvarp import FedVarp
from turnout.aggregation.geometric_median import GeometricMedian
from turnout.aggregation.kept_models import KeptModels
from turnout.aggregation.krum import Krum, MultiKrum
from turnout.aggregation.median import Median
from turnout.aggregation.mifa import Mifa
from turnout.aggregation.minimum_diameter import MinimumDiameter
from turnout.aggregation.mixing import Bucketing, NearestNeighbours
from turnout.aggregation.models import WeightedModels
from turnout.aggregation.private_sum import PrivateSum
from turnout.aggregation.secure_sum import SecureSum
from turnout.aggregation.trimmed_mean import TrimmedMean
from turnout.aggregation.weighted_sum import WeightedSum

__all__ = [
    "Aced",
    "Area",
    "Bucketing",
    "CentredClipping",
    "FedStale",
    "FedVarp",
    "GeometricMedian",
    "KeptModels",
    "Krum",
    "Median",
    "Mifa",
    "MinimumDiameter",
    "MultiKrum",
    "NearestNeighbours",
    "PrivateSum",
    "SecureSum",
    "TrimmedMean",
    "WeightedModels",
    "WeightedSum",
]
