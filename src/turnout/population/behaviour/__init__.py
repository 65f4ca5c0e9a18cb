"""Model clients that deviate from the protocol: attackers, and clients that drop out or opt out."""

from turnout.core.registry import lookup as _lookup
from turnout.population.behaviour.attacks import ALittleIsEnough as ALittleIsEnough
from turnout.population.behaviour.attacks import InnerProduct as InnerProduct
from turnout.population.behaviour.attacks import LabelFlipping as LabelFlipping
from turnout.population.behaviour.attacks import Mimic as Mimic
from turnout.population.behaviour.attacks import WorstCase as WorstCase
from turnout.population.behaviour.byzantine import Attack as Attack
from turnout.population.behaviour.byzantine import BoundAttack as BoundAttack
from turnout.population.behaviour.byzantine import Byzantine as Byzantine
from turnout.population.behaviour.byzantine import random_updates as random_updates
from turnout.population.behaviour.byzantine import scaled_updates as scaled_updates
from turnout.population.behaviour.byzantine import sign_flipping as sign_flipping
from turnout.population.behaviour.dropout import BoundDropout as BoundDropout
from turnout.population.behaviour.dropout import Dropout as Dropout
from turnout.population.behaviour.opting import Opting as Opting

__getattr__ = _lookup(__name__)
