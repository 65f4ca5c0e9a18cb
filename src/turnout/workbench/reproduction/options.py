"""Define the options of ``turnout reproduce``."""

from __future__ import annotations

from pathlib import Path

from turnout.cli.command import argument, option, options
from turnout.cli.groups import SETTINGS, DeviceOption, folder_option, seeds_option
from turnout.cli.runs_options import RunsOptions


@options
class ReproduceOptions(DeviceOption, RunsOptions):
    """Options of ``turnout reproduce``."""

    names: list[str] | None = argument(
        "A declaration by its name or TOML file (default: list all), and settings of all algorithms, local.lr=0.05, or of "
        "one, fedau.cutoff=10",
        "PAPER/NAME|KEY=VALUE", None,
    )  # fmt: skip
    only: str | None = option(
        "Run only these panels (default: all but the optional ones).", "NAME,NAME", None, "--panels", panel=SETTINGS
    )
    algorithms: str | None = option("Run only these algorithms.", "NAME,NAME", panel=SETTINGS)
    seeds: str | None = seeds_option("as declared")
    rounds: int | None = option("Number of server steps (default: as declared).", "N", panel=SETTINGS)
    declarations: Path | None = option(
        "Folder of the declarations PAPER/NAME.toml (default: reproductions, or the package's).",
        "FOLDER",
        panel=SETTINGS,
    )
    data_dir: Path | None = option(
        "Data directory: turnout data list.", "FOLDER", panel=SETTINGS, envvar="TURNOUT_DATA"
    )
    folder: Path | None = folder_option("runs/PAPER-NAME")
