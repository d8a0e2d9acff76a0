"""What is drawn of a rung's addresses is what its compiled code does: owners, sectors, wavefronts; and its counters."""

import numpy as np
import pytest

from worklog import plots
from worklog.analysis.counters import counters
from worklog.analysis.counts import access_pattern
from worklog.errors import BadRunFile, NothingToDraw
from worklog.kernel import FP32, LADDER, TENSOR, rung


@pytest.mark.parametrize("name", ["naive", "tiles_1d", "tiles_2d", "best", "split", "bulk_copies"])
def test_every_thread_that_stores_owns_as_many_elements(name):
    """Also in a rung with a workspace, variables, or warps that only copy."""
    record, owners = rung(name), access_pattern(rung(name)).owners
    threads, elements = np.unique(owners, return_counts=True)
    assert (owners >= 0).all() and len({*elements.tolist()}) == 1
    if record in LADDER[:6]:
        assert owners.shape == (record.template["BM"], record.template["BN"])
        assert threads.tolist() == list(range(record.threads))


def test_owners_are_those_that_the_headers_describe():
    row, column = np.indices((128, 128))
    assert (access_pattern(rung("tiles_2d")).owners == row // 8 * 16 + column // 8).all()


@pytest.mark.parametrize("name", ["equal_shares", "ragged"])  # the latter's first block writes to the workspace
def test_where_no_thread_stores_there_are_no_owners_to_draw(name):
    pattern = access_pattern(rung(name))
    assert not any(request.in_shared for request in pattern.requests if request.memory == "workspace")
    with pytest.raises(NothingToDraw, match=f"{name}: no thread"):
        plots.ownership(pattern)


def test_one_access_by_hand():
    naive = access_pattern(rung("naive"))
    a, b, c = naive.first("A"), naive.first("B"), naive.first("C", store=True)
    assert a is not None and b is not None and c is not None
    assert (a.sectors, b.sectors, c.sectors, a.width, a.wavefronts, a.conflicts) == (32, 1, 32, 4, 0, 0)
    assert a.floats[:, 0].tolist() == [lane * naive.shape.k for lane in range(32)]
    assert (naive.shape.m, naive.shape.n) == (2 * rung("naive").template["BM"], 2 * rung("naive").template["BN"])
    assert naive.first("As") is None and naive.label == "emulated · sm_90 PTX"
    wide = access_pattern(rung("vectorized")).first("Bs")
    assert wide is not None and (wide.width, wide.wavefronts, wide.conflicts, wide.sectors) == (16, 8, 4, 0)


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
