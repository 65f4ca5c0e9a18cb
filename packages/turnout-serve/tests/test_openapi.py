"""One table of routes: the application, openapi.json and docs/protocol.md say the same."""

import ast
import json
import re
from pathlib import Path

import pytest
import torch
from tests.tiny import classification
from torch import nn

import turnout
import turnout_serve
from turnout import Experiment, Sgd, fedau, fednu, fedper
from turnout.models import Cnn, Logistic, Mlp
from turnout.protocol.pace.actions import PHASES, REASONS
from turnout_serve.client.calls import MOST_JSON, MOST_SECONDS
from turnout_serve.client.computer import Computer
from turnout_serve.server.http.app import ROUTES, JoinPage
from turnout_serve.server.http.limits import Limits
from turnout_serve.server.http.openapi import document
from turnout_serve.server.http.routes import routes_of
from turnout_serve.server.leases import Leases
from turnout_serve.server.options import Options
from turnout_serve.server.process import Server
from turnout_serve.server.run import roster
from turnout_serve.server.run.served_experiment import ServedExperiment
from turnout_serve.server.run.served_run import OVER
from turnout_serve.server.run.training import training
from turnout_serve.wire.bodies import Reason
from turnout_serve.wire.format import PROTOCOL, manifest

from . import agreement

SOURCE = Path(turnout_serve.__file__).parent / "server"
RUN = Experiment(classification(), Logistic(), fedau(Sgd(lr=0.1)), rounds=2)


def test_the_document_is_served_and_names_every_route(folder):
    server = Server(RUN, folder, {"name": "tiny"}, Options(port=0, rate=0, page=True))
    try:
        paths = {route.path for route in server.http.app().routes}  # type: ignore[attr-defined]
        routes = ROUTES + routes_of(JoinPage)
        assert paths == {route.path for route in routes} == set(document(routes)["paths"])
        served = document(ROUTES)
        assert set(served["paths"]) == {route.path for route in ROUTES}
        announced = json.loads(json.dumps(server.announcement({"name": "tiny"})))
        assert agreement.faults(announced, agreement.SCHEMAS["Run"]) == []
    finally:
        server.stop()
    used = set(_references(served))
    assert used == {f"#/components/schemas/{name}" for name in agreement.SCHEMAS}
    names = [route.name for route in ROUTES]
    assert len(set(names)) == len(names)


