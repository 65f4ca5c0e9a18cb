"""Measurements of ``turnout bench``: the speed of training, and the share of the machine's arithmetic that it uses."""
