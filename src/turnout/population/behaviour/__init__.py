"""How clients depart from what the server asks: attacks, dropping out, and opting out."""

from turnout.core.registry import lookup
from turnout.population.behaviour.attacks import ALittleIsEnough, InnerProduct, LabelFlipping, Mimic, WorstCase
from turnout.population.behaviour.byzantine import (
    Attack,
    BoundAttack,
    Byzantine,
    random_updates,
    scaled_updates,
    sign_flipping,
)
from turnout.population.behaviour.dropout import BoundDropout, Dropout
from turnout.population.behaviour.opting import Opting

__all__ = [
    "ALittleIsEnough",
    "Attack",
    "BoundAttack",
    "BoundDropout",
    "Byzantine",
    "Dropout",
    "InnerProduct",
    "LabelFlipping",
    "Mimic",
    "Opting",
    "WorstCase",
    "random_updates",
    "scaled_updates",
    "sign_flipping",
]

__getattr__ = lookup(__name__)
