"""The commands of the network: serve, join, swarm, conform, status, clients, evaluate, query and replay."""

import turnout.cli  # noqa: F401  # first, because it adds these commands to its own
