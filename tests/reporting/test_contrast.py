"""Contrast of figures and pages by WCAG 2: at least 3:1, and 4.5:1 for text."""

import re
from importlib.resources import files

import numpy as np
import pytest

from turnout.reporting.style import GRAY, INK, PALETTE, keys_of, looks_of

WHITE, BLACK = "#ffffff", "#000000"


def rgb(color):
    """Red, green and blue from 0 to 1."""
    digits = color.removeprefix("#")
    digits = "".join(2 * each for each in digits) if len(digits) == 3 else digits
    return np.array([int(digits[i : i + 2], 16) for i in (0, 2, 4)]) / 255


def luminance(channels):
    """Relative luminance, from 0 of black to 1 of white."""
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    return linear @ [0.2126, 0.7152, 0.0722]


def contrast(one, other):
    """Contrast of two colors, from 1 to 21."""
    low, high = sorted(luminance(rgb(each) if isinstance(each, str) else each) for each in (one, other))
    return (high + 0.05) / (low + 0.05)


def themes():
    """Colors of a report in light and in dark, by name."""
    page = files("turnout.reporting").joinpath("base.html").read_text("utf-8")
    light, dark = (dict(re.findall(r"--(\w+): (#\w+)", line)) for line in re.findall(r":root {.*--page.*}", page))
    return {"light": light, "dark": light | dark}


def test_known_contrasts_are_computed():
    assert contrast(WHITE, BLACK) == pytest.approx(21)
    assert contrast("#777", WHITE) == pytest.approx(4.48, abs=0.005)


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("behind", ["card", "page"])
def test_lines_and_text_have_sufficient_contrast(theme, behind):
    colors = themes()[theme]
    for line in (*PALETTE, GRAY):
        assert contrast(line, colors[behind]) >= 3, line
    for text in ("text", "quiet", "link", "yes", "no"):
        assert contrast(colors[text], colors[behind]) >= 4.5, text


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_on_colored_cells_is_legible(theme):
    colors = themes()[theme]
    assert contrast(colors["text"], colors["best"]) >= 4.5
    darkest = (rgb(PALETTE[0]) + rgb(colors["card"])) / 2  # of a map of a grid
    assert contrast(colors["text"], darkest) >= 4.5


def test_exported_figures_are_legible_on_white():
    assert contrast(INK, WHITE) >= 4.5


def test_algorithms_of_one_color_have_different_lines():
    looks = looks_of(f"rule {i}" for i in range(4 * len(PALETTE)))
    assert len({(look["color"], look["linestyle"]) for look in looks.values()}) == len(looks)
    assert len({(look["color"], look.get("marker")) for look in looks.values()}) == len(looks)
    assert len(set(keys_of(looks).values())) == len(looks)
