"""The commands of the network: serve, join, swarm, conform, status, clients, evaluate, query and replay."""
