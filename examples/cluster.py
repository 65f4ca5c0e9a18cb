"""A comparison over the workers of a cluster: any executor, one folder, and a second call that does nothing twice.

    python examples/cluster.py                                              # two processes of this machine
    python examples/cluster.py --on slurm:partition=gpu,time=60             # pip install '.[slurm]'
    python examples/cluster.py --on dask:tcp://scheduler:8786               # pip install '.[dask]'
    turnout status runs/cluster                                             # meanwhile, in another terminal

Where jobs are killed or the machine goes down, the same command goes on from the checkpoints.
"""

from __future__ import annotations

import argparse
import time
from functools import partial
from pathlib import Path

import turnout as to
from turnout.comparison.executors import executor_on
from turnout.results.formats import markdown
from turnout.results.table import comparison


def experiment(name: str, rounds: int, seed: int) -> to.Experiment:
    """Return the experiment of an algorithm and a seed; it is made where the run is performed."""
    data = to.data.digits().split(to.partition.Dirichlet(alpha=0.1), num_clients=20, empty="drop", seed=seed)
    population = to.Population(availability=to.availability.Markov(mean=0.3))
    return to.Experiment(
        data=data,
        model=to.models.Mlp(hidden=(32,)),
        algorithm=to.ALGORITHMS[name](),
        population=population,
        rounds=rounds,
        seed=seed,
    )


def main() -> None:
    """Compare on an executor, print the table, and show that a second call finds everything done."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--on", default="processes:2")
    parser.add_argument("--folder", type=Path, default=Path("runs/cluster"))
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    runs = {name: partial(experiment, name, options.rounds) for name in ("fedavg", "fedau")}
    for call in ("first", "second"):
        begin = time.perf_counter()
        with executor_on(options.on, options.folder) as (executor, runs_per_job):
            records = to.compare(
                runs,
                options.seeds,
                options.folder,
                executor=executor,
                runs_per_job=runs_per_job,
                progress=call == "first",
            )
        print(f"{call} call: {len(records)} runs in {time.perf_counter() - begin:.1f} s")
    print(markdown(comparison(records), ["test_accuracy", "test_loss"], interval=True))


if __name__ == "__main__":
    main()
