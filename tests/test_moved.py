"""Names that moved from `turnout` into modules still work for one release, with a warning."""

import warnings

import pytest

import turnout as to
from turnout.moved import MOVED


@pytest.mark.parametrize("name", MOVED)
def test_old_flat_name_warns_and_is_the_piece(name):
    module, new = MOVED[name]
    with pytest.warns(DeprecationWarning, match=f"turnout.{name} is now turnout.{module}.{new}") as caught:
        piece = getattr(to, name)
    assert piece is getattr(getattr(to, module), new)
    assert caught[0].filename == __file__
    assert name not in to.__all__
    assert name not in dir(to)


def test_current_flat_names_do_not_warn():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert all(getattr(to, name) is not None for name in to.__all__)


def test_ambiguous_names_are_not_flat():
    assert {"Sign", "Group", "Range", "Area", "Echo", "Independent", "Poisson", "Uniform", "Buffered"} <= MOVED.keys()
    assert {"Experiment", "Population", "Sgd", "compose", "fedau", "load", "selection", "server"} <= set(to.__all__)
    assert to.server.Adam is not to.server.Sgd is not to.Sgd
