"""The Kubernetes manifests of the guide are consistent."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import typer.main

from turnout.cli.app import app
from turnout_serve.cli.serve_options import ServeOptions
from turnout_serve.server.http.app import ROUTES

yaml = pytest.importorskip("yaml", reason="an extra: pip install '.[yaml]'")
GUIDE = (Path(__file__).parents[3] / "docs/guides/clusters.md").read_text(encoding="utf-8")
FILES: dict[str, Any] = {
    document["kind"]: document
    for text in re.findall(r"```yaml\n(.*?)```", GUIDE, flags=re.DOTALL)
    for document in yaml.safe_load_all(text)
}


def lost(given, taken, path=""):
    """Where the second value lacks something of the first, or has something else."""
    if isinstance(given, dict):
        absent = [f"{path}/{name}" for name in given.keys() - taken.keys()]
        return absent + [
            each for name in given.keys() & taken.keys() for each in lost(given[name], taken[name], f"{path}/{name}")
        ]
    if isinstance(given, list):
        return [each for i, pair in enumerate(zip(given, taken, strict=True)) for each in lost(*pair, f"{path}/{i}")]
    return [] if given == taken else [path]


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no kubectl here")
@pytest.mark.parametrize("kind", ["Job", "Deployment"])
def test_kubectl_accepts_every_field(kind):
    """With --local it parses a file into its own types, without a server."""
    command = ["kubectl", "set", "env", "--local", "--filename=-", "--output=yaml", "A=b"]
    answer = subprocess.run(command, input=yaml.safe_dump(FILES[kind]), text=True, capture_output=True, check=True)
    assert lost(FILES[kind], yaml.safe_load(answer.stdout)) == []
    misspelled = FILES[kind] | {"spec": FILES[kind]["spec"] | {"stratgy": {"type": "Recreate"}}}
    answer = subprocess.run(command, input=yaml.safe_dump(misspelled), text=True, capture_output=True, check=True)
    assert lost(misspelled, yaml.safe_load(answer.stdout)) == ["/spec/stratgy"]


@pytest.mark.parametrize("kind", ["Job", "Deployment"])
def test_containers_run_commands_in_mounted_volumes(kind):
    spec = FILES[kind]["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in spec["volumes"]}
    program, name, *words = container["command"]
    group: Any = typer.main.get_command(app)
    parsed = group.get_command(typer.Context(group), name).make_context(program, words).params
    paths = [mount["mountPath"] for mount in container["volumeMounts"]]
    assert str(parsed["folder"]).startswith(f"{paths[0]}/")


def test_one_server_is_probed_where_it_listens():
    deployment, service = FILES["Deployment"]["spec"], FILES["Service"]["spec"]
    # A second server is refused as long as the first one has the folder, so the first has to end before it.
    assert (deployment["replicas"], deployment["strategy"]) == (1, {"type": "Recreate"})
    labels = deployment["template"]["metadata"]["labels"]
    assert deployment["selector"]["matchLabels"] == service["selector"] == labels
    spec = deployment["template"]["spec"]
    (container,) = spec["containers"]
    (port,) = container["ports"]
    assert port["containerPort"] == ServeOptions().port
    assert port["name"] == service["ports"][0]["targetPort"] == container["readinessProbe"]["httpGet"]["port"]
    probed = container["readinessProbe"]["httpGet"]["path"]
    assert any((route.path, route.method, route.sender) == (probed, "GET", "anyone") for route in ROUTES)
    (claim,) = (volume["persistentVolumeClaim"] for volume in spec["volumes"] if "persistentVolumeClaim" in volume)
    assert claim["claimName"] == FILES["PersistentVolumeClaim"]["metadata"]["name"]
