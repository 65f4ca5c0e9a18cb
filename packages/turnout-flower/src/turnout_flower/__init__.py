"""Train with the algorithms of turnout in a Flower app: `Rule` replaces the strategy of a ServerApp.

A grid is a transport of the deployment's server, and nodes are its clients: journal, recovery, leases, noise and tables of
`turnout serve` apply to a grid as well, so that a ServerApp that was killed can resume a run.

`options`, `rule`, `grid` and `replies` are the server side, `client_mod` and `loop` the client side, and both use `arrays`.
In a clone of turnout, ``pip install . ./packages/turnout-serve ./packages/turnout-flower`` installs the requirements.
"""

from typing import TYPE_CHECKING, Any

from turnout_flower.requirements import required

with required():
    from turnout_flower.options import refusal
    from turnout_flower.rule import Rule

if TYPE_CHECKING:
    from turnout_flower.client_mod import mod

__all__ = ["Rule", "mod", "refusal"]


def __getattr__(name: str) -> Any:
    if name == "mod":  # imported late, because it needs Flower
        with required():
            from turnout_flower.client_mod import mod

        return mod
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
