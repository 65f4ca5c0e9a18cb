"""Figures are those of finished versions, whoever asks and whatever the server does meanwhile."""

import json
import math

from turnout.record.query import History
from turnout_serve.server.http.status import metrics, status
from turnout_serve.server.run.ledger import Curves

from .test_hostile import RUN


class Unreadable:
    """Tables that another thread is writing."""

    def __getattr__(self, name):
        raise RuntimeError("dictionary changed size during iteration")


def test_status_can_be_read_while_a_step_is_recorded(world, monkeypatch):
    """Status, metrics and page read a snapshot, which has the figures from before the step."""
    deployed = world(RUN)
    ledger, service = deployed.host.driver.ledger, deployed.host.service
    seen, step = [], ledger.step

    def slow_step(*arguments):
        for write in (lambda: None, lambda: step(*arguments)):
            write()
            history, ledger.recorder.history = ledger.history, Unreadable()
            seen.append(json.loads(json.dumps(status(service, 0, {}).fields())))
            assert "turnout_steps_total" in metrics(status(service, 0, {}))
            ledger.recorder.history = history

    monkeypatch.setattr(ledger, "step", slow_step)
    deployed.run()
    assert [figures["version"] for figures in seen] == [0, 0, 1, 1]
    assert [len(figures["curves"].get("local_loss", ())) for figures in seen] == [0, 0, 1, 1]
    figures = deployed.host.send("GET", "/v1/status").table()
    assert (figures["version"], figures["state"], len(figures["curves"]["local_loss"])) == (2, "over", 2)


def test_snapshot_is_immutable(world):
    """What was published stays as it was."""
    deployed = world(RUN)
    deployed.round()
    before = deployed.host.service.writer.figures
    copy = json.dumps(before.status)
    deployed.run()
    assert json.dumps(before.status) == copy
    assert deployed.host.service.writer.figures.version > before.version


def test_curves_are_thinned():
    """A curve has at most 200 points, with the last one; a restart keeps it, and numbers that are not finite are null."""
    curves, history = Curves(), History()
    for version in range(1, 1002):
        row = {"local_loss": version / 2, "test_loss": math.nan if version % 2 else None}
        curves.add(version, row | {"participants": [1]})
        history.record(round=version, **row)
    points = curves.thinned()["local_loss"]
    assert len(points) <= 200
    assert points[-1] == (1001, 500.5)
    assert curves.thinned()["test_loss"][-1] == (1001, None)
    again = Curves()
    again.restore(history)
    assert again.thinned() == curves.thinned()


def test_curve_has_one_ordered_point_per_version():
    """An evaluation by clients that ends after later steps fills in what the server has not measured."""
    curves = Curves()
    for version, value in ((1, 0.5), (3, 0.1), (2, 0.75), (3, 0.9), (4, 0.0)):
        curves.add(version, {"test_loss": value})
    assert curves.thinned() == {"test_loss": [(1, 0.5), (2, 0.75), (3, 0.1), (4, 0.0)]}


def test_labels_of_metrics_are_escaped(world):
    """A reason cannot add lines or labels to the metrics."""
    deployed = world(RUN)
    figures = status(deployed.host.service, 0, {}).model_copy(update={"dropped": {'a"} 1\nevil 2 \\': 3}})
    assert r'turnout_tasks_dropped_total{reason="a\"} 1\nevil 2 \\"} 3' in metrics(figures).splitlines()
