"""Declarations: what a file says is what is run, and what it gets wrong is told with its place."""

from pathlib import Path

import pytest

from turnout.core.checks import ConfigurationError
from turnout.results.measure import Measure
from turnout.workbench.reproduction.declaration import Curve
from turnout.workbench.reproduction.reading import load, names, read

FOLDER = Path(__file__).parents[3] / "reproductions"


def test_declaration_is_read_completely(declared):
    made = declared()
    assert (made.name, made.title, made.reference) == ("paper/made", "Fast against slow", "Somebody, Table 7")
    assert made.measures == (Measure("rounds"), Measure("final", "test_accuracy"))
    assert made.curves == (
        Curve("test_accuracy"),
        Curve("train_loss", log="y"),
        Curve("test_accuracy", against="bytes"),
    )
    assert (made.algorithms, made.seeds) == (["fast", "slow"], 4)
    assert made.common["rounds"] == 6
    easy, hard, rare = made.panels.values()
    assert (easy.title, easy.to_accuracy, easy.paper) == ("easy data", 0.5, {"fast": (2, "80 ± 1"), "slow": (1000,)})
    assert easy.settings == {}
    assert (hard.seeds, hard.settings["rounds"], hard.settings["data"]) == ([5, 6], 8, {"alpha": 0.1})
    assert (rare.optional, made.of(rare), made.of(hard)) == (True, ["fast"], ["fast", "slow"])
    assert [claim.text for claim in made.claims] == ["Fast is faster", "Hard data make more of a difference"]
    assert (made.claims[0].measure, made.claims[1].measure) == (None, Measure("final", "test_accuracy"))


def test_optional_panels_run_on_request(declared):
    made = declared()
    assert [panel.name for panel in made.chosen(None)] == ["easy", "hard"]
    assert [panel.name for panel in made.chosen(["rare", "easy", "rare"])] == ["rare", "easy"]
    with pytest.raises(ConfigurationError, match="unknown panel 'eazy': did you mean 'easy'"):
        made.chosen(["eazy"])


def test_to_accuracy_applies_to_all_panels(declared):
    made = declared(("seeds = 4", "seeds = 4\nto_accuracy = 0.25"), ("to_accuracy = 0.9\n", ""))
    assert [panel.to_accuracy for panel in made.panels.values()] == [0.5, 0.25, 0.5]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('title = "Fast against slow"\n', "", "made.toml: title is missing"),
        ("seeds = 4", "seed = 4", "made.toml: unknown key 'seed' of the reproduction: did you mean 'seeds'"),
        ('"rounds", "final', '"round", "final', "unknown measure 'round': did you mean 'rounds'"),
        ('measures = ["rounds", "final test_accuracy"]', "measures = []", "measures: needed at least one"),
        ('log = "y"', 'log = "z"', "unknown value of log 'z'"),
        ('against = "bytes"', 'against = "byte"', "unknown value of against 'byte': did you mean 'bytes'"),
        ('{ metric = "train_loss", log', '{ metrik = "train_loss", log', "unknown key 'metrik' of curves"),
        ('{ metric = "train_loss", log', "{ log", "curves: metric is missing"),
        ("to_accuracy = 0.9\n", "to_accuracy = 90\n", r"panels.hard.to_accuracy: got 90, .*Write 0\.9 for 90 %"),
        ("to_accuracy = 0.9\n", "", r"panels.hard: measures count until a target, so it needs to_accuracy = 0\.7"),
        ("paper = { fast", "paper = { fasd", "unknown algorithm in panels.easy.paper 'fasd': did you mean 'fast'"),
        ('[2, "80 ± 1"]', "[1, 2, 3]", "panels.easy.paper.fast: got 3 figures, needed at most one for each measure, 2"),
        ('only = ["fast"]', 'only = ["vast"]', "unknown algorithm in panels.rare.only 'vast'"),
        (
            "algorithms.slow.local.lr",
            "algorithms.sloww.local.lr",
            "unknown algorithm in panels.hard.algorithms 'sloww'",
        ),
        ('order = ["fast", "slow"]', 'order = ["fast", "last"]', "algorithm in the claim 'Fast is faster' 'last'"),
        ('panels = ["easy", "hard"]', 'panels = ["easy", "lard"]', "panel in the claim 'Hard data .*' 'lard'"),
        ('text = "Fast is faster"\n', "", "claims: text is missing"),
        ('text = "Fast is faster"\n', 'text = "a"\nwhere = 1\n', "unknown key 'where' of claims"),
        ('order = ["fast", "slow"]\n', "", "a claim needs exactly one of order"),
        ('[panels.rare]\ntitle = "rare data"', '[panels]\nrare = 3\n[common.x]\ntitle = ""', "made.toml: "),
        ('title = "Fast', 'title = Fast"', "made.toml: cannot be read as a TOML file"),
    ],
)
def test_errors_name_their_location(declared, old, new, message):
    with pytest.raises(ConfigurationError, match=message):
        declared((old, new))


def test_a_panel_is_a_table(tmp_path):
    path = tmp_path / "x.toml"
    path.write_text('title = "t"\nreference = "r"\nalgorithms.fedavg = {}\npanels.a = 3\n')
    with pytest.raises(ConfigurationError, match=r"x.toml: panels.a is 3: needed an object"):
        read(path, "x")


@pytest.mark.parametrize(
    ("old", "new", "field"),
    [
        ('about = "Nothing is left open."', "about = 4", "about"),
        ("seeds = 4", "also = 4", "also"),
        ('text = "Fast is faster"', "text = []", "claims.0.text"),
        ('panels = ["easy", "hard"]', "panels = 3", "claims.1.panels"),
        ('measure = "final test_accuracy"', "measure = [1]", "claims.1.measure"),
        ('measures = ["rounds", "final', 'measures = [3, "final', "measure"),
        ('measures = ["rounds", "final test_accuracy"]', "measures = 3", "measures"),
        ('log = "y"', "log = [1]", "log"),
        ('against = "bytes"', "against = 3", "against"),
        ('only = ["fast"]', "only = 3", "panels.rare.only"),
        ("paper = { fast", "paper = 3 # { fast", "panels.easy.paper"),
        ('title = "Fast against slow"\n', "title = 3\n", "title"),
        ("seeds = 4", "seeds = " + "[" * 5000 + "]" * 5000, "cannot be read"),
    ],
)
def test_values_of_the_wrong_type_are_refused_with_their_key(declared, old, new, field):
    with pytest.raises(ConfigurationError, match=rf"made\.toml: .*{field}"):
        declared((old, new))


def test_unknown_names_are_refused_and_user_files_are_read(declared, tmp_path):
    assert "folb/table-1" in names(FOLDER)
    with pytest.raises(ConfigurationError, match="unknown reproduction 'folb/table-2': did you mean 'folb/table-1'"):
        load("folb/table-2", FOLDER)
    declared()
    assert load(str(tmp_path / "made.toml")).name == "made"
    with pytest.raises(ConfigurationError, match=r"none.toml: cannot be read as a TOML file"):
        load(str(Path(tmp_path) / "none.toml"))


def test_figure_of_other_runs_is_an_alias_of_them():
    assert load("maxfl/figure-4", FOLDER).name == "maxfl/figure-3"
    assert load("maxfl/table-5", FOLDER).name != "maxfl/table-5"
    assert "maxfl/figure-4" not in names(FOLDER), "listed once"
    with pytest.raises(ConfigurationError, match="unknown reproduction 'maxfl/figur-4': did you mean 'maxfl/figure-4'"):
        load("maxfl/figur-4", FOLDER)
