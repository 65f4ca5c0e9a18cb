"""Options that several commands share, as base classes of their dataclasses of options."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any, ClassVar

from turnout.cli.command import argument, option, options, switch
from turnout.core.registry import names_in_source

SETTINGS, OUTCOME = "Settings", "Outcome"
"""Headings in the help of commands."""


PACKAGES = {
    "algorithm": ("turnout.algorithms",),
    "data": ("turnout.data", "turnout.data.named"),
    "model": ("turnout.models",),
    "availability": ("turnout.population.availability",),
    "pace": ("turnout.protocol.pace",),
    "loss": ("turnout.engine.loss",),
}
"""The packages that contain the possible values of each flag."""


def names_of(flag: str) -> Callable[[str], list[str]]:
    """Return the completion function of one of `PACKAGES`, for ``typer.Option(autocompletion=...)``.

    Names are read from the source code, because importing the package would take seconds at every key press.

    >>> names_of("pace")("ro")
    ['rounds']
    """
    return lambda incomplete: [name for name in names_in_source(*PACKAGES[flag]) if name.startswith(incomplete)]


def layer(**values: Any) -> dict[str, Any]:
    """Return a layer of settings of the options that are not None."""
    return {name: value for name, value in values.items() if value is not None}


def piece_option(text: str, family: str | None = None) -> Any:
    """Return an option for the name of a piece, with shell completion if its family is given."""
    return option(text, "NAME", panel=SETTINGS, autocompletion=names_of(family) if family else None)


def settings_argument(
    text: str = "Any setting; overrides flags and file: local.lr=0.05 algorithm.cutoff=none model.hidden=64,30",
) -> Any:
    """Return an argument for settings."""
    return argument(text, "KEY=VALUE", None)


def seeds_option(default: str = "3") -> Any:
    """Return the option for the seeds."""
    return option(f"Number of seeds, or a list: 5 or 0,3,7 (default: {default}).", "N", panel=SETTINGS)


def folder_option(default: str) -> Any:
    """Return the option for the output folder."""
    return option(f"Output folder (default: {default}).", panel=OUTCOME)


@options
class AlgorithmOption:
    """The option for the algorithm."""

    algorithm: str | None = piece_option("Algorithm: turnout list algorithms (default: fedau).", "algorithm")


@options
class AvailabilityOption:
    """The option for the pattern of availability."""

    availability: str | None = piece_option("Availability of clients: turnout list availability.", "availability")


@options
class DeviceOption:
    """The option for the device."""

    several_devices: ClassVar[bool] = False

    device: str | None = option("Device: cpu, cuda, cuda:1, ...", "NAME", panel=SETTINGS)

    def device_of_runs(self) -> str | None:
        """Return the device of experiments; for several GPUs ``"cuda"``, which is a different one in each process.

        Raises:
            ConfigurationError: if a single run has several devices.
        """
        if self.device is None or "," not in self.device:
            return self.device
        if not self.several_devices:
            from turnout.core.checks import refuse

            raise refuse("device", given=self.device, needed="one device; torchrun has one run use several")
        return "cuda"


@options
class ThreadsOption:
    """The option for the number of threads."""

    threads: int | None = option(
        "Number of threads that train the clients of a round, at most the number of processors (default: that of torch). "
        "Does not affect results.",
        "N",
    )

    def use_threads(self) -> None:
        """Set the number of threads of this process, if the option is given."""
        if self.threads is not None:
            import torch

            from turnout.core.checks import count

            count("threads", self.threads)
            torch.set_num_threads(self.threads)


@options
class CodeOption:
    """The option for trusted files of code that the settings of a folder may name."""

    code: list[Path] | None = option(
        "Run this file, if the folder names it, without confirmation; may be repeated.", "FILE.py"
    )


@options
class PreviewOptions:
    """Options to show a plan instead of running it."""

    print_config: bool = switch("Print all settings as TOML, for --config, without training.", "--print-config")
    dry_run: bool = switch("Show the sizes of runs, messages and memory, without training.", "--dry-run")


@options
class WatchedOptions:
    """Options of commands that train, for checkpoints and progress."""

    checkpoint_every: int | None = option("Rounds between checkpoints (default: about a minute).", "N", panel=OUTCOME)
    quiet: bool = switch("Show only the result, no progress.", "--quiet", "-q", panel=OUTCOME)


@options
class ExperimentOptions(DeviceOption, AvailabilityOption):
    """Options of an experiment, except for its algorithm."""

    data: str | None = piece_option("Data set: turnout list data.", "data")
    model: str | None = piece_option("Model: turnout list models.", "model")
    pace: str | None = piece_option("Schedule of server steps: turnout list paces.", "pace")
    loss: str | None = piece_option("Loss: turnout list losses (default: the model's own, or cross_entropy).", "loss")
    rounds: int | None = option("Number of server steps (default: 100).", "N", panel=SETTINGS)
    every: int | None = option("Rounds between evaluations (default: 10).", "N", None, "--every", panel=SETTINGS)
    engine: str | None = piece_option(
        "Training of a cohort: vectorized (all clients at once), one_by_one, or auto (default)."
    )
    precision: str | None = option("Precision of local steps: full (default), or bf16.", "NAME", panel=SETTINGS)
    config: Path | None = option(
        "Settings in TOML or YAML; flags and KEY=VALUE override them.", "FILE", None, "--config", "-c"
    )

    def layers(self, **further: Any) -> list[dict[str, Any]]:
        """Return the layers of settings of the options; later ones override earlier ones.

        Args:
            further: settings of other options; None is left out.
        """
        from turnout.cli import layers

        names = [field.name for field in fields(ExperimentOptions) if field.name not in ("config", "every")]
        values = {name: getattr(self, name) for name in names} | {"device": self.device_of_runs()}
        flags = layer(evaluate_every=self.every, **values, **further)
        return [*([layers.read(self.config)] if self.config else []), flags]
