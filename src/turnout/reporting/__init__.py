"""Comparisons and reports of finished runs."""

from turnout.reporting.formats import FORMATS, csv, html, latex, markdown
from turnout.reporting.plot import plot
from turnout.reporting.records import RunRecord, by_algorithm
from turnout.reporting.report import write_report
from turnout.reporting.statistics import Quartiles
from turnout.reporting.table import comparison, rich_table, rich_tables
from turnout.reporting.target import Target, accuracy_target, cost_table, costs

__all__ = [
    "FORMATS",
    "Quartiles",
    "RunRecord",
    "Target",
    "accuracy_target",
    "by_algorithm",
    "comparison",
    "cost_table",
    "costs",
    "csv",
    "html",
    "latex",
    "markdown",
    "plot",
    "rich_table",
    "rich_tables",
    "write_report",
]
