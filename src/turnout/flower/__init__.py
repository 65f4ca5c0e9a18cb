"""Train with the rules of turnout in a Flower app: `Rule` takes the place of a strategy in its ServerApp.

The extra ``flower`` installs what it needs.
"""

from typing import TYPE_CHECKING, Any

from turnout.flower.refusals import refusal
from turnout.flower.rule import Rule

if TYPE_CHECKING:
    from turnout.flower.client_mod import mod

__all__ = ["Rule", "mod", "refusal"]


def __getattr__(name: str) -> Any:
    if name == "mod":  # which needs Flower
        from turnout.flower.client_mod import mod

        return mod
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
