"""Drive a run over a Flower grid: nodes are clients, messages are tasks, and replies are reports."""

from __future__ import annotations

import heapq
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict  # pyright: ignore[reportMissingImports]
from flwr.serverapp import Grid  # pyright: ignore[reportMissingImports]
from flwr.serverapp.strategy import Result  # pyright: ignore[reportMissingImports]

from turnout.core.types import State
from turnout.deployment.server import noise
from turnout.deployment.server.driver import Driver
from turnout.deployment.server.happening import Happening
from turnout.deployment.server.ledger import Ledger
from turnout.deployment.server.recovery import recover
from turnout.deployment.server.setting import RunSetting
from turnout.deployment.server.store import Entry, Store
from turnout.deployment.server.verdicts import hashed
from turnout.deployment.server.writer import Writer
from turnout.deployment.wire.format import Assignment, WireError, digest
from turnout.flower.arrays import Arrays
from turnout.flower.client import client_part
from turnout.flower.client_mod import ORDER, SHARED
from turnout.flower.options import Options
from turnout.flower.replies import Replies, mean, metrics_of
from turnout.protocol.pace import Rounds
from turnout.record import storage
from turnout.record.describe import describe
from turnout.record.environment import environment

log = logging.getLogger("turnout.flower")

LOOK = 2
"""How many looks for replies there are for one question for the nodes that are connected."""


@dataclass(eq=False)
class _Sent:
    """A task that a node works on: its messages, by type, and the replies that are there."""

    client: int
    task: Assignment
    model: torch.Tensor
    due: float
    lost: bool = False
    replies: dict[str, RecordDict] = field(default_factory=dict)


