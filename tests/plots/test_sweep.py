"""The chart of a sweep: a row for each tile, its time where there is one, and why not where there is none."""

from __future__ import annotations

import pytest

from tests.helpers import measured, small_run
from tests.plots.test_charts import collisions, said
from worklog.bench.sweep import Variants, variants
from worklog.errors import NothingToDraw
from worklog.kernel.ladder import rung
from worklog.plots import sweep
from worklog.problem.axes import Axis
from worklog.runs.run import Measurement


@pytest.fixture(scope="module")
def found() -> Variants:
    axes = [Axis("BM", (64, 128)), Axis("TN", (4, 8))]
    return variants(rung("vectorized"), axes, arch="sm_90")


def test_without_times_it_says_how_to_get_them(found: Variants) -> None:
    chart = sweep(found)
    assert len(found.kept) > 1 and said(chart).count("not measured") == len(found.kept)
    assert "worklog sweep vectorized --axis BM=64,128 --axis TN=4,8 --size 4096" in said(chart).replace("\n", " ")
    assert collisions(chart) == []


def test_times_stand_in_order_beside_cublas(found: Variants) -> None:
    slow, fast, *others = [variant.name for variant in found.kept]
    run = small_run(
        measurements=[
            measured(slow, n=4096, us=9000.0, ratio=0.3),
            measured(fast, n=4096, us=3000.0, ratio=0.9),
            *(Measurement(name, (4096,) * 3, "refused", reason="refused at precision: no") for name in others),
            measured("cuBLAS", n=4096, us=2700.0, ratio=1.0),
        ]
    )
    chart = sweep(found, run)
    assert chart.headline == "vectorized: the best of 2 tiles is 3 times as fast as the worst"
    words = said(chart)
    assert words.index("45.8 · 90.0 %") < words.index("15.3 · 30.0 %") and "cuBLAS 50.9" in words
    assert words.count("refused: refused at precision: no") == len(others)
    assert "live · NVIDIA H200" in chart.alt and collisions(chart) == []


def test_one_tile_is_no_contest(found: Variants) -> None:
    run = small_run(measurements=[measured(found.kept[0].name, n=4096, us=3000.0, ratio=0.9)])
    assert sweep(found, run).headline == "vectorized: one tile measured, 45.8 TFLOP/s"


def test_nothing_left_is_nothing_to_draw() -> None:
    none = variants(rung("vectorized"), [Axis("BM", (96,))], arch="sm_90")
    with pytest.raises(NothingToDraw, match="no tile is left: vectorized: 1 BM"):
        sweep(none)
