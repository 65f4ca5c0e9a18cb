"""Aggregations: rules by which the server combines the weighted updates of a step into one direction."""

from turnout.core.registry import lookup
from turnout.pieces.aggregation.aced import Aced
from turnout.pieces.aggregation.area import Area
from turnout.pieces.aggregation.centred_clipping import CentredClipping
from turnout.pieces.aggregation.feddyn import FedDyn
from turnout.pieces.aggregation.fedex_lora import FedexLora
from turnout.pieces.aggregation.fedstale import FedStale
from turnout.pieces.aggregation.fedvarp import FedVarp
from turnout.pieces.aggregation.flexlora import FlexLora
from turnout.pieces.aggregation.flora import Flora
from turnout.pieces.aggregation.geometric_median import GeometricMedian
from turnout.pieces.aggregation.hetlora import HetLora
from turnout.pieces.aggregation.kept_models import KeptModels
from turnout.pieces.aggregation.krum import Krum, MultiKrum
from turnout.pieces.aggregation.median import Median
from turnout.pieces.aggregation.mifa import Mifa
from turnout.pieces.aggregation.minimum_diameter import MinimumDiameter
from turnout.pieces.aggregation.mixing import Bucketing, NearestNeighbours
from turnout.pieces.aggregation.models import WeightedModels
from turnout.pieces.aggregation.private_sum import PrivateSum
from turnout.pieces.aggregation.raflora import RaFlora
from turnout.pieces.aggregation.recent_models import RecentModels
from turnout.pieces.aggregation.secure_sum import SecureSum
from turnout.pieces.aggregation.tracked_sum import TrackedSum
from turnout.pieces.aggregation.trimmed_mean import TrimmedMean
from turnout.pieces.aggregation.weighted_sum import WeightedSum

__all__ = [
    "Aced",
    "Area",
    "Bucketing",
    "CentredClipping",
    "FedDyn",
    "FedStale",
    "FedVarp",
    "FedexLora",
    "FlexLora",
    "Flora",
    "GeometricMedian",
    "HetLora",
    "KeptModels",
    "Krum",
    "Median",
    "Mifa",
    "MinimumDiameter",
    "MultiKrum",
    "NearestNeighbours",
    "PrivateSum",
    "RaFlora",
    "RecentModels",
    "SecureSum",
    "TrackedSum",
    "TrimmedMean",
    "WeightedModels",
    "WeightedSum",
]

__getattr__ = lookup(__name__)
