"""What the README shows can be run as it stands."""

import re
from pathlib import Path

import pytest

import turnout as to
from turnout.algorithms import ALGORITHMS

README = Path(__file__).parents[1] / "README.md"
BLOCKS = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), flags=re.DOTALL)


def test_the_first_experiment_prints_what_the_readme_says(capsys):
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


def test_the_composed_algorithm_is_one():
    names: dict[str, object] = {"to": to}
    exec(next(block for block in BLOCKS if "to.compose(" in block), names)
    assert isinstance(names["mine"], to.Algorithm)


def test_every_algorithm_is_in_the_readme():
    missing = [name for name in ALGORITHMS if f"`{name}`" not in README.read_text(encoding="utf-8")]
    assert not missing


def test_the_demos_figures_are_those_of_its_reproduction():
    names = {
        "average_participating": "average participating", "average_all": "average all", "fedau": "FedAU, K = 50",
        "known_statistics": "known statistics", "fedvarp": "FedVARP", "mifa": "MIFA",
    }  # fmt: skip
    reproduction = (README.parent / "reproductions/participation/README.md").read_text(encoding="utf-8")
    figure = r"(\d+\.\d ± \d+\.\d)"
    gap = r"(–|[+-]\d+\.\d \(p [<\d. ]+\))"
    for name, title in names.items():
        shown = rf"^  {name} +{figure} +{gap} +{figure} +{gap} +(\d\.\d\d)$"
        demo = re.search(shown, README.read_text("utf-8"), re.M)
        cells = rf"^\| {re.escape(title)} \| {figure} \| {gap} \| {figure} \| {gap} \| (\d\.\d\d) \|$"
        table = re.search(cells, reproduction, re.M)
        assert demo, name
        assert table, title
        assert demo.groups() == table.groups()
