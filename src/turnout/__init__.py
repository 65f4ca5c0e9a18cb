"""Federated learning for clients who come and go."""

__version__ = "0.1.0"

from turnout import data, models
from turnout.aggregation import FedVarp, Mifa, WeightedSum
from turnout.algorithms import (
    ALGORITHMS,
    average_all,
    average_participating,
    fedau,
    fedavg,
    fedvarp,
    known_statistics,
    mifa,
)
from turnout.comparison import compare
from turnout.core.algorithm import Algorithm
from turnout.core.checks import CheckpointError, ConfigurationError, DataError, TurnoutError
from turnout.core.compose import compose
from turnout.core.schedule import Cosine, Halving
from turnout.data import ById, ClassesPerClient, Dirichlet, HsuDirichlet, Iid, LabelClusters, PowerLaw
from turnout.experiment import Experiment, Interrupted
from turnout.guard import Clip
from turnout.history import History
from turnout.local import Prox, Sgd
from turnout.population import Bernoulli, Cyclic, Everyone, Markov, Population, Trace
from turnout.selection import AllAvailable, Uniform
from turnout.server import ServerSgd
from turnout.weighting import (
    ByExamples,
    DivideByClients,
    DivideByParticipants,
    DivideBySum,
    KnownRates,
    Participation,
)

__all__ = [
    "ALGORITHMS",
    "Algorithm",
    "AllAvailable",
    "Bernoulli",
    "ByExamples",
    "ById",
    "CheckpointError",
    "ClassesPerClient",
    "Clip",
    "ConfigurationError",
    "Cosine",
    "Cyclic",
    "DataError",
    "Dirichlet",
    "DivideByClients",
    "DivideByParticipants",
    "DivideBySum",
    "Everyone",
    "Experiment",
    "FedVarp",
    "Halving",
    "History",
    "HsuDirichlet",
    "Iid",
    "Interrupted",
    "KnownRates",
    "LabelClusters",
    "Markov",
    "Mifa",
    "Participation",
    "Population",
    "PowerLaw",
    "Prox",
    "ServerSgd",
    "Sgd",
    "Trace",
    "TurnoutError",
    "Uniform",
    "WeightedSum",
    "average_all",
    "average_participating",
    "compare",
    "compose",
    "data",
    "fedau",
    "fedavg",
    "fedvarp",
    "known_statistics",
    "mifa",
    "models",
]
