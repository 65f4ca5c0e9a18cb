"""1,000 clients of a recorded trace over HTTP, the server killed in the middle, beside the simulation of the same settings.

TURNOUT_DATA=... python -m reproductions.deployment.thousand                 # both rules, about ten minutes on two cores
TURNOUT_DATA=... python -m reproductions.deployment.thousand fedau --folder runs/thousand

It needs MNIST and the trace ("flash") in the data directory, and turnout-serve (`pip install ./packages/turnout-serve`).
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from examples.served import Trial, simulated

from turnout.record.query import History

SPEED = ("population.speed.compute.low=30", "population.speed.compute.high=600")
"""Simulated seconds that a task takes, at most as long as a round of the trace."""

SERVE = ("--min-clients", "50", "--rate", "0")
SWARM = ("--clients", "1000", "--availability", "flash")
CONFIG = Path(__file__).with_name("thousand.toml")
TRIALS = {
    "fedau": Trial(CONFIG, ("algorithm.name=fedau",), SERVE, (*SWARM, "--speedup", "150")),
    "fedstaleweight": Trial(
        CONFIG,
        (
            *("algorithm.name=fedstaleweight", "pace.name=buffered", "pace.buffer_size=50"),
            *("rounds=120", "evaluate_every=10", *SPEED),
        ),
        SERVE,
        (*SWARM, "--speedup", "60", *SPEED),
    ),
}
COLUMNS = (
    *("rule", "steps", "accuracy served", "simulated", "simulated with the clients who came"),
    *(
        "clients in a step: served",
        "simulated",
        "clients who took part",
        "server killed",
        "replay bit for bit",
        "seconds",
    ),
)


def main() -> None:
    """Run the trials and print the table of the README."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rules", nargs="*", choices=[[], *TRIALS], help="default: both")
    parser.add_argument("--folder", type=Path, default=Path("runs/thousand"), help="default: runs/thousand")
    options = parser.parse_args()
    lines = ["| " + " | ".join(COLUMNS) + " |", "|---" * len(COLUMNS) + "|"]
    for name in options.rules or TRIALS:
        folder = options.folder / name
        if folder.exists():
            parser.error(f"{folder} is there already: give another --folder")
        lines.append("| " + " | ".join([name, *measured(TRIALS[name], folder)]) + " |")
    print("\n".join(lines))


def measured(trial: Trial, folder: Path) -> list[str]:
    """Run one trial; return its cells of the table."""
    begun = time.monotonic()
    served = trial.served(folder)
    seconds = time.monotonic() - begun
    same = "bit for bit" in trial.replay(folder, "--as-trace", str(folder / "trace"))
    alike, with_trace = trial.simulated(), simulated(folder / "trace" / "simulation.json")
    accuracy = [f"{history.final('test_accuracy'):.1%}" for history in (served, alike, with_trace)]
    cohort = [f"{cohort_of(history):.0f}" for history in (served, alike)]
    number = len(set(served.participation["client"].to_pylist()))
    return [str(served.last_round), *accuracy, *cohort, str(number), "once", "yes" if same else "no", f"{seconds:.0f}"]


def cohort_of(history: History) -> float:
    """Return how many clients a step used, on average."""
    return float(history.column("num_participants")[1].mean())


if __name__ == "__main__":
    main()