class GridServer(Writer):
    """A run between the nodes of a grid, in one thread; the arguments are those of `run`."""

    def __init__(
        self,
        rule: Options,
        grid: Grid,
        arrays: Arrays,
        replies: Replies,
        timeout: float,
        configs: Mapping[str, Any],
        driver: Driver,
        last: Entry | None,
    ) -> None:
        super().__init__(driver, driver.store, last, None, checkpoint_every=60.0, keep_reports=None, max_empty_steps=10)
        self._rule, self._grid, self._arrays, self._replies = rule, grid, arrays, replies
        self._timeout, self._configs = timeout, configs
        self._clients, self._most = driver.store.clients(), driver.setting.check_clients(rule.min_nodes, None)
        self._node: dict[int, int] = {}  # of each client that was seen
        self._sent: dict[int, _Sent] = {}  # by task
        self._tasks: dict[str, int] = {}  # by message
        self._away: dict[int, float] = {}  # until when clients whose task failed do not count as there
        self._timers = [(due, timer) for timer, due in driver.timers()]
        self._starting, self._look_at = driver.started, 0.0
        self._metrics: dict[int, MetricRecord] = {}  # of reports that are not yet applied, by task
        self._reported: list[MetricRecord] = []  # since the last step
        self.means: dict[int, MetricRecord] = {}  # by version
        self._run, self._taken = driver.store.run, driver.store.taken()
        self._client_part = client_part(rule.algorithm)

    def run(self) -> None:
        """Go on until the run is over; raise what ended it before."""
        self._work()
        if self.failure is not None:
            raise self.failure
        self.stop()

    def tick(self) -> float:
        """Take replies, note nodes and timers, and send tasks; return in how many seconds to do so again."""
        if self._queue or self.driver.over is not None:  # there are events that a full disk has not taken yet
            self.stopping = self.driver.over is not None
            return 0.0
        now = self.clock()
        self._collect()
        if now >= self._look_at:
            self._look(now)
            self._look_at = now + LOOK * self._rule.poll
        while self._timers and self._timers[0][0] <= now:
            self._put(Happening("timer", data={"timer": heapq.heappop(self._timers)[1]}))
        if not self._rule.pace.steps_are_rounds:  # a round has a deadline for all
            for sent in self._sent.values():
                if sent.due <= now:
                    self._lose(sent, "late")
        if not self._starting and len(self.driver.roster.there()) >= self._rule.min_nodes:
            self._starting = True
            rounds = self.driver.setting.rounds
            self._put(Happening("start", data={"rounds": rounds, **noise.first(self._rule.algorithm)}))
        self._give(now)
        return self._rule.poll

    def _look(self, now: float) -> None:
        """Note which nodes came and went."""
        there = {client for node in sorted(self._grid.get_node_ids()) if (client := self._client_of(node)) is not None}
        present = set(self.driver.present())
        for client in sorted(there ^ present):
            if self._away.get(client, now) <= now:
                self._put(Happening("join" if client in there else "leave", client))

    def _client_of(self, node: int) -> int | None:
        """Return the number of a node, which is enrolled when it is seen first; None where there are too many."""
        token = hashed(f"node {node}")
        if token not in self._clients:
            if len(self._clients) >= self._most:
                return None
            self._clients[token] = len(self._clients)
            self._put(Happening("enrol", self._clients[token], digest=token, data={"name": str(node)}))
        self._node[self._clients[token]] = node
        return self._clients[token]

    def _give(self, now: float) -> None:
        """Send the tasks that are not yet sent, after a restart all that are open."""
        if (run := self.driver.run) is None:
            return
        open_tasks = {task.task for task in run.tasks.values()}
        self._sent = {task: sent for task, sent in self._sent.items() if task in open_tasks}
        models: dict[int, RecordDict] = {}
        for client, task in run.tasks.items():
            if task.task not in self._sent and client in self._node:
                model = run.coordinator.models[max(task.version, 0)]
                if task.version not in models:
                    models[task.version] = self._broadcast(model, run.coordinator.shared())
                self._send(_Sent(client, task, model, now + self._timeout), models[task.version])

    def _broadcast(self, model: torch.Tensor, shared: State) -> RecordDict:
        """Return the records that are the same for all clients who train from a model."""
        records = RecordDict({self._rule.arrays: ArrayRecord(self._arrays.tensors(model))})
        return RecordDict({**records, SHARED: ArrayRecord(dict(shared))}) if shared else records

    def _send(self, sent: _Sent, broadcast: RecordDict) -> None:
        """Send a task to its node, by one message for each type that it takes."""
        task, rule, content = sent.task, self._rule, dict(broadcast)
        self._sent[task.task] = sent
        if rule.mod:
            numbers = {name: getattr(task, name) for name in ("task", "version", "repeat", "phase")}
            numbers |= {"client": sent.client, "seed": rule.seed, "taken": self._taken.get(sent.client, -1)}
            names = {
                "arrays": rule.arrays,
                "examples": rule.examples,
                "run": self._run,
                "client_part": self._client_part,
            }
            content[ORDER] = ConfigRecord(numbers | names)
        for kind in rule.kinds(task.phase):
            round_ = task.version + 1
            content[rule.config] = ConfigRecord({**self._configs[kind], "server-round": round_})
            message = Message(
                RecordDict(content), self._node[sent.client], kind, ttl=self._timeout, group_id=str(round_)
            )
            ids = list(self._grid.push_messages([message]))
            if not any(ids):
                self._lose(sent, "the grid takes no message for it")
                return
            self._tasks[ids[0]] = task.task

    def _collect(self) -> None:
        """Take the replies that have arrived."""
        for reply in self._grid.pull_messages(list(self._tasks)) if self._tasks else ():
            sent = self._sent.get(self._tasks.pop(reply.metadata.reply_to_message_id, -1))
            if sent is None or sent.lost:
                continue  # its task has ended
            if reply.has_error():
                self._lose(sent, reply.error.reason)
                continue
            sent.replies[reply.metadata.message_type] = reply.content
            if sent.replies.keys() == {*self._rule.kinds(sent.task.phase)}:
                try:
                    self._take(sent)
                except WireError as error:
                    self._lose(sent, str(error))

    def _take(self, sent: _Sent) -> None:
        """Queue a report for the journal; raise `WireError` where it cannot be used."""
        task, body = sent.task, self._replies.body(sent.task, sent.model, sent.replies)
        self.driver.setting.reports[task.phase].read(body, sent.client, task.version, task.repeat)
        part = self.store.files.incoming / f"{sent.client}-{task.task}-flower"
        part.write_bytes(body)
        if task.phase == "train":
            self._metrics[task.task] = metrics_of(sent.replies["train"])
        self._put(Happening("report", sent.client, task.task, digest(body), file=part))

    def _lose(self, sent: _Sent, why: str) -> None:
        """Give up a task, and leave its client alone for a while."""
        if sent.lost:
            return
        log.warning("node %s: task %d is lost: %s", self._node[sent.client], sent.task.task, why)
        sent.lost = True
        self._away[sent.client] = self.clock() + self._rule.retry
        self._put(Happening("leave", sent.client, data={"reason": "late" if why == "late" else "failed"}))

    def _apply(self, entry: Entry, waiting: Happening) -> list[int]:
        """Do what follows of an entry."""
        del waiting
        version, applied = self.driver.version, self.driver.apply(entry)
        self._outcomes += applied.outcomes
        self._taken |= {outcome.client: outcome.task for outcome in applied.outcomes if outcome.outcome == "taken"}
        for timer, due in applied.timers:
            heapq.heappush(self._timers, (due, timer))
        if entry.kind == "report" and entry.task in self._metrics:
            self._reported.append(self._metrics.pop(entry.task))
        if self.driver.version > version:
            self.means[self.driver.version], self._reported = mean(self._reported, self._rule.examples), []
        return []


