"""The flags that several commands share, the layer of settings that they make, and what they set."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from turnout.cli.completion import names_of
from turnout.core.checks import count

SETTINGS = "Settings"
OUTCOME = "Outcome"

Config = Annotated[
    Path | None,
    typer.Option(
        "--config", "-c", metavar="FILE", help="Settings in TOML or YAML; flags and KEY=VALUE go before them."
    ),
]
Algorithm = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="How to train: turnout list algorithms (default: fedau).",
        rich_help_panel=SETTINGS,
        autocompletion=names_of("algorithm"),
    ),
]
Seeds = Annotated[
    str | None,
    typer.Option(metavar="N", help="How many seeds, or which: 5 or 0,3,7 (default: 3).", rich_help_panel=SETTINGS),
]
Data = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="What to train on: turnout list data.",
        rich_help_panel=SETTINGS,
        autocompletion=names_of("data"),
    ),
]
Model = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="What to train: turnout list models.",
        rich_help_panel=SETTINGS,
        autocompletion=names_of("model"),
    ),
]
Availability = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="When clients are there: turnout list availability.",
        rich_help_panel=SETTINGS,
        autocompletion=names_of("availability"),
    ),
]
Loss = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="What to minimise: turnout list losses (default: the model's own, or cross_entropy).",
        rich_help_panel=SETTINGS,
        autocompletion=names_of("loss"),
    ),
]
Pace = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="When the server steps: turnout list paces.",
        rich_help_panel=SETTINGS,
        autocompletion=names_of("pace"),
    ),
]
Rounds = Annotated[
    int | None, typer.Option(metavar="N", help="Server steps to take (default: 100).", rich_help_panel=SETTINGS)
]
Every = Annotated[
    int | None,
    typer.Option("--every", metavar="N", help="Rounds between evaluations (default: 10).", rich_help_panel=SETTINGS),
]
Engine = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="How a cohort is trained: auto, vectorised (all clients at once) or one_by_one.",
        rich_help_panel=SETTINGS,
    ),
]
Device = Annotated[str | None, typer.Option(metavar="NAME", help="cpu, cuda, cuda:1, ...", rich_help_panel=SETTINGS)]
ToAccuracy = Annotated[
    float | None,
    typer.Option(
        metavar="SHARE",
        help="Also tell after how many rounds, bytes and simulated seconds this accuracy was reached, e.g. 0.8.",
        rich_help_panel=OUTCOME,
    ),
]
Jobs = Annotated[
    int | None,
    typer.Option(
        "--jobs",
        "-j",
        metavar="N",
        help="Runs at a time (default: processors divided by --threads; 1 on a GPU). Changes no result.",
    ),
]
On = Annotated[
    str | None,
    typer.Option(
        metavar="EXECUTOR",
        help="What performs the runs, in place of processes of this machine: processes:4, dask:tcp://scheduler:8786, "
        "ray:auto, or slurm:partition=gpu,time=60 (minutes; any option of sbatch).",
    ),
]
RunsPerJob = Annotated[
    int | None,
    typer.Option(
        metavar="N", help="Runs that a job of --on performs one after another (default: 8 with slurm, otherwise 1)."
    ),
]
Threads = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        help="Threads that share the clients of a round, no more than processors (default: as torch has it). Changes no "
        "result.",
    ),
]
ThreadsOfEach = Annotated[
    int,
    typer.Option(
        "--threads",
        metavar="N",
        help="Threads of each run, in whichever process; runs side by side make better use of processors (default: 1). "
        "Changes no result.",
        show_default=False,
    ),
]
Report = Annotated[
    bool, typer.Option("--report/--no-report", help="Write report.html, with pictures.", rich_help_panel=OUTCOME)
]
CheckpointEvery = Annotated[
    int | None,
    typer.Option(metavar="N", help="Rounds between checkpoints (default: about a minute).", rich_help_panel=OUTCOME),
]
Code = Annotated[
    list[Path] | None,
    typer.Option(metavar="FILE.py", help="Run this file if the folder names it, without asking; may be repeated."),
]
PrintConfig = Annotated[
    bool,
    typer.Option("--print-config", help="Print all settings as TOML, for --config, and train nothing."),
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Show what would run: sizes, messages and memory, and train nothing.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress, only the result.", rich_help_panel=OUTCOME)]
Ca = Annotated[Path | None, typer.Option(metavar="FILE", help="Certificate of who signed the server's.")]
Certificate = Annotated[Path | None, typer.Option(metavar="FILE", help="This client's own certificate.")]
AdminToken = Annotated[
    Path | None,
    typer.Option(
        "--token",
        metavar="FILE",
        help="The administrator's token (default: TURNOUT_ADMIN_TOKEN, or admin.token in the folder).",
    ),
]
Key = Annotated[Path | None, typer.Option(metavar="FILE", help="Its key.")]
Overrides = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="KEY=VALUE",
        help="Any setting, over flags and file: local.lr=0.05 algorithm.cutoff=none model.hidden=64,30",
        show_default=False,
    ),
]

Runs = Annotated[
    list[str], typer.Argument(metavar="[NAME=]FOLDER", help="Runs or comparisons; NAME is what to call a run.")
]


def use_threads(number: int | None) -> None:
    """Let this process have so many threads; None leaves it as torch has it."""
    if number is not None:
        import torch

        count("threads", number)
        torch.set_num_threads(number)


def layer(**flags: Any) -> dict[str, Any]:
    """Return the flags that were given, as a layer of settings."""
    return {name: value for name, value in flags.items() if value is not None}
