"""Show a class why participation matters: a picture of who is there, and of what rules make of it.

    pip install '.[digits,report]'                          # scikit-learn and matplotlib
    python examples/journeys/lesson.py

Clients with high digits take part in one round of twenty, the others in one of two. The plain average of the participants
forgets the rare digits; FedAU estimates how often each client is there, and weights its updates accordingly. A longer server
step helps the plain average, too, which is why rules are compared after tuning both (``turnout compare --tune``). The figures
that are wanted: the accuracy on each digit with each rule, and a picture for the blackboard.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np

import turnout as to

RARE = tuple(range(5, 10))


def main() -> None:
    """Train with each rule, and print and draw what they have learned."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("runs/lesson"))
    parser.add_argument("--rounds", type=int, default=150)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    source = to.data.digits()
    data = source.split(to.partition.ClassesPerClient(1), num_clients=20, test_fraction=0.25)
    majority = data.label_counts().argmax(axis=1)  # the digit of each client
    rates = np.where(np.isin(majority, RARE), 0.05, 0.5)
    local = to.Sgd(lr=0.1, steps=5, batch_size=16)
    experiment = to.Experiment(
        data=data,
        model=to.models.Mlp(hidden=(32,)),
        population=to.Population(availability=to.availability.Bernoulli(rates=tuple(rates))),
        rounds=options.rounds,
        evaluate_every=10,
    )
    algorithms = {
        "plain average": to.average_participating(local),
        "plain average, longer step": to.average_participating(local, server_lr=4.0),
        "fedau": to.fedau(local, cutoff=50),
    }
    results = {name: replace(experiment, algorithm=algorithm).run() for name, algorithm in algorithms.items()}
    print("accuracy, percent, by digit" + "".join(f"{digit:5d}" for digit in range(10)) + "   mean of 5 to 9")
    for name, result in results.items():
        recall = 100 * np.asarray(result.by_class()["recall"])
        print(f"{name:27s}" + "".join(f"{value:5.0f}" for value in recall) + f"   {recall[5:].mean():.1f}")
    pictures = {
        "who-is-there.svg": to.plot({"fedau": results["fedau"]}, "participation"),
        "accuracy.svg": to.plot(results),
    }
    for name, picture in pictures.items():
        picture.savefig(options.folder / name)
        print(f"wrote {options.folder / name}")


if __name__ == "__main__":
    main()
