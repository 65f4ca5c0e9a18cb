"""Comparisons and reports of finished runs."""

from turnout.reporting.records import RunRecord, by_algorithm
from turnout.reporting.report import write_report
from turnout.reporting.table import comparison, csv, markdown, rich_table

__all__ = ["RunRecord", "by_algorithm", "comparison", "csv", "markdown", "rich_table", "write_report"]
