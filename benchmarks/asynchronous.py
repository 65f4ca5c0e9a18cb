"""Measure asynchronous training: steps per second and memory, by the number of clients in flight and the size of the buffer.

All clients work at all times, at unequal speeds. FedStaleWeight weights their reports, and each trains a logistic regression
on 16 examples. Federations take steps in turns, so that a change of the machine's speed affects all of them. The growth of
the cost is given in processor time, which hardly depends on other work on the machine. Memory is the maximum that the
federation and its steps add to the process, including examples and what torch loads in the first one; the table also shows
the number of versions of the model that are kept because a client still works from them.

    python benchmarks/asynchronous.py                          # in flight 100 to 100,000; buffers of 1 to 1,000
    python benchmarks/asynchronous.py --steps 500 10000:100    # 10,000 in flight, a buffer of 100
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from dataclasses import dataclass, field

import torch

import turnout as to
from common import peak, random_data
from turnout.population import Speed, delay
from turnout.protocol.pace import Buffered
from turnout.simulation import Simulation

FEATURES, CLASSES, EXAMPLES = 64, 10, 16
DEFAULT = ("100:100", "1000:100", "10000:100", "100000:100", "10000:1", "10000:10", "10000:1000")


@dataclass
class Run:
    """A federation and its measurements.

    Attributes:
        in_flight: number of clients, all of them at work.
        buffer_size: number of reports in a step.
        simulation: the federation.
        megabytes: maximum memory that making it and its steps have added to the process.
        seconds: wall-clock time of each timed step.
        processor: processor time of each timed step.
        most_versions: maximum number of versions of the model that were kept at a time.
    """

    in_flight: int
    buffer_size: int
    simulation: Simulation
    megabytes: float
    seconds: list[float] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)
    most_versions: int = 0

    @classmethod
    def of(cls, in_flight: int, buffer_size: int) -> Run:
        """Make a federation."""
        before = peak()
        experiment = to.Experiment(
            data=random_data(in_flight, EXAMPLES, (FEATURES,), CLASSES),
            model=to.models.Logistic(),
            algorithm=to.fedstaleweight(to.Sgd(lr=0.01, steps=5, batch_size=16)),
            population=to.Population(speed=Speed(compute=delay.Uniform(1, 2), spread=1.0)),
            pace=Buffered(buffer_size),
            rounds=10**6,
            evaluate_every=10**6,
        )
        return cls(in_flight, buffer_size, Simulation(experiment), peak() - before)

    def step(self, timed: bool) -> None:
        """Take a step, and time it."""
        before, begin, used = peak(), time.perf_counter(), time.process_time()
        self.simulation.round()
        took, used = time.perf_counter() - begin, time.process_time() - used
        self.megabytes += peak() - before
        if timed:
            self.seconds.append(took)
            self.processor.append(used)
        self.most_versions = max(self.most_versions, len(self.simulation.server.models))

    def result(self) -> dict[str, float]:
        """Return the measurements."""
        took = sum(self.seconds) / len(self.seconds)
        return {
            "in_flight": self.in_flight,
            "buffer_size": self.buffer_size,
            "updates_a_second": round(self.buffer_size / took),
            "steps_a_second": round(1 / took, 1),
            "processor_milliseconds_a_step": round(1e3 * statistics.median(self.processor), 2),
            "megabytes": round(self.megabytes, 1),
            "of_which_examples": round(self.simulation.experiment.data.train.x.nbytes / 2**20, 1),
            "versions_kept": self.most_versions,
        }


def main() -> None:
    """Time all federations in turns."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="*", default=DEFAULT, metavar="IN_FLIGHT:BUFFER", help="federations")
    parser.add_argument("--steps", type=int, default=200, help="timed steps of each (default: 200)")
    options = parser.parse_args()
    torch.set_num_threads(1)
    runs = [Run.of(*map(int, text.split(":"))) for text in options.runs]
    for turn in range(options.steps + 20):
        for run in runs:
            run.step(timed=turn >= 20)
    for run in runs:
        print(json.dumps(run.result()), flush=True)


if __name__ == "__main__":
    main()
