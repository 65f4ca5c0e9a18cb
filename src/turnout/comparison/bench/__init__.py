"""How fast a federation trains here, beside what this machine can do: the measurements of ``turnout bench``."""

from turnout.comparison.bench.measure import measure
from turnout.comparison.bench.workloads import WORKLOADS, Workload

__all__ = ["WORKLOADS", "Workload", "measure"]
