"""Adapters of experiment trackers: callbacks that hand configuration, rounds and summary on."""

from turnout.trackers.mlflow import MLflow
from turnout.trackers.tensorboard import TensorBoard
from turnout.trackers.tracker import Tracker
from turnout.trackers.wandb import Trackio, WeightsAndBiases

TRACKERS = Tracker.family
"""Every tracker by its name on the command line."""

__all__ = ["TRACKERS", "MLflow", "TensorBoard", "Tracker", "Trackio", "WeightsAndBiases"]
