"""Missing packages are named with the feature and the installation command."""

import json
import sys

import pytest

from turnout.core.checks import ConfigurationError
from turnout.core.extras import imported


def test_available_module_is_imported() -> None:
    assert imported("json", "a file", ".[yaml]") is json


def test_missing_module_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    message = r"a search needs nothing_there, which is not installed: pip install '\.\[search\]' in a clone of turnout"
    with pytest.raises(ConfigurationError, match=message):
        imported("nothing_there", "a search", ".[search]")
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(ConfigurationError, match=r"a search needs Optuna, which is not installed"):
        imported("optuna", "a search", ".[search]", "Optuna")
