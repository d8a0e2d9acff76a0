"""What is drawn of a rung's addresses is what its compiled code does: owners, sectors, wavefronts; and its counters."""

import numpy as np
import pytest

from worklog import plots
from worklog.analysis import access
from worklog.analysis.counters import counters
from worklog.errors import BadRunFile, NothingToDraw
from worklog.kernel import FP32, LADDER, TENSOR
from worklog.plots.charts.tiles import first_block


@pytest.mark.parametrize("name", ["naive", "tiles_1d", "tiles_2d", "best", "split", "bulk_copies"])
def test_every_thread_that_stores_owns_as_many_elements(name):
    """Also in a rung with a workspace, variables, or warps that only copy."""
    shown = access(name)
    owners, _ = first_block(shown)
    threads, elements = np.unique(owners, return_counts=True)
    assert (owners >= 0).all() and len({*elements.tolist()}) == 1
    if shown.kernel in LADDER[:6]:
        assert owners.shape == (shown.kernel.template["BM"], shown.kernel.template["BN"])
        assert threads.tolist() == list(range(shown.kernel.threads))


def test_owners_are_those_that_the_headers_describe():
    row, column = np.indices((128, 128))
    assert (first_block(access("tiles_2d"))[0] == row // 8 * 16 + column // 8).all()


@pytest.mark.parametrize("name", ["equal_shares", "ragged"])  # the latter's first block writes to the workspace
def test_where_no_thread_stores_there_are_no_owners_to_draw(name):
    with pytest.raises(NothingToDraw, match=f"{name}: no thread"):
        plots.ownership(access(name))


def test_one_access_by_hand():
    _, naive = first_block(access("naive"))
    a, b, c = naive["A", False], naive["B", False], naive["C", True]
    assert (a.sectors, b.sectors, c.sectors, a.width, a.wavefronts, a.conflicts) == (32, 1, 32, 4, 0, 0)
    assert a.floats.tolist() == [32 * lane for lane in range(32)] and len(naive) == 3
    wide = first_block(access("vectorized"))[1]["Bs", False]
    assert (wide.width, wide.wavefronts, wide.conflicts, wide.sectors, wide.in_shared) == (16, 8, 4, 0, True)


def test_recorded_counters_are_of_this_source_and_a_rung_without_is_named():
    table = counters([rung.name for rung in (*LADDER, *FP32, *TENSOR)])
    assert not any("changed" in note for note in table.notes)
    assert table.title.startswith("recorded · NVIDIA H200 · ") and table.title.endswith("2048")
    busiest = {str(row[0]): str(row[-1]) for row in table.rows}
    assert busiest["naive"] == "L1 and shared" and busiest["split"] == "tensor cores"
    assert all(0 <= float(str(cell).removesuffix(" %")) <= 100 for row in table.rows for cell in row[1:-1])
    fewer = counters(["naive", "best"])
    assert [row[0] for row in fewer.rows] == ["naive"] and fewer.notes == ["no counters are recorded of: best"]
    with pytest.raises(BadRunFile, match=r"no counters of best are recorded: choose from naive, "):
        counters(["best"])
