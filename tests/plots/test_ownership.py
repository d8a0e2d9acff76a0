"""The picture of a rung's addresses: the finding, the words for each access, nothing on anything else."""

from __future__ import annotations

import pytest

from tests.plots.test_charts import collisions, said
from worklog.analysis.access_pattern import touches
from worklog.kernel.ladder import rung
from worklog.plots import ownership


@pytest.mark.parametrize("name", ["naive", "tiles_2d", "vectorized"])
def test_words_stand_beside_what_they_name(name: str) -> None:
    chart = ownership(touches(rung(name)))
    assert collisions(chart) == []
    assert chart.alt.endswith("Source: emulated · sm_90 PTX.") and "emulated · sm_90 PTX" in said(chart)
    assert chart.svg() and chart.png()


def test_it_says_what_was_found() -> None:
    naive, patch = ownership(touches(rung("naive"))), ownership(touches(rung("tiles_2d")))
    assert naive.headline == "naive: a warp's loads take 32 sectors of A and 1 of B"
    assert "load of A, 4 bytes a lane: 32 floats in 32 sectors, 12.5 % used" in said(naive)
    assert "32 banks" not in said(naive) and "1 element a thread, 32 a warp" in said(naive)
    assert patch.headline == "tiles_2d: a warp reads As in 2, Bs in 8 wavefronts"
    assert "load of Bs, 16 bytes a lane: 64 floats, 8 wavefronts, 4 of them bank conflicts" in said(patch)
