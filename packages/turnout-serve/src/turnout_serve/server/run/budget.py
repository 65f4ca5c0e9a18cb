"""Secrets of the noise of a run, and the releases that count against its privacy budget."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from turnout.privacy.plan import Plan
from turnout_serve.server.journal.entries import Entry
from turnout_serve.server.run.noise import Noise
from turnout_serve.server.run.served_run import ServedRun
from turnout_serve.server.run.setting import RunSetting


class PrivacyBudget:
    """Track the noised releases of a run: its steps, and answers to evaluations and queries.

    Args:
        setting: setting of the run.

    Attributes:
        charged: noised answers that count against the budget, whether or not they were opened.
        on_charge: called when an answer is counted, before any client is asked for it.
    """

    def __init__(self, setting: RunSetting) -> None:
        self._setting, self._noise = setting, Noise()
        self._run: ServedRun | None = None
        self.charged = 0
        self.on_charge: Callable[[], None] = lambda: None

    def begin(self, run: ServedRun) -> None:
        """Account for the releases of a run, which is about to take its first step."""
        self._run = run
        self.set_charged(self.charged)

    @property
    def noise(self) -> Noise:
        """Secret and history that the noise of the next release follows from."""
        return self._noise if self._run is None else self._run.noise

    def renew(self, entry: Entry) -> None:
        """Take over the secret of an entry for all later releases."""
        self.set_noise(self.noise.renewed(entry))

    def set_noise(self, noise: Noise) -> None:
        """Set what the noise of all later releases follows from."""
        self._noise = noise
        if self._run is not None:
            self._run.renew(noise)

    def refuses_answer(self) -> str | None:
        """Return why clients cannot be asked for another evaluation or query; None where they can."""
        if (plan := self._plan) is None:
            return None
        return plan.refuses_answer(self._rounds, self.noise.lost, self.charged)

    def spent(self) -> dict[str, Any] | None:
        """Return the fields of `turnout_serve.wire.status.Privacy`; None for a run without noise."""
        if (plan := self._plan) is None:
            return None
        version = 0 if self._run is None else self._run.server.state.version
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
        if self._run is not None:
            self._run.server.count_answers(answers)

    @property
    def _rounds(self) -> int:
        return self._setting.rounds if self._run is None else self._run.rounds

    @property
    def _plan(self) -> Plan | None:
        """The privacy of the run with the correlation that was searched for its noise; None without noise."""
        plan = self._setting.algorithm.noised_privacy
        return plan if plan is None or self._run is None else plan.of(self._run.server.state.slots["aggregation"])
