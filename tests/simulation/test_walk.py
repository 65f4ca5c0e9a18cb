"""How far it is from `Experiment.run` to the user's loss: who debugs a loss reads every frame between."""

import traceback
from pathlib import Path

import turnout as to
from turnout.engine.loss import cross_entropy

from ..laws.recipes import DATA


def test_few_frames_lie_between_run_and_the_first_loss_of_a_round(monkeypatch):
    monkeypatch.setattr("turnout.engine.threads.num_processors", lambda: 1)
    stacks = []

    def loss(outputs, targets):
        stack = traceback.extract_stack()
        names = [frame.name for frame in stack]
        if "client_step" in names:
            first = names.index("run", names.index("test_few_frames_lie_between_run_and_the_first_loss_of_a_round"))
            stacks.append(stack[first:-1])
        return cross_entropy(outputs, targets)

    to.Experiment(DATA, to.models.Mlp(hidden=(4,)), to.fedavg(), rounds=1, loss=loss).run()
    package = Path(to.__file__).parent
    paths = [(Path(frame.filename), frame.name) for frame in stacks[0]]
    frames = [(path.relative_to(package).as_posix(), name) for path, name in paths if path.is_relative_to(package)]
    assert frames[0] == ("experiment.py", "run")
    assert len(frames) <= 20, frames
    assert len({file for file, _ in frames}) <= 13, frames
