"""Names of classes and categories of a site are compared with those that a server announces."""

from __future__ import annotations

import re
from typing import Any

import pytest

import turnout as to
from turnout.core.checks import ConfigurationError
from turnout.data.names import Names, check_names, names_of, names_read

from ..logs import logged

NAMES = ["asthma", "cold", "flu"]
THERE = {"inputs": 3, "classes": NAMES, "categories": {"s": ["f", "m"]}}


def site(labels: tuple[Any, ...], **options: Any) -> list[Names]:
    """Return the names of a site with a column of categories."""
    with names_read() as read:
        to.data.from_table(
            {"x": [0.0, 1.0], "s": ["f", "m"], "ill": labels}, label="ill", **{"categories": ("s",), **options}
        )
    return read


def test_declared_names_are_accepted():
    check_names(site(("asthma", "cold"), classes=NAMES), THERE)
    check_names(
        site(("cold", "flu"), classes=tuple(NAMES)), {**THERE, "classes": tuple(NAMES), "categories": {"s": ("f", "m")}}
    )


SCALED = {"categories": (), "mean": {"x": 1.0}, "std": {"x": 1.0}, "features": ("x",)}
TWO = {"classes": ["cold", "flu"]}


@pytest.mark.parametrize(
    ("options", "announced", "name", "here", "there"),
    [
        ({}, THERE, "classes", ["cold", "flu"], NAMES),
        ({"classes": ("flu", "cold")}, TWO, "classes", ["flu", "cold"], ["cold", "flu"]),
        (
            {"classes": NAMES, "categories": {"s": ("m", "f")}},
            THERE,
            "categories",
            {"s": ["m", "f"]},
            {"s": ["f", "m"]},
        ),
        (SCALED, {**TWO, "mean": {"x": 2.0}}, "mean", {"x": 1.0}, {"x": 2.0}),
    ],
)
def test_names_that_differ_are_refused_with_both_lists(options, announced, name, here, there):
    message = f"{name}: this client's data have {here}, and the server announces {there}"
    with pytest.raises(ConfigurationError, match=re.escape(message)):
        check_names(site(("cold", "flu"), **options), announced)


@pytest.mark.parametrize("number", [2, 3, None])
def test_names_that_the_server_does_not_announce_are_refused_whatever_their_number(number):
    announced = {} if number is None else {"classes": number}
    message = (
        r"classes: this client's data have \['cold', 'flu'\], and the server announces .* classes without names: sites that "
        r"number column 'ill' .*Write the same classes=.* and classes = \[\"cold\", \"flu\"\] in the server's section data"
    )
    with pytest.raises(ConfigurationError, match=message):
        check_names(site(("cold", "flu")), announced)
    with pytest.raises(
        ConfigurationError, match=r"categories: .*categories = {s = \[\"f\", \"m\"\]} in the server's section"
    ):
        check_names(site((0, 1)), announced)


def test_labels_that_are_numbers_need_no_names():
    check_names(site((0, 1), categories=(), features=("x",)), {"classes": 3})
    check_names(site(("0", "1"), categories=(), features=("x",)), {"classes": 3})


def test_own_scales_are_told():
    with logged("the server announces no mean, and this client standardizes by its own"):
        check_names(site((0, 1), categories=(), features=("x",), scale=True), {"classes": 2})


def test_names_of_folders_and_of_transforms_are_known(tmp_path):
    image = pytest.importorskip("PIL.Image", reason="images need Pillow: pip install pillow")
    for name in ("cat", "dog"):
        (tmp_path / "me" / name).mkdir(parents=True)
        image.new("L", (4, 4)).save(tmp_path / "me" / name / "1.png")
    with names_read() as read:
        to.data.ImageFolder(tmp_path, size=4, colors=1)
    with pytest.raises(ConfigurationError, match=r"\['cat', 'dog'\], .*number folders of classes by what they have"):
        check_names(read, {"classes": 2})
    scaler = pytest.importorskip("sklearn.preprocessing").StandardScaler()
    with pytest.raises(ConfigurationError, match=r"this client's data have \['cold', 'flu'\]"):
        check_names(site(("cold", "flu"), categories=(), features=("x",), transform=scaler), {"classes": 2})


def test_a_server_announces_declared_names():
    declared = to.data.declared(2, classes=("no", "yes"), categories={"s": ("f", "m")})
    assert names_of(declared) == {"classes": ("no", "yes"), "categories": {"s": ("f", "m")}}
    check_names([Names("column 'ill'", {"classes": ["no", "yes"]})], names_of(declared))
    assert names_of(to.data.declared(2, classes=2)) == {}
