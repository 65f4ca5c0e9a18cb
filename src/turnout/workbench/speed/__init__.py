"""Measure the speed of training, and the share of the machine's peak arithmetic that it uses, for ``turnout speed``."""
