"""All that ``import turnout`` offers, by where it is; `turnout` names it and loads it when it is first used."""

# ruff: noqa: F401
from turnout import data, models, pieces, privacy
from turnout.algorithms import (
    ALGORITHMS,
    ace,
    aced,
    amplified_scaffold,
    area,
    average_all,
    average_participating,
    ca2fl,
    ditto,
    f3ast,
    fadas,
    fedadagrad,
    fedadam,
    fedalt,
    fedasync,
    fedau,
    fedavg,
    fedavg_p,
    fedavgm,
    fedawe,
    fedbn,
    fedbuff,
    fedexp,
    fedlaavg,
    fednova,
    fednu,
    fedper,
    fedprox,
    fedrep,
    fedsim,
    fedstale,
    fedstaleweight,
    fedvarp,
    fedyogi,
    folb,
    folb_heterogeneous,
    folb_two_set,
    known_statistics,
    maxfl,
    mifa,
    mw_fed,
    perfedavg,
    qffl,
    rennala,
    ringmaster,
    scaffold,
    scaffold_p,
)
from turnout.algorithms.compose import compose
from turnout.callbacks import AfterRound, Callback, EarlyStopping
from turnout.comparison import compare, sweep
from turnout.core.checks import CheckpointError, ConfigurationError, DataError, Diverged, TurnoutError
from turnout.core.schedule import Cosine, Halving, InverseRoot, Schedule
from turnout.data import ById, ClassesPerClient, Dirichlet, HsuDirichlet, Iid, LabelClusters, LabelGroups, PowerLaw
from turnout.engine.allocator import keep_large_buffers
from turnout.engine.loss import squared_error
from turnout.evaluation.appeal import AppealMetrics
from turnout.evaluation.gradients import GradientMetrics
from turnout.experiment import Experiment
from turnout.pieces.aggregation import (
    Aced,
    Area,
    Bucketing,
    CentredClipping,
    FedStale,
    FedVarp,
    GeometricMedian,
    KeptModels,
    Krum,
    Median,
    Mifa,
    MinimumDiameter,
    MultiKrum,
    NearestNeighbours,
    PrivateSum,
    SecureSum,
    TrimmedMean,
    WeightedModels,
    WeightedSum,
)
from turnout.pieces.base.algorithm import Algorithm
from turnout.pieces.guard import BFloat16, Clip, ClipControls, NoiseShare, PowerSgd, Qsgd, RandomK, Sign, TopK
from turnout.pieces.local import (
    AppealGap,
    GradientNoise,
    GradientNorm,
    Inexactness,
    Meta,
    PeriodicScaffold,
    Prox,
    Scaffold,
    Sgd,
    ShareOfWork,
    StartGradient,
    StartLoss,
    TimeBudget,
    UniformWork,
)
from turnout.pieces.personalization.ditto import Ditto
from turnout.pieces.personalization.partial import Personal
from turnout.pieces.selection import (
    AllAvailable,
    ByAlignment,
    ByAlignmentAndInexactness,
    ByGradientNorm,
    LeastServed,
    LongestAbsent,
    Poisson,
    TwoCohorts,
    Uniform,
    WithReplacement,
)
from turnout.pieces.server_optimizer import (
    Amplified,
    FedExP,
    ServerAdagrad,
    ServerAdam,
    ServerAmsgrad,
    ServerMomentum,
    ServerSgd,
    ServerYogi,
)
from turnout.pieces.weighting import (
    Alignment,
    Appeal,
    ByExamples,
    BySmoothedRate,
    ByStaleness,
    DivideByAbsoluteSum,
    DivideByClients,
    DivideByCurvature,
    DivideByLocalSteps,
    DivideByNoisyCurvature,
    DivideByNoisySum,
    DivideByParticipants,
    DivideBySecondCohort,
    DivideBySum,
    DivideBySumPlus,
    Echo,
    ExamplesUpTo,
    ExpectedStaleness,
    KnownRates,
    MultiplicativeWeights,
    Participation,
    SignOfAlignment,
)
from turnout.population import (
    Bernoulli,
    Byzantine,
    Cyclic,
    Diurnal,
    Dropout,
    Everyone,
    Flash,
    GivenRequirement,
    Group,
    InterleavedSine,
    Markov,
    Opting,
    Population,
    RecordedSpeed,
    Sine,
    Speed,
    Staircase,
    TimedTrace,
    Trace,
    WarmUp,
    delay,
)
from turnout.privacy import BandedSquareRoot, BufferedToeplitz, Independent
from turnout.protocol.pace import Buffered, Rounds
from turnout.record.query import History
from turnout.reporting.plot import plot
from turnout.reporting.range import Range
from turnout.result import Result, load
from turnout.simulation.running import Interrupted
