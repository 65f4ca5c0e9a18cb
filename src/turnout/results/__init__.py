"""Reduce finished runs to figures: single numbers, costs of a target, statistics over seeds, and tables of them."""
