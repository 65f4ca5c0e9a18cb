"""Adapters of experiment trackers: callbacks that log configuration, rounds and summary."""

from turnout.trackers.mlflow import MLflow as MLflow
from turnout.trackers.tensorboard import TensorBoard as TensorBoard
from turnout.trackers.tracker import Tracker as Tracker
from turnout.trackers.wandb import Trackio as Trackio
from turnout.trackers.wandb import WeightsAndBiases as WeightsAndBiases

TRACKERS = Tracker.family
"""All trackers by their names on the command line."""
