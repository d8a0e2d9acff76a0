"""The map of a bug: as many tiles as the gate found, the wrong ones filled, and the guess as its title."""

from __future__ import annotations

from dataclasses import replace

import pytest
from matplotlib.collections import PolyCollection

from tests.plots.test_charts import collisions, said
from worklog.gate.error_map import ErrorMap as Where
from worklog.plots import Chart, tile_map

TILES = ((0.0, 0.0, 0.0), (0.0, 0.5, 1.0))
WHERE = Where((12, 20), 60, 240, "rows 8 to 11", "columns 8 to 19", (8, 8), TILES, "One tile: a race.")


def filled(chart: Chart) -> list[float]:
    """The opacities of the tiles that are wrong."""
    drawn = chart.axes[0].findobj(PolyCollection)
    return [tile.get_alpha() for tile in drawn if tile.get_alpha() is not None]


def test_wrong_tiles_are_filled_by_how_wrong_they_are() -> None:
    chart = tile_map(WHERE, "emulated · sm_90 PTX")
    assert len(chart.axes[0].findobj(PolyCollection)) == 6 + 2
    half, whole = filled(chart)
    assert half < whole == 1
    assert chart.headline == "One tile: a race" and collisions(chart) == []
    assert "emulated · sm_90 PTX" in said(chart) and "60 of 240 elements wrong" in said(chart)
    assert chart.alt.endswith("One tile: a race. Source: emulated · sm_90 PTX.")


def test_the_last_tiles_end_with_c() -> None:
    corners = [
        path.vertices.max(axis=0).tolist()
        for tile in tile_map(WHERE).axes[0].findobj(PolyCollection)
        for path in tile.get_paths()
    ]
    assert max(x for x, _ in corners) == 20 and max(y for _, y in corners) == 12


@pytest.mark.parametrize("shape", [(1, 4000), (4000, 1), (1, 1)])
def test_c_of_any_shape(shape: tuple[int, int]) -> None:
    where = replace(WHERE, shape=shape, tile=shape, tiles=((0.001,),), guess="")
    chart = tile_map(where)
    assert chart.headline == "60 of 240 elements of C are wrong" and collisions(chart) == []
    assert filled(chart)[0] > 0.2, "one wrong element must show"
