"""The journey of an operator: TLS, one-time codes, a kill, and a replay."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from .test_crashes import free_port

SCRIPT = Path(__file__).parents[3] / "examples/journeys/tls_and_codes.py"


@pytest.mark.skipif(shutil.which("openssl") is None, reason="there is no openssl: apt-get install openssl")
def test_operator_ends_with_accuracies_of_clients_and_a_verified_journal(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--folder", str(tmp_path / "run"), "--steps", "20", "--port", str(free_port())],
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "killing the server" in done.stdout
    assert "3 clients, 20 steps" in done.stdout
    assert "the same model as in the checkpoint, bit for bit" in done.stdout
    assert float(re.search(r"own test examples: (\d+\.\d)%", done.stdout)[1]) > 10  # type: ignore[index]
