"""Map names that moved from `turnout` into modules. The old names work for one release, with a warning."""

from __future__ import annotations

_MOVED = {
    "aggregation": "Aced Area Bucketing CentredClipping FedStale FedVarp GeometricMedian KeptModels Krum Median Mifa "
    "MinimumDiameter MultiKrum NearestNeighbours PrivateSum SecureSum TrimmedMean WeightedModels WeightedSum",
    "availability": "Bernoulli Cyclic Diurnal Everyone Flash InterleavedSine Markov Sine Staircase TimedTrace Trace",
    "behaviour": "Byzantine Dropout Opting",
    "guard": "BFloat16 Clip ClipControls NoiseShare PowerSgd Qsgd RandomK Sign TopK",
    "local": "AppealGap GradientNoise GradientNorm Inexactness Meta PeriodicScaffold Prox Scaffold ShareOfWork "
    "StartGradient StartLoss TimeBudget UniformWork",
    "loss": "squared_error",
    "pace": "Buffered Rounds",
    "partition": "ById ClassesPerClient Dirichlet HsuDirichlet Iid LabelClusters LabelGroups PowerLaw",
    "personalization": "Ditto Personal",
    "privacy": "BandedSquareRoot BufferedToeplitz Independent",
    "requirement": "GivenRequirement WarmUp",
    "schedule": "Cosine Halving InverseRoot Schedule",
    "search": "Range",
    "selection": "AllAvailable ByAlignment ByAlignmentAndInexactness ByGradientNorm LeastServed LongestAbsent Poisson "
    "TwoCohorts Uniform WithReplacement",
    "server": "Amplified FedExP",
    "speed": "Group RecordedSpeed Speed",
    "weighting": "Alignment Appeal ByExamples BySmoothedRate ByStaleness DivideByAbsoluteSum DivideByClients "
    "DivideByCurvature DivideByLocalSteps DivideByNoisyCurvature DivideByNoisySum DivideByParticipants "
    "DivideBySecondCohort DivideBySum DivideBySumPlus Echo ExamplesUpTo ExpectedStaleness KnownRates "
    "MultiplicativeWeights Participation SignOfAlignment",
}

MOVED = {name: (module, name) for module, names in _MOVED.items() for name in names.split()} | {
    f"Server{name}": ("server", name) for name in ("Adagrad", "Adam", "Amsgrad", "Momentum", "Sgd", "Yogi")
}
"""The module that holds what was `turnout.NAME`, and its name there, by the old name."""
