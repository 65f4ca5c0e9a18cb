"""Data sets by name."""

from pathlib import Path

import pytest

from turnout.core.checks import ConfigurationError, DataError
from turnout.data.directory import REMOTE
from turnout.data.named.cifar import CIFAR10
from turnout.data.source import SOURCES, describe, inventory, load


def test_names_accept_the_options_of_their_function():
    pytest.importorskip("sklearn")
    assert load("digits").name == "digits"
    assert load("digits", directory="anywhere").name == "digits"


def test_options_reach_the_function(tmp_path):
    with pytest.raises(ConfigurationError, match="stride: got 0"):
        load("shakespeare", tmp_path, stride=0)


def test_directory_reaches_the_function(tmp_path):
    with pytest.raises(DataError, match=str(tmp_path / "MNIST" / "raw")):
        load("mnist", tmp_path)


def test_unknown_name_suggests_the_nearest():
    with pytest.raises(ConfigurationError, match="unknown data set 'fashionmnist': did you mean 'fashion_mnist'"):
        load("fashionmnist")


def test_unknown_option_suggests_the_nearest():
    with pytest.raises(ConfigurationError, match=r"unknown option 'strides' of data set 'shakespeare': .* 'stride'"):
        load("shakespeare", strides=2)
    with pytest.raises(ConfigurationError, match="unknown option 'stride' of data set 'cifar10': it has none"):
        load("cifar10", stride=2)


def test_inventory_lists_available_data_sets(tmp_path, monkeypatch):
    monkeypatch.setenv("TURNOUT_DATA", str(tmp_path))
    folder = tmp_path / "cifar-10-batches-bin"
    folder.mkdir()
    for file in CIFAR10.files:
        (folder / file).touch()
    found = {entry.name: entry.path for entry in inventory()}
    assert list(found) == list(SOURCES)
    assert found["cifar10"] == folder
    assert found["mnist"] is None
    assert found["mnist_by_writer"] is None


def test_mnist_by_writer_requires_both_of_its_parts(tmp_path):
    for name, missing in (("mnist", True), ("qmnist", False)):
        for file in REMOTE[name]:
            path = tmp_path / file.path
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
        here = {entry.name: entry.path for entry in inventory(tmp_path)}
        assert here["mnist"] == tmp_path / "MNIST" / "raw"
        assert (here["mnist_by_writer"] is None) == missing


def test_digits_are_available_with_scikit_learn():
    sklearn = pytest.importorskip("sklearn")
    assert {entry.name: entry.path for entry in inventory()}["digits"] == Path(sklearn.__file__).parent


def test_inventory_explains_how_to_obtain_missing_data_sets(tmp_path):
    remedies = {entry.name: entry.remedy for entry in inventory(tmp_path)}
    assert remedies["mnist"] == "turnout data fetch mnist"
    assert remedies["digits"] == "inside scikit-learn: pip install '.[digits]'"
    assert remedies["synthetic"] == remedies["synthetic_iid"] == "drawn when it is used"


@pytest.mark.parametrize("name", SOURCES)
def test_descriptions_are_one_line(name):
    assert 20 < len(describe(name)) < 120
