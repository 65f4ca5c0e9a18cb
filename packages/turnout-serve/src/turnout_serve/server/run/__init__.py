"""Run a federation on a server: its tasks, reports, evaluations and queries."""
