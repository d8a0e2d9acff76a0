"""The access viewer as the last line of a cell: what a stored notebook shows of it."""

import pytest

from worklog import lab
from worklog.errors import BadSetting
from worklog.kernel import rung


def test_two_kernels_are_in_the_text_each_with_its_own_accesses_at_the_same_size():
    pair = lab.access("naive", versus="coalesced")
    single = lab.access("naive")
    assert [document["about"] for document in pair.documents.values()] == [single.text()[0]] * 2
    lines = pair.text()
    second = lines.index("coalesced")
    assert lines[:second] == ["naive", *single.text()]
    assert lines[second + 1 :] == lab.access("coalesced").text()
    assert pair.of_pair and not single.of_pair


def test_a_kernel_beside_itself_with_another_tile_has_a_name_of_its_own():
    other = rung("warptiled").with_tile(BK=8)
    pair = lab.access("warptiled", versus=other)
    first, second = pair.documents.values()
    assert len(pair.documents) == 2
    assert (first["depth"], second["depth"]) == (16, 8)
    assert first["matrices"] == second["matrices"]


def test_a_block_must_be_in_both_grids():
    assert lab.access("shared", (128, 128, 64), 3, versus="naive")
    with pytest.raises(BadSetting, match="vectorized has 1 blocks"):
        lab.access("shared", (128, 128, 64), 3, versus="vectorized")
