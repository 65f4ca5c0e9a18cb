"""Partitions: which client holds which example.

Each partition is a frozen dataclass; `assign` turns labels into the rows of every client. The same options and the same
seed give the same partition.
"""

from turnout.core.registry import lookup
from turnout.data.partition.base import Partition
from turnout.data.partition.by_id import ById
from turnout.data.partition.classes_per_client import ClassesPerClient
from turnout.data.partition.dirichlet import Dirichlet
from turnout.data.partition.hsu import HsuDirichlet
from turnout.data.partition.iid import Iid
from turnout.data.partition.label_clusters import LabelClusters
from turnout.data.partition.label_groups import LabelGroups
from turnout.data.partition.power_law import PowerLaw

__all__ = [
    "ById",
    "ClassesPerClient",
    "Dirichlet",
    "HsuDirichlet",
    "Iid",
    "LabelClusters",
    "LabelGroups",
    "Partition",
    "PowerLaw",
]

__getattr__ = lookup(__name__)
