"""Compare client updates per second with those of other simulators, in turns, on the same workloads.

The peers ``loop`` and ``pfl`` are the programs of ``gpu_peers.py``, in one process with one thread; others are programs of
a folder (``run_plain.py``, ``run_pfl.py``: ``--workload W1 --rounds 12`` prints a line of JSON). ``--python`` names an
environment that has their packages. Each repetition runs every side by itself, so that a change of the machine's speed
affects all of them, and ratios are taken within repetitions. Both sides use the same allocator: the defaults of glibc, or
reused buffers (``tuned``). Updates per second leave out the first round; the total includes the start of the process and
all rounds.

    python benchmarks/peers.py --variants loop pfl --workloads W5 --turnout "--threads 1" --total-repeats 0
    python benchmarks/peers.py --peers FOLDER --python VENV/bin/python --repeats 5
    python benchmarks/peers.py --peers FOLDER --python VENV/bin/python --workloads W2 --total 200 --output lines.jsonl
    python benchmarks/peers.py --peers FOLDER --python VENV/bin/python --runs 2 --variants pfl_1 --turnout "--threads 1"

Comparisons of algorithms have many runs, one for each processor: with ``--runs 2`` each side does two at the same time, and
their updates per second are added.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import statistics
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from turnout.workbench.speed.workloads import WORKLOADS

PEERS = {
    "plain": ("run_plain.py",),
    "plain_1": ("run_plain.py", "--threads", "1"),
    "pfl_1": ("run_pfl.py", "--procs", "1", "--threads", "1"),
    "pfl_2": ("run_pfl.py", "--procs", "2", "--threads", "1"),
}
"""Programs of a folder: a PyTorch loop with its own number of threads and with one; pfl-research in 1 and 2 processes."""

OWN = Path(__file__).with_name("gpu_peers.py")
OWN_PEERS = ("loop", "pfl")
"""Programs of this folder, in one process with one thread."""

KEPT = {"MALLOC_MMAP_THRESHOLD_": str(1 << 30), "MALLOC_TRIM_THRESHOLD_": str(1 << 32)}
ALLOCATORS = {"default": {"TURNOUT_ALLOCATOR": "default"}, "tuned": KEPT}

Line = dict[str, Any]


def run(command: list[str], allocator: str) -> Line:
    """Return the line of JSON that a program prints."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("MALLOC_")} | ALLOCATORS[allocator]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if not lines:
        raise SystemExit(f"{shlex.join(command)} printed no line of JSON:\n{done.stderr[-2000:]}")
    return json.loads(lines[-1])


def at_once(runs: int, command: list[str], allocator: str) -> Line:
    """Return the line of the last of several runs to end, with the updates per second of all."""
    with ThreadPoolExecutor(runs) as pool:
        found = list(pool.map(run, [command] * runs, [allocator] * runs))
    last = max(found, key=lambda line: line["total_s"])
    return last | {"client_updates_per_s": sum(line["client_updates_per_s"] for line in found), "runs": runs}


def commands(options: argparse.Namespace, workload: str, rounds: int) -> dict[str, list[str]]:
    """Return the command of each side."""
    own = [sys.executable, "-m", "turnout", "speed", workload, "--rounds", str(rounds), "--json", "--no-rates"]
    sides = {"turnout": [*own, *shlex.split(options.turnout)]}
    for peer in options.variants:
        if peer in OWN_PEERS:
            cohort = str(WORKLOADS[workload].cohort_size)
            sides[peer] = [options.python, str(OWN), peer, workload, "--device", "cpu", "--cohort", cohort]
            continue
        program, *rest = PEERS[peer]
        sides[peer] = [
            options.python,
            str(options.peers / program),
            "--workload",
            workload,
            "--rounds",
            str(rounds),
            *rest,
        ]
    return sides


def middle(values: list[float], digits: int = 3) -> str:
    """Return the median and, of several figures, the range."""
    shown = f"{statistics.median(values):.{digits}g}"
    return shown if len(values) == 1 else f"{shown} ({min(values):.{digits}g} to {max(values):.{digits}g})"


