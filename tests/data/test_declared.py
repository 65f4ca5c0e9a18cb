"""Data sets declared by shape."""

import pytest
import torch

import turnout as to
from turnout.cli.settings import Settings
from turnout.core.checks import ConfigurationError
from turnout.data import SOURCES, declared

SHAPE = {"inputs": 64, "classes": 10}


def test_declared_shapes_and_dtypes():
    assert (declared(64, classes=10).input_shape, declared(64, classes=10).num_outputs) == ((64,), 10)
    images = declared((3, 8, 8), 5, num_clients=4)
    assert (images.input_shape, images.num_clients, images.has_labels) == ((3, 8, 8), 4, True)
    numbers = declared(4, outputs=3, input_type="float64")
    assert (numbers.num_outputs, numbers.num_classes, numbers.input_dtype) == (3, None, torch.float64)
    assert declared(4, outputs=1).train.y.shape == (128,)
    tokens = declared(20, 80, input_type="int64", target_shape=(20,))
    assert (tokens.input_dtype, tokens.train.y.shape, tokens.num_outputs) == (torch.int64, (128, 20), 80)
    assert declared(64, 1000).train.y.max() == 999  # so that a model with fewer outputs is refused
    assert declared(64, 10).test is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"inputs": 0, "classes": 2}, "inputs: got 0"),
        ({"inputs": (3, -1), "classes": 2}, "inputs: got -1"),
        ({"inputs": 4}, "classes: got None, needed either classes or outputs. Write classes=10"),
        ({"inputs": 4, "classes": 2, "outputs": 1}, "classes: got 2, needed either classes or outputs"),
        ({"inputs": 4, "classes": 0}, "classes: got 0"),
        ({"inputs": 4, "outputs": 0}, "outputs: got 0"),
        ({"inputs": 4, "classes": 2, "input_type": "int8"}, "input_type"),
        ({"inputs": 4, "classes": 2, "target_shape": (0,)}, "target_shape: got 0"),
        ({"inputs": 4, "classes": 2, "num_clients": 0}, "num_clients: got 0"),
    ],
)
def test_invalid_shape_is_refused(arguments, message):
    with pytest.raises(ConfigurationError, match=message):
        declared(**arguments)


def test_simulation_of_declared_data_is_refused():
    experiment = to.Experiment(declared(4, 2), to.models.Logistic(), to.fedau(), rounds=1)
    with pytest.raises(ConfigurationError, match="data: only the shape is declared, as for a server"):
        experiment.run()


def test_settings_declare_a_shape(monkeypatch):
    """With and without the name of a data set, which is not loaded."""
    assert Settings.of({"data": SHAPE}).data().name == "declared"
    assert Settings.of({"data": {**SHAPE, "inputs": "1,8,8"}}).data().input_shape == (1, 8, 8)
    beside = Settings.of({"data": {"name": "digits", "num_clients": 7, **SHAPE}})
    assert beside.data().name == "digits"  # as a simulation has them
    monkeypatch.setitem(SOURCES._defined, ("turnout.data.named.digits", "digits"), None)
    found = beside.declared()
    assert found is not None
    assert (found.name, found.num_clients) == ("declared", 7)
    assert Settings.of({"data": "declared"}, {"data": SHAPE}).declared() is not None
    assert Settings.of({"data": {"name": "synthetic"}}).declared() is None


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"name": "declared"}, "data.inputs is missing"),
        ({"inputs": 64}, "data.classes: got None, needed either classes or outputs"),
        ({**SHAPE, "test_fraction": 0.1}, "unknown option 'data.test_fraction' of declared"),
        ({**SHAPE, "partition": "iid"}, "unknown option 'data.partition' of declared"),
        (
            {"name": "digits", "inputs": 63, "classes": 10},
            r"data.inputs: got \[63\] and 10 outputs, but digits has .*\[64\]",
        ),
        ({"name": "digits", "inputs": 64, "classes": 1}, r"got \[64\] and 1 output, but digits has .* and 10 outputs"),
    ],
)
def test_contradictory_settings_are_refused(data, message):
    with pytest.raises(ConfigurationError, match=message):
        Settings.of({"data": data}).data()
