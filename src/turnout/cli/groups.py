"""Options that several commands share, as dataclasses from which those of a command derive."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from turnout.cli.command import argument, option, options, switch
from turnout.cli.completion import names_of

if TYPE_CHECKING:
    from turnout.cli.settings import Settings
    from turnout.comparison.run import Resources
    from turnout.deployment.client.join import Connection

SETTINGS, OUTCOME, SEARCH = "Settings", "Outcome", "Search"
"""Headings in the help of commands."""


def layer(**values: Any) -> dict[str, Any]:
    """Return the options that were given, as a layer of settings."""
    return {name: value for name, value in values.items() if value is not None}


def piece_option(text: str, family: str | None = None) -> Any:
    """Return an option that names a piece, which shells complete where its family is known."""
    return option(text, "NAME", panel=SETTINGS, autocompletion=names_of(family) if family else None)


def settings_argument(
    text: str = "Any setting, over flags and file: local.lr=0.05 algorithm.cutoff=none model.hidden=64,30",
) -> Any:
    """Return an argument that takes settings."""
    return argument(text, "KEY=VALUE", None)


def seeds_option(default: str = "3") -> Any:
    """Return the option that says how many seeds there are, or which."""
    return option(f"How many seeds, or which: 5 or 0,3,7 (default: {default}).", "N", panel=SETTINGS)


def folder_option(default: str) -> Any:
    """Return the option that says where runs go."""
    return option(f"Where everything goes (default: {default}).", panel=OUTCOME)


def needs(extra: str, *modules: str) -> None:
    """Refuse a command whose packages are not installed.

    Raises:
        ConfigurationError: naming the extra that brings them.
    """
    from turnout.core.extras import imported

    for module in modules:
        imported(module, "this", f"turnout[{extra}]")


@options
class AlgorithmOption:
    """The option that names one algorithm."""

    algorithm: str | None = piece_option("How to train: turnout list algorithms (default: fedau).", "algorithm")


@options
class AvailabilityOption:
    """The option that names a pattern of availability."""

    availability: str | None = piece_option("When clients are there: turnout list availability.", "availability")


@options
class DeviceOption:
    """The option that says where to compute."""

    several_devices: ClassVar[bool] = False

    device: str | None = option("cpu, cuda, cuda:1, ...", "NAME", panel=SETTINGS)

    def device_of_runs(self) -> str | None:
        """Return the device that experiments name: of several GPUs, ``"cuda"``, which each process takes for its own.

        Raises:
            ConfigurationError: for several devices where there is one run.
        """
        if self.device is None or "," not in self.device:
            return self.device
        if not self.several_devices:
            from turnout.core.checks import refuse

            raise refuse("device", given=self.device, needed="one device; torchrun has one run use several")
        return "cuda"


@options
class ThreadsOption:
    """The option that says how many threads a process has."""

    threads: int | None = option(
        "Threads that share the clients of a round, no more than processors (default: as torch has it). Changes no result.",
        "N",
    )

    def use_threads(self) -> None:
        """Let this process have so many threads; without the option it has as many as torch gives it."""
        if self.threads is not None:
            import torch

            from turnout.core.checks import count

            count("threads", self.threads)
            torch.set_num_threads(self.threads)


@options
class ConnectionOptions:
    """Options that say how to trust a server, and how to be trusted by it."""

    ca: Path | None = option("Certificate of who signed the server's.", "FILE")
    certificate: Path | None = option("This client's own certificate.", "FILE")
    key: Path | None = option("Its key.", "FILE")

    def connection(self, url: str, timeout: float = 90.0) -> Connection:
        """Return a connection to a server.

        Args:
            url: its address.
            timeout: seconds without a sign of life of the server.

        Raises:
            ConfigurationError: for an address that is none, and where the package for requests is missing.
        """
        needs("join", "httpx2")
        from turnout.deployment.client.join import Connection

        return Connection(url.rstrip("/"), self.ca, self.certificate, self.key, timeout)


@options
class LogOption:
    """The option that says how log messages are written."""

    logs: str = option("Form of messages.", "text|json", "text", "--log-format")

    def check_log(self) -> None:
        """Refuse an unknown form."""
        from turnout.core.checks import known_name

        known_name("form of the log", self.logs, ("text", "json"))

    def write_log(self) -> None:
        """Write log messages to standard error from now on."""
        from turnout.cli.logs import log_to_stderr

        log_to_stderr(self.logs)


@options
class CodeOption:
    """The option that names files of code that a folder may have run."""

    code: list[Path] | None = option(
        "Run this file if the folder names it, without asking; may be repeated.", "FILE.py"
    )


@options
class PreviewOptions:
    """Options that show what would run in place of running it."""

    print_config: bool = switch("Print all settings as TOML, for --config, and train nothing.", "--print-config")
    dry_run: bool = switch("Show what would run: sizes, messages and memory, and train nothing.", "--dry-run")


@options
class WatchedOptions:
    """Options of commands that train: how often a run is saved, and whether its progress is shown."""

    checkpoint_every: int | None = option("Rounds between checkpoints (default: about a minute).", "N", panel=OUTCOME)
    quiet: bool = switch("No progress, only the result.", "--quiet", "-q", panel=OUTCOME)


@options
class ExperimentOptions(DeviceOption, AvailabilityOption):
    """Options that describe an experiment, beside its algorithm."""

    data: str | None = piece_option("What to train on: turnout list data.", "data")
    model: str | None = piece_option("What to train: turnout list models.", "model")
    pace: str | None = piece_option("When the server steps: turnout list paces.", "pace")
    loss: str | None = piece_option(
        "What to minimise: turnout list losses (default: the model's own, or cross_entropy).", "loss"
    )
    rounds: int | None = option("Server steps to take (default: 100).", "N", panel=SETTINGS)
    every: int | None = option("Rounds between evaluations (default: 10).", "N", None, "--every", panel=SETTINGS)
    engine: str | None = piece_option("How a cohort is trained: auto, vectorised (all clients at once) or one_by_one.")
    precision: str | None = option("Of local steps: full (default), or bf16 for bfloat16.", "NAME", panel=SETTINGS)
    config: Path | None = option(
        "Settings in TOML or YAML; flags and KEY=VALUE go before them.", "FILE", None, "--config", "-c"
    )

    def layers(self, **further: Any) -> list[dict[str, Any]]:
        """Return the layers of settings that the options give, the last one first to be applied over the others.

        Args:
            further: values by setting that another option gives; None is left out.
        """
        from turnout.cli import layers

        names = [each.name for each in fields(ExperimentOptions) if each.name not in ("config", "every")]
        values = {name: getattr(self, name) for name in names} | {"device": self.device_of_runs()}
        flags = layer(evaluate_every=self.every, **values, **further)
        return [*([layers.read(self.config)] if self.config else []), flags]


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
        named = {each.numbers().get("device", "cpu") for each in settings}
        devices = gpus_of(device if device is not None and "," in device else "cuda") if "cuda" in named else ()
        check_gpus(devices)
        jobs = 1 if self.jobs is None and named != {"cpu"} and not devices else self.jobs
        return Resources(jobs, self.threads, devices=devices)


@options
class SearchOptions:
    """Options that say what is tried, and what decides."""

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