def run(
    rule: Options,
    grid: Grid,
    initial: ArrayRecord,
    rounds: int,
    timeout: float,
    configs: Mapping[str, Any],
    evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None,
) -> Result:
    """Train over a grid, from where the journal in the rule's folder ends. See `Rule.start`."""
    result, folder, algorithm = Result(), Path(rule.folder), rule.algorithm

    def score(version: int, params: torch.Tensor) -> dict[str, float]:
        found = None if evaluate_fn is None else evaluate_fn(version, ArrayRecord(arrays.tensors(params)))
        if found is not None:
            result.evaluate_metrics_serverapp[version] = found
        return {f"test_{name}": float(value) for name, value in (found or {}).items() if isinstance(value, int | float)}

    with storage.locked(folder):
        arrays = Arrays.of_run(folder, dict(initial.to_torch_state_dict()), algorithm.personal)
        vector, replies = arrays.vector(arrays.first)[: arrays.layout.num_shared], Replies(rule, arrays)
        decides = {name: describe(getattr(rule, name)) for name in ("algorithm", "pace", "seed", "requirement", "loss")}
        about = {"kind": "flower", "rounds": rounds, "arrays": describe(arrays.layout), **decides}
        pace = rule.pace
        if isinstance(pace, Rounds) and pace.deadline is None:
            pace = replace(pace, deadline=timeout)
        setting = RunSetting(
            algorithm=algorithm, pace=pace, rounds=rounds, seed=rule.seed, evaluate_every=rule.evaluate_every,
            record_weights=False, initial=vector, reports=replies.formats, heartbeat=timeout, description=about,
            trained=arrays.trained(), score=score,
        )  # fmt: skip
        store = Store(folder)
        try:
            store.claim()
            driver = Driver(setting, store, Ledger(folder, setting))
            last = recover(driver, store, folder)
            files = {"config.json": about, "environment.json": environment()}  # by which reports know a run
            storage.save(folder, {name: storage.json_writer(table) for name, table in files.items()})
            if not driver.started:
                if (plan := algorithm.privacy) is not None:
                    plan.check_correlation(rounds)
                    plan.check(rounds)
                score(0, vector)
            server = GridServer(rule, grid, arrays, replies, timeout, configs, driver, last)
            server.run()
        finally:
            store.close()
    result.arrays, result.train_metrics_clientapp = ArrayRecord(arrays.tensors(driver.params)), server.means
    return result
