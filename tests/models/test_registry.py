"""Models by name."""

import pytest

from turnout.core.checks import ConfigurationError
from turnout.models import CharLstm, Cnn, Logistic, Mlp, TextLstm, model


@pytest.mark.parametrize(
    ("name", "expected"),
    [("logistic", Logistic()), ("mlp", Mlp()), ("cnn", Cnn()), ("char_lstm", CharLstm()), ("text_lstm", TextLstm())],
)
def test_models_are_found_by_name(name, expected):
    assert model(name) == expected


def test_options_reach_the_model_and_lists_become_tuples():
    assert model("mlp", hidden=[64, 30], dropout=0.5) == Mlp(hidden=(64, 30), dropout=0.5)
    assert model("cnn", channels=[32, 64]) == Cnn(channels=(32, 64))


def test_unknown_model_suggests_the_nearest():
    with pytest.raises(ConfigurationError, match=r"unknown model 'chr_lstm': did you mean 'char_lstm'\?"):
        model("chr_lstm")


def test_unknown_option_suggests_the_nearest():
    with pytest.raises(ConfigurationError, match=r"unknown option of model mlp 'hiden': did you mean 'hidden'\?"):
        model("mlp", hiden=(3,))


def test_invalid_value_is_refused():
    with pytest.raises(ConfigurationError, match="hidden: got"):
        model("mlp", hidden=[])
