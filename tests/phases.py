"""Single phases of a simulation's round, for tests of what clients send: none of them passes a report to the server."""

from dataclasses import replace

import numpy as np

from turnout.protocol.batch import Batch, with_repeats
from turnout.simulation.lockstep import together


def next_cohort(simulation, measured=None):
    """The cohort of the next round, int64 ``[B]``; a client that is drawn twice is in it twice."""
    record = simulation.state.slots.get("selection", {})
    candidates = replace(
        simulation.opt_in.candidates(simulation.availability, simulation.state.version),
        measured=measured,
        record=record,
    )
    return simulation.experiment.algorithm.selection.select(candidates)


def measure(simulation):
    """The measurements that the selection needs for the next round; None if it needs none."""
    selection = simulation.experiment.algorithm.selection
    clients = selection.measuring(simulation.opt_in.candidates(simulation.availability, simulation.state.version))
    return ask(simulation, clients, "measure") if selection.measurements else None


def train(simulation, cohort):
    """The reports of a cohort that trains the present model. A client that is in it twice trains once."""
    return ask(simulation, cohort, "train")


def ask(simulation, cohort, phase):
    """The reports of a cohort on a phase."""
    clients, version = np.unique(cohort), simulation.state.version
    zeros, versions = np.zeros_like(clients), np.full(len(clients), version)
    batch = Batch(phase, version, zeros - 1, clients, versions, zeros, None, False)
    reports = together([simulation.workers.reports_of(simulation.coordinator, batch)])[0]
    return reports if len(clients) == len(cohort) else with_repeats(reports, np.sort(cohort))
