"""Execute the actions of a pace and check them against the protocol."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from turnout.protocol.pace import Ask, BoundPace, Choose, Drop, Ignore, SetTimer, Step

N = 7
some_clients = st.lists(st.integers(0, N - 1), unique=True, max_size=N)


class Ledger(RuleBasedStateMachine):
    """Send events of `N` clients to a pace, and check its actions independently."""

    pace: BoundPace

    def __init__(self) -> None:
        super().__init__()
        self.time, self.pause = 0.0, 1.0
        self.open: dict[int, tuple[int, int]] = {}  # task -> client, version
        self.in_hand: dict[int, tuple[int, int]] = {}  # reported, and neither used nor dropped
        self.ended: dict[int, int] = {}  # task -> client
        self.there = set(range(N))
        self.left_once: set[int] = set()
        self.wanted: Choose | None = None
        self.steps: list[Step] = []
        self.timers: list[SetTimer] = []

    def do(self, actions) -> None:
        """Carry out actions in their order."""
        for action in actions:
            match action:
                case Ask(tasks, clients, version):
                    assert version == len(self.steps)
                    assert len(tasks) == len(clients) > 0
                    first = len(self.open) + len(self.in_hand) + len(self.ended)
                    assert list(tasks) == list(range(first, first + len(tasks)))
                    at_work = {client for client, _ in self.open.values()}
                    assert not at_work & set(clients)
                    self.open |= {task: (client, version) for task, client in zip(tasks, clients, strict=True)}
                case Step(version, tasks, clients, versions):
                    assert version == len(self.steps)
                    assert list(tasks) == list(self.in_hand)  # all that is in hand, in the order of arrival
                    for task, client, trained in zip(tasks, clients, versions, strict=True):
                        assert self.in_hand.pop(task) == (client, trained)
                        self.ended[task] = client
                    self.steps.append(action)
                    self.check_step(action)
                case Drop(tasks, clients, _):
                    assert len(tasks) == len(clients) > 0
                    for task, client in zip(tasks, clients, strict=True):
                        assert self.ended.setdefault(task, client) == client
                        found = (self.open.pop(task, None), self.in_hand.pop(task, None))
                        assert sum(one is not None for one in found) == 1  # it had not ended before
                case Choose():
                    self.wanted = action
                case SetTimer(_, time):
                    assert time >= self.time
                    self.timers.append(action)
                case Ignore():
                    raise AssertionError(f"{action} about a task that is open")

    def check_step(self, step: Step) -> None:
        """Check the invariants of every step."""

    def tick(self) -> float:
        self.time += self.pause
        return self.time

    @rule(pause=st.sampled_from([0.0, 0.25, 1.0]))
    def the_clock_goes_on(self, pause):
        """Advance the clock; at 0, the next event is simultaneous."""
        self.pause = pause

    def report(self, task: int) -> None:
        client, version = self.in_hand[task] = self.open.pop(task)
        self.do(self.pace.reported(self.tick(), client, task, version))

    def answer(self, clients) -> None:
        self.wanted = None
        self.do(self.pace.chosen(self.tick(), clients))

    def candidates(self) -> list[int]:
        return [client for client in range(N) if client in self.there and self.pace.idle(client)]

    @precondition(lambda self: self.wanted is not None)
    @rule(data=st.data(), some=st.booleans())
    def choose(self, data, some):
        assert self.wanted is not None
        known = [client for client in self.wanted.first if client in self.there and self.pace.idle(client)]
        others = [client for client in self.candidates() if client not in known]
        order = known + data.draw(st.permutations(others))
        most = len(order) if self.wanted.most is None else min(self.wanted.most, len(order))
        size = data.draw(st.integers(0, most)) if some else most
        self.answer(order[:size])

    def answer_in_full(self) -> None:
        """Select the clients with a slot, and as many others as requested, the first ones first."""
        if self.wanted is not None:
            order = [client for client in self.wanted.first if client in self.there and self.pace.idle(client)]
            order += [client for client in self.candidates() if client not in order]
            self.answer(order[: self.wanted.most])

    @rule(data=st.data(), reports=st.integers(1, 9), newest=st.booleans())
    def work_goes_on(self, data, reports, newest):
        """Reports come in and new tasks go out; where only the newest ones report, the others grow stale."""
        for _ in range(reports):
            self.answer_in_full()
            if not self.open:
                return
            self.report(max(self.open) if newest else data.draw(st.sampled_from(sorted(self.open))))

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def some_report(self, data):
        self.report(data.draw(st.sampled_from(sorted(self.open))))

    @precondition(lambda self: self.ended or self.in_hand)
    @rule(data=st.data(), version=st.integers(-1, 5), dies=st.booleans())
    def report_of_a_task_that_has_ended(self, data, version, dies):
        over = self.ended | {task: client for task, (client, _) in self.in_hand.items()}
        task = data.draw(st.sampled_from(sorted(over)))
        self.nothing_happens(over[task], task, version, dies, "ended")

    @rule(client=st.integers(0, N - 1), far=st.integers(0, 99), version=st.integers(-1, 5), dies=st.booleans())
    def report_of_a_task_that_was_never_asked(self, client, far, version, dies):
        task = len(self.open) + len(self.in_hand) + len(self.ended) + far
        self.nothing_happens(client, task, version, dies, "unknown")
        self.nothing_happens(client, -1 - far, version, dies, "unknown")

    @precondition(lambda self: self.open)
    @rule(data=st.data(), dies=st.booleans())
    def report_of_somebody_elses_task(self, data, dies):
        task = data.draw(st.sampled_from(sorted(self.open)))
        client, version = self.open[task]
        self.nothing_happens((client + 1) % N, task, version, dies, "unknown")

    def nothing_happens(self, client, task, version, dies, reason) -> None:
        before = snapshot(self.pace)
        told = (
            self.pace.died(self.tick(), client, task)
            if dies
            else self.pace.reported(self.tick(), client, task, version)
        )
        assert told == [Ignore(task, client, reason)]
        assert snapshot(self.pace) == before

    @precondition(lambda self: self.open)
    @rule(data=st.data(), off=st.sampled_from([-3, -1, 1, 2]))
    def report_about_another_version(self, data, off):
        task = data.draw(st.sampled_from(sorted(self.open)))
        client, version = self.in_hand[task] = self.open.pop(task)
        told = self.pace.reported(self.tick(), client, task, version + off)
        assert told[0] == Drop([task], [client], "wrong version")
        self.do(told)

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def some_die(self, data):
        task = data.draw(st.sampled_from(sorted(self.open)))
        told = self.pace.died(self.tick(), self.open[task][0], task)
        assert told[0] == Drop([task], [self.open[task][0]], "died")
        self.do(told)

    @rule(clients=some_clients)
    def some_leave(self, clients):
        self.leave(clients)

    @precondition(lambda self: self.pace.busy())
    @rule(data=st.data())
    def somebody_leaves_who_works_or_waits(self, data):
        self.leave([data.draw(st.sampled_from(sorted(self.pace.busy())))])

    def leave(self, clients) -> None:
        self.there -= set(clients)
        self.left_once |= set(clients)
        working = {client for client, _ in self.open.values()} & set(clients)
        told = self.pace.left(self.tick(), clients)
        dropped = [action for action in told if isinstance(action, Drop) and action.reason == "left"]
        assert {client for drop in dropped for client in drop.clients} == working
        self.do(told)
        assert all(self.pace.idle(client) for client in clients)

    @rule(clients=some_clients)
    def some_join(self, clients):
        new = [client for client in clients if client not in self.there]
        self.there |= set(new)
        self.do(self.pace.joined(self.tick(), new))

    @rule()
    def saved_and_restored(self):
        other = self.fresh()
        other.restore(self.pace.state())
        assert snapshot(other) == snapshot(self.pace)
        self.pace = other

    def fresh(self) -> BoundPace:
        """The pace before anything happened."""
        raise NotImplementedError

    @invariant()
    def the_books_agree(self):
        assert self.pace.version == len(self.steps)
        assert len(self.pace.open) == len(self.open)
        assert self.pace.open.task_of == {client: task for task, (client, _) in self.open.items()}
        assert {client for client, _ in self.open.values()} <= self.there
        busy = self.pace.busy()
        assert len(set(busy)) == len(busy)
        assert set(busy) == {client for client in range(N) if not self.pace.idle(client)}
        needed = {version for _, version in (*self.open.values(), *self.in_hand.values())} | {len(self.steps)}
        assert self.pace.versions() == needed

    def teardown(self):
        """Check that a step follows soon if all clients return and none fails."""
        self.there = set(range(N))
        self.do(self.pace.joined(self.tick(), list(range(N))))
        steps = len(self.steps)
        for _ in range(50):
            if len(self.steps) > steps:
                return
            self.answer_in_full()
            for task in sorted(self.open):
                if task in self.open and len(self.steps) == steps:
                    self.report(task)
        raise AssertionError("no step is ever taken")


def snapshot(pace: BoundPace) -> dict:
    """The state in plain values."""
    return {name: value.tolist() for name, value in pace.state().items()}
