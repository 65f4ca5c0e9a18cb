"""Declare options that several commands share, as base classes of their dataclasses of options."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from turnout.cli.command import argument, option, options, switch
from turnout.core.registry import names_in_source

if TYPE_CHECKING:
    from turnout.deployment.client.join import Connection

SETTINGS, OUTCOME = "Settings", "Outcome"
"""Headings in the help of commands."""


PACKAGES = {
    "algorithm": "turnout.algorithms",
    "data": "turnout.data",
    "model": "turnout.models",
    "availability": "turnout.population.availability",
    "pace": "turnout.protocol.pace",
    "loss": "turnout.engine.loss",
}
"""The package of the family that a flag names a member of."""


def names_of(flag: str) -> Callable[[str], list[str]]:
    """Return what completes the beginning of a name after one of `PACKAGES`, for ``typer.Option(autocompletion=...)``.

    Names are read from the source of the package: importing it would take seconds at every key.

    >>> names_of("pace")("ro")
    ['rounds']
    """
    return lambda incomplete: [name for name in names_in_source(PACKAGES[flag]) if name.startswith(incomplete)]


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
    """Options of the TLS connection to a server."""

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
    """Options that show a plan in place of running it."""

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

        names = [field.name for field in fields(ExperimentOptions) if field.name not in ("config", "every")]
        values = {name: getattr(self, name) for name in names} | {"device": self.device_of_runs()}
        flags = layer(evaluate_every=self.every, **values, **further)
        return [*([layers.read(self.config)] if self.config else []), flags]
