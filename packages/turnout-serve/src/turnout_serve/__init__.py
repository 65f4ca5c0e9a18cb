"""The driver on a network: a server, clients who join it, and what is kept so that nothing is lost."""
