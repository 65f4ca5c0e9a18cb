"""Many runs side by side: several algorithms, several seeds, one folder."""

from turnout.comparison.compare import RunsFailed, Stopped, compare
from turnout.comparison.folders import is_finished, load_record, load_records
from turnout.comparison.run import Update
from turnout.comparison.sweep import sweep

__all__ = ["RunsFailed", "Stopped", "Update", "compare", "is_finished", "load_record", "load_records", "sweep"]
