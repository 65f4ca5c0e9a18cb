"""``turnout swarm``: many simulated clients of a real server."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from turnout.cli import flags
from turnout.cli.errors import guarded

EPILOG = r"""[bold]Examples[/bold]

turnout swarm http://127.0.0.1:8470 --clients 100

turnout swarm http://127.0.0.1:8470 --clients 1000 --availability markov availability.mean=0.3 --speedup 60

turnout swarm http://127.0.0.1:8470 population.speed.compute.low=1 population.dropout.probability=0.1"""


@guarded
def swarm(
    url: Annotated[str, typer.Argument(metavar="URL", help="Where the server is.")],
    overrides: flags.Overrides = None,
    clients: Annotated[
        int | None, typer.Option(metavar="N", help="How many (default: as many as the data have).")
    ] = None,
    availability: flags.Availability = None,
    speedup: Annotated[float, typer.Option(metavar="X", help="Simulated seconds in a real one.")] = 1.0,
    seconds_per_round: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS", help="Length of a round of availability, in simulated seconds (default: its own, or 60)."
        ),
    ] = None,
    seconds: Annotated[float | None, typer.Option(metavar="SECONDS", help="Stop after so many real ones.")] = None,
    experiment: Annotated[
        str | None,
        typer.Option(metavar="FILE.py:EXPERIMENT", help="The experiment, where the server's is a file, too."),
    ] = None,
    ca: flags.Ca = None,
    certificate: flags.Certificate = None,
    key: flags.Key = None,
    threads: flags.Threads = None,
) -> None:
    """Have many clients of a simulation's population come and go at a real server, over HTTP, in one process."""
    from turnout.cli import layers
    from turnout.cli.deployed import clients_experiment, data_set_of, needs
    from turnout.cli.output import say
    from turnout.cli.settings import Settings

    needs("join", "httpx2")
    from dataclasses import replace

    from turnout.deployment.client.join import Connection, announcement
    from turnout.deployment.client.swarm import Swarm
    from turnout.deployment.client.worker import Computer

    flags.use_threads(threads)
    connection = Connection(url.rstrip("/"), ca, certificate, key)
    told = announcement(connection)
    name = "" if experiment is not None else data_set_of(told)
    mine, _ = clients_experiment(told, name, experiment, 0, "cpu")
    own = [flags.layer(availability=availability), *map(layers.override, overrides or ())]
    if any(own):
        kept: dict[str, Any] = {
            k: v for k, v in (told["settings"] or {}).items() if k in ("algorithm", "data", "local")
        }
        mine = replace(mine, population=Settings.of(kept, *own).population())
    found = Swarm(
        Computer(mine, str(told["engine"])),
        connection,
        clients or mine.data.num_clients,
        speedup=speedup,
        seconds_per_round=seconds_per_round,
    )
    say(f"{clients or mine.data.num_clients} clients of {told['algorithm']} at {url}")
    tally = found.run(seconds)
    over = ", ".join(f"{number} {why}" for why, number in tally.over.items())
    typer.echo(f"{tally.reports} reports taken, {tally.died} tasks dropped, {tally.left} departures; {over}")
