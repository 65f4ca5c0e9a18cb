"""Serve a run: HTTP, the journal, and the driver of the protocol."""
