"""Tables and figures of papers, declared in TOML files: what to run, what the paper found, what became of its claims."""

from turnout.reproduce.declaration import Claim, Curve, Panel, Reproduction, load, names, read
from turnout.reproduce.outcome import Finding, Outcome

__all__ = ["Claim", "Curve", "Finding", "Outcome", "Panel", "Reproduction", "load", "names", "read"]
