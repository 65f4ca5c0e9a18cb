"""Labels of pixels: figures are those of torch, and labels of another form are refused with what to write."""

import numpy as np
import pytest
import torch
from torch import nn

import turnout as to
from turnout import ConfigurationError, DataError


def images():
    """Images [n, 1, 4, 5], and for each pixel whether it is bright."""
    x = torch.from_numpy(np.random.default_rng(0).normal(size=(24, 1, 4, 5)).astype("float32"))
    return x, (x[:, 0] > 0.3).long()


def experiment(y, **options):
    x, _ = images()
    source = to.data.from_arrays(x, y, client_ids=np.arange(24) % 4)
    network = nn.Sequential(nn.Conv2d(1, 6, 1), nn.ReLU(), nn.Conv2d(6, 2, 1), nn.Flatten(2))
    local = to.Sgd(lr=0.5, steps=4, batch_size=3)
    return to.Experiment(
        source.split(test_fraction=0.25),
        network,
        to.fedavg(local=local),
        rounds=2,
        loss=nn.CrossEntropyLoss(),
        **options,
    )


@pytest.mark.parametrize("ignored", [None, -100])
def test_figures_of_pixels_are_those_of_torch(ignored):
    y = images()[1]
    if ignored is not None:
        y[:, 0, :2] = ignored
    pixels = experiment(y.flatten(1))
    run, test = pixels.run(), pixels.data.test
    assert test is not None
    x, y = test.x, test.y
    with torch.no_grad():
        outputs = run.model.eval()(x).unflatten(2, (4, 5))
    y = y.unflatten(1, (4, 5))
    counted = y >= 0
    summary = run.summary()
    assert summary["test_loss"] == pytest.approx(float(nn.CrossEntropyLoss()(outputs, y)), rel=1e-5)
    assert summary["test_accuracy"] == pytest.approx(float((outputs.argmax(1) == y)[counted].double().mean()), rel=1e-9)


def test_labels_of_rows_of_pixels_are_refused():
    match = (
        r"or \[n, T\] for T tokens or pixels, got torch.int64 \[24, 4, 5\]: write y.flatten\(1\), and nn.Flatten\(2\)"
    )
    with pytest.raises(DataError, match=match):
        experiment(images()[1])


def test_figures_by_class_of_pixels_are_refused_before_training():
    with pytest.raises(ConfigurationError, match="f1 needs class labels"):
        experiment(images()[1].flatten(1), metrics=("f1",)).run()
