"""Reproduce tables and figures of papers, which TOML files declare, and check the papers' claims against runs."""
