"""A grid's server that can write nothing for a while, with a stand-in for Flower where it is not installed."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

import turnout as to
from turnout.protocol.pace import Rounds
from turnout_flower import Rule
from turnout_serve.server.journal.handler import EntryHandler
from turnout_serve.server.journal.recovery import opened
from turnout_serve.server.run.setting import RunSetting
from turnout_serve.wire.format import manifest
from turnout_serve.wire.messages import ReportFormat

NODES = (11, 22)


@pytest.fixture
def grid_server(monkeypatch) -> Any:
    """The class of the server, imported with the classes of Flower that it names."""
    for name, names in {
        "flwr": (),
        "flwr.app": ("ArrayRecord", "ConfigRecord", "Message", "MetricRecord", "RecordDict"),
        "flwr.serverapp": ("Grid",),
    }.items():
        module: Any = ModuleType(name)
        vars(module).update({each: type(each, (SimpleNamespace,), {}) for each in names})
        monkeypatch.setitem(sys.modules, name, module)
    for name in ("turnout_flower.grid", "turnout_flower.replies"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    yield importlib.import_module("turnout_flower.grid").GridServer
    for name in ("turnout_flower.grid", "turnout_flower.replies"):
        sys.modules.pop(name, None)


class Grid:
    """Nodes that take messages and never answer."""

    def get_node_ids(self) -> tuple[int, ...]:
        return NODES

    def pull_messages(self, names: object) -> tuple[()]:
        del names
        return ()


def setting(algorithm: to.Algorithm) -> RunSetting:
    params, one = torch.zeros(3), torch.ones(1, dtype=torch.int64)
    tensors = {"num_examples": one, "num_steps": one, "delta": params[None]}
    trained: Any = SimpleNamespace(saved=lambda: ({}, {}))
    return RunSetting(
        algorithm=algorithm, pace=Rounds(), rounds=1, seed=0, evaluate_every=1, record_weights=False, initial=params,
        reports={"train": ReportFormat(manifest(tensors))}, heartbeat=10.0, description=DESCRIPTION, trained=trained,
    )  # fmt: skip


DESCRIPTION: dict[str, Any] = {"kind": "flower", "algorithm": {"aggregation": {"kind": "Mean"}}}


def test_nodes_have_time_after_an_outage(grid_server, tmp_path, monkeypatch):
    """A disk that was full for an hour ends no task of a node: the lease of each is extended before any ends."""
    monkeypatch.setattr("turnout_serve.server.journal.journal_writer.time.sleep", lambda _: None)
    rule, now = Rule(to.fedavg(), min_nodes=2), [0.0]
    with opened(tmp_path / "run", setting(rule.algorithm), min_clients=2) as (driver, last):
        server = grid_server(
            rule, Grid(), SimpleNamespace(tensors=dict), driver, last, 10.0, {"train": {}, "evaluate": {}}
        )
        monkeypatch.setattr(server, "_send", lambda: None)
        writer, timeouts = server._writer, server._service.timeouts
        for clock in (server._service, timeouts, timeouts.presence, timeouts._lost, writer):
            monkeypatch.setattr(clock, "clock" if hasattr(clock, "clock") else "_clock", lambda: now[0])
        for _ in range(4):
            server.tick()
            writer.flush()
        tasks = {client: task.task for client, task in driver.tasks.training()}
        assert tasks.keys() == {0, 1}
        server._update_nodes()
        now[0] += 3600.0
        writer.wait(OSError("No space left on device"))
        EntryHandler.tick(server)
        writer.flush()
        assert {client: task.task for client, task in driver.tasks.training()} == tasks
        assert driver.present() == [0, 1]
