"""Tests of figures use the runs of the tests of reports."""

from ..reporting.conftest import *  # noqa: F403