def compare(options: argparse.Namespace, workload: str, allocator: str, rounds: int, figure: str) -> str:
    """Return a row of the table: the figure of each side, and turnout's ratio to the best peer of each repetition."""
    least = figure == "total_s"
    found: dict[str, list[float]] = {}
    shares: list[float] = []
    for repetition in range(options.total_repeats if least else options.repeats):
        for side, command in commands(options, workload, rounds).items():
            about = {"side": side, "allocator": allocator, "repetition": repetition}
            line = at_once(options.runs, command, allocator) | about
            found.setdefault(side, []).append(line[figure])
            shares.append(line.get("other_cpu_share") or 0.0)
            if options.output:
                with options.output.open("a") as file:
                    file.write(json.dumps(line) + "\n")
            print(f"{workload} {allocator} {side}: {figure} {line[figure]}", file=sys.stderr, flush=True)
    best = [(min if least else max)(values) for values in zip(*(found[p] for p in options.variants), strict=True)]
    pairs = zip(found["turnout"], best, strict=True)
    ratios = [peer / own if least else own / peer for own, peer in pairs]
    sides = " | ".join(middle(found[side]) for side in (*options.variants, "turnout"))
    return f"| {workload} | {allocator} | {sides} | {middle(ratios)} | {max(shares):.0%} |"


def table(options: argparse.Namespace, title: str, figure: str, rounds: int | None) -> None:
    """Print a table of one figure."""
    rows = [
        compare(options, workload, allocator, rounds or options.rounds or WORKLOADS[workload].rounds, figure)
        for workload in options.workloads
        for allocator in options.allocators
    ]
    print(f"\n{title}\n")
    print(f"| workload | allocator | {' | '.join((*options.variants, 'turnout'))} | ratio to the best peer | others |")
    print("|---" * (len(options.variants) + 5) + "|")
    print("\n".join(rows), flush=True)


def main() -> None:
    """Run all sides, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", type=Path, metavar="FOLDER", help="programs of further peers")
    parser.add_argument("--python", default=sys.executable, help="the interpreter that has their packages")
    parser.add_argument("--workloads", nargs="+", choices=list(WORKLOADS), default=list(WORKLOADS))
    parser.add_argument("--variants", nargs="+", choices=[*OWN_PEERS, *PEERS], default=["loop"])
    parser.add_argument("--allocators", nargs="+", choices=list(ALLOCATORS), default=list(ALLOCATORS))
    parser.add_argument("--rounds", type=int, help="rounds of each run (default: 12, 60, 60, 8, 300)")
    parser.add_argument("--runs", type=int, default=1, help="runs of each side at the same time (default: 1)")
    parser.add_argument("--repeats", type=int, default=3, help="repetitions (default: 3); 0 leaves the first table out")
    parser.add_argument("--total", type=int, default=200, help="rounds for the total time (default: 200)")
    parser.add_argument(
        "--total-repeats", type=int, default=1, help="repetitions of that (default: 1); 0 leaves it out"
    )
    parser.add_argument("--turnout", default="", help="further options of turnout speed, in one text")
    parser.add_argument("--output", type=Path, help="a file to which all lines of JSON are added")
    options = parser.parse_args()
    if set(options.variants) & set(PEERS):
        if options.peers is None:
            parser.error(
                f"{', '.join(options.variants)}: name the folder of these programs by --peers, or choose loop or pfl"
            )
        subprocess.run([options.python, str(options.peers / "workloads.py")], stdout=subprocess.DEVNULL, check=True)
    if options.repeats:
        table(options, "Client updates per second, median (range)", "client_updates_per_s", None)
    if options.total_repeats:
        title = f"Seconds for {options.total} rounds, start included, median (range); the ratio is of the peer's to turnout's"
        table(options, title, "total_s", options.total)
    print("\nothers: the most of all processors' time that anything else, other runs too, took while a side was timed.")


if __name__ == "__main__":
    main()
