"""A sweep on a GPU: every variant passes the gate, and one whose code is the same takes the same time."""

from __future__ import annotations

from pathlib import Path

from worklog.bench.sweep import sweep, variants
from worklog.kernel.ladder import rung
from worklog.problem.axes import Axis
from worklog.problem.gemm import Shape


def test_variants_are_gated_and_timed_beside_cublas(tmp_path: Path) -> None:
    axes = [Axis("BM", (64, 128)), Axis("MIN_BLOCKS", (1, 2))]
    found = variants(rung("autotuned"), axes, shape=Shape.of(1024))
    run = sweep(found, out=tmp_path / "sweep.json")
    assert [m.kernel for m in run.measurements] == [*(v.name for v in found.kept), "cuBLAS"]
    assert {m.status for m in run.measurements} == {"measured"}
    for variant in found.kept:
        recorded = run.kernels[variant.name]
        assert recorded["sha256"] == variant.kernel.program.sha256
        assert recorded["registers"] > 0 and recorded["block"] == variant.kernel.threads
