"""What can be named in files and on the command line, beside the registries of algorithms, data and models."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from turnout.core.schedule import ByStep, Cosine, Halving, InverseRoot, LinearWarmup, Schedule
from turnout.data.partition import (
    ById,
    ClassesPerClient,
    Dirichlet,
    HsuDirichlet,
    Iid,
    LabelClusters,
    LabelGroups,
    Partition,
    PowerLaw,
)
from turnout.data.transforms import Transform, cifar100_augmentation, cifar_augmentation
from turnout.pieces.aggregation import (
    Bucketing,
    CentredClipping,
    GeometricMedian,
    Krum,
    Median,
    MinimumDiameter,
    MultiKrum,
    NearestNeighbours,
    PrivateSum,
    SecureSum,
    TrimmedMean,
)
from turnout.pieces.aggregation.mixing import Mixing
from turnout.pieces.base import Aggregation, Piece, Selection, Server
from turnout.pieces.guard import BFloat16, Clip, ClipControls, NoiseShare, PowerSgd, Qsgd, RandomK, Sign, TopK
from turnout.pieces.local import (
    Adam,
    AdamW,
    Alternating,
    GradientNoise,
    PeriodicScaffold,
    Prox,
    Scaffold,
    Sgd,
    Solver,
    TimeBudget,
    UniformWork,
    Work,
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
from turnout.pieces.server_optimizer.adagrad import ServerAdagrad
from turnout.pieces.server_optimizer.adam import ServerAdam
from turnout.pieces.server_optimizer.amplified import Amplified
from turnout.pieces.server_optimizer.amsgrad import ServerAmsgrad
from turnout.pieces.server_optimizer.fedexp import FedExP
from turnout.pieces.server_optimizer.momentum import ServerMomentum
from turnout.pieces.server_optimizer.nesterov import ServerNesterov
from turnout.pieces.server_optimizer.sgd import ServerSgd
from turnout.pieces.server_optimizer.yogi import ServerYogi
from turnout.pieces.weighting import DivideByNoisyCurvature, DivideByNoisySum
from turnout.population import (
    ALittleIsEnough,
    Attack,
    Availability,
    Bernoulli,
    Byzantine,
    Cyclic,
    Diurnal,
    Everyone,
    Flash,
    GivenRequirement,
    InnerProduct,
    InterleavedSine,
    LabelFlipping,
    Markov,
    Mimic,
    RecordedSpeed,
    Requirement,
    Sine,
    Speed,
    SpeedModel,
    Staircase,
    TimedTrace,
    Trace,
    WarmUp,
    WorstCase,
    delay,
    random_updates,
    scaled_updates,
    sign_flipping,
)
from turnout.population.delay import Delay
from turnout.privacy import BandedSquareRoot, BufferedToeplitz, Correlation, Independent
from turnout.protocol.pace import Buffered, Pace, Rounds

AVAILABILITY: Mapping[str, type[Availability]] = {
    "everyone": Everyone,
    "bernoulli": Bernoulli,
    "markov": Markov,
    "cyclic": Cyclic,
    "diurnal": Diurnal,
    "flash": Flash,
    "sine": Sine,
    "interleaved_sine": InterleavedSine,
    "staircase": Staircase,
    "trace": Trace,
    "timed_trace": TimedTrace,
}
"""When clients are there."""

PARTITIONS: Mapping[str, type[Partition]] = {
    "dirichlet": Dirichlet,
    "hsu_dirichlet": HsuDirichlet,
    "label_clusters": LabelClusters,
    "label_groups": LabelGroups,
    "classes_per_client": ClassesPerClient,
    "power_law": PowerLaw,
    "by_id": ById,
    "iid": Iid,
}
"""Who holds what."""

SELECTIONS: Mapping[str, type[Selection]] = {
    "all_available": AllAvailable,
    "uniform": Uniform,
    "with_replacement": WithReplacement,
    "poisson": Poisson,
    "longest_absent": LongestAbsent,
    "least_served": LeastServed,
    "two_cohorts": TwoCohorts,
    "by_alignment": ByAlignment,
    "by_gradient_norm": ByGradientNorm,
    "by_alignment_and_inexactness": ByAlignmentAndInexactness,
}
"""Who takes part."""

AGGREGATIONS: Mapping[str, type[Aggregation]] = {
    "median": Median,
    "trimmed_mean": TrimmedMean,
    "krum": Krum,
    "multi_krum": MultiKrum,
    "geometric_median": GeometricMedian,
    "centred_clipping": CentredClipping,
    "minimum_diameter": MinimumDiameter,
    "private_sum": PrivateSum,
    "secure_sum": SecureSum,
}
"""How updates become a direction, in place of their weighted sum."""

MIXINGS: Mapping[str, type[Mixing]] = {"nearest_neighbours": NearestNeighbours, "bucketing": Bucketing}
"""What is done to updates before they are aggregated robustly."""

CORRELATIONS: Mapping[str, type[Correlation]] = {
    "independent": Independent,
    "banded_square_root": BandedSquareRoot,
    "buffered_toeplitz": BufferedToeplitz,
}
"""Ways in which the noise of differential privacy depends on earlier rounds."""

SERVER_OPTIMIZERS: Mapping[str, type[Server]] = {
    "sgd": ServerSgd,
    "momentum": ServerMomentum,
    "nesterov": ServerNesterov,
    "adam": ServerAdam,
    "amsgrad": ServerAmsgrad,
    "yogi": ServerYogi,
    "adagrad": ServerAdagrad,
    "fedexp": FedExP,
    "amplified": Amplified,
}
"""How the server steps."""

ALSO: Mapping[str, type[Piece]] = {
    "prox": Prox,
    "alternating": Alternating,
    "gradient_noise": GradientNoise,
    "scaffold": Scaffold,
    "periodic_scaffold": PeriodicScaffold,
    "personal": Personal,
    "ditto": Ditto,
    "clip": Clip,
    "clip_controls": ClipControls,
    "noise_share": NoiseShare,
    "divide_by_noisy_sum": DivideByNoisySum,
    "divide_by_noisy_curvature": DivideByNoisyCurvature,
    "top_k": TopK,
    "random_k": RandomK,
    "qsgd": Qsgd,
    "power_sgd": PowerSgd,
    "sign": Sign,
    "bfloat16": BFloat16,
}
"""Pieces that can be added to any algorithm."""

WORK: Mapping[str, type[Work]] = {"uniform": UniformWork, "time_budget": TimeBudget}
"""Amounts of local work that vary by client and round."""

SCHEDULES: Mapping[str, type[Schedule]] = {
    "halving": Halving,
    "cosine": Cosine,
    "inverse_root": InverseRoot,
    "linear_warmup": LinearWarmup,
    "by_step": ByStep,
}
"""Step sizes that change with the round, or with the local step."""

SOLVERS: Mapping[str, type[Solver]] = {"sgd": Sgd, "adam": Adam, "adamw": AdamW}
"""Rules of local steps."""

REQUIREMENTS: Mapping[str, type[Requirement]] = {"warm_up": WarmUp, "given": GivenRequirement}
"""What clients require of a model."""

BEHAVIOURS: Mapping[str, Callable[..., Attack]] = {
    "byzantine": Byzantine,
    "sign_flipping": sign_flipping,
    "scaled_updates": scaled_updates,
    "random_updates": random_updates,
    "label_flipping": LabelFlipping,
    "a_little_is_enough": ALittleIsEnough,
    "inner_product": InnerProduct,
    "mimic": Mimic,
    "worst_case": WorstCase,
}
"""What some clients do instead of what they are asked to."""

SPEEDS: Mapping[str, type[SpeedModel]] = {"delays": Speed, "recorded": RecordedSpeed}
"""How long clients take."""

DELAYS: Mapping[str, type[Delay]] = {
    "constant": delay.Constant,
    "normal": delay.Normal,
    "uniform": delay.Uniform,
    "exponential": delay.Exponential,
    "lognormal": delay.LogNormal,
    "pareto": delay.Pareto,
}
"""Distributions of durations."""

PACES: Mapping[str, type[Pace]] = {"rounds": Rounds, "buffered": Buffered}
"""When the server asks and steps."""

FAMILIES: Mapping[type, tuple[str, Mapping[str, Callable[..., Any]]]] = {
    Correlation: ("correlation", CORRELATIONS),
    Solver: ("solver", SOLVERS),
    Mixing: ("mixing", MIXINGS),
    Schedule: ("schedule", SCHEDULES),
    Work: ("work", WORK),
    Requirement: ("requirement", REQUIREMENTS),
    Attack: ("behaviour", BEHAVIOURS),
    SpeedModel: ("speed", SPEEDS),
    Delay: ("delay", DELAYS),
}
"""Options that are a piece of their own, a table with ``kind = NAME``: what the family is called, and its members."""

AUGMENTATIONS: Mapping[str, Callable[[], tuple[Transform, ...]]] = {
    "cifar": cifar_augmentation,
    "cifar100": cifar100_augmentation,
}
"""Transforms of training images that go in place of the data's own."""
