"""Names in messages and in the README exist."""

import ast
import re
import tomllib
from functools import cache
from pathlib import Path

import pytest
from scripts.mutation import faults

import turnout as to
from turnout import _MODULES
from turnout.cli.spelling import on_command_line
from turnout.trackers import TRACKERS

ROOT = Path(__file__).parents[1]
CALL = re.compile(r"(?<![\w.])((?:\w+\.)?[A-Z][A-Za-z]+)\(")
OF_OTHERS = {"ProcessPoolExecutor", "Net", "BatchNorm", "GroupNorm", "RandomCrop", "DataLoader", "Linear", "LayerNorm"}
"""Of torch, or named and not advised."""


@cache
def messages() -> list[str]:
    """The text of every error, with its placeholders."""
    found = []
    for path in sorted((*(ROOT / "src").rglob("*.py"), *ROOT.glob("packages/*/src/**/*.py"))):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Raise | ast.Return) and isinstance(getattr(node, "exc", None) or node, ast.AST):
                raised = node.exc if isinstance(node, ast.Raise) else node.value
                if raised is None or ("Error" not in ast.unparse(raised) and "refuse(" not in ast.unparse(raised)):
                    continue
                texts = [ast.unparse(t) for t in ast.walk(raised) if isinstance(t, ast.JoinedStr)]
                texts += [t.value for t in ast.walk(raised) if isinstance(t, ast.Constant) and isinstance(t.value, str)]
                found += texts
    return found


def test_names_in_messages_can_be_imported() -> None:
    named = {name for text in messages() for name in CALL.findall(text)} - OF_OTHERS
    assert {"Speed", "delay.Uniform", "TimeBudget"} <= named, "the messages were not found"
    missing = []
    for name in named:
        module, _, own = name.rpartition(".")
        places = [getattr(to, module)] if module else [getattr(to, each) for each in to.__all__ if each in _MODULES]
        missing += [] if own in to.__all__ or any(hasattr(place, own) for place in places) else [name]
    assert not missing


def test_named_extras_exist() -> None:
    known = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    paths = [
        *(ROOT / "src").rglob("*.py"),
        *ROOT.glob("packages/**/*.py"),
        *ROOT.glob("packages/*/README.md"),
        *(ROOT / "docs").rglob("*.md"),
        *ROOT.glob("*.md"),
        *(ROOT / "tests").rglob("*.py"),
    ]
    named = {
        extra.strip()
        for path in paths
        for extras in re.findall(r"(?:turnout|\.)\[([a-z][a-z, ]*)\]", path.read_text("utf-8"))
        for extra in extras.split(",")
    }
    assert {"report", "search", "privacy"} <= named <= known.keys()
    assert set(TRACKERS) <= known.keys()


def test_extra_all_includes_all_extras() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    named = {name for text in extras["all"] for name in re.findall(r"[a-z]+", text.partition("[")[2])}
    assert named == extras.keys() - {
        "all",
        "docs",
        "dev",
        "executorch",  # allows few versions of what it needs
        *("serve", "flower"),  # other distributions, which a clone installs from a folder
    }


def test_every_fault_matches_the_code() -> None:
    listed = list(faults())
    assert len(listed) > 150
    assert not [error for fault in listed for error in fault.errors]
    assert len(set(listed)) == len(listed)
    assert not [fault for fault in listed if fault.old == fault.new]


def test_names_in_the_readme_exist() -> None:
    texts = [path.read_text("utf-8") for path in (ROOT / "README.md", ROOT / "CONTRIBUTING.md")]
    named = {name for text in texts for name in re.findall(r"\bto\.((?:\w+\.)*\w+)\(", text)}
    assert {"Experiment", "data.digits"} <= named
    for name in named:
        place = to
        for part in name.split("."):
            place = getattr(place, part)


def test_command_line_messages_do_not_suggest_python() -> None:
    # What is left has no spelling on the command line: pieces of an algorithm that a recipe holds.
    of_recipes = {
        "TrackedSum",
        "AppealGap",
        "ByExamples",
        "DivideByCurvature",
        "DivideBySecondCohort",
        "MultiplicativeWeights",
    }
    left = {name for text in messages() for name in CALL.findall(on_command_line(text))}
    assert left - OF_OTHERS - of_recipes <= {
        "Group",
        "AfterRound",
        "PrivateSum",
    }  # with an option that is a placeholder


@pytest.mark.parametrize(
    ("python", "settings"),
    [
        ("write rounds=290, or noise_multiplier=2.6", "write rounds=290, or noise_multiplier=2.6"),
        ("write Sgd(steps=None, epochs=2)", "write local.steps=none local.epochs=2"),
        (
            "write also=(AllAvailable(),), and Buffered(concurrency=...)",
            "selection=all_available, and pace=buffered pace.",
        ),
        ("write Population(speed=Speed(per='step'))", """population.speed='{kind="delays", per="step"}'"""),
        ("such as delay.Pareto(shape=2.5)", 'such as {kind="pareto", shape=2.5}'),
        ("write client_test_fraction=0.4 in split(), or Opting(split='train')", 'population.opting.split="train"'),
        ("write concurrency=None, or steps=TimeBudget(30)", "write pace.concurrency=none, or local.steps='{kind="),
        ("write resume=True (--resume a) to go on", "write --resume a to go on"),
        ("got 'rates=5', write Mlp()", "got 'rates=5', write model=mlp"),
        ("write DivideByCurvature(lr=0.1)", "write also.divide_by_curvature.lr=0.1"),
        ("write also=(DivideBySum(),)", "write also.divide_by_sum={}"),
        ("an open Sgd(", "an open Sgd("),
    ],
)
def test_suggestions_use_command_line_spelling(python: str, settings: str) -> None:
    assert settings in on_command_line(python)
