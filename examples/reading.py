"""Read what runs have recorded: results, tables in pandas, tables for a paper, figures.

turnout compare fedavg fedau --seeds 3 --rounds 100 --output runs/reading
python examples/reading.py runs/reading
python examples/reading.py                    # makes a small comparison first
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path

import turnout as to
from turnout.comparison.folders import load_records, run_folders
from turnout.results.formats import latex, markdown
from turnout.results.table import comparison


def experiment(lr: float, seed: int) -> to.Experiment:
    """Return a small experiment."""
    data = to.data.digits().split(to.partition.Iid(), num_clients=10, client_test_fraction=0.2)
    algorithm = to.fedavg(to.Sgd(lr=lr, steps=5, batch_size=16))
    return to.Experiment(
        data=data, model=to.models.Logistic(), algorithm=algorithm, rounds=10, evaluate_every=2, seed=seed
    )


def main() -> None:
    """Print tables, and write figures beside the runs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", default=Path("runs/reading"))
    folder = parser.parse_args().folder
    if not folder.exists():
        to.compare({f"lr-{lr}": partial(experiment, lr) for lr in (0.01, 0.1)}, seeds=2, folder=folder, jobs=1)

    result = to.load(run_folders([folder])[0])  # one run: its model, and Arrow tables
    print(result)
    rounds = result.rounds.to_pandas().set_index("round")
    print(rounds["test_accuracy"].dropna().tail(3))
    times = result.participation.to_pandas().groupby("client").size()
    print(f"a client took part {times.mean():.1f} times; the worst accuracy of a client is", end=" ")
    print(f"{result.summary()['fairness']['worst']:.1%}")

    records = load_records([folder])  # all runs: means over seeds, with a paired test
    rows = comparison(records)
    print(markdown(rows, ["test_accuracy", "test_loss"], interval=True))
    (folder / "table.tex").write_text(latex(rows, ["test_accuracy", "test_loss"]), encoding="utf-8")
    for what, name in ((None, "accuracy.pdf"), ("clients", "clients.svg")):
        to.plot(records, what).savefig(folder / name)
        print(f"wrote {folder / name}")


if __name__ == "__main__":
    main()
