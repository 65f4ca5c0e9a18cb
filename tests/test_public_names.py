"""Names of `turnout`: recipes and classes that need no family; pieces are in the module of their family."""

import pytest

import turnout as to


def test_listed_names_exist() -> None:
    assert all(getattr(to, name) is not None for name in to.__all__)
    assert set(to.__all__) <= set(dir(to))


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("Participation", ": write turnout.weighting.Participation"),
        ("ServerAdam", ""),
        ("Uniform", ": write turnout.delay.Uniform or turnout.selection.Uniform"),
        ("Markov", ": write turnout.availability.Markov"),
        ("fedavgg", ""),
    ],
)
def test_piece_without_its_family_is_an_attribute_error_that_says_where_it_is(name: str, hint: str) -> None:
    with pytest.raises(AttributeError) as caught:
        getattr(to, name)
    assert str(caught.value) == f"module 'turnout' has no attribute {name!r}{hint}"
    assert name not in dir(to)


def test_private_names_import_nothing() -> None:
    with pytest.raises(AttributeError, match=r"module 'turnout' has no attribute '__wrapped__'$"):
        _ = to.__wrapped__


def test_base_classes_are_listed_for_completion() -> None:
    assert set(to.pieces.__all__) <= set(dir(to.pieces))
    assert {"Weighting", "Partition", "Availability"} <= set(dir(to.pieces))
