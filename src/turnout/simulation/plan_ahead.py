"""Plan the next round of a simulation while a device computes the present one."""

from __future__ import annotations

from turnout.base import CountsSteps
from turnout.core.types import ServerState, Task
from turnout.distributed import collectives
from turnout.protocol.cohorts import Cohorts, SelectedCohorts
from turnout.simulation.dispatch import SimulatedClients


class PlanAhead:
    """Select the next cohort and plan its minibatches, after the local steps of a round are submitted to a device.

    Both are functions of seed, round and client, and of the numbers of minibatches that the clients have used. The next
    round uses them if it has the same, and otherwise selects and plans itself. After a plan that was not used, no further
    ones are made.

    Args:
        cohorts: selection of cohorts, which does not depend on earlier rounds.
        workers: the clients, without memory other than the number of minibatches used.
        local: the local rule of the clients.
        rounds: number of rounds of the run.
        seed: seed of the run.
    """

    def __init__(
        self, cohorts: SelectedCohorts, workers: SimulatedClients, local: CountsSteps, rounds: int, seed: int
    ) -> None:
        self._cohorts, self._workers, self._local = cohorts, workers, local
        self._rounds, self._seed, self._on = rounds, seed, True

    @classmethod
    def of(cls, cohorts: Cohorts, workers: SimulatedClients, rounds: int, seed: int) -> PlanAhead | None:
        """Return the planner of a run; None if its next round cannot be planned before the present one has ended."""
        algorithm = workers.algorithm
        local = algorithm.local
        if not isinstance(cohorts, SelectedCohorts) or not cohorts.independent or not isinstance(local, CountsSteps):
            return None
        # Other memory is read from the device before this, so that nothing is left to wait for.
        if workers.memory.first.keys() - {"steps_done"} or local.traits.varies or collectives.world_size() > 1:
            return None
        return cls(cohorts, workers, local, rounds, seed)

    def __call__(self, state: ServerState) -> None:
        """Plan the round that follows the one from a state of the server."""
        version = state.version + 1
        self._on = self._on and version < self._rounds and not self._workers.ahead and not self._cohorts.ahead
        if not self._on:
            return
        try:
            cohort = self._cohorts.choose_ahead(version)
            if 0 < len(cohort) <= self._workers.workspace.lanes:
                memory, clients = self._workers.memory.gather(cohort), self._workers.timed(cohort)
                self._local.plan_ahead(Task(state.params, version, self._seed), memory, clients)
        except Exception:
            self._on = False  # the next round raises the error, when this one has been recorded
