"""Aggregations: rules by which the server combines the weighted updates of a step into one direction."""

from turnout.core.registry import lookup as _lookup
from turnout.pieces.aggregation.aced import Aced as Aced
from turnout.pieces.aggregation.area import Area as Area
from turnout.pieces.aggregation.centered_clipping import CenteredClipping as CenteredClipping
from turnout.pieces.aggregation.combination import GeometricMedian as GeometricMedian
from turnout.pieces.aggregation.combination import Krum as Krum
from turnout.pieces.aggregation.combination import MinimumDiameter as MinimumDiameter
from turnout.pieces.aggregation.combination import MultiKrum as MultiKrum
from turnout.pieces.aggregation.coordinatewise import Median as Median
from turnout.pieces.aggregation.coordinatewise import TrimmedMean as TrimmedMean
from turnout.pieces.aggregation.last_updates import FedStale as FedStale
from turnout.pieces.aggregation.last_updates import FedVarp as FedVarp
from turnout.pieces.aggregation.last_updates import Mifa as Mifa
from turnout.pieces.aggregation.lora import FedexLora as FedexLora
from turnout.pieces.aggregation.lora import FlexLora as FlexLora
from turnout.pieces.aggregation.lora import Flora as Flora
from turnout.pieces.aggregation.lora import HetLora as HetLora
from turnout.pieces.aggregation.lora import RaFlora as RaFlora
from turnout.pieces.aggregation.mixing import Bucketing as Bucketing
from turnout.pieces.aggregation.mixing import NearestNeighbors as NearestNeighbors
from turnout.pieces.aggregation.models import KeptModels as KeptModels
from turnout.pieces.aggregation.models import RecentModels as RecentModels
from turnout.pieces.aggregation.models import WeightedModels as WeightedModels
from turnout.pieces.aggregation.private_sum import PrivateSum as PrivateSum
from turnout.pieces.aggregation.running_sums import FedDyn as FedDyn
from turnout.pieces.aggregation.running_sums import TrackedSum as TrackedSum
from turnout.pieces.aggregation.secure_sum import SecureSum as SecureSum
from turnout.pieces.aggregation.weighted_sum import WeightedSum as WeightedSum

__getattr__ = _lookup(__name__)
