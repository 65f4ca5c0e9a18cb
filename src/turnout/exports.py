"""Import every public object of `turnout`. The package imports this module when the first of them is used."""

# ruff: noqa: F401, F403
from turnout import algorithms, data, models, pieces, privacy
from turnout.algorithms import *
from turnout.algorithms.compose import compose
from turnout.base.algorithm import Algorithm
from turnout.callbacks import AfterRound, Callback, EarlyStopping
from turnout.comparison.compare import compare
from turnout.comparison.sweep import sweep
from turnout.comparison.tune import Tune
from turnout.core import schedule
from turnout.core.checks import CheckpointError, ConfigurationError, DataError, Diverged, TurnoutError
from turnout.data import partition
from turnout.engine import loss
from turnout.engine.allocator import keep_large_buffers
from turnout.evaluation import metrics
from turnout.evaluation.appeal import AppealMetrics
from turnout.evaluation.gradients import GradientMetrics
from turnout.experiment import Experiment
from turnout.pieces import aggregation, guard, local, personalization, selection, weighting
from turnout.pieces import server_optimizer as server
from turnout.pieces.local import AdamW, Sgd
from turnout.population import Population, availability, behaviour, delay, requirement, speed
from turnout.protocol import pace
from turnout.record.query import History
from turnout.reporting.plot import plot
from turnout.result import Result, load
from turnout.results import range as search
from turnout.simulation.running import Interrupted
