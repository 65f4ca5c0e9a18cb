"""Put faults in, one at a time, and see whether the tests notice.

``python -m scripts.mutation [--jobs 2] [--only weighting]`` runs, for every fault of ``scripts/faults.toml``, the few test
files that are named with it, in a copy of the tree. A fault is caught where a test fails or runs into the time limit. It
prints a line for each and a table by folder, and fails where a fault survives. The tests must pass without a fault. A
fault whose old text does not stand in its file exactly once is an error, so that the list follows the code.
``--random 60 --seed 0`` draws faults from the syntax of the files of ``scripts/mutants.toml`` in its place.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue
from typing import NamedTuple

from scripts.mutants import Mutant, drawn

ROOT = Path(__file__).parents[1]
COPIED = ("src", "packages", "tests", "pyproject.toml")
LIMIT = 240
"""Seconds for the tests of one fault."""


class Fault(NamedTuple):
    """A change to a source file, and the test files that look at it."""

    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    @property
    def what(self) -> str:
        """The change in words."""
        return f"{self.old!r} -> {self.new!r}"

    @property
    def errors(self) -> Iterator[str]:
        """Why the fault does not fit the tree: its code must occur in its file exactly once, and its tests must exist."""
        path = ROOT / self.file
        count = path.read_text(encoding="utf-8").count(self.old) if path.exists() else 0
        if count != 1:
            yield f"scripts/faults.toml: {self.old!r} occurs {count} times in {self.file}, needed once"
        for test in self.tests:
            if not (ROOT / test).exists():
                yield f"scripts/faults.toml: {self.file} names {test}, which does not exist"


def faults(only: Sequence[str] = ()) -> Iterator[Fault]:
    """Read the faults of files whose name contains one of these texts; all faults by default."""
    with (ROOT / "scripts/faults.toml").open("rb") as file:
        for name, of_file in tomllib.load(file).items():
            for old, new in of_file["faults"]:
                if not only or any(part in name for part in only):
                    yield Fault(name, old, new, tuple(of_file["tests"]))


def fails(tests: Iterable[str], tree: Path, limit: float | None = LIMIT) -> bool:
    """Return whether a test of these files fails in a copy of the tree, or they run into the limit."""
    surroundings = os.environ | {
        "PYTHONPATH": os.pathsep.join(map(str, (tree / "src", *tree.glob("packages/*/src")))),
        "OMP_NUM_THREADS": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    try:
        done = subprocess.run(
            [*command, *tests], cwd=tree, env=surroundings, capture_output=True, timeout=limit, check=False
        )
    except subprocess.TimeoutExpired:
        return True
    if done.returncode not in (0, 1, 2):  # passed, failed, cannot even be collected
        raise RuntimeError(done.stdout.decode() + done.stderr.decode())
    return done.returncode != 0


def is_caught(fault: Fault | Mutant, tree: Path) -> bool:
    """Return whether a test fails with the fault."""
    path = tree / fault.file
    right = path.read_text(encoding="utf-8")
    try:
        path.write_text(right.replace(fault.old, fault.new), encoding="utf-8")
        return fails(fault.tests, tree)
    finally:
        path.write_text(right, encoding="utf-8")


def tried(some: Sequence[Fault | Mutant], jobs: int, passing: bool) -> Iterator[tuple[Fault | Mutant, bool, float]]:
    """Yield each fault, whether it was caught, and the seconds that took; `jobs` at a time."""
    with tempfile.TemporaryDirectory(prefix="mutation-") as folder:
        trees: Queue[Path] = Queue()
        for job in range(jobs):
            trees.put(_copy(Path(folder) / str(job)))
        every = sorted({test for fault in some for test in fault.tests})
        if not passing and fails(every, trees.queue[0], limit=None):
            sys.exit("these tests fail without a fault: " + " ".join(every))

        def one(fault: Fault | Mutant) -> tuple[Fault | Mutant, bool, float]:
            tree, begin = trees.get(), time.monotonic()
            try:
                return fault, is_caught(fault, tree), time.monotonic() - begin
            finally:
                trees.put(tree)

        with ThreadPoolExecutor(jobs) as pool:
            yield from pool.map(one, some)


def _copy(tree: Path) -> Path:
    """Copy what tests need."""
    tree.mkdir()
    for name in COPIED:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, tree / name)
    return tree


def main() -> None:
    """Try all faults and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=2, help="how many faults are tried at a time")
    parser.add_argument("--only", nargs="*", default=[], help="only files whose name holds one of these")
    parser.add_argument(
        "--passing", action="store_true", help="the tests were seen to pass without a fault: do not try it"
    )
    parser.add_argument("--random", type=int, default=0, metavar="N", help="draw so many faults in place of the list")
    parser.add_argument("--seed", type=int, default=0, help="of the draw")
    options = parser.parse_args()
    some: Sequence[Fault | Mutant]
    if options.random:
        some = drawn(options.random, options.seed, options.only)
    else:
        some = listed = list(faults(options.only))
        if errors := [error for fault in listed for error in fault.errors]:
            sys.exit("\n".join(errors))
    caught, survived = Counter[str](), Counter[str]()
    for fault, noticed, seconds in tried(some, options.jobs, options.passing):
        (caught if noticed else survived)[fault.file.split("/")[0]] += 1
        what = "caught  " if noticed else "SURVIVED"
        print(f"{what} {seconds:5.1f} s  {fault.file}: {fault.what}", flush=True)
    print("\n| where | faults | caught |\n|---|---:|---:|")
    for folder in sorted({*caught, *survived}):
        print(f"| {folder} | {caught[folder] + survived[folder]} | {caught[folder]} |")
    print(f"| all | {len(some)} | {caught.total()} |")
    sys.exit(bool(survived))


if __name__ == "__main__":
    main()
