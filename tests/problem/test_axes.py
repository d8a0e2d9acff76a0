"""Axes from words and from Python, their product, and what is skipped."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from worklog.errors import BadSetting
from worklog.problem.axes import Axis, Space
from worklog.problem.drawn_shapes import DRAWN, MAX_DRAWN, drawn


@pytest.mark.parametrize(
    ("text", "name", "kind", "values"),
    [
        ("N[pow2]=8:13", "N", "pow2", (256, 512, 1024, 2048, 4096, 8192)),
        ("N[pow2]=[0:40:20]", "N", "pow2", (1, 2**20, 2**40)),
        ("K=512,1024:4096:1024", "K", "int", (512, 1024, 2048, 3072, 4096)),
        ("alpha[float]=0.1:0.5:0.1", "alpha", "float", (0.1, 0.2, 0.3, 0.4, 0.5)),
        ("l2[str]=warm, flush", "l2", "str", ("warm", "flush")),
        ("T[type]=float,double", "T", "type", ("float", "double")),
        ("T[type]=a<b, c<d, e>>, f", "T", "type", ("a<b, c<d, e>>", "f")),
        (
            "T[type]=decltype(a->b), A<decltype(a->b), c>",
            "T",
            "type",
            ("decltype(a->b)", "A<decltype(a->b), c>"),
        ),
        ("  N [ pow2 ] = 3 ", "N", "pow2", (8,)),
    ],
)
def test_an_axis_is_read_from_words(text, name, kind, values):
    assert Axis.parse(text) == Axis(name, values, kind)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("N", "cannot read --axis 'N'"),
        ("N=", "N has no values"),
        ("2N=4", "a name is a letter"),
        ("N[cubic]=4", "no kind 'cubic': choose from int, pow2"),
        ("N=many", "'many' is neither a whole number nor a range"),
        ("alpha[float]=nan", "neither a number nor a range"),
        ("N=13:8", "'13:8' is empty"),
        ("N[pow2]=8:41", "out of reach"),
        ("N=4,4", "4 more than once"),
        ("N=1:1000000000", "makes 1000000000 values: more than 100000; take larger steps"),
        ("N=1:99999,100000:199999", "makes 199999 values: more than 100000"),
        ("alpha[float]=0.1:1:1e-999999999", "is neither"),
    ],
)
def test_what_cannot_be_read_is_quoted(text, says):
    with pytest.raises(BadSetting, match=says):
        Axis.parse(text)


@given(st.integers(-1000, 1000), st.integers(0, 300), st.integers(1, 50))
def test_a_range_is_pythons_with_its_end(low, length, step):
    assert Axis.parse(f"N={low}:{low + length}:{step}").values == tuple(
        range(low, low + length + 1, step)
    )


def test_the_product_has_every_combination_once_the_last_axis_fastest():
    space = Space("ladder", (Axis.parse("N=1,2"), Axis.parse("T[type]=float,half")))
    assert [str(point) for point in space.configurations()] == [
        "N=1 T=float",
        "N=1 T=half",
        "N=2 T=float",
        "N=2 T=half",
    ]
    assert [str(point) for point in Space("one", ()).configurations()] == ["the only point"]


@pytest.mark.parametrize(
    ("seconds", "says"),
    [
        (0.2, "about 1.0 s"),
        (1.0, "about 5 s"),
        (60.0, "about 5.0 min"),
        (1080.0, "about 1.5 h"),
        (3600.0, "about 5.0 h"),
    ],
)
def test_a_preview_counts_what_is_left_and_says_how_long_it_takes(seconds, says):
    axes = (Axis.parse("N=1:3"), Axis.parse("K=1,2"))
    space = Space(
        "sweep", axes, lambda p: "N = K = 1 is too small" if p == {"N": 1, "K": 1} else None
    )
    assert [str(point) for point in space.configurations() if point.skipped] == ["N=1 K=1"]
    assert space.preview(seconds) == (
        f"sweep: 3 N x 2 K = 6 points; 1 skipped: N = K = 1 is too small; 5 to measure, {says}"
    )


def test_an_axis_given_twice_and_too_many_configurations_are_errors_before_one_is_made():
    with pytest.raises(BadSetting, match="axis N is given twice"):
        Space("twice", (Axis.parse("N=1"), Axis.parse("N=2")))
    with pytest.raises(
        BadSetting,
        match="1 N x 3000 K x 3000 M makes 9000000 configurations: more than 100000; take",
    ):
        Space("sizes", (Axis.parse("N=256"), Axis.parse("K=1:3000"), Axis.parse("M=1:3000")))
    with pytest.raises(BadSetting, match=f"makes {10**25} configurations"):
        Space("wide", tuple(Axis.parse(f"A{n}=1:100000") for n in range(5)))
    assert next(
        Space("most", (Axis.parse("N=1:1000"), Axis.parse("K=1:100"))).configurations()
    ).values == {
        "N": 1,
        "K": 1,
    }


def test_drawn_shapes_follow_the_seed_and_their_kinds_and_leave_out_what_was_tuned():
    kinds = drawn(60, 1)
    assert kinds == drawn(60, 1) != drawn(60, 2) and [*kinds][:24] == [*drawn(24, 1)]
    assert {kind: [*kinds.values()].count(kind) for kind in DRAWN} == dict.fromkeys(DRAWN, 20)
    first = next(iter(kinds))
    assert first not in drawn(60, 1, excluded=[first])
    for shape, kind in kinds.items():
        sizes = np.array([shape.m, shape.n, shape.k])
        tests = {
            "powers of two": all(sizes & (sizes - 1) == 0),
            "primes": not any(
                size % d == 0 for size in sizes for d in range(2, int(size**0.5) + 1)
            ),
            "off by one": all(((sizes + 1) & sizes == 0) | ((sizes - 1) & (sizes - 2) == 0)),
        }
        assert tests[kind] and 1 <= sizes.min() <= sizes.max() <= MAX_DRAWN + 1, (shape, kind)
    share_below_root = (
        sum(size < 91 for shape in drawn(600, 2) for size in (shape.m, shape.n, shape.k)) / 1800
    )
    assert share_below_root == pytest.approx(0.5, abs=0.05), (
        "as many sizes below the root of the largest one as above"
    )
