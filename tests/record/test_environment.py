"""What a run's folder says of where and how it ran."""

import json
import shutil
import subprocess
from datetime import UTC, datetime

import pytest
import torch

from turnout.record.environment import commit, environment


def test_environment_has_versions_and_command(monkeypatch):
    monkeypatch.setattr("sys.argv", ["turnout", "serve", "--database", "postgresql://me:secret@host/runs", "rounds=3"])
    found = environment("cpu")
    assert json.loads(json.dumps(found)) == found
    assert (found["torch"], found["threads"], found["device"]) == (torch.__version__, torch.get_num_threads(), "cpu")
    assert found["command"] == ["turnout", "serve", "--database", "postgresql://me:***@host/runs", "rounds=3"]
    assert abs((datetime.now(UTC) - datetime.fromisoformat(found["date"])).total_seconds()) < 60


@pytest.mark.skipif(shutil.which("git") is None, reason="there is no git")
def test_commit_is_that_of_the_folder_and_marks_changes(tmp_path):
    def git(*words):
        who = ("-c", "user.name=n", "-c", "user.email=n@example.org", "-c", "commit.gpgsign=false")
        return subprocess.run(["git", "-C", tmp_path, *who, *words], capture_output=True, text=True, check=True).stdout

    assert commit(tmp_path) is None
    git("init", "--quiet")
    (tmp_path / "code.py").write_text("1")
    git("add", "code.py")
    git("commit", "--quiet", "-m", "one")
    commit.cache_clear()
    assert commit(tmp_path) == git("rev-parse", "HEAD").strip()
    (tmp_path / "code.py").write_text("2")
    commit.cache_clear()
    assert commit(tmp_path) == git("rev-parse", "HEAD").strip() + "-dirty"