def _references(value):
    """Every schema that a document refers to."""
    if isinstance(value, dict):
        if "$ref" in value:
            yield value["$ref"]
        for inner in value.values():
            yield from _references(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _references(inner)


def statuses_of_the_code():
    """Every status that a module of the server answers with, as written in its source."""
    found = set()
    for path in SOURCE.rglob("*.py"):
        if "conform" in path.parts:  # a server that misbehaves on purpose
            continue
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not isinstance(node, ast.Constant) or type(node.value) is not int or not 200 <= node.value < 600:
                continue
            found.add(node.value)
    return found & {200, 201, 202, 204, 206, 304, 301, 302, 307, *range(400, 432), 451, *range(500, 512)}


def test_the_document_has_every_status_that_the_code_answers_with():
    documented = {status for route in ROUTES for status in route.statuses}
    assert statuses_of_the_code() == documented


def test_undocumented_status_is_found():
    ok = {"content-type": "application/json"}
    agreement.check("/v1/tasks/3", 200, ok, b'{"state": "open", "offset": 4}')
    for status, headers, body in (
        (418, ok, b"{}"),
        (200, ok, b"{}"),
        (200, ok, b'{"state": "lost"}'),
        (200, ok, b'{"state": "open", "offset": -1}'),
        (404, ok, b'{"why": 1}'),
        (200, {"content-type": "text/html"}, b""),
    ):
        with pytest.raises(AssertionError):
            agreement.check("/v1/tasks/3", status, headers, body)


PAGE = (Path(__file__).parents[3] / "docs/protocol.md").read_text("utf-8")


def sections():
    """The text of docs/protocol.md by heading."""
    parts = re.split(r"^#+ (.*)$", PAGE, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.name)
def test_the_page_has_every_route_with_its_statuses_fields_and_headers(route):
    general = sections()["Requests"]
    found = [(title, text) for title, text in sections().items() if f"`{route.method} {route.path}`" in title]
    found = found or [(title, text) for title, text in sections().items() if f"`{route.path}`" in title]
    assert len(found) == 1, route.path
    _, text = found[0]
    for status in route.statuses:
        assert re.search(rf"\b{status}\b", text) or f"| {status} |" in general, status
    types = [route.body, *(body for body, _ in route.statuses.values() if body is not Reason)]
    schemas = [agreement.SCHEMAS[body.__name__] for body in types if isinstance(body, type)]
    fields = {name for schema in schemas for name in schema.get("properties", {})}
    if route.name not in ("status", "openapi"):
        text += sections()["`GET /v1/tasks/{task}`"] if "task's state" in text else ""
        assert [name for name in fields if f"`{name}`" not in text] == []
    assert [name for name in route.headers if f"`{name}:" not in text.lower() and f"`{name}`" not in text.lower()] == []


def test_the_page_has_every_status_and_no_other():
    for status in {status for route in ROUTES for status in route.statuses}:
        assert re.search(rf"\b{status}\b", PAGE), status
    documented = {status for route in ROUTES for status in route.statuses}
    rows = re.findall(r"^\| (\d{3}) \|", PAGE, flags=re.MULTILINE)
    assert set(map(int, rows)) <= documented


def test_the_page_has_every_phase_reason_field_and_limit():
    found = sections()
    assert set(re.findall(r"`(\w+)`", found["Phases"])) >= set(PHASES)
    reasons = {*REASONS, *roster.REASONS.values(), "unusable", OVER}
    assert set(re.findall(r"^\| `([a-z ]+)` \|", found["States"], flags=re.MULTILINE)) == reasons
    assert [name for name in agreement.SCHEMAS["Assignment"]["properties"] if f"`{name}`" not in PAGE] == []
    served = ServedExperiment.of(RUN)
    told = served.setting
    described = training(told.algorithm, served.objective, told.seed, told.reports["train"].manifest, opts=False)
    names = {
        *described,
        *described["sgd"],
        *described["report"],
        *(key for layer in described["layers"] for key in layer),
    }
    assert [name for name in names if f"`{name}`" not in PAGE] == []
    limits, leases = Limits(), Leases()
    assert f"{limits.head // 1024} KiB, {limits.num_headers} headers, within {limits.head_seconds:g} seconds" in PAGE
    assert f"16 KiB within {limits.body_seconds:g} seconds" in PAGE
    assert f"4 KiB/s in the long run, a piece every {limits.stall_seconds:g} seconds, an hour" in PAGE
    assert (limits.upload_rate, limits.upload_seconds, MOST_SECONDS, MOST_JSON) == (4096, 3600, 3600, 16 << 20)
    assert f"| {limits.per_address} (IPv6" in PAGE
    assert f"| {Options().enrollments_per_address} an hour" in PAGE
    assert f"{Options().rate:g} a second and client" in PAGE
    assert f"held for {leases.longest_wait:g} seconds" in PAGE
    assert f"`wait` and {leases.grace:g} seconds" in PAGE
    assert leases.missed == 3
    assert f"Version {PROTOCOL}." in PAGE


HALF_FROZEN = nn.Sequential(nn.Linear(16, 4).requires_grad_(False), nn.Linear(4, 4))


class TestTraining:
    """What clients in other languages are told to compute."""

    def of(self, opts=False, **changes):
        experiment = Experiment(**{**vars(RUN), **changes})
        objective = Computer(experiment).objective
        one, delta = torch.zeros(1, dtype=torch.int64), torch.zeros(1, objective.layout.num_params, dtype=torch.float64)
        report = manifest({"num_examples": one, "num_steps": one, "delta": delta, "seen.loss": delta[:, 0]})
        return training(experiment.algorithm, objective, experiment.seed, report, opts=opts)

    def test_says_all_that_a_client_computes(self):
        images = classification(features=64, dtype=torch.float64)
        images = images.__class__(
            "images", type(images.train)(images.train.x.view(-1, 1, 8, 8), images.train.y, images.train.offsets), 4
        )
        told = self.of(data=images, model=Cnn(hidden=(5,), channels=(2, 3)), seed=(1 << 64) - 1)
        pool = {"kind": "max_pool2d", "kernel": [2, 2], "stride": [2, 2]}
        of_convolution = {"kind": "conv2d", "kernel": [3, 3], "stride": [1, 1], "padding": [1, 1], "bias": True}
        assert told["layers"] == [
            {**of_convolution, "inputs": 1, "outputs": 2},
            pool,
            {"kind": "relu"},
            {**of_convolution, "inputs": 2, "outputs": 3},
            pool,
            {"kind": "relu"},
            {"kind": "flatten"},
            {"kind": "linear", "inputs": 12, "outputs": 5, "bias": True},
            {"kind": "relu"},
            {"kind": "linear", "inputs": 5, "outputs": 4, "bias": True},
        ]
        assert told["sgd"] == {
            "lr": 0.1, "steps": 5, "epochs": None, "batch_size": 16, "momentum": 0.0, "weight_decay": 0.0,
            "sampling": "pass", "drop_last": True,
        }  # fmt: skip
        assert (told["dtype"], told["loss"], told["seed"]) == ("F64", "cross_entropy", str((1 << 64) - 1))
        num_params = 2 * 9 + 2 + 3 * 18 + 3 + 12 * 5 + 5 + 24
        assert told["report"] == {
            "num_examples": ["I64", [1]], "num_steps": ["I64", [1]], "delta": ["F64", [1, num_params]],
            "seen.loss": ["F64", [1]],
        }  # fmt: skip

    @pytest.mark.parametrize(
        ("changes", "reason"),
        [
            ({"model": Mlp(dropout=0.5)}, "KeyedDropout"),
            ({"algorithm": turnout.fedprox(Sgd(lr=0.1), cohort_size=3)}, "Prox"),
            ({"algorithm": fednu(Sgd(lr=0.1), cohort_size=3)}, "clients do more than SGD"),
            (
                {"model": Mlp(hidden=(4,)), "algorithm": fedper(Sgd(lr=0.1), cohort_size=3)},
                "clients do more than SGD",
            ),
            ({"model": HALF_FROZEN}, "the model holds frozen parameters, buffers, or a layer twice"),
            ({"loss": nn.CrossEntropyLoss(label_smoothing=0.1)}, "the loss is not cross_entropy"),
            ({"precision": "bf16"}, "local steps are in bfloat16"),
            ({"opts": True}, "clients judge the model by what they require before they take part"),
        ],
    )
    def test_says_why_it_cannot_say_it(self, changes, reason):
        told = self.of(**changes)
        assert list(told) == ["reason"]
        assert reason in told["reason"]
