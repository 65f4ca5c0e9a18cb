"""Partitions of examples over clients.

A partition is a frozen dataclass; `assign` maps labels to the rows of every client, as a function of the options and the
seed.
"""

from turnout.core.registry import lookup as _lookup
from turnout.data.partition.base import ById as ById
from turnout.data.partition.base import Iid as Iid
from turnout.data.partition.base import Partition as Partition
from turnout.data.partition.dirichlet import Dirichlet as Dirichlet
from turnout.data.partition.dirichlet import HsuDirichlet as HsuDirichlet
from turnout.data.partition.disjoint_labels import LabelClusters as LabelClusters
from turnout.data.partition.disjoint_labels import LabelGroups as LabelGroups
from turnout.data.partition.few_classes import ClassesPerClient as ClassesPerClient
from turnout.data.partition.few_classes import PowerLaw as PowerLaw

__getattr__ = _lookup(__name__)
