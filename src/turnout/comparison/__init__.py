"""Run several experiments with several seeds in parallel, resume them, and collect their records."""
