"""Adapters of experiment trackers: callbacks that log configuration, rounds and summary."""

from turnout.trackers.mlflow import MLflow
from turnout.trackers.tensorboard import TensorBoard
from turnout.trackers.tracker import Tracker
from turnout.trackers.wandb import Trackio, WeightsAndBiases

TRACKERS = Tracker.family
"""All trackers by their names on the command line."""

__all__ = ["TRACKERS", "MLflow", "TensorBoard", "Tracker", "Trackio", "WeightsAndBiases"]
