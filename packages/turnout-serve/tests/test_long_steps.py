"""What clients hear of their tasks while the server computes the step that a report has completed."""

import threading
import time
from contextlib import contextmanager

import httpx2
import torch
from tests.laws.recipes import DATA

from turnout import Experiment, Population, fedau
from turnout.models import Mlp
from turnout.population.availability import Everyone
from turnout_serve.server.http import endpoints
from turnout_serve.server.options import Options
from turnout_serve.server.process import Server
from turnout_serve.server.store.files import Files
from turnout_serve.wire.format import DTYPES, digest, encode, repr_digest

from .world import LOCAL

RUN = Experiment(DATA, Mlp(hidden=(4,)), fedau(LOCAL), Population(Everyone()), rounds=3, evaluate_every=3)


def test_end_of_a_run_is_told_with_its_last_model(world, monkeypatch):
    """Not before that is written: the model of the answer would be the one before it."""
    deployed, write, ends = world(RUN), Files.write_model, []

    def writes(files, tensors):
        ends.append((deployed.host.driver.version, deployed.host.driver.over))
        return write(files, tensors)

    monkeypatch.setattr(Files, "write_model", writes)
    deployed.run()
    assert ends == [(version, None) for version in range(RUN.rounds + 1)]
    told = deployed.host.service.work_of(0)
    assert told == {"over": deployed.host.driver.over, "model": deployed.host.driver.publication.digest}


@contextmanager
def held_step(monkeypatch):
    """Have the next model wait for the disk, and no request for longer than a moment; yield what lets it be written."""
    entered, go, write = threading.Event(), threading.Event(), Files.write_model

    def waiting(files, tensors):
        entered.set()
        assert go.wait(60)
        return write(files, tensors)

    monkeypatch.setattr(endpoints, "_PATIENCE", 0.05)
    with monkeypatch.context() as patched:
        patched.setattr(Files, "write_model", waiting)
        try:
            yield entered, go
        finally:
            go.set()


def test_last_reporter_of_a_step_is_told_that_its_report_is_taken(folder, monkeypatch):
    """Its answer takes too long: until the step is taken, its task is open, and not one that there never was."""
    server = Server(RUN, folder, None, Options(port=0, min_clients=1, rate=0))
    manifest, head = server.setting.reports["train"].manifest, {"authorization": f"Bearer {'t' * 40}"}
    body = encode({name: torch.ones(spec.shape, dtype=DTYPES[spec.dtype]) for name, spec in manifest.items()})
    named = {"repr-digest": repr_digest(digest(body))}
    with server.listening() as url, httpx2.Client(base_url=url, headers=head, timeout=60) as http:
        assert http.post("/v1/enrol", json={"protocol": 2}).status_code == 201
        task = http.post("/v1/checkin", json={"wait": 30}).json()["task"]["task"]
        path = f"/v1/tasks/{task}"
        with held_step(monkeypatch) as (entered, go):
            first = http.put(f"{path}/report", content=body, headers=named)
            assert entered.wait(60)
            assert (first.status_code, server.driver.tasks.get(0, task)) == (503, None)
            assert http.get(path).json()["state"] == http.post(f"{path}/heartbeat", json={}).json()["state"] == "open"
            again = http.put(f"{path}/report", content=body, headers=named)
            assert (again.status_code, again.headers["retry-after"]) == (503, "2")
            assert again.json() == {"reason": "the task has just ended, and its outcome is not known yet: ask again"}
            other = http.get("/v1/tasks/77")
            assert (other.status_code, other.json()) == (404, {"reason": "client 0 has no task 77"})
            go.set()
            while http.get(path).json()["state"] == "open":
                time.sleep(0.01)
        assert http.get(path).json() == {"state": "taken", "digest": digest(body)}
        answer = http.put(f"{path}/report", content=body, headers=named)
        assert (answer.status_code, answer.json()) == (200, {"state": "taken"})
