"""Declare the options of commands that perform several runs, and of those that search."""

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
    """Options of commands that perform several runs: where, how many at a time, and what is written."""

    several_devices: ClassVar[bool] = True

    jobs: int | None = option(
        "Runs at a time (default: processors divided by --threads, or GPUs: all, or those of --device cuda:0,cuda:1). "
        "Changes no result.",
        "N",
        None,
        "--jobs",
        "-j",
    )
    on: str | None = option(
        "What performs the runs, in place of processes of this machine: processes:4, dask:tcp://scheduler:8786, "
        "ray:auto, or slurm:partition=gpu,time=60 (minutes; any option of sbatch).",
        "EXECUTOR",
    )
    runs_per_job: int | None = option(
        "Runs that a job of --on performs one after another (default: 8 with slurm, otherwise 1).", "N"
    )
    threads: int = option(
        "Threads of each run, in whichever process; runs side by side make better use of processors (default: 1). Changes "
        "no result.",
        "N", 1, "--threads", show_default=False,
    )  # fmt: skip
    folder: Path | None = None
    report: bool = switch("Write report.html, with pictures.", "--report/--no-report", default=True, panel=OUTCOME)

    def resources(self, settings: Iterable[Settings], device: str | None = None) -> Resources:
        """Return the processes that perform runs: ``--jobs``, or one for each GPU, or else for each processor.

        Call it before anything is written.

        Args:
            settings: of the runs.
            device: ``--device``; several GPUs are those that processes share.

        Raises:
            ConfigurationError: for ``--jobs`` beside ``--on``, numbers below one, and GPUs that this machine does not have.
        """
        from turnout.comparison.run import Resources
        from turnout.core.checks import ConfigurationError, count
        from turnout.core.device import check_gpus, gpus_of

        if self.jobs is not None and self.on is not None:
            raise ConfigurationError("--jobs is for processes of this machine, and --on for an executor: leave one out")
        count("threads", self.threads)
        if self.jobs is not None:
            count("jobs", self.jobs)
        named = {run.numbers().get("device", "cpu") for run in settings}
        devices = gpus_of(device if device is not None and "," in device else "cuda") if "cuda" in named else ()
        check_gpus(devices)
        jobs = 1 if self.jobs is None and named != {"cpu"} and not devices else self.jobs
        return Resources(jobs, self.threads, devices=devices)


@options
class SearchOptions:
    """Options that define the grid or the search, and the metric that decides."""

    grid: list[str] | None = option(
        "A setting, and the values to try or, with --trials, a range LOW..HIGH; once for each axis.",
        "KEY=VALUE,VALUE", None, "--grid", "-g",
    )  # fmt: skip
    metric: str | None = option(
        "What decides: the mean over seeds of where this ends, such as validation_accuracy (default, with a tenth of each "
        "client's examples if the settings keep no others) or train_loss, or a measure such as 'average train_loss'. "
        "Choosing by test accuracy spends the test on it.",
        "NAME",
    )
    to_accuracy: float | None = option("Let the rounds until this accuracy decide (their median), e.g. 0.8.", "SHARE")
    trials: int | None = option("Try so many combinations, which Optuna proposes (default: all).", "N", panel=SEARCH)
    sampler: str = option("tpe learns from the trials before; random does not.", "NAME", "tpe", panel=SEARCH)
    sampler_seed: int = option("Of the sampler.", "SEED", 0, panel=SEARCH)
    trials_at_once: int = option(
        "Trials that are proposed together and run side by side. Which they are depends on it, not on --jobs.",
        "N", 4, panel=SEARCH,
    )  # fmt: skip


@options
class SweepOptions(SearchOptions, PreviewOptions, RunsOptions, ExperimentOptions, AlgorithmOption):
    """Options of ``turnout sweep``."""

    overrides: list[str] | None = settings_argument()
    seeds: str | None = seeds_option()
    folder: Path | None = folder_option("runs/CONFIG, or runs/sweep-DATA")
