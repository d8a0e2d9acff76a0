"""The two palettes: enough contrast to read in either; a figure drawn in one is told in the other and comes back."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from matplotlib.colors import to_rgb

from tests.plots.conftest import full_run
from worklog.plots import ablation, ladder, roofline, traffic
from worklog.plots.figure import Chart
from worklog.plots.style import DARK, LIGHT

PALETTES = {"light": LIGHT, "dark": DARK}
# What stands on what, as charts do it. WCAG 2.2 asks for 4.5 of text (1.4.3) and for 3 of marks (1.4.11).
TEXT = [(text, ground) for text in ("ink", "muted") for ground in ("paper", "pale", "tint")]
TEXT += [("ink", ground) for ground in ("baseline", "faint", "flatters", "belittles")]
TEXT += [("paper", "accent"), ("paper", "muted"), ("accent", "tint"), ("accent", "paper")]
MARKS = [("accent", "paper"), ("lie", "paper"), ("line", "paper"), ("accent", "faint"), ("lie", "faint")]


def luminance(colour: str) -> float:
    """WCAG's relative luminance of an sRGB colour."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(colour)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(palette: Mapping[str, str], one: str, other: str) -> float:
    """WCAG's contrast ratio of two roles."""
    low, high = sorted((luminance(palette[one]), luminance(palette[other])))
    return (high + 0.05) / (low + 0.05)


def test_the_ratio_is_wcags() -> None:
    assert contrast({"a": "#000000", "b": "#ffffff"}, "a", "b") == pytest.approx(21)
    assert contrast({"a": "#777777", "b": "#ffffff"}, "a", "b") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("palette", PALETTES)
@pytest.mark.parametrize(("text", "ground"), TEXT)
def test_text_can_be_read(palette: str, text: str, ground: str) -> None:
    assert contrast(PALETTES[palette], text, ground) >= 4.5


@pytest.mark.parametrize("palette", PALETTES)
@pytest.mark.parametrize(("mark", "ground"), MARKS)
def test_marks_can_be_seen(palette: str, mark: str, ground: str) -> None:
    assert contrast(PALETTES[palette], mark, ground) >= 3.0 - 0.25 * (ground == "faint")


def test_both_palettes_have_the_same_roles_each_with_a_colour_of_its_own() -> None:
    assert LIGHT.keys() == DARK.keys()
    assert all(len(set(palette.values())) == len(palette) for palette in PALETTES.values())


def colours(chart: Chart, dark: bool) -> set[str]:
    """Colours of surfaces in the PNG: those that fill more than its letters' edges do."""
    image = chart.pixels(dark)
    counted = image.getcolors(image.width * image.height)
    assert counted is not None
    return {"#{:02x}{:02x}{:02x}".format(*colour) for count, colour in counted if count > 3000}  # type: ignore[misc]


@pytest.mark.parametrize("draw", [ladder, roofline, lambda run: ablation(run, "naive"), lambda run: traffic()])
def test_a_dark_png_holds_no_light_surface_and_drawing_it_changes_nothing(draw: object) -> None:
    assert callable(draw)
    chart = draw(full_run())
    before = chart.png()
    light, dark = colours(chart, False), colours(chart, True)
    assert light & set(LIGHT.values()) and not dark & set(LIGHT.values())
    assert {LIGHT[role] for role in LIGHT if DARK[role] in dark} == light & set(LIGHT.values())
    assert chart.png() == before


def test_a_readers_own_colour_stays() -> None:
    chart = ladder(full_run())
    chart.axes[0].axvline(20, color="#123456", linewidth=20)
    assert "#123456" in chart.svg(dark=True) and "#123456" in colours(chart, True)
