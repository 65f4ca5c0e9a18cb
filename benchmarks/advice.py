"""Check the advice on 40 generated populations whose best rule is known from simulation.

A population has 12 clients, a logistic model and one of five patterns of availability. Its clients are alike and nearly
always there, with scanned digits; or heterogeneous (Dirichlet(0.1)), with generated data and rates that are unrelated to
labels, or related to them.
Twenty populations are generated, and two traces of 128 rounds of each. The advice sees a trace and the clients' data, and
recommends a rule for a training of 32 rounds as ``turnout advise --config`` does. The truth is simulated with eight further
seeds, of which each has availability of its own and splits anew the data of clients that are alike, after step sizes were
tuned: the best rule has the highest mean test
accuracy over the last quarter of the rounds. The plain mean has the best of its own step sizes and those of the others.

    python benchmarks/advice.py                    # about 25 minutes of one core; writes benchmarks/advice.json
    python benchmarks/advice.py --output /tmp/advice.json

The command resumes where it stopped.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from turnout.experiment import Experiment
from turnout.workbench.advise.advice import Participation, leaders, nearest
from turnout.workbench.advise.trials import EVALUATIONS, LEAD, Stage, own_cell, strongest, tried
from turnout.workbench.benchmark.cells import Cell, Version, available_in
from turnout.workbench.benchmark.rows import Row, published
from turnout.workbench.benchmark.runs import late, tuned
from turnout.workbench.benchmark.standings import Table, table_of

ROUNDS, TRACE_ROUNDS = 32, 128
NUM_CLIENTS, NUM_POPULATIONS, NUM_TRACES = 12, 20, 40
RULES = ("fedau", "fedvarp", "mifa", "amplified_scaffold")
"""The rules beside the plain mean, whatever further rows the benchmark has."""
SEEDS = range(1000, 1008)
PATTERNS = (
    {"name": "bernoulli"},
    {"name": "markov", "join": 0.3},
    {"name": "cyclic", "period": 10},
    {"name": "staircase", "low": 0.4, "period": 10},
    {"name": "interleaved_sine", "period": 10},
)
NEARLY_ALWAYS = {"staircase": {"low": 0.9}, "interleaved_sine": {"gamma": 0.1}}
"""Options of patterns whose rates change, for clients that are alike and nearly always there."""
FILE = Path(__file__).resolve().parents[1] / "benchmarks" / "advice.json"


@dataclass(frozen=True)
class Verdict:
    """The advice on a population, and the truth.

    Attributes:
        pattern: kind of availability.
        rates: ``"alike"``, ``"unrelated"`` or ``"labels"``.
        mean: mean rate.
        named: the recommended rule.
        best: the rule with the highest mean accuracy.
        lost: by how much the mean accuracy of the recommended rule is below that of the best one.
        spread: standard deviation over seeds of the accuracy of the best rule.
        equal: whether no rule matters: the mean accuracy of the plain mean is at most the spread, or less than `LEAD`, below
            that of the best rule.
    """

    pattern: str
    rates: str
    mean: float
    named: str
    best: str
    lost: float
    spread: float
    equal: bool

    @property
    def is_right(self) -> bool:
        """True if the recommended rule is the best one, or within the spread."""
        return self.lost <= self.spread


def population(index: int) -> Cell:
    """Return a generated population as settings with explicit rates."""
    rng = np.random.default_rng(index)
    pattern, kind = PATTERNS[index % 5], ("alike", "unrelated", "labels", "labels")[index % 4]
    if kind == "alike":
        pattern = {**pattern, **NEARLY_ALWAYS.get(str(pattern["name"]), {})}
        data = {"name": "digits", "partition": {"name": "iid"}, "test_fraction": 0.3, "validation_fraction": 0.3}
    else:
        data = {
            "name": "synthetic_iid", "partition": {"name": "dirichlet", "alpha": 0.1}, "empty": "drop",
            "test_fraction": 0.4, "validation_fraction": 0.4,
        }  # fmt: skip
    settings = {
        "rounds": ROUNDS, "local": {"steps": 5, "batch_size": 8, "lr": 0.2 if kind == "alike" else 0.8},
        "data": {**data, "num_clients": NUM_CLIENTS}, "model": {"name": "logistic"},
        "availability": {**pattern, "correlated_with_labels": "none"},
    }  # fmt: skip
    cell = Cell(f"population {index}", "small", kind, 1.0, settings)
    counts = cell.experiment("average_participating", {}, 0).data.label_counts()
    rates = rng.uniform(*((0.85, 1.0) if kind == "alike" else (0.1, 0.6)), len(counts))
    if kind == "labels":  # clients with many examples of the digits 0 to 4 are rarely there
        rare = counts[:, :5].sum(axis=1) / counts.sum(axis=1)
        rates = np.exp(np.log(0.6) + rare * np.log(rng.uniform(0.05, 0.3) / 0.6))
    settings["availability"]["rates"] = rates.tolist()
    return cell


@dataclass(frozen=True, eq=False)
class Check:
    """What all verdicts need: the rows of the rules, their table, and the version of the benchmark."""

    version: Version
    rows: list[Row]
    table: Table

    @classmethod
    def ready(cls) -> Check:
        """Read the rows."""
        version = Version.read()
        rows = [row for row in published(version) if row["rule"] in (version.reference, *RULES)]
        return cls(version, rows, table_of(rows, version, "small"))

    def advice(self, cell: Cell, seed: int) -> tuple[float, str]:
        """Return the mean rate of a trace, and the rule that is recommended for it."""
        present = available_in(cell.experiment(self.version.reference, {}, seed, rounds=TRACE_ROUNDS))
        cells = [near for near, _ in nearest(Participation.of(present), self.version)]
        stage = Stage(present, cells[0], own_cell(cell.settings))
        trials = tried(stage, leaders(self.table, cells), self.rows, self.version)
        named = next((trial.rule for trial in trials if trial.is_better), self.version.reference)
        return float(present.mean()), named

    @cache  # noqa: B019  there is one check
    def truth(self, index: int) -> dict[str, dict[int, float]]:
        """Return the accuracies of all rules in a population by seed, with tuned step sizes."""
        cell, plain = population(index), self.version.reference
        data = cell.experiment(self.version.reference, {}, 0).data

        def make(rule: str, options: Mapping[str, Any], seed: int) -> Experiment:
            experiment = cell.experiment(rule, options, seed)
            return experiment if cell.rates == "alike" else replace(experiment, data=data)

        def accuracies(rule: str, options: Mapping[str, Any]) -> dict[int, float]:
            return {seed: late(make(rule, options, seed), EVALUATIONS)[0] for seed in SEEDS}

        options = {
            rule: tuned(partial(make, rule), rule, cell, self.version, EVALUATIONS)[0] for rule in (plain, *RULES)
        }
        best_plain = strongest(partial(accuracies, plain), options.pop(plain), options.values())
        return {plain: best_plain} | {rule: accuracies(rule, each) for rule, each in options.items()}

    def verdict(self, index: int) -> Verdict:
        """Return the advice on a trace, and the truth."""
        trace, number = divmod(index, NUM_POPULATIONS)
        cell, accuracy, plain = population(number), self.truth(number), self.version.reference
        mean, named = self.advice(cell, trace)
        means = {rule: float(np.mean([*runs.values()])) for rule, runs in accuracy.items()}
        best = max(means, key=lambda rule: means[rule])
        pattern = str(cell.settings["availability"]["name"])
        spread = float(np.std([*accuracy[best].values()], ddof=1))
        equal, lost = means[best] - means[plain] <= max(spread, LEAD), means[best] - means[named]
        return Verdict(pattern, cell.rates, round(mean, 4), named, best, round(lost, 4), round(spread, 4), equal)


def counts(verdicts: Sequence[Verdict]) -> dict[str, int]:
    """Return how many verdicts are right, overall and where the plain mean is within the spread of the best rule."""
    equal = [each for each in verdicts if each.equal]
    plain = sum(each.named == "average_participating" for each in equal)
    return {
        "populations": len(verdicts), "best": sum(each.named == each.best for each in verdicts),
        "right": sum(each.is_right for each in verdicts), "no difference": len(equal), "said so": plain,
    }  # fmt: skip


def main() -> None:
    """Check populations, and write the figures after each; populations that the file has are not checked again."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=FILE)
    output = parser.parse_args().output
    torch.set_num_threads(1)
    verdicts = [Verdict(**each) for each in json.loads(output.read_text("utf-8"))] if output.exists() else []
    check, begun = Check.ready(), time.process_time()
    for index in range(len(verdicts), NUM_TRACES):
        verdicts.append(check.verdict(index))
        print(index, verdicts[-1], f"{time.process_time() - begun:.0f} s", flush=True)
        output.write_text(json.dumps([asdict(each) for each in verdicts], indent=1) + "\n", "utf-8")
    print(counts(verdicts))


if __name__ == "__main__":
    main()
