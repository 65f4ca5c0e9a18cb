"""Secrets of the noise of a run, and the releases that count against its privacy budget."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from turnout.core.types import Report
from turnout.privacy.plan import Plan
from turnout.protocol.federated_server import FederatedServer
from turnout_serve.server.journal.entries import Entry
from turnout_serve.server.run.noise import Noise
from turnout_serve.server.run.setting import RunSetting


class PrivacyBudget:
    """Track the noised releases of a run: its steps, and answers to evaluations and queries.

    Args:
        setting: setting of the run.

    Attributes:
        noise: secret and history that the noise of the next release follows from.
        charged: noised answers that count against the budget, whether or not they were opened.
        on_charge: called when an answer is counted, before any client is asked for it.
    """

    def __init__(self, setting: RunSetting) -> None:
        self._setting = setting
        self.noise = self._next = Noise()
        self._server: FederatedServer | None = None
        self.charged = 0
        self.on_charge: Callable[[], None] = lambda: None

    def begin(self, server: FederatedServer) -> None:
        """Account for the releases of a run, whose server is about to take its first step."""
        self._server = server
        self.set_noise(self.noise)
        self.set_charged(self.charged)

    def renew(self, entry: Entry) -> None:
        """Take over the secret of an entry for all later releases."""
        self.set_noise(self.noise.renewed(entry))

    def set_noise(self, noise: Noise) -> None:
        """Set what the noise of all later releases follows from."""
        self.noise = noise
        self._set_next(noise)

    def try_step(self, reports: Report, digests: Iterable[str | None]) -> None:
        """Set the noise of a step that uses these reports, whose files have these digests."""
        # Kept apart from `noise` until the step is taken: one that raises is tried again, with other reports.
        self._set_next(self.noise.after(reports, digests))

    def stepped(self) -> None:
        """Have the noise of later releases follow from that of the step that was just taken."""
        self.noise = self._next

    def _set_next(self, noise: Noise) -> None:
        self._next = noise
        if self._server is not None:
            self._server.noise_of(noise.of_step, noise.lost)

    def refuses_answer(self) -> str | None:
        """Return why clients cannot be asked for another evaluation or query; None where they can."""
        if (plan := self._plan) is None:
            return None
        return plan.refuses_answer(self._rounds, self.noise.lost, self.charged)

    def spent(self) -> dict[str, Any] | None:
        """Return the fields of `turnout_serve.wire.status.Privacy`; None for a run without noise."""
        if (plan := self._plan) is None:
            return None
        version = 0 if self._server is None else self._server.state.version
        epsilon = plan.spent(version, self._rounds, self.noise.lost, self.charged)
        answers = {} if plan.answers is None else {"answers": self.charged, "most_answers": plan.answers.most}
        return {"epsilon": epsilon, "delta": plan.delta, "budget": plan.budget, **answers}

    def charge(self) -> None:
        """Count a noised answer."""
        self.set_charged(self.charged + 1)
        self.on_charge()

    def set_charged(self, answers: int) -> None:
        """Set the number of noised answers."""
        self.charged = answers
        if self._server is not None:
            self._server.count_answers(answers)

    @property
    def _rounds(self) -> int:
        planned = None if self._server is None else self._server.rounds
        return self._setting.rounds if planned is None else planned

    @property
    def _plan(self) -> Plan | None:
        """The privacy of the run with the correlation that was searched for its noise; None without noise."""
        plan = self._setting.algorithm.noised_privacy
        return plan if plan is None or self._server is None else plan.of(self._server.state.slots["aggregation"])
