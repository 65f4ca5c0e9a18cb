"""Simulate a federation on one machine, in virtual time."""

from turnout.simulation.simulation import Simulation

__all__ = ["Simulation"]
