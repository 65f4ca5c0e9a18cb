"""Choose the tests that `make test` leaves to `make test-all`, from measured processor seconds.

``TURNOUT_TIMES=times make test-all`` appends a line for each test to ``times`` (``conftest.py``), in any number of processes.
``python -m scripts.long_tests times`` then writes ``tests/long.txt``: the slowest tests, so many that the others take at most
``--budget`` processor seconds. Tests in that file have the marker `long`. ``--check`` writes nothing, and fails where a test
that is not marked takes longer than twice the fastest one that is, or a marked test has no time.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
FILE = ROOT / "tests/long.txt"
HEAD = "# Tests with the marker `long`, and their processor seconds: python -m scripts.long_tests writes this file.\n"

MISSING: set[str] = set()
"""Marked tests that were not found when all tests were collected."""


def measured(paths: Iterable[Path]) -> dict[str, float]:
    """Read the processor seconds of tests; of a test that ran more than once, the least."""
    seconds: dict[str, float] = {}
    for path in paths:
        for line in path.read_text("utf-8").splitlines():
            number, _, name = line.partition(" ")
            seconds[name] = min(float(number), seconds.get(name, float("inf")))
    return seconds


def marked(path: Path = FILE) -> dict[str, float]:
    """Read the tests that are marked, and the seconds that they took when they were."""
    lines = path.read_text("utf-8").splitlines() if path.exists() else []
    return {name: float(number) for number, _, name in (line.partition(" ") for line in lines if line[:1] != "#")}


def chosen(seconds: Mapping[str, float], budget: float) -> dict[str, float]:
    """Return the slowest tests, so many that the others take at most `budget` seconds."""
    rest, slowest = sum(seconds.values()), {}
    for name in sorted(seconds, key=lambda name: (-seconds[name], name)):
        if rest <= budget:
            break
        slowest[name] = seconds[name]
        rest -= seconds[name]
    return slowest


def outdated(seconds: Mapping[str, float], marks: Mapping[str, float]) -> list[str]:
    """Return what is wrong with the marks, given measured times."""
    limit = 2.0 * min((seconds[name] for name in marks if name in seconds), default=0.0)
    slow = [name for name, number in seconds.items() if name not in marks and number > limit]
    return [
        *(f"{name} takes {seconds[name]:.2f} s, and is not marked" for name in sorted(slow)),
        *(f"{name} is marked, and was not run" for name in sorted(marks.keys() - seconds.keys())),
    ]


def main() -> None:
    """Write the marks, or check them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("times", type=Path, nargs="+", help="files of TURNOUT_TIMES")
    parser.add_argument(
        "--budget", type=float, default=135.0, help="processor seconds of the tests that are not marked"
    )
    parser.add_argument("--check", action="store_true", help="compare the marks with the times, and write nothing")
    options = parser.parse_args()
    seconds = measured(options.times)
    if options.check:
        sys.exit("\n".join(outdated(seconds, marked())) or None)
    slowest = chosen(seconds, options.budget)
    FILE.write_text(HEAD + "".join(f"{slowest[name]:.2f} {name}\n" for name in sorted(slowest)), "utf-8")
    total, rest = sum(seconds.values()), sum(seconds.values()) - sum(slowest.values())
    print(f"{len(slowest)} of {len(seconds)} tests are long; the others take {rest:.0f} of {total:.0f} s")


if __name__ == "__main__":
    main()
