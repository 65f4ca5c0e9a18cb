"""Recipes: functions that fill the slots of an algorithm as a paper describes it."""

from turnout.algorithms.ace import ace
from turnout.algorithms.aced import aced
from turnout.algorithms.amplified_fedavg import amplified_fedavg
from turnout.algorithms.amplified_scaffold import amplified_scaffold
from turnout.algorithms.apfl import apfl
from turnout.algorithms.area import area
from turnout.algorithms.average_all import average_all
from turnout.algorithms.average_participating import average_participating
from turnout.algorithms.ca2fl import ca2fl
from turnout.algorithms.centralized import centralized
from turnout.algorithms.diloco import diloco
from turnout.algorithms.ditto import ditto
from turnout.algorithms.f3ast import f3ast
from turnout.algorithms.fadas import fadas
from turnout.algorithms.fedadagrad import fedadagrad
from turnout.algorithms.fedadam import fedadam
from turnout.algorithms.fedala import fedala
from turnout.algorithms.fedalt import fedalt
from turnout.algorithms.fedasync import fedasync
from turnout.algorithms.fedau import fedau
from turnout.algorithms.fedavg import fedavg
from turnout.algorithms.fedavg_p import fedavg_p
from turnout.algorithms.fedavgm import fedavgm
from turnout.algorithms.fedawe import fedawe
from turnout.algorithms.fedbabu import fedbabu
from turnout.algorithms.fedbn import fedbn
from turnout.algorithms.fedbuff import fedbuff
from turnout.algorithms.feddyn import feddyn
from turnout.algorithms.fedex_lora import fedex_lora
from turnout.algorithms.fedexp import fedexp
from turnout.algorithms.fedfa import fedfa
from turnout.algorithms.fedlaavg import fedlaavg
from turnout.algorithms.fednova import fednova
from turnout.algorithms.fednu import fednu
from turnout.algorithms.fedper import fedper
from turnout.algorithms.fedprox import fedprox
from turnout.algorithms.fedrep import fedrep
from turnout.algorithms.fedsim import fedsim
from turnout.algorithms.fedstale import fedstale
from turnout.algorithms.fedstaleweight import fedstaleweight
from turnout.algorithms.fedvarp import fedvarp
from turnout.algorithms.fedyogi import fedyogi
from turnout.algorithms.flexlora import flexlora
from turnout.algorithms.flora import flora
from turnout.algorithms.focus import focus
from turnout.algorithms.folb import folb, folb_heterogeneous, folb_two_set
from turnout.algorithms.hetlora import hetlora
from turnout.algorithms.known_statistics import known_statistics
from turnout.algorithms.local import local
from turnout.algorithms.maxfl import maxfl
from turnout.algorithms.mifa import mifa
from turnout.algorithms.moon import moon
from turnout.algorithms.mw_fed import mw_fed
from turnout.algorithms.oort import oort
from turnout.algorithms.perfedavg import perfedavg
from turnout.algorithms.pfedme import pfedme
from turnout.algorithms.power_of_choice import power_of_choice
from turnout.algorithms.qffl import qffl
from turnout.algorithms.raflora import raflora
from turnout.algorithms.rennala import rennala
from turnout.algorithms.ringmaster import ringmaster
from turnout.algorithms.scaffold import scaffold
from turnout.algorithms.scaffold_p import scaffold_p
from turnout.base.algorithm import ALGORITHMS
from turnout.core.registry import lookup

__all__ = [
    "ALGORITHMS",
    "ace",
    "aced",
    "amplified_fedavg",
    "amplified_scaffold",
    "apfl",
    "area",
    "average_all",
    "average_participating",
    "ca2fl",
    "centralized",
    "diloco",
    "ditto",
    "f3ast",
    "fadas",
    "fedadagrad",
    "fedadam",
    "fedala",
    "fedalt",
    "fedasync",
    "fedau",
    "fedavg",
    "fedavg_p",
    "fedavgm",
    "fedawe",
    "fedbabu",
    "fedbn",
    "fedbuff",
    "feddyn",
    "fedex_lora",
    "fedexp",
    "fedfa",
    "fedlaavg",
    "fednova",
    "fednu",
    "fedper",
    "fedprox",
    "fedrep",
    "fedsim",
    "fedstale",
    "fedstaleweight",
    "fedvarp",
    "fedyogi",
    "flexlora",
    "flora",
    "focus",
    "folb",
    "folb_heterogeneous",
    "folb_two_set",
    "hetlora",
    "known_statistics",
    "local",
    "maxfl",
    "mifa",
    "moon",
    "mw_fed",
    "oort",
    "perfedavg",
    "pfedme",
    "power_of_choice",
    "qffl",
    "raflora",
    "rennala",
    "ringmaster",
    "scaffold",
    "scaffold_p",
]

__getattr__ = lookup(__name__)
