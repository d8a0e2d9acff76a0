"""Products of halves on tensor cores: each kernel passes the gate, and small edits of it fail."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from worklog.kernel import Kernel
from worklog.runner.check import Checked, check

KERNELS = Path(__file__).parents[2] / "kernels"
FOLDER = KERNELS / "hgemm"
# Fewer blocks than pairs of tiles, so that a block takes several of them.
GRIDS = {"hgemm_mma": "", "hgemm_wgmma": "", "hgemm_tma": "", "hgemm_cluster": "4"}


def checked(path: Path) -> Checked:
    kernel = Kernel.from_file(path, grid=GRIDS[path.stem])
    return check(kernel, on="emulated", seed=1, quick=True)


@pytest.fixture
def edited(tmp_path) -> Any:
    """Return a function that writes the kernels with a text in place of another."""

    def edit(name: str, old: str, new: str) -> Path:
        folder = tmp_path / "hgemm"
        shutil.copytree(FOLDER, folder)
        shutil.copy(KERNELS / "wgmma.cuh", tmp_path)
        changed = 0
        for path in (folder / f"{name}.cu", folder / "hopper.cuh"):
            text = path.read_text(encoding="utf-8")
            changed += text.count(old)
            path.write_text(text.replace(old, new), encoding="utf-8")
        assert changed == 1, f"{old!r} occurs {changed} times"
        return folder / f"{name}.cu"

    return edit


@pytest.mark.usefixtures("few_shapes")
@pytest.mark.parametrize("name", GRIDS)
def test_the_kernels_pass(name):
    verdict = checked(FOLDER / f"{name}.cu").verdict
    assert verdict.accepted, verdict.reason
    assert "as fp32 on float16" in verdict.result


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("hgemm_mma", "BM=128 BN=256 BK=32", "BM=128 BN=128 BK=64"),
        ("hgemm_tma", "BN=256 STAGES=4", "BN=128 STAGES=6"),
        ("hgemm_cluster", "BN=256 STAGES=4 GROUP=8 SKEW=1", "BN=128 STAGES=3 GROUP=1 SKEW=0"),
    ],
)
@pytest.mark.usefixtures("few_shapes")
def test_other_tiles_pass(edited, name, old, new):
    verdict = checked(edited(name, old, new)).verdict
    assert verdict.accepted, verdict.reason


RELAXED = ("barrier.cluster.arrive.release;", "barrier.cluster.arrive.relaxed;")


@pytest.mark.usefixtures("few_shapes")
def test_a_relaxed_arrival_after_the_fence_of_mbarriers_passes_as_in_cutlass(edited):
    """include/cutlass/arch/barrier.h: fence_barrier_init, then cluster_arrive_relaxed."""
    verdict = checked(edited("hgemm_cluster", *RELAXED)).verdict
    assert verdict.accepted, verdict.reason


def test_a_relaxed_arrival_without_that_fence_fails(edited):
    path = edited("hgemm_cluster", *RELAXED)
    text = path.read_text(encoding="utf-8")
    fence = 'asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");'
    assert fence in text
    path.write_text(text.replace(fence, ""), encoding="utf-8")
    assert not checked(path).verdict.accepted


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("hgemm_mma", '"n"(STAGES - 2)', '"n"(STAGES - 1)'),
        ("hgemm_mma", "    __syncthreads();  // wait: all copies", "    // wait: all copies"),
        ("hgemm_mma", "place_in_a(row + 16 * i + lane % 16", "place_in_a(row + 8 * i + lane % 16"),
        ("hgemm_mma", "if (step == 0) fetch", "if (step == 1) fetch"),
        ("hgemm_wgmma", '"n"(LAG)', '"n"(LAG + 1)'),
        ("hgemm_wgmma", 'asm volatile("fence.proxy.async.shared::cta;" ::: "memory");', ""),
        ("hgemm_wgmma", "(piece % 8 ^ row % 8)", "(piece % 8 ^ (row + 1) % 8)"),
        ("hgemm_wgmma", "s / STAGES % 2 ^ 1", "s / STAGES % 2"),
        ("hgemm_wgmma", "(PANEL_BYTES >> 4) << 16", "(1024 >> 4) << 16"),
        ("hgemm_tma", "expect(full[slot], A_BYTES + B_BYTES)", "expect(full[slot], B_BYTES)"),
        ("hgemm_tma", "    wait(full[slot], s / STAGES % 2);\n", ""),
        ("hgemm_tma", "wgmma.wait_group.sync.aligned 1;", "wgmma.wait_group.sync.aligned 2;"),
        ("hgemm_tma", 'asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");', ""),
        ("hgemm_tma", "row + 8 * r < M && ", ""),
        ("hgemm_cluster", "init(empty[slot], 16)", "init(empty[slot], 8)"),
        ("hgemm_cluster", "copy_box_to(0b11, ", "copy_box_to(0b01, "),
        ("hgemm_cluster", "barrier.cluster.wait.acquire;", ""),
        ("hgemm_cluster", "end = step + STAGES", "end = step"),
        ("hgemm_cluster", "if (lane < 2) arrive_at", "if (lane < 1) arrive_at"),
        ("hgemm_cluster", "wait(full[slot], step / STAGES % 2)", "wait(full[slot], step % 2)"),
    ],
)
@pytest.mark.usefixtures("few_shapes")
def test_edits_fail(edited, name, old, new):
    assert not checked(edited(name, old, new)).verdict.accepted
