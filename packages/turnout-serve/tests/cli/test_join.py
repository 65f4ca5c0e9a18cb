"""``turnout serve`` and ``turnout join`` as separate processes."""

import json
import re
import signal

import pytest
from tests.children import command_line

from turnout_serve.client.sent import read_log

OWN = "import torch\ndef examples():\n    return torch.rand(30, 64), torch.arange(30) % 10\n"
MODEL = ("data.num_clients=4", "data.partition=iid", "model=logistic", "rounds=2", "evaluate_every=2")


@pytest.mark.parametrize(
    ("number", "settings"),
    [
        (4, ("algorithm=fedbuff", "pace=buffered_groups", "pace.buffer_size=1", "pace.group_size=4", "aggregation=secure_sum",
             "aggregation.largest=64")),
        (4, ("algorithm=fedau", "aggregation=private_sum", "aggregation.norm=1", "aggregation.noise_shares=4",
             "aggregation.dropouts=1", "aggregation.secure.fraction_bits=14")),
        (1, ("algorithm=fedbuff", "pace.buffer_size=1", "also.top_k.share=0.1", "server=yogi")),
    ],
    ids=lambda value: value[1] if isinstance(value, tuple) else None,
)  # fmt: skip
def test_serve_and_join_suffice(number, settings, tmp_path):
    """Clients have the server's address and their own data, and no settings."""
    (tmp_path / "own.py").write_text(OWN)
    serve = command_line(
        tmp_path, "serve", *MODEL, *settings, "--port", 0, "--min-clients", number, "--folder", "run", "--linger", 60
    )
    serve.wait_for(lambda: "serving at" in serve.output)
    found = re.search(r"serving at (\S+)", serve.output)
    assert found is not None
    url = found[1]
    joins = [
        command_line(tmp_path, "join", url, "--data", "own.py:examples", "--state", f"state-{k}", "--log", f"sent-{k}")
        for k in range(number)
    ]
    for join in joins:
        code, out, err = join.ended(60)
        assert code == 0, err
        assert "the run is over" in out
    serve.signal(signal.SIGTERM)  # which ends the time that it lingers
    code, out, err = serve.ended(60)
    assert code == 0, err
    assert "the run is over after 2 of 2 steps" in out
    for k in range(number):
        assert [line["what"] for line in read_log(tmp_path / f"sent-{k}")].count("report") >= 2


def test_client_log_is_shown(turnout, tmp_path):
    lines = [
        {"time": "2026-01-01T00:00:00.000+00:00", "what": "enrollment", "bytes": 20, "name": "mine", "code": True},
        {"time": "2026-01-01T00:00:01.000+00:00", "what": "report", "task": 3, "phase": "train", "version": 7, "bytes": 4000,
         "norm": 1.25, "examples": 30, "scalars": ["num_examples", "loss"], "tensors": ["delta"], "guards": ["Clip"],
         "masked": False, "noised": False, "again": True},
        {"time": "2026-01-01T00:00:02.000+00:00", "what": "decline", "task": 4, "phase": "query\x1b", "version": 7,
         "bytes": 9, "reason": "refused"},
    ]  # fmt: skip
    (tmp_path / "log").write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"time": "2026')
    result = turnout("join", "--inspect", "log")
    assert result.exit_code == 0, result.output
    for text in ("mine, a code", "1.25", "delta, num_examples, loss", "Clip", "again", "refused", "4,000", "4,029"):
        assert text in result.output
    assert "\x1b" not in result.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "needed the URL of a server"),
        (("http://127.0.0.1:9",), "needed the data of this client, --data"),
        (
            ("http://127.0.0.1:9", "--data", "digits", "--log", "json"),
            "--log takes a file, got json: for the form of messages write",
        ),
        (("--inspect", "log", "--data", "digits"), "leave out URL, --data and --log"),
        (("--inspect", "missing"), "cannot be read (No such file or directory): give the file of join --log"),
    ],
)
def test_missing_requirements_are_named(arguments, message, turnout):
    result = turnout("join", *arguments)
    assert result.exit_code == 2
    assert message in result.output.replace("\n", " ")
