"""The number of code lines of each distribution has a limit, which rises only on purpose."""

import pytest
from scripts import code_lines

LIMITS = {"turnout": 38_963, "turnout-serve": 11_429, "turnout-flower": 800}
"""Who raises a number says in the commit what the lines are for, and what was left out instead."""


@pytest.mark.parametrize("name", LIMITS)
def test_distribution_has_no_more_code_than_its_limit(name):
    number = code_lines.of_distributions()[name]
    assert number <= LIMITS[name], f"{name} has {number:,} code lines: remove some, or raise the limit and say why"
    assert number > 0.9 * LIMITS[name], f"{name} has only {number:,} code lines: lower the limit"


TEXT = '''"""Documentation of the module,
in two lines."""

import math  # a comment at the end of a line

# a comment alone

class Circle:
    radius: float = 1.0
    """Documentation of an attribute."""

    def area(self):
        """Documentation of a method."""
        return (
            math.pi

            * self.radius**2
        )


TEXT = """a value

in three lines, of which one is blank"""
'''


def test_comments_documentation_and_blank_lines_do_not_count():
    assert code_lines.code_lines(TEXT) == 10
    assert code_lines.code_lines("") == code_lines.code_lines("# nothing\n") == 0
