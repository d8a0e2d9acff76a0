"""Right kernels in other people's styles pass, and the recorded table refuses none."""

import json

import pytest

from tests.record.right_kernels import RECORDED, STYLES, right_kernels, row, style

ROWS = json.loads(RECORDED.read_text(encoding="utf-8"))["rows"]


def test_the_table_has_every_style_and_none_is_refused():
    recorded = [kernel["kernel"] for kernel in ROWS]
    kernels = right_kernels()
    assert len({*recorded}) == len(recorded) >= 60 and {*recorded} <= {*kernels}
    assert {name for name in kernels if name.startswith("styles/")} <= {*recorded}
    assert [kernel for kernel in ROWS if kernel["verdict"] != "passed"] == []


@pytest.mark.parametrize("name", ["iterators", "wmma_tf32"])
def test_a_style_passes_with_what_its_file_states(name, few_shapes):
    checked = row(f"styles/{name}", style(STYLES / f"{name}.cu"), is_quick=True)
    assert checked["verdict"] == "passed", checked["reason"]


@pytest.mark.parametrize(
    ("name", "old", "new", "stage"),
    [
        ("textbook_tiles", "__syncthreads();\n  }", "}", "launch"),
        ("wmma_tf32", "// class: tf32\n", "", "exact on edge shapes"),
    ],
)
def test_a_wrong_one_is_refused_with_its_stage(name, old, new, stage, few_shapes, tmp_path):
    text = (STYLES / f"{name}.cu").read_text(encoding="utf-8")
    assert old in text
    path = tmp_path / f"{name}.cu"
    path.write_text(text.replace(old, new))
    checked = row("broken", style(path), is_quick=True)
    assert (checked["verdict"], checked["stage"]) == ("refused", stage)


def test_a_kernel_that_does_not_compile_is_refused(tmp_path):
    path = tmp_path / "unknown.cu"
    text = (STYLES / "grid_stride.cu").read_text(encoding="utf-8")
    path.write_text(text.replace("__fmaf_rn(", "no_such_function("))
    checked = row("broken", style(path), is_quick=True)
    assert (checked["verdict"], checked["stage"]) == ("refused", "CompileFailed")
