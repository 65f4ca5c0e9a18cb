"""Serve the nodes of a Flower grid: nodes are clients, messages are tasks, and replies are reports."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict  # pyright: ignore[reportMissingImports]
from flwr.serverapp import Grid  # pyright: ignore[reportMissingImports]

from turnout.core.display import printable
from turnout.deployment.server.driver import Driver
from turnout.deployment.server.leases import Leases
from turnout.deployment.server.options import Options as ServerOptions
from turnout.deployment.server.served import Applied
from turnout.deployment.server.service import Service
from turnout.deployment.server.store import Entry
from turnout.deployment.wire.format import Assignment, digest
from turnout.flower.arrays import Arrays
from turnout.flower.loop import ORDER, SHARED, client_part
from turnout.flower.options import Options
from turnout.flower.replies import body_of, mean, metrics_of

log = logging.getLogger("turnout.flower")


@dataclass(frozen=True, eq=False)
class _Sent:
    """A task that a node works on, and its replies by the type of message."""

    client: int
    node: int
    task: Assignment
    replies: dict[str, RecordDict] = field(default_factory=dict)


class GridServer(Service):
    """A server whose clients are the nodes of a grid.

    Args:
        rule: the options of the run.
        grid: of the ServerApp.
        arrays: of the model.
        driver: the coordinator in motion, after all that is in the journal.
        last: the last entry of the journal; None where it is empty.
        timeout: longest time of a task, in seconds; the grid answers with an error then.
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
        configs: Mapping[str, Mapping[str, Any]],
    ) -> None:
        most = driver.setting.check_clients(rule.min_nodes, None)
        options = ServerOptions(leases=Leases(timeout), min_clients=rule.min_nodes, max_clients=most)
        super().__init__(driver, driver.store, last, options)
        self._rule, self._grid, self._arrays, self._timeout, self._configs = rule, grid, arrays, timeout, configs
        self._nodes = dict[int, int]()  # of each client that is connected
        self._away = dict[int, float]()  # until when clients whose task failed count as gone
        self._sent = dict[int, _Sent]()  # by task, until it ends: one that is lost is not sent again meanwhile
        self._messages = dict[str, tuple[int, str]]()  # task and type of each message without a reply
        self._taken, self._version = driver.store.taken(), driver.version
        # Numbers of examples and metrics: of tasks whose report is not written yet, and of reports since the last step.
        self._unused, self._used = dict[int, tuple[int, MetricRecord]](), list[tuple[int, MetricRecord]]()
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
            self._look()
            self._give()
        return min(super().tick(), self._rule.poll)

    def _look(self) -> None:
        """Enrol nodes that are new, and note who came and went."""
        before, self._nodes = {*self._nodes, *self.driver.present()}, {}
        for node in sorted(self._grid.get_node_ids()):
            if (client := self.enrolment.client_of(f"node {node}")) is None:
                self.enrol(f"node {node}", name=str(node))
            elif self._away.get(client, 0.0) <= self.clock():
                self._nodes[client] = node
                self.work_of(client, wait=math.inf)  # a lease that does not end: the grid says who is connected
        for client in sorted(before - self._nodes.keys()):
            self.leave(client)

    def _give(self) -> None:
        """Send the tasks that are not yet sent, in the order in which they were given; after a restart, all open ones."""
        tasks = {} if self.driver.run is None else self.driver.run.tasks
        broadcast, messages = dict[int, dict[str, Any]](), list[tuple[_Sent, str, Message]]()
        for client, task in tasks.items():
            if task.task in self._sent or client not in self._nodes:
                continue
            if task.version not in broadcast:
                broadcast[task.version] = self._records(task)
            sent, records = _Sent(client, self._nodes[client], task), broadcast[task.version]
            self._sent[task.task] = sent
            messages += [(sent, kind, self._message(sent, kind, records)) for kind in self._rule.kinds(task.phase)]
        names = self._grid.push_messages([message for *_, message in messages]) if messages else ()
        for (sent, kind, _), name in zip_longest(messages, names):
            if name:
                self._messages[name] = sent.task.task, kind
            elif sent.client in self._nodes:
                self._lose(sent, "the grid takes no message for it")

    def _model(self, task: Assignment) -> torch.Tensor:
        """Return the model of an open task, ``[P_u]``."""
        assert self.driver.run is not None
        return self.driver.run.coordinator.models[max(task.version, 0)]

    def _records(self, task: Assignment) -> dict[str, Any]:
        """Return what all nodes get that train from the version of a task."""
        assert self.driver.run is not None
        records = {self._rule.arrays: ArrayRecord(self._arrays.tensors(self._model(task)))}
        shared = dict(self.driver.run.coordinator.shared())
        return records | ({SHARED: ArrayRecord(shared)} if shared else {})

    def _message(self, sent: _Sent, kind: str, records: Mapping[str, Any]) -> Message:
        """Return the message of a type by which a node gets its task."""
        task, rule, round_ = sent.task, self._rule, sent.task.version + 1
        content = {**records, rule.config: ConfigRecord({**self._configs[kind], "server-round": round_})}
        if rule.mod:
            order = {name: getattr(task, name) for name in ("task", "version", "repeat", "phase")}
            order |= {"client": sent.client, "seed": rule.seed, "taken": self._taken.get(sent.client, -1)}
            order |= {"arrays": rule.arrays, "examples": rule.examples, "run": self.run}
            content[ORDER] = ConfigRecord({**order, "client_part": client_part(rule.algorithm)})
        return Message(RecordDict(content), sent.node, kind, ttl=self._timeout, group_id=str(round_))

    def _collect(self) -> None:
        """Take the replies that have arrived; those that nobody waits for, such as second ones, are left out."""
        self._messages = {name: (task, kind) for name, (task, kind) in self._messages.items() if task in self._sent}
        for reply in self._grid.pull_messages([*self._messages]) if self._messages else ():
            number, kind = self._messages.get(name := reply.metadata.reply_to_message_id, (-1, ""))
            sent, node = self._sent.get(number), reply.metadata.src_node_id
            if sent is None or not (reply.has_error() or node == sent.node):  # an error may be one of the grid's
                log.warning("node %s: a reply to no message of its own", node)
                continue
            del self._messages[name]
            if reply.has_error():
                self._lose(sent, reply.error.reason)
                continue
            try:
                sent.replies[kind] = reply.content
                if sent.replies.keys() == {*self._rule.kinds(sent.task.phase)}:
                    self._take(sent)
            except ValueError as error:  # a `WireError`, or a message without content
                self._lose(sent, str(error))

    def _take(self, sent: _Sent) -> None:
        """Queue a report for the journal; raise `WireError` where it cannot be used."""
        task = sent.task
        body = body_of(self._rule, self._arrays, task.phase, self._model(task), sent.replies)
        report = self.driver.setting.reports[task.phase].read(body, sent.client, task.version, task.repeat)
        part = self.store.files.incoming / f"{sent.client}-{task.task}-flower"
        self.store.until_done(lambda: part.write_bytes(body))
        if task.phase == "train":
            self._unused[task.task] = int(report.num_examples[0]), metrics_of(sent.replies["train"])
        self.report(sent.client, task.task, digest(body), part)

    def _lose(self, sent: _Sent, why: str) -> None:
        """Give up a task for a reason that its node may have written, and leave its client alone for a while."""
        why = printable(why, 500).replace("\n", " ")
        log.warning("node %s: task %d is lost: %s", sent.node, sent.task.task, why)
        self._away[sent.client] = self.clock() + self._rule.retry
        self._nodes.pop(sent.client, None)
        self.leave(sent.client)

    def _note(self, applied: Applied) -> None:
        """Take up what has followed: which reports were taken, and what they say of training once there is a step."""
        super()._note(applied)
        for outcome in applied.outcomes:
            self._sent.pop(outcome.task, None)
            metrics = self._unused.pop(outcome.task, None)
            if outcome.outcome == "taken":
                self._taken[outcome.client] = outcome.task
                self._used += [metrics] if metrics else []
        if self.driver.version > self._version:
            self.metrics[self.driver.version] = mean(self._used, self._rule.examples)
            self._version, self._used = self.driver.version, []
