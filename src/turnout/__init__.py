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
    fednova,
    fednu,
    fedprox,
    fedvarp,
    folb,
    folb_heterogeneous,
    folb_two_set,
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
from turnout.local import GradientNorm, Inexactness, Prox, Sgd, StartGradient, StartLoss, UniformWork
from turnout.population import Bernoulli, Cyclic, Everyone, Markov, Population, Trace
from turnout.selection import (
    AllAvailable,
    ByAlignment,
    ByAlignmentAndInexactness,
    ByGradientNorm,
    TwoCohorts,
    Uniform,
    WithReplacement,
)
from turnout.server import ServerSgd
from turnout.weighting import (
    Alignment,
    ByExamples,
    DivideByAbsoluteSum,
    DivideByClients,
    DivideByLocalSteps,
    DivideByParticipants,
    DivideBySecondCohort,
    DivideBySum,
    KnownRates,
    Participation,
    SignOfAlignment,
)

__all__ = [
    "ALGORITHMS",
    "Algorithm",
    "Alignment",
    "AllAvailable",
    "Bernoulli",
    "ByAlignment",
    "ByAlignmentAndInexactness",
    "ByExamples",
    "ByGradientNorm",
    "ById",
    "CheckpointError",
    "ClassesPerClient",
    "Clip",
    "ConfigurationError",
    "Cosine",
    "Cyclic",
    "DataError",
    "Dirichlet",
    "DivideByAbsoluteSum",
    "DivideByClients",
    "DivideByLocalSteps",
    "DivideByParticipants",
    "DivideBySecondCohort",
    "DivideBySum",
    "Everyone",
    "Experiment",
    "FedVarp",
    "GradientNorm",
    "Halving",
    "History",
    "HsuDirichlet",
    "Iid",
    "Inexactness",
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
    "SignOfAlignment",
    "StartGradient",
    "StartLoss",
    "Trace",
    "TurnoutError",
    "TwoCohorts",
    "Uniform",
    "UniformWork",
    "WeightedSum",
    "WithReplacement",
    "average_all",
    "average_participating",
    "compare",
    "compose",
    "data",
    "fedau",
    "fedavg",
    "fednova",
    "fednu",
    "fedprox",
    "fedvarp",
    "folb",
    "folb_heterogeneous",
    "folb_two_set",
    "known_statistics",
    "mifa",
    "models",
]
