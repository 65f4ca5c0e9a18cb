"""Groups of clients under any order of events: tasks end once, clients are in one group, and no group waits forever."""

from collections import deque
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from turnout.protocol.pace import Ask, BufferedGroups, Choose, Drop, Gather, Ignore, SetTimer, Step, Training

N = 9


class Sums:
    """Rounds of a masked sum, as an algorithm declares them."""

    phases = ("train", "share", "mask", "open")
    sends_in = "mask"
    continues = False


class Federation(RuleBasedStateMachine):
    """Clients that join, leave, report and drop out, and the invariants of the pace."""

    @initialize(
        b=st.integers(1, 2),
        g=st.integers(1, 4),
        most=st.sampled_from([None, 1, 2]),
        stale=st.sampled_from([None, 0, 1]),
        masks=st.booleans(),
    )
    def begin(self, b, g, most, stale, masks):
        self.options = BufferedGroups(b, g, concurrency=most, deadline=5.0, max_staleness=stale)
        self.course: Any = Sums() if masks else Training()
        self.pace: Any = self.options.bind(N, self.course)
        self.there, self.time = set(range(N)), 0.0
        self.open: dict[int, tuple[int, int, str]] = {}  # task -> client, version, phase
        self.trained: dict[int, tuple[int, int]] = {}  # tasks of training that were reported, and have not ended
        self.answered: dict[int, tuple[int, str]] = {}  # tasks of other phases
        self.ended: set[int] = set()
        self.timers: list[int] = []
        self.idle = set(range(N))  # as who chooses knows it
        self.steps = 0
        self.do(self.pace.start(0.0))

    def do(self, actions):
        todo = deque(actions)
        while todo or todo.extend(self.pace.poll()) or todo:
            self.idle |= set(self.pace.newly_idle())
            self.one(todo.popleft(), todo)

    def one(self, action, todo):
        match action:
            case Choose():
                todo.extend(self.choose(action))
            case Ask(tasks, clients, version, phase):
                busy = {client for client, *_ in self.open.values()}
                assert not busy & set(clients)
                self.open |= {t: (c, version, phase) for t, c in zip(tasks, clients, strict=True)}
            case SetTimer(timer, time):
                assert time == self.time + 5.0
                assert timer in self.pace.timers
                self.timers.append(timer)
            case Gather(phase, tasks, clients):
                for task, client in zip(tasks, clients, strict=True):
                    assert self.answered.pop(task) == (client, phase)
                    self.end(task)
            case Drop(tasks, clients):
                for task, client in zip(tasks, clients, strict=True):
                    places = (self.open.pop(task, None), self.trained.pop(task, None))
                    assert [place[0] for place in places if place is not None] == [client]
                    self.end(task)
            case Step(version, tasks, clients, versions, groups):
                assert version == self.steps
                assert len(groups) == self.options.buffer_size
                assert len(set(clients)) == len(clients)
                for task, client, trained in zip(tasks, clients, versions, strict=True):
                    assert self.trained.pop(task) == (client, trained)
                    self.end(task)
                most = self.options.max_staleness
                self.steps += 1
                if most is not None and self.options.buffer_size == 1:
                    assert all(version - trained <= most for trained in versions)
            case Ignore():
                raise AssertionError("a report of an open task was ignored")

    def choose(self, wanted):
        """Select like a server: a group of idle clients, or the present clients of a group."""
        if wanted.phase == "train":
            able = sorted(self.idle & self.there)
            assert all(self.pace.idle(client) for client in able)
            chosen = able[: wanted.most] if len(able) >= wanted.least else []
            self.idle -= set(chosen)
        else:
            chosen = [client for client in wanted.first if client in self.there]
            chosen = chosen if len(chosen) >= 2 else []
        return self.pace.chosen(self.time, chosen, wanted.group)

    def end(self, task):
        assert task not in self.ended
        self.ended.add(task)

    @rule(data=st.data(), many=st.integers(1, 6))
    def clients_answer(self, data, many):
        for _ in range(many):
            if self.open:
                task = data.draw(st.sampled_from(sorted(self.open)))
                client, version, phase = self.open.pop(task)
                if phase == "train":
                    self.trained[task] = client, version
                else:
                    self.answered[task] = client, phase
                self.time += 1.0
                self.do(self.pace.reported(self.time, client, task, version))

    @rule(data=st.data())
    def a_client_drops_out(self, data):
        if self.open:
            task = data.draw(st.sampled_from(sorted(self.open)))
            self.do(self.pace.died(self.time, self.open[task][0], task))

    @rule(clients=st.lists(st.integers(0, N - 1), unique=True, max_size=4))
    def clients_go(self, clients):
        gone = [client for client in clients if client in self.there]
        self.there -= set(gone)
        self.do(self.pace.left(self.time, gone))
        assert not {client for client, *_ in self.open.values()} & set(gone)

    @rule(clients=st.lists(st.integers(0, N - 1), unique=True, max_size=6))
    def clients_come(self, clients):
        come = [client for client in clients if client not in self.there]
        self.there |= set(come)
        self.do(self.pace.joined(self.time, come))

    @rule(data=st.data())
    def a_timer_runs_out(self, data):
        if self.timers:
            self.do(self.pace.expired(self.time, data.draw(st.sampled_from(self.timers))))

    @rule()
    def the_server_starts_again(self):
        state = self.pace.state()
        self.pace = self.options.bind(N, self.course)
        self.pace.restore(state)
        for name, value in self.pace.state().items():
            assert value.tolist() == state[name].tolist(), name

    @invariant()
    def nobody_waits_for_nobody(self):
        if not hasattr(self, "pace"):
            return
        at_work = {client for client, *_ in self.open.values()}
        for group in self.pace.active.values():
            assert group.is_running
            assert at_work & set(group.members)
        busy = self.pace.busy()
        assert len(set(busy)) == len(busy)
        assert at_work <= set(busy)
        assert {client for client, _ in self.trained.values()} <= set(busy)
        assert self.idle == set(range(N)) - set(busy)
        assert sorted(self.pace.pending()) == sorted((task, *rest) for task, rest in self.trained.items())
        assert {version for _, version in self.trained.values()} <= self.pace.versions()
        assert len(self.pace.active) <= (self.options.concurrency or N)
        assert len(self.pace.buffer) < self.options.buffer_size
        wanting = self.pace._may_begin
        assert not wanting or len(self.idle & self.there) < self.options.group_size or not self.there


