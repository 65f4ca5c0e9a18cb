"""schemathesis sends requests made from openapi.json and finds no difference: sh scripts/extras.sh schemathesis."""

import http.client
import json
import shutil
import subprocess
from urllib.parse import urlsplit

import pytest
from tests.tiny import classification

from turnout import Experiment, Sgd, fedau
from turnout.models import Logistic
from turnout_serve.server.options import Options
from turnout_serve.server.process import Server
from turnout_serve.wire.administrator import server_token

TOOL = shutil.which("schemathesis")
CHECKS = (
    "not_a_server_error,status_code_conformance,content_type_conformance,response_headers_conformance,"
    "response_schema_conformance,unsupported_method"
)


@pytest.mark.skipif(TOOL is None, reason="schemathesis is not installed: sh scripts/extras.sh schemathesis")
@pytest.mark.parametrize("role", ["client", "administrator"])
def test_server_conforms_to_its_openapi_document(folder, role):
    experiment = Experiment(classification(), Logistic(), fedau(Sgd(lr=0.1)), rounds=200)
    server = Server(experiment, folder, {"name": "tiny"}, Options(port=0, rate=0, page=True))
    token = server_token(folder) if role == "administrator" else "c" * 43
    with server.listening() as url:
        connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=30)
        body, headers = json.dumps({"protocol": 2}), {"authorization": f"Bearer {token}"}
        connection.request("POST", "/v1/enrol", body, headers)
        connection.getresponse().read()
        connection.close()
        command = [
            str(TOOL), "run", f"{url}/openapi.json", "-H", f"Authorization: Bearer {token}", "--checks", CHECKS,
            "--seed", "1", "--max-examples", "15", "--phases", "examples,coverage,fuzzing", "--request-timeout", "70",
            "--no-color",
        ]  # fmt: skip
        result = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, cwd=folder)
    assert result.returncode == 0, result.stdout[-8000:] + result.stderr[-2000:]
