"""Options of commands that perform several runs, of sweeps, and of reproductions."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from turnout.cli.command import option, options, switch
from turnout.cli.groups import (
    OUTCOME,
    AlgorithmOption,
    ExperimentOptions,
    PreviewOptions,
    WatchedOptions,
    folder_option,
    seeds_option,
    settings_argument,
)

if TYPE_CHECKING:
    from turnout.cli.settings import Settings
    from turnout.comparison.run import Resources

SEARCH = "Search"
"""Heading in the help of a command."""


@options
class RunsOptions(WatchedOptions):
    """Options of commands that perform several runs."""

    several_devices: ClassVar[bool] = True

    jobs: int | None = option(
        "Number of runs at a time (default: processors divided by --threads; or the number of GPUs, all or those of "
        "--device cuda:0,cuda:1). Does not affect results.",
        "N",
        None,
        "--jobs",
        "-j",
    )
    on: str | None = option(
        "Executor of the runs, instead of processes on this machine: processes:4, dask:tcp://scheduler:8786, ray:auto, or "
        "slurm:partition=gpu,time=60 (minutes; any option of sbatch).",
        "EXECUTOR",
    )
    runs_per_job: int | None = option(
        "Number of consecutive runs per job of --on (default: 8 with slurm, otherwise 1).", "N"
    )
    threads: int = option(
        "Number of threads per run (default: 1); parallel runs make better use of processors. Does not affect results.",
        "N", 1, "--threads", show_default=False,
    )  # fmt: skip
    lockstep: int = option(
        "Number of runs that a process executes in lock-step, training their clients in one call; faster for small "
        "models. Does not affect results on CPUs.",
        "N", 1, show_default=False,
    )  # fmt: skip
    folder: Path | None = None
    report: bool = switch("Write report.html, with figures.", "--report/--no-report", default=True, panel=OUTCOME)

    def resources(self, settings: Iterable[Settings], device: str | None = None) -> Resources:
        """Return the number of processes: ``--jobs``, or by default one per GPU or processor.

        Call it before anything is written.

        Args:
            settings: settings of the runs.
            device: ``--device``; processes share several GPUs.

        Raises:
            ConfigurationError: if ``--jobs`` is beside ``--on``, a number is below 1, or this machine does not have the
                GPUs.
        """
        from turnout.comparison.run import Resources
        from turnout.core.checks import ConfigurationError, count
        from turnout.core.device import check_gpus, gpus_of

        count("threads", self.threads)
        if self.jobs is not None:
            count("jobs", self.jobs)
            if self.on is not None:
                raise ConfigurationError(
                    "--jobs is for processes of this machine, and --on for an executor: leave one out"
                )
        named = {run.numbers().get("device", "cpu") for run in settings}
        devices = gpus_of(device if device and "," in device else "cuda") if "cuda" in named else ()
        check_gpus(devices)
        one_device = not devices and named != {"cpu"}
        jobs = 1 if self.jobs is None and one_device else self.jobs
        return Resources(jobs, self.threads, devices=devices, lockstep=self.lockstep)


@options
class SearchOptions:
    """Options of the grid or search, and of the metric to optimize."""

    grid: list[str] | None = option(
        "A setting with the values to try or, with --trials, a range LOW..HIGH; may be repeated.",
        "KEY=VALUE,VALUE", None, "--grid", "-g",
    )  # fmt: skip
    metric: str | None = option(
        "Metric to optimize: the mean over seeds of its final value, such as validation_accuracy (default; holds out a tenth "
        "of each client's examples unless the settings hold out others) or train_loss, or a measure such as 'average "
        "train_loss'. Test accuracies are biased if they are used to choose.",
        "NAME",
    )
    to_accuracy: float | None = option(
        "Optimize the median number of rounds until this accuracy instead, e.g. 0.8.", "ACCURACY"
    )
    trials: int | None = option("Number of trials that Optuna proposes (default: try all).", "N", panel=SEARCH)
    sampler: str = option("Sampler: tpe, which learns from earlier trials, or random.", "NAME", "tpe", panel=SEARCH)
    sampler_seed: int = option("Seed of the sampler.", "SEED", 0, panel=SEARCH)
    trials_at_once: int = option(
        "Number of trials to propose and run together. Affects which trials are proposed, unlike --jobs.",
        "N", 4, panel=SEARCH,
    )  # fmt: skip


@options
class SweepOptions(SearchOptions, PreviewOptions, RunsOptions, ExperimentOptions, AlgorithmOption):
    """Options of ``turnout sweep``."""

    overrides: list[str] | None = settings_argument()
    seeds: str | None = seeds_option()
    folder: Path | None = folder_option("runs/CONFIG, runs/sweep-DATA, or runs/search-DATA with --trials")
