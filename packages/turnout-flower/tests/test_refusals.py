"""Which algorithms run with a ClientApp, and the reasons of the others; without Flower."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import turnout as to
from turnout.base.algorithm import ALGORITHMS
from turnout.core.checks import ConfigurationError
from turnout.core.types import Federation
from turnout_flower import Rule, refusal

ROOT = Path(__file__).parents[3]
SOURCES = ROOT / "src", *sorted(ROOT.glob("packages/*/src"))
"""Sources of all distributions, some of which may not be installed."""


@pytest.mark.parametrize(
    ("algorithm", "reason"),
    [
        (to.fedper(), "Personal keeps a part of the model on each client, and a ClientApp sends the entire model"),
        (
            to.scaffold(),
            r"Scaffold changes the gradient of every local step, with client state \(control\), which only the mod can do",
        ),
        (to.fedprox(), r"Prox changes the gradient .*: write mod=True, and mods=\[turnout_flower.mod\(...\)\]"),
        (to.perfedavg(), "Meta replaces the local training loop, and a ClientApp has its own"),
        (to.mw_fed(), "MultiplicativeWeights sets the amount of work of each client"),
        (
            to.folb(),
            "StartGradient needs start_gradient of every client, and a ClientApp sends only parameters and metrics",
        ),
        (to.maxfl(tuning_steps=1), r"AppealGap tunes the model before evaluating it"),
        (to.fedavg(also=(to.aggregation.SecureSum(),)), "SecureSum needs further messages from clients after training"),
        (to.fedavg(also=(to.guard.TopK(),)), "TopK changes updates before they are sent"),
        (
            to.fedavg(to.Sgd(steps=to.local.TimeBudget(1.0))),
            "local.steps: a time budget counts steps by the simulated speed",
        ),
    ],
)
def test_unsupported_pieces_are_refused_with_the_reason(algorithm, reason):
    with pytest.raises(ConfigurationError, match=f"{algorithm.name} does not run on a Flower grid: {reason}"):
        Rule(algorithm)


@pytest.mark.parametrize(
    ("algorithm", "reason"),
    [
        (to.perfedavg(), "Meta replaces the local training loop"),
        (to.mw_fed(), "MultiplicativeWeights sets the amount of work of each client"),
        (to.flora(), "Flora multiplies pairs of adapter factors"),
        (to.folb_heterogeneous(), "Inexactness needs a gradient after training"),
        (to.fedavg(also=(to.aggregation.SecureSum(),)), "SecureSum needs further messages from clients after training"),
    ],
)
def test_pieces_unsupported_by_the_mod_are_refused_on_both_sides(algorithm, reason):
    with pytest.raises(ConfigurationError, match=f"{algorithm.name} does not run on a Flower grid: {reason}"):
        Rule(algorithm, mod=True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"algorithm": "fedau"}, r"algorithm: got 'fedau', needed an algorithm. Write to.fedau\(\)"),
        (
            {"algorithm": to.maxfl()},
            "requirement: AppealGap compares losses with the requirements of clients, and none is given",
        ),
        (
            {"algorithm": to.fednova(), "pace": to.pace.Buffered(5)},
            "Uniform: chooses the cohort of a round|Uniform chooses",
        ),
        ({"algorithm": to.fedau(), "min_nodes": 0}, "min_nodes: got 0"),
        ({"algorithm": to.fedau(), "evaluate_every": 0}, "evaluate_every: got 0"),
        ({"algorithm": to.fedau(), "retry": 0.0}, "retry: got 0.0"),
        ({"algorithm": to.fedau(), "poll": -1.0}, "poll: got -1.0"),
        ({"algorithm": to.fedau(), "max_norm": 0.0}, "max_norm: got 0.0"),
        ({"algorithm": to.fedau(), "max_steps": 0}, "max_steps: got 0"),
    ],
)
def test_invalid_options_raise(options, message):
    with pytest.raises(ConfigurationError, match=message):
        Rule(**options)


def _row(name: str) -> str:
    algorithm = ALGORITHMS[name]()
    if (why := refusal(algorithm, mod=True)) is not None:
        return f"| `{name}` | no | {why} |"
    if (why := refusal(algorithm)) is not None:
        return f"| `{name}` | with the mod | {why} |"
    rule = Rule(algorithm, requirement=0.5)
    phases = [phase for phase in algorithm.phases if phase not in algorithm.extra_phases]
    losses = {loss for phase in phases for loss in rule.losses(phase)}
    notes = [f"reads the metric `eval_loss{'_rms' * ('start_loss_rms' in losses)}` of an evaluation"] if losses else []
    notes += ["needs the option `requirement`"] if "appeal_gap" in losses else []
    counts = any(isinstance(w, to.weighting.DivideByLocalSteps) for w in algorithm.weighting)
    notes += ["reads the metric `num-steps`, which the mod counts"] if counts else []
    try:
        algorithm.init(torch.zeros(1), Federation(100, 1))
    except ConfigurationError:
        notes.append("needs the option `rates`")
    return f"| `{name}` | yes | {'; '.join(notes)} |"


HEAD = "| recipe | supported | notes, or why an unchanged ClientApp does not suffice |\n|---|---|---|\n"
GUIDE = ROOT / "docs" / "guides" / "flower.md"


def _table() -> str:
    return HEAD + "\n".join(_row(name) for name in ALGORITHMS) + "\n\n"


def test_guide_lists_every_recipe():
    assert _table() in GUIDE.read_text("utf-8"), "write the table of _table() into the guide again"


if __name__ == "__main__":
    before, _, after = GUIDE.read_text("utf-8").partition(HEAD)
    GUIDE.write_text(before + _table() + after.partition("\n\n")[2], "utf-8")


@pytest.mark.parametrize("package", ["flwr", "turnout_serve"])
@pytest.mark.parametrize(
    "use", ["turnout_flower.mod", "turnout_flower.Rule(to.fedavg(), folder='run').start(None, None)"]
)
def test_missing_packages_are_named_with_the_command_that_installs_them(package: str, use: str, tmp_path: Path) -> None:
    """A module that is None in `sys.modules` is one that is not installed."""
    code = f"import sys; sys.modules[{package!r}] = None; import turnout as to; import turnout_flower; {use}"
    place = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, SOURCES))}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, env=place, check=False
    )
    assert done.returncode == 1
    command = "pip install . ./packages/turnout-serve ./packages/turnout-flower in a clone of turnout"
    last = done.stderr.strip().splitlines()[-1]
    assert last == f"ModuleNotFoundError: turnout_flower needs {package}, which is not installed: {command}"
    assert not (tmp_path / "run").exists()
