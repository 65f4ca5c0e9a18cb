"""``turnout swarm``: simulate many clients of a real server."""

from __future__ import annotations

import time
from dataclasses import replace

import typer

from turnout.cli.command import argument, command, option, options
from turnout.cli.console import say
from turnout.cli.groups import AvailabilityOption, ThreadsOption, layer, settings_argument
from turnout_serve.cli.commands.join import announced_run
from turnout_serve.cli.connection import ConnectionOptions


@options
class SwarmOptions(ThreadsOption, ConnectionOptions, AvailabilityOption):
    """Options of ``turnout swarm``."""

    url: str = argument("Address of the server.", "URL")
    overrides: list[str] | None = settings_argument("Settings of the population; override flags: availability.mean=0.3")
    clients: int | None = option("Number of clients (default: that of the data).", "N")
    speedup: float = option("Simulated seconds per real second.", "X", 1.0)
    seconds_per_round: float | None = option(
        "Length of a round of availability in simulated seconds (default: that of the pattern, or 60).", "SECONDS"
    )
    seconds: float | None = option("Stop after this time in real seconds.", "SECONDS")
    patience: float | None = option(
        "Stop if the server does not respond within this time at the start (default: never).", "SECONDS"
    )
    experiment: str | None = option("The experiment, if that of the server is a Python file.", "FILE.py:EXPERIMENT")


@command(SwarmOptions)
def swarm(options: SwarmOptions) -> None:
    """Connect many simulated clients to a real server over HTTP, with simulated availability, in one process.

    Examples:
        turnout swarm http://127.0.0.1:8470 --clients 100
        turnout swarm http://127.0.0.1:8470 --clients 1000 --availability markov availability.mean=0.3 --speedup 60
        turnout swarm http://127.0.0.1:8470 population.speed.compute.low=1 population.dropout.probability=0.1
    """
    options.use_threads()
    connection = options.connection(options.url)
    from turnout.cli import layers
    from turnout.cli.options import only
    from turnout.cli.settings import Settings
    from turnout_serve.cli.joining import clients_experiment, data_set_of, shape_of
    from turnout_serve.client.computer import Computer
    from turnout_serve.client.join import Joined
    from turnout_serve.client.newcomer import Newcomer
    from turnout_serve.client.state import ClientState
    from turnout_serve.client.swarm import Swarm

    announced = announced_run(connection, options.patience)
    data = "" if options.experiment is not None else data_set_of(announced)
    if announced["input_shape"] is None:
        say("the server waits for a first client: sending the shape of the data")
        Joined(Newcomer(ClientState(), data=shape_of(announced, data).settings()), connection).run()
        while (announced := announced_run(connection, options.patience))["input_shape"] is None:
            time.sleep(0.2)  # until the server is ready
    experiment, _ = clients_experiment(announced, data, options.experiment, 0, "cpu")
    changes = [layer(availability=options.availability), *map(layers.override, options.overrides or ())]
    if any(changes):
        table = only(announced["settings"] or {}, ("algorithm", "data", "local"))
        experiment = replace(experiment, population=Settings.of(table, *changes).population())
    number = options.clients or experiment.data.num_clients
    made = Swarm(
        Computer(experiment, str(announced["engine"])), connection, number,
        speedup=options.speedup, seconds_per_round=options.seconds_per_round, notice=say,
    )  # fmt: skip
    say(f"{number} clients of {announced['algorithm']} at {options.url}")
    tally = made.run(options.seconds)
    over = ", ".join(f"{number} {why}" for why, number in tally.over.items())
    typer.echo(f"{tally.reports} reports taken, {tally.died} tasks dropped, {tally.left} departures; {over}")
