"""Model clients that deviate from the protocol: attackers, and clients that drop out or opt out."""

from turnout.core.registry import lookup as _lookup
from turnout.population.behavior.attacks import ALittleIsEnough as ALittleIsEnough
from turnout.population.behavior.attacks import InnerProduct as InnerProduct
from turnout.population.behavior.attacks import LabelFlipping as LabelFlipping
from turnout.population.behavior.attacks import Mimic as Mimic
from turnout.population.behavior.attacks import WorstCase as WorstCase
from turnout.population.behavior.byzantine import Attack as Attack
from turnout.population.behavior.byzantine import BoundAttack as BoundAttack
from turnout.population.behavior.byzantine import Byzantine as Byzantine
from turnout.population.behavior.byzantine import random_updates as random_updates
from turnout.population.behavior.byzantine import scaled_updates as scaled_updates
from turnout.population.behavior.byzantine import sign_flipping as sign_flipping
from turnout.population.behavior.leaving import BoundDropout as BoundDropout
from turnout.population.behavior.leaving import Dropout as Dropout
from turnout.population.behavior.leaving import Opting as Opting

__getattr__ = _lookup(__name__)
