"""Plan the next round of a simulation while a device computes the present one."""

from __future__ import annotations

from dataclasses import dataclass

from turnout.base import CountsSteps
from turnout.core.types import ServerState, Task
from turnout.distributed import collectives
from turnout.protocol.cohorts import Cohorts, SelectedCohorts
from turnout.simulation.dispatch import SimulatedClients


@dataclass(eq=False)
class PlanAhead:
    """Select the next cohort and plan its minibatches, after the local steps of a round are submitted to a device.

    Both are functions of seed, round and client, and of the numbers of minibatches that the clients have used. The next
    round uses them if it has the same, and otherwise selects and plans itself. After a plan that was not used, no further
    ones are made.

    Attributes:
        cohorts: selection of cohorts, which does not depend on earlier rounds.
        workers: the clients, without memory other than the number of minibatches used.
        local: the local rule of the clients.
        rounds: number of rounds of the run.
        seed: seed of the run.
        on: False after a plan that was not used, or failed.
    """

    cohorts: SelectedCohorts
    workers: SimulatedClients
    local: CountsSteps
    rounds: int
    seed: int
    on: bool = True

    @classmethod
    def of(cls, cohorts: Cohorts, workers: SimulatedClients, rounds: int, seed: int) -> PlanAhead | None:
        """Return the planner of a run; None if its next round cannot be planned before the present one has ended."""
        local = workers.algorithm.local
        if not isinstance(cohorts, SelectedCohorts) or not cohorts.independent or not isinstance(local, CountsSteps):
            return None
        # Other memory is read from the device before this, so that nothing is left to wait for.
        if workers.memory.first.keys() - {"steps_done"} or local.traits.varies or collectives.world_size() > 1:
            return None
        return cls(cohorts, workers, local, rounds, seed)

    def __call__(self, state: ServerState) -> None:
        """Plan the round that follows the one from a state of the server."""
        version = state.version + 1
        self.on = self.on and version < self.rounds and not self.workers.ahead and not self.cohorts.ahead
        if not self.on:
            return
        try:
            cohort = self.cohorts.choose_ahead(version)
            if 0 < len(cohort) <= self.workers.workspace.lanes:
                memory, clients = self.workers.memory.gather(cohort), self.workers.timed(cohort)
                self.local.plan_ahead(Task(state.params, version, self.seed), memory, clients)
        except Exception:
            self.on = False  # the next round raises the error, when this one has been recorded
