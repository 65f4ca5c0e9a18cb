from dataclasses import dataclass

import pytest

from turnout.core.altered import altered


@dataclass(frozen=True)
class Plain:
    a: int
    b: str = "b"


@dataclass(frozen=True)
class Checked:
    a: int

    def __post_init__(self):
        assert self.a > 0


def test_a_copy_with_other_values():
    before = Plain(1)
    after = altered(before, b="c")
    assert (after, before) == (Plain(1, "c"), Plain(1, "b"))


def test_what_checks_its_fields_is_not_copied_past_its_checks():
    with pytest.raises(TypeError, match=r"Checked checks its fields: use dataclasses\.replace"):
        altered(Checked(1), a=-1)


def test_fields_that_do_not_exist():
    with pytest.raises(TypeError, match="Plain has no field 'c'"):
        altered(Plain(1), c=2)
