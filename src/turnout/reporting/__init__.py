"""Comparisons and reports of finished runs."""
