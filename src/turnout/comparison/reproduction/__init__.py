"""Tables and figures of papers, declared in TOML files: what to run, what the paper found, what became of its claims."""

from turnout.comparison.reproduction.declaration import Claim, Curve, Drawing, Panel, Reproduction
from turnout.comparison.reproduction.outcome import Finding, Outcome
from turnout.comparison.reproduction.reading import load, names, read
from turnout.comparison.reproduction.tabulated import Quantity, Tabulated

__all__ = [
    "Claim",
    "Curve",
    "Drawing",
    "Finding",
    "Outcome",
    "Panel",
    "Quantity",
    "Reproduction",
    "Tabulated",
    "load",
    "names",
    "read",
]
