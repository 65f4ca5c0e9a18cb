"""Serve the nodes of a Flower grid: nodes are clients, messages are tasks, and replies are reports."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict  # pyright: ignore[reportMissingImports]
from flwr.serverapp import Grid  # pyright: ignore[reportMissingImports]

from turnout.deployment.server.driver import Driver
from turnout.deployment.server.happening import Happening
from turnout.deployment.server.leases import Leases
from turnout.deployment.server.service import Service
from turnout.deployment.server.store import Entry
from turnout.deployment.wire.format import Assignment, WireError, digest
from turnout.flower.arrays import Arrays
from turnout.flower.loop import ORDER, SHARED, client_part
from turnout.flower.options import Options
from turnout.flower.replies import body_of, mean, metrics_of

log = logging.getLogger("turnout.flower")

LOOK = 2
"""Looks for replies between two questions for the nodes that are connected."""


@dataclass(eq=False)
class _Sent:
    """A task that a node works on, the model that it was sent, when it is late, and its replies by the type of message."""

    client: int
    task: Assignment
    model: torch.Tensor
    due: float
    replies: dict[str, RecordDict] = field(default_factory=dict)


class GridServer(Service):
    """A server whose clients are the nodes of a grid.

    Args:
        rule: the options of the run.
        grid: of the ServerApp.
        arrays: of the model.
        driver: the coordinator in motion, after all that is in the journal.
        last: the last entry of the journal; None where it is empty.
        timeout: longest time of a task, in seconds.
        configs: by type of message, what is sent with it.

    Attributes:
        metrics: the means of what clients said of their training, by version.
    """

    def __init__(
        self,
        rule: Options,
        grid: Grid,
        arrays: Arrays,
        driver: Driver,
        last: Entry | None,
        timeout: float,
        configs: Any,
    ) -> None:
        most = driver.setting.check_clients(rule.min_nodes, None)
        super().__init__(
            driver, driver.store, last, leases=Leases(timeout), min_clients=rule.min_nodes, max_clients=most
        )
        self._rule, self._grid, self._arrays, self._timeout, self._configs = rule, grid, arrays, timeout, configs
        self._there, self._nodes = {*driver.present()}, dict[int, int]()  # clients, and the node of each
        self._sent, self._messages = dict[int, _Sent](), dict[str, int]()  # by task, and the task of each message
        self._away, self._look_at = dict[int, float](), 0.0  # until when clients whose task failed count as gone
        self._taken = driver.store.taken()
        self._unused, self._used = dict[int, MetricRecord](), list[MetricRecord]()  # metrics, before a step has them
        self.metrics: dict[int, MetricRecord] = {}

    def run_in_this_thread(self) -> None:
        """Go on until the run is over; raise what ended it before."""
        self._work()
        if self.failure is not None:
            raise self.failure
        self.stop()

    def tick(self) -> float:
        """Take replies, note who came and went, and send tasks; return in how many seconds to do so again."""
        self.stopping = self.driver.over is not None
        if not self.stopping:
            self._collect()
            if self.clock() >= self._look_at:
                self._look()
                self._look_at = self.clock() + LOOK * self._rule.poll
            self._give()
        return min(super().tick(), self._rule.poll)

    def _look(self) -> None:
        """Enrol nodes that are new, and note who came and went."""
        there = set[int]()
        for node in sorted(self._grid.get_node_ids()):
            if (client := self.enrolment.client_of(f"node {node}")) is None:
                self.enrol(f"node {node}", name=str(node))
            elif self._away.get(client, 0.0) <= self.clock():
                self._nodes[client] = node
                there.add(client)
                self.work_of(client, wait=math.inf)  # a lease that does not end: the grid says who is connected
        for client in sorted(self._there - there):
            self.leave(client)
        self._there = there

    def _give(self) -> None:
        """Send the tasks that are not yet sent, in the order in which they were given; after a restart, all open ones."""
        if (run := self.driver.run) is None:
            return
        tasks = {task.task: (client, task) for client, task in run.tasks.items()}
        self._sent = {number: sent for number, sent in self._sent.items() if number in tasks}
        self._messages = {name: number for name, number in self._messages.items() if number in tasks}
        broadcast: dict[int, tuple[torch.Tensor, RecordDict]] = {}
        for number, (client, task) in tasks.items():
            if number in self._sent or client not in self._nodes:
                continue
            if task.version not in broadcast:
                model, shared = run.coordinator.models[max(task.version, 0)], dict(run.coordinator.shared())
                records = {self._rule.arrays: ArrayRecord(self._arrays.tensors(model))}
                records |= {SHARED: ArrayRecord(shared)} if shared else {}
                broadcast[task.version] = model, RecordDict(records)
            model, records = broadcast[task.version]
            due = math.inf if self._rule.pace.steps_are_rounds else self.clock() + self._timeout  # a round has its own
            self._sent[number] = _Sent(client, task, model, due)
            self._send(self._sent[number], records)

    def _send(self, sent: _Sent, records: Mapping[str, Any]) -> None:
        """Send a task to its node, by one message of each type that it takes."""
        task, rule, content, node = sent.task, self._rule, dict(records), self._nodes[sent.client]
        if rule.mod:
            order = {name: getattr(task, name) for name in ("task", "version", "repeat", "phase")}
            order |= {"client": sent.client, "seed": rule.seed, "taken": self._taken.get(sent.client, -1)}
            order |= {"arrays": rule.arrays, "examples": rule.examples, "run": self.run}
            content[ORDER] = ConfigRecord({**order, "client_part": client_part(rule.algorithm)})
        round_ = task.version + 1
        for kind in rule.kinds(task.phase):
            content[rule.config] = ConfigRecord({**self._configs[kind], "server-round": round_})
            message = Message(RecordDict(content), node, kind, ttl=self._timeout, group_id=str(round_))
            if not any(names := [*self._grid.push_messages([message])]):
                self._lose(sent, "the grid takes no message for it")
                return
            self._messages[names[0]] = task.task

    def _collect(self) -> None:
        """Take the replies that have arrived, and give up tasks that are late."""
        for reply in self._grid.pull_messages([*self._messages]) if self._messages else ():
            sent = self._sent[self._messages.pop(reply.metadata.reply_to_message_id)]
            if reply.has_error():
                self._lose(sent, reply.error.reason)
                continue
            sent.replies[reply.metadata.message_type] = reply.content
            if sent.replies.keys() == {*self._rule.kinds(sent.task.phase)}:
                try:
                    self._take(sent)
                except WireError as error:
                    self._lose(sent, str(error))
        for sent in self._sent.values():
            if sent.due <= self.clock():
                self._lose(sent, "late")

    def _take(self, sent: _Sent) -> None:
        """Queue a report for the journal; raise `WireError` where it cannot be used."""
        task, body = sent.task, body_of(self._rule, self._arrays, sent.task.phase, sent.model, sent.replies)
        self.driver.setting.reports[task.phase].read(body, sent.client, task.version, task.repeat)
        part = self.store.files.incoming / f"{sent.client}-{task.task}-flower"
        part.write_bytes(body)
        if task.phase == "train":
            self._unused[task.task] = metrics_of(sent.replies["train"])
        self.report(sent.client, task.task, digest(body), part)

    def _lose(self, sent: _Sent, why: str) -> None:
        """Give up a task, and leave its client alone for a while."""
        log.warning("node %s: task %d is lost: %s", self._nodes[sent.client], sent.task.task, why)
        self._away[sent.client] = self.clock() + self._rule.retry
        self.leave(sent.client)
        self._there.discard(sent.client)

    def _apply(self, entry: Entry, waiting: Happening) -> list[int]:
        """Do what follows of an entry, and note which reports were taken, and what they say of training."""
        version, woken = self.driver.version, super()._apply(entry, waiting)
        if entry.kind == "report" and waiting.done.result().status == 201:
            assert entry.client is not None
            assert entry.task is not None
            self._taken[entry.client], metrics = entry.task, self._unused.pop(entry.task, None)
            self._used += [] if metrics is None else [metrics]
        if self.driver.version > version:
            self.metrics[self.driver.version], self._used = mean(self._used, self._rule.examples), []
        return woken
