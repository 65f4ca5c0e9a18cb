"""``turnout clients``, ``evaluate`` and ``query`` with a running server."""

import json
import re

import pytest
from tests.children import command_line

from turnout.core.checks import ConfigurationError
from turnout_serve.cli.commands.clients import request_of

OWN = """
import torch
def examples():
    return (torch.rand(30, 64), torch.arange(30) % 10), (torch.rand(10, 64), torch.arange(10))
"""
RUN = (
    *("algorithm=fedau", "pace.deadline=600", "data.inputs=64", "data.classes=10", "data=declared", "model=logistic"),
    *("rounds=100000", "local.steps=1"),
)


def test_administrator_lists_evaluates_and_bans_during_a_run(turnout, tmp_path, monkeypatch):
    (tmp_path / "own.py").write_text(OWN)
    serve = command_line(
        tmp_path, "serve", *RUN, "--port", 0, "--min-clients", 2, "--min-answers", 2, "--folder", "run"
    )
    serve.wait_for(lambda: "serving at" in serve.output)
    url = re.findall(r"serving at (\S+)", serve.output)[0]
    joins = [
        command_line(tmp_path, "join", url, "--data", "own.py:examples", "--state", f"state-{k}", "--name", f"ward {k}")
        for k in range(2)
    ]
    monkeypatch.chdir(tmp_path)
    serve.wait_for(lambda: json.loads(turnout("status", "run", "--json").stdout)["version"] > 0, seconds=60)
    assert "#token=" not in serve.output  # which may be a log

    listed = json.loads(turnout("clients", "run", "--json").stdout)
    assert sorted(row["name"] for row in listed["clients"]) == ["ward 0", "ward 1"]
    assert turnout("clients", "run", "name", 0, "Ward A").exit_code == 0
    assert "Ward A" in turnout("clients", "run").stdout

    counts = turnout("query", "run", "label_histogram")
    assert counts.exit_code == 0, counts.output
    assert "60" in counts.stdout  # 30 examples of each
    judged = turnout("evaluate", "run")
    assert judged.exit_code == 0, judged.output
    assert "2" in judged.stdout

    assert turnout("clients", "run", "ban", 0, "sends noise").exit_code == 0
    assert "banned: sends noise" in turnout("clients", "run").stdout
    (banned,) = (join for join, row in zip(joins, (0, 1), strict=True) if _number(tmp_path / f"state-{row}") == 0)
    code, _, err = banned.ended(60)
    assert code != 0
    assert "sends noise" in err


def _number(folder):
    return json.loads((folder / "identity.json").read_text())["client"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("dance",), "got 'dance', needed one of: name K NAME"),
        (("ban", "3"), "a ban needs a reason"),
        (("ban", "three", "why"), "got 'three', needed a whole number"),
        (("codes", "add", "51"), "codes add: got 51, needed 1 to 50 at a time"),
        (("codes", "add", "0"), "codes add: got 0"),
    ],
)
def test_unknown_words_are_refused_with_a_correction(words, said):
    with pytest.raises(ConfigurationError, match=said):
        request_of(words)


def test_folder_without_a_server_is_refused(turnout, tmp_path):
    for command in (("clients",), ("evaluate",), ("query",)):
        words = ("label_histogram",) if command == ("query",) else ()
        result = turnout(*command, tmp_path, *words)
        assert result.exit_code == 2
        assert "is neither the address of a server" in result.stderr.replace("\n", " ")
