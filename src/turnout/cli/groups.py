"""Groups of command-line options as dataclasses, and the decorator that makes a dataclass the parameters of a command."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_type_hints

import typer

from turnout.cli import flags

if TYPE_CHECKING:
    from turnout.cli.settings import Settings
    from turnout.comparison.run import Resources

Options = TypeVar("Options")


def takes(options: type[Options]) -> Callable[[Callable[[Options], None]], Callable[..., None]]:
    """Return a decorator that gives a command one parameter for each field of a dataclass.

    The command itself takes an instance of the dataclass. Typer reads the parameters from the signature.

    Args:
        options: a dataclass; the annotation of a field is a type or an ``Annotated`` with a `typer.Option`.
    """

    def decorate(command: Callable[[Options], None]) -> Callable[..., None]:
        def with_parameters(**values: Any) -> None:
            command(options(**values))

        hints = get_type_hints(options, include_extras=True)
        parameters = [
            inspect.Parameter(
                field.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=inspect.Parameter.empty if field.default is MISSING else field.default,
                annotation=hints[field.name],
            )
            for field in fields(options)  # type: ignore[arg-type]
        ]
        with_parameters.__name__, with_parameters.__doc__ = command.__name__, command.__doc__
        with_parameters.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        with_parameters.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        return with_parameters

    return decorate


@dataclass(frozen=True, kw_only=True)
class AlgorithmOption:
    """The option that names one algorithm."""

    algorithm: flags.Algorithm = None


@dataclass(frozen=True, kw_only=True)
class ExperimentOptions:
    """Options that describe an experiment, beside its algorithm."""

    data: flags.Data = None
    model: flags.Model = None
    availability: flags.Availability = None
    pace: flags.Pace = None
    loss: flags.Loss = None
    rounds: flags.Rounds = None
    every: flags.Every = None
    engine: flags.Engine = None
    device: flags.Device = None
    config: flags.Config = None

    def layers(self, **further: Any) -> list[dict[str, Any]]:
        """Return the layers of settings that the options give, the last one first to be applied over the others.

        Args:
            further: values by setting that another option gives; None is left out.
        """
        from turnout.cli import layers

        names = [field.name for field in fields(ExperimentOptions) if field.name not in ("config", "every")]
        given = flags.layer(evaluate_every=self.every, **{name: getattr(self, name) for name in names}, **further)
        return [*([layers.read(self.config)] if self.config else []), given]


@dataclass(frozen=True, kw_only=True)
class RunsOptions:
    """Options of commands that perform several runs: where, how many at a time, and what is written."""

    jobs: flags.Jobs = None
    on: flags.On = None
    runs_per_job: flags.RunsPerJob = None
    threads: flags.ThreadsOfEach = 1
    folder: Path | None = None
    report: flags.Report = True
    checkpoint_every: flags.CheckpointEvery = None
    quiet: flags.Quiet = False

    def at_once(self, settings: Iterable[Settings]) -> int | None:
        """Return the number of runs at a time: ``--jobs``, or 1 on a GPU; None is one for each processor.

        Call it before anything is written.

        Raises:
            ConfigurationError: for ``--jobs`` beside ``--on``, and numbers below one.
        """
        from turnout.core.checks import ConfigurationError, count

        if self.jobs is not None and self.on is not None:
            raise ConfigurationError("--jobs is for processes of this machine, and --on for an executor: leave one out")
        count("threads", self.threads)
        if self.jobs is not None:
            count("jobs", self.jobs)
        on_gpu = any(each.numbers().get("device", "cpu") != "cpu" for each in settings)
        return 1 if self.jobs is None and on_gpu else self.jobs

    def resources(self, at_once: int | None, folder: Path) -> AbstractContextManager[Resources]:
        """Return what performs the runs: processes of this machine, or the executor that ``--on`` names."""
        from turnout.cli.output import resources_of

        return resources_of(at_once, self.threads, self.on, self.runs_per_job, folder)


@dataclass(frozen=True, kw_only=True)
class VariantsOptions(RunsOptions, ExperimentOptions, AlgorithmOption):
    """Options of commands that perform runs of one algorithm under different settings."""


@dataclass(frozen=True, kw_only=True)
class AdministratorOptions:
    """Options of commands by which an administrator asks a server."""

    run: Annotated[
        str, typer.Argument(metavar="RUN|URL", help="The folder of a server on this machine, or where a server is.")
    ]
    token: flags.AdminToken = None
    ca: flags.Ca = None
    certificate: flags.Certificate = None
    key: flags.Key = None
    plain: Annotated[bool, typer.Option("--json", help="What the server answers, as JSON.")] = False


@dataclass(frozen=True, kw_only=True)
class SurveyOptions(AdministratorOptions):
    """Options of commands by which an administrator has a server ask its clients."""

    share: Annotated[float, typer.Option(metavar="S", help="Share of the clients who are asked, drawn at random.")] = (
        1.0
    )
    seconds: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="Also ask clients who come in so many seconds (default: until those who are there answered).",
        ),
    ] = None
