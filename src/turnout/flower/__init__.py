"""Train with the rules of turnout in a Flower app: `Rule` takes the place of a strategy in its ServerApp.

A grid is a transport beneath the deployment's server, and no third loop beside those of simulation and deployment: nodes are
its clients, so that the journal, recovery, leases, noise and tables of `turnout serve` hold over a grid without being written
again. An implementation of the loop's interface over a grid would need all of them to resume a ServerApp that was killed.

`options`, `rule`, `grid` and `replies` are the server's side, `client_mod` and `loop` are the mod, and both use `arrays`. The
extra ``flower`` installs what they need.
"""

from typing import TYPE_CHECKING, Any

from turnout.flower.options import refusal
from turnout.flower.rule import Rule

if TYPE_CHECKING:
    from turnout.flower.client_mod import mod

__all__ = ["Rule", "mod", "refusal"]


def __getattr__(name: str) -> Any:
    if name == "mod":  # which needs Flower
        from turnout.flower.client_mod import mod

        return mod
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
