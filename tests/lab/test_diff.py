"""A rung's diff shows what its idea changed, and nothing else."""

from __future__ import annotations

from itertools import pairwise

import pytest

from worklog.errors import UnknownRung
from worklog.kernel.ladder import LADDER
from worklog.lab.diff import diff, source
from worklog.plots.style import DARK, LIGHT


def test_two_words_make_coalesced_of_naive() -> None:
    assert repr(diff("naive", "coalesced")).splitlines() == [
        "-const int row = blockIdx.y * BM + threadIdx.x % BM;",
        "-const int col = blockIdx.x * BN + threadIdx.x / BM;",
        "+const int row = blockIdx.y * BM + threadIdx.x / BN;",
        "+const int col = blockIdx.x * BN + threadIdx.x % BN;",
    ]


def test_neither_comments_nor_signatures() -> None:
    for record in LADDER:
        text = repr(source(record.name))
        assert "//" not in text and "__global__" not in text and "acc" in text


def test_braces_close_what_is_shown() -> None:
    for record in LADDER:
        text = repr(source(record.name))
        assert text.count("{") == text.count("}"), record.name


def test_each_diff_is_short_enough_to_be_read() -> None:
    for before, after in pairwise(LADDER):
        assert len(diff(before.name, after.name).lines) <= 70, after.name


def test_html_is_escaped_and_coloured() -> None:
    html = diff("shared", "tiles_1d")._repr_html_()
    assert "i &lt; TM" in html and html.count("<span") > 10 and "  ...<br>" in html


def test_an_unknown_rung_is_named() -> None:
    with pytest.raises(UnknownRung, match="no rung 'nave'"):
        diff("nave", "coalesced")


def test_a_dark_page_gets_colours_of_its_own_and_an_old_browser_the_light_ones() -> None:
    html = diff("shared", "tiles_1d")._repr_html_()
    for role in ("accent", "lie"):
        assert f'style="color:{LIGHT[role]};color:light-dark({LIGHT[role]},{DARK[role]})"' in html
