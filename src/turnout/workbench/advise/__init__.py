"""Advise on a rule from the participation that was seen and the rows of the benchmark."""
