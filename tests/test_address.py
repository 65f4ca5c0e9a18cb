"""The script that writes the repository's address before a release."""

import importlib.util
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ADDRESS = "https://host.example/owner/turnout"


@pytest.fixture(scope="module")
def address():
    spec = importlib.util.spec_from_file_location("address_script", ROOT / "scripts/address.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_readme_links_become_absolute(address):
    text = address.absolute((ROOT / "README.md").read_text("utf-8"), ADDRESS, "v1.2.3")
    targets = re.findall(r"\]\(([^)\s]+)\)", text)
    assert len(targets) > 20
    assert all(target.startswith("https://") for target in targets)
    assert f"({ADDRESS}/raw/v1.2.3/docs/front.svg)" in text
    assert f"({ADDRESS}/blob/v1.2.3/LICENSE)" in text  # behind a badge


def test_script_is_idempotent(address):
    project = (ROOT / "pyproject.toml").read_text("utf-8")
    twice = address.with_urls(address.with_urls(project, "https://old.example/x"), ADDRESS)
    assert tomllib.loads(twice)["project"]["urls"]["Source"] == ADDRESS
    citation = (ROOT / "CITATION.cff").read_text("utf-8")
    twice = address.with_repository(address.with_repository(citation, "https://old.example/x"), ADDRESS)
    assert re.findall(r"repository-code: (.*)", twice) == [f'"{ADDRESS}"']
    assert twice.startswith(citation.rstrip("\n"))
