"""Train with the rules of turnout in a Flower app: `Rule` takes the place of a strategy in its ServerApp.

The extra ``flower`` installs what it needs.
"""

from turnout.flower.refusals import refusal
from turnout.flower.rule import Rule

__all__ = ["Rule", "refusal"]
