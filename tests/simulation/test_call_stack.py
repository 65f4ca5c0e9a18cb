"""The call stack between `Experiment.run` and the user's loss."""

import re
import traceback
from pathlib import Path

import turnout as to
from turnout.engine.loss import cross_entropy

from ..laws.recipes import DATA

ROOT = Path(__file__).parents[2]


def walk(monkeypatch):
    """File and function of each frame of the package between `Experiment.run` and the first loss of a round."""
    monkeypatch.setattr("turnout.engine.threads.num_processors", lambda: 1)
    package, stacks = Path(to.__file__).parent, []

    def loss(outputs, targets):
        frames = [frame for frame in traceback.extract_stack() if Path(frame.filename).is_relative_to(package)]
        if "client_step" in [frame.name for frame in frames]:
            stacks.append([(Path(frame.filename).relative_to(package).as_posix(), frame.name) for frame in frames])
        return cross_entropy(outputs, targets)

    to.Experiment(DATA, to.models.Mlp(hidden=(4,)), to.fedavg(), rounds=1, loss=loss).run()
    return stacks[0]


def test_stack_to_the_first_loss_is_short_and_documented(monkeypatch):
    frames = walk(monkeypatch)
    assert frames[:2] == [("core/other_names.py", "checked"), ("experiment.py", "run")]
    assert len(frames) <= 20, frames
    assert len({file for file, _ in frames}) <= 10, frames
    _, _, section = (ROOT / "docs/architecture.md").read_text("utf-8").partition("## From `Experiment.run`")
    listed = re.findall(r"`([\w./]+)`", section[section.index("\n1. ") :])
    for file, name in frames:
        assert file in listed, frames
        assert name in listed, frames
    shown = [name for name in listed if name.endswith(".py")]
    assert set(shown) == {file for file, _ in frames} | {"simulation/running.py", "simulation/simulation.py"}
