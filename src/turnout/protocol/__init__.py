"""The server's side of federated learning without I/O, clock or data, for simulations and deployments alike."""
