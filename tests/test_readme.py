"""The README is runnable and consistent."""

import re
import tomllib
from pathlib import Path

import pytest

import turnout as to
from turnout.algorithms import ALGORITHMS

README = Path(__file__).parents[1] / "README.md"
BLOCKS = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), flags=re.DOTALL)


def test_first_experiment_prints_what_the_readme_shows(capsys):
    pytest.importorskip("sklearn", reason="digits come with scikit-learn, an extra")
    exec(BLOCKS[0], {})
    printed = capsys.readouterr().out
    form = r"test accuracy (\d+\.\d)%\ntraining accuracy of the worst tenth of clients (\d+\.\d)%\n"
    found = re.fullmatch(form, printed)
    assert found, printed
    shown = re.search(f"```\n{form}```", README.read_text("utf-8"))
    assert shown, "the README shows no output of its first experiment"
    # Another processor rounds differently, and 500 rounds amplify it; on one machine the figures are the same.
    assert float(found[1]) == pytest.approx(float(shown[1]), abs=3.0)
    assert float(found[2]) == pytest.approx(float(shown[2]), abs=15.0)


def test_readme_is_short_and_begins_with_a_picture():
    lines = README.read_text("utf-8").splitlines()
    assert len(lines) <= 150
    first = re.search(r"!\[[^\]]+\]\((docs/[\w/]+\.svg)\)", "\n".join(lines[:20]))
    assert first
    assert (README.parent / first[1]).is_file()


def test_links_resolve():
    for target, anchor in re.findall(r"\]\(([^)#:]*)(#[\w-]+)?\)", README.read_text("utf-8")):
        assert (README.parent / target).exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.*)$", (README.parent / target).read_text("utf-8"), re.M)
            assert anchor[1:] in {re.sub(r"[^\w -]", "", each).lower().replace(" ", "-") for each in headings}


def test_badges_match_the_package():
    text = README.read_text("utf-8")
    project = tomllib.loads((README.parent / "pyproject.toml").read_text("utf-8"))["project"]
    assert f"python-{project['requires-python'].removeprefix('>=')}%20or%20later" in text
    assert f"version-{to.__version__}-" in text
    assert f"license-{project['license'].replace('-', '--')}-" in text


@pytest.mark.parametrize("page", ["features", "guides/equations"])
def test_list_of_algorithms_is_complete(page):
    text = (README.parent / f"docs/{page}.md").read_text(encoding="utf-8")
    assert not [name for name in ALGORITHMS if f"`{name}`" not in text]


def test_number_of_algorithms_matches():
    assert len(ALGORITHMS) > 40, "the README says that there are more than forty"


def test_demo_figures_match_the_recorded_reproduction():
    """The README has means and deviations, as printed by ``make demo``; the record has medians of the same runs."""
    record = (README.parent / "reproductions/participation/phones.results.csv").read_text(encoding="utf-8")
    figure = r"(\d+\.\d) ± (\d+\.\d)"
    for name in ("average_participating", "average_all", "fedau", "known_statistics", "fedvarp", "mifa"):
        shown = re.search(rf"^\| `{name}` \| {figure} \| [^|]+ \| {figure} \|", README.read_text("utf-8"), re.M)
        assert shown, name
        for column, mean, deviation in (
            ("test_accuracy_of_8_9", *shown.groups()[:2]),
            ("test_accuracy", *shown.groups()[2:]),
        ):
            recorded = re.search(rf"^phones,{name},final {column},,[\d.]+,([\d.]+),", record, re.M)
            assert recorded, (name, column)
            assert float(mean) == pytest.approx(100 * float(recorded[1]), abs=float(deviation) + 0.1), (name, column)
