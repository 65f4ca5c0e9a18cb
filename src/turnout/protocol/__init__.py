"""Run a server's side of federated learning without I/O, clock or data, for a simulation and a deployment alike."""