TestGroups = Federation.TestCase
TestGroups.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)


def begun(*groups: list[int], course: Any = None, **options: Any) -> tuple[Any, list[Any]]:
    """A pace with these groups at work; the tasks of each."""
    pace = BufferedGroups(group_size=len(groups[0]), **options).bind(N, course or Sums())
    pace.start(0.0)
    asked: list[Any] = [pace.chosen(0.0, group)[0] for group in groups]
    assert all(isinstance(ask, Ask) for ask in asked)
    return pace, [ask.tasks for ask in asked]


def done(pace: Any, tasks: Any, clients: list[int], version: int = 0) -> Any:
    """Let clients report, and return the resulting actions."""
    for task, client in zip(tasks, clients, strict=True):
        assert pace.reported(1.0, client, task, version) == []
    return pace.poll()


def through(pace: Any, group: int, clients: list[int], tasks: Any, version: int = 0) -> Any:
    """Take a group through all phases, and return the actions after the last one."""
    actions = done(pace, tasks, clients, version)
    while isinstance(actions[-1], Choose) and actions[-1].group == group:
        ask = pace.chosen(1.0, clients, group)[0]
        assert (ask.version, list(ask.clients)) == (version, list(clients))
        actions = done(pace, ask.tasks, clients, version)
    return actions


def test_group_keeps_its_version_over_later_steps():
    pace, (first, second) = begun([0, 1], [2, 3], buffer_size=1)
    assert isinstance(through(pace, 1, [0, 1], first)[1], Step)
    step = through(pace, 2, [2, 3], second)[1]
    assert (step.version, tuple(step.versions), step.groups) == (1, (0, 0), (2,))


def test_too_stale_group_is_dropped():
    pace, tasks = begun([0, 1], [2, 3], [4, 5], buffer_size=1, max_staleness=1)
    assert isinstance(through(pace, 1, [0, 1], tasks[0])[1], Step)
    assert isinstance(through(pace, 2, [2, 3], tasks[1])[1], Step)  # one step behind
    gathered, dropped, _ = through(pace, 3, [4, 5], tasks[2])
    assert isinstance(gathered, Gather)
    assert (dropped.reason, list(dropped.clients), pace.version) == ("stale", [4, 5], 2)
    assert pace.idle(4)


def test_deadline_ends_only_its_own_phase():
    pace, (tasks,) = begun([0, 1, 2], buffer_size=1, deadline=5.0)
    (train,) = pace.timers
    done(pace, tasks, [0, 1, 2])
    assert pace.timers == set()
    ask, timer = pace.chosen(2.0, [0, 1, 2], 1)
    assert timer == SetTimer(train + 1, 7.0)
    assert pace.expired(6.0, train) == []
    assert pace.reported(6.5, 0, ask.tasks[0], 0) == []
    late, gathered, _ = pace.expired(7.0, train + 1)
    assert (late.reason, list(late.clients)) == ("late", [1, 2])
    assert (gathered.phase, list(gathered.clients)) == ("share", [0])
    assert pace.expired(8.0, train + 1) == []


def test_client_without_masked_update_is_not_in_the_step():
    pace, (tasks,) = begun([0, 1, 2], buffer_size=1)
    done(pace, tasks, [0, 1, 2])
    share = pace.chosen(1.0, [0, 1, 2], 1)[0]
    done(pace, share.tasks, [0, 1, 2])
    mask = pace.chosen(1.0, [0, 1, 2], 1)[0]
    assert pace.died(1.0, 1, mask.tasks[1])[0].reason == "died"
    lost, gathered, wanted = done(pace, [mask.tasks[0], mask.tasks[2]], [0, 2])
    assert (lost.reason, list(lost.tasks)) == ("unsummed", [tasks[1]])
    assert list(gathered.clients) == list(wanted.first) == [0, 2]
    opened = pace.chosen(1.0, [0, 2], 1)[0]
    _, step, _ = done(pace, opened.tasks, [0, 2])
    assert list(step.tasks) == [tasks[0], tasks[2]]
    assert sorted(pace.newly_idle()) == [0, 1, 2]
    assert pace.newly_idle() == []


def test_resumed_run_drops_groups_in_progress():
    pace, (tasks, _) = begun([0, 1], [2, 3], buffer_size=2)
    done(pace, tasks, [0, 1])
    dropped, wanted = pace.resume(9.0)
    assert (dropped.reason, list(dropped.clients)) == ("unsummed", [0, 1])
    assert isinstance(wanted, Choose)
    assert pace.busy() == []
    assert sorted(pace.newly_idle()) == [0, 1, 2, 3]


def test_irrelevant_arrivals_and_departures_change_nothing():
    pace, _ = begun([0, 1], buffer_size=1, concurrency=1)
    assert pace.ignores(5, joins=True)
    assert pace.ignores(5, joins=False)
    assert not pace.ignores(0, joins=False)
    free, _ = begun([0, 1], buffer_size=1, concurrency=2)
    assert not free.ignores(5, joins=True)
