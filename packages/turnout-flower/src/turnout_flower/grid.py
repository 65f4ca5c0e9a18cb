"""Serve the nodes of a Flower grid: nodes are clients, messages are tasks, and replies are reports."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from itertools import zip_longest
from typing import Any

import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict  # pyright: ignore[reportMissingImports]
from flwr.serverapp import Grid  # pyright: ignore[reportMissingImports]

from turnout.core.display import printable
from turnout.protocol.published import Published
from turnout_flower.arrays import Arrays
from turnout_flower.loop import ORDER, SHARED, client_part
from turnout_flower.options import Options
from turnout_flower.replies import body_of, mean, metrics_of
from turnout_serve.server.journal.driver import Driver
from turnout_serve.server.journal.entries import Effects, Entry
from turnout_serve.server.journal.events import Event
from turnout_serve.server.journal.handler import EntryHandler
from turnout_serve.server.leases import Leases
from turnout_serve.server.options import Options as ServerOptions
from turnout_serve.server.service import Service
from turnout_serve.server.verdicts import Verdict
from turnout_serve.wire.assignment import Assignment
from turnout_serve.wire.format import digest

log = logging.getLogger("turnout_flower")

_WRITES = 3  # of a report whose file is damaged


@dataclass(eq=False)
class _Sent:
    """A task of a node.

    Attributes:
        client, node: numbers of the client.
        task: the task.
        model: model that the task starts from, ``[P_u]``.
        replies: replies by the type of message.
        damaged: how often the report was damaged on the disk.
    """

    client: int
    node: int
    task: Assignment
    model: torch.Tensor
    replies: dict[str, RecordDict] = field(default_factory=dict)
    damaged: int = 0


class GridServer(EntryHandler):
    """A server whose clients are the nodes of a grid: a `Service` whose requests are messages instead of HTTP.

    Args:
        rule: the options of the run.
        grid: the grid of the ServerApp.
        arrays: the arrays of the model.
        driver: the driver, after it has replayed the journal.
        last: the last entry of the journal; None if it is empty.
        timeout: maximum duration of a task in seconds, after which the grid replies with an error.
        configs: the configuration that is sent with each type of message.

    Attributes:
        metrics: the means of clients' metrics of training, by version; empty with differential privacy, because these
            have no noise.
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
        self.driver, self._service = driver, Service(driver, last, options)
        super().__init__(driver, self._service.enrollment, self._service.timeouts, rule.min_nodes)
        self._writer = self._service.writer
        self._writer.handler = self
        self._rule, self._grid, self._arrays, self._timeout, self._configs = rule, grid, arrays, timeout, configs
        self._nodes = dict[int, int]()  # the node of each connected client
        self._retry_at = dict[int, float]()  # when clients whose task failed count as available again
        self._sent = dict[int, _Sent]()  # by task, until it ends; lost tasks stay, so that they are not sent again
        self._messages = dict[str, tuple[int, str]]()  # task and type of each message without a reply
        self._taken, self._version = driver.store.outcomes.taken(), driver.version
        # Numbers of examples and metrics, of reports that are not yet written, and of reports since the last step.
        self._unused, self._used = dict[int, tuple[int, MetricRecord]](), list[tuple[int, MetricRecord]]()
        self.metrics: dict[int, MetricRecord] = {}
        self._publishes_metrics = Published(rule.algorithm).data

    def run_in_this_thread(self) -> None:
        """Serve until the run is over; raise the error that ends it early."""
        self._writer.run()
        if self._writer.failure is not None:
            raise self._writer.failure
        self._writer.stop()

    def tick(self) -> float:
        """Collect replies, update the connected nodes, and send tasks; return the seconds until the next call."""
        self._writer.stopping = self.driver.over is not None
        if not self._writer.stopping:
            self._collect()
            self._update_nodes()
            self._send()
        return min(super().tick(), self._rule.poll)

    def _update_nodes(self) -> None:
        """Enroll new nodes, and record which nodes connected or disconnected."""
        before, self._nodes = {*self._nodes, *self.driver.present()}, {}
        for node in sorted(self._grid.get_node_ids()):
            if (client := self._service.enrollment.client_of(f"node {node}")) is None:
                self._service.enroll(f"node {node}", name=str(node))
            elif self._retry_at.get(client, 0.0) <= self._service.clock():
                self._nodes[client] = node
                # An endless lease, because the grid knows which nodes are connected.
                self._service.work_of(client, wait=math.inf)
        for client in sorted(before - self._nodes.keys()):
            self._service.leave(client)

    def _send(self) -> None:
        """Send the open tasks that are not yet sent, in order; after a restart, these are all open tasks."""
        messages = list(self._new_messages())
        if messages and self.driver.run is not None and self.driver.run.min_clients > 1:
            self._writer.put(Event("restart", data={"min_clients": 1}))  # later rounds go on without nodes that fail
        names = self._grid.push_messages([message for *_, message in messages]) if messages else ()
        for (sent, kind, _), name in zip_longest(messages, names):
            if name:
                self._messages[name] = sent.task.task, kind
            elif sent.client in self._nodes:
                self._lose(sent, "the grid takes no message for it")

    def _new_messages(self) -> Iterator[tuple[_Sent, str, Message]]:
        """Yield the messages of open tasks that are not yet sent, with their types."""
        if (run := self.driver.run) is None:
            return
        broadcast = dict[int, dict[str, Any]]()
        for client, task in self.driver.tasks.training():
            if task.task in self._sent or client not in self._nodes:
                continue
            model = run.server.models[max(task.version, 0)]
            if task.version not in broadcast:
                shared = dict(run.server.shared())
                records = {self._rule.arrays: ArrayRecord(self._arrays.tensors(model))}
                broadcast[task.version] = records | ({SHARED: ArrayRecord(shared)} if shared else {})
            sent = self._sent[task.task] = _Sent(client, self._nodes[client], task, model)
            for kind in self._rule.kinds(task.phase):
                yield sent, kind, self._message(sent, kind, broadcast[task.version])

    def _message(self, sent: _Sent, kind: str, records: Mapping[str, Any]) -> Message:
        """Return the message of a task, of this type."""
        task, rule, round_ = sent.task, self._rule, sent.task.version + 1
        content = {**records, rule.config: ConfigRecord({**self._configs[kind], "server-round": round_})}
        if rule.mod:
            order = {name: getattr(task, name) for name in ("task", "version", "repeat", "phase")}
            order |= {"client": sent.client, "seed": rule.seed, "taken": self._taken.get(sent.client, -1)}
            order |= {"arrays": rule.arrays, "examples": rule.examples, "run": self._service.run}
            content[ORDER] = ConfigRecord({**order, "client_part": client_part(rule.algorithm)})
        return Message(RecordDict(content), sent.node, kind, ttl=self._timeout, group_id=str(round_))

    def _collect(self) -> None:
        """Process the replies that have arrived; unexpected ones, such as second replies, are ignored."""
        self._messages = {name: (task, kind) for name, (task, kind) in self._messages.items() if task in self._sent}
        for reply in self._grid.pull_messages([*self._messages]) if self._messages else ():
            number, kind = self._messages.get(name := reply.metadata.reply_to_message_id, (-1, ""))
            sent, node = self._sent.get(number), reply.metadata.src_node_id
            if sent is None or not (reply.has_error() or node == sent.node):  # errors may come from the grid itself
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
        """Queue a report for the journal; raise `WireError` if it is unusable."""
        task = sent.task
        body = body_of(self._rule, self._arrays, task.phase, sent.model, sent.replies)
        report = self.driver.setting.reports[task.phase].read(body, sent.client, task.version, task.repeat)
        part = self.driver.store.files.incoming / f"{sent.client}-{task.task}-flower"
        self.driver.store.until_done(lambda: part.write_bytes(body))
        if task.phase == "train":
            self._unused[task.task] = int(report.num_examples[0]), metrics_of(sent.replies["train"])
        self._service.report(sent.client, task.task, digest(body), part).add_done_callback(partial(self._rewrite, sent))

    def _rewrite(self, sent: _Sent, answered: Future[Verdict]) -> None:
        """Queue a report again whose file was damaged before the journal had it: no client would send it again."""
        if sent.task.task not in self._sent or answered.exception() or "offset" not in answered.result().body:
            return
        sent.damaged += 1
        if sent.damaged < _WRITES:
            self._take(sent)
        else:
            self._lose(sent, f"its report was damaged {_WRITES} times on the disk of the server")

    def _lose(self, sent: _Sent, why: str) -> None:
        """Drop a task, and treat its client as unavailable for a while.

        Args:
            sent: the task.
            why: the reason, possibly untrusted text of the node.
        """
        why = printable(why, 500).replace("\n", " ")
        log.warning("node %s: task %d is lost: %s", sent.node, sent.task.task, why)
        self._retry_at[sent.client] = self._service.clock() + self._rule.retry
        self._nodes.pop(sent.client, None)
        self._service.leave(sent.client)

    def apply(self, entry: Entry, event: Event) -> Effects:
        """Apply an entry as `EntryHandler.apply`, and average the metrics of training after a step."""
        effects = super().apply(entry, event)
        for outcome in effects.outcomes:
            self._sent.pop(outcome.task, None)
            metrics = self._unused.pop(outcome.task, None)
            if outcome.outcome == "taken":
                self._taken[outcome.client] = outcome.task
                self._used += [metrics] if metrics else []
        if self.driver.version > self._version:
            if self._publishes_metrics:
                self.metrics[self.driver.version] = mean(self._used, self._rule.examples)
            self._version, self._used = self.driver.version, []
        return effects
