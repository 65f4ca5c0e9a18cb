"""Take part in a served run: the session with a server, its state, and the computation."""
