"""What a user brings: it crosses to another process whole, and cannot pass for something else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from worklog.bench.measure import carry_out, measure
from worklog.bench.tasks import Task
from worklog.errors import BadSetting, OutsideDomain
from worklog.harness import Harness
from worklog.kernel.ladder import LADDER
from worklog.kernel.user_kernel import UserKernel, from_dict
from worklog.problem.gemm import Shape

SIGNATURE = "(int M, int N, int K, float alpha, const float* A, const float* B, float beta, float* C)"


def kernel(folder: Path, name: str = "mine", block: str = "32,8") -> UserKernel:
    path = folder / f"{name}.cu"
    path.write_text(f'extern "C" __global__ void {name}{SIGNATURE} {{}}\n')
    return UserKernel.read(path, grid="(N + 31) // 32, M // 8", block=block, domain="M % 8 == 0", claimed="tf32")


@pytest.mark.parametrize("block", ["256", "32,8", " 32, 8 "])
def test_it_crosses_to_another_process_as_json(tmp_path: Path, block: str) -> None:
    mine = kernel(tmp_path, block=block)
    assert from_dict(json.loads(json.dumps(mine.as_dict()))) == mine


def test_every_rung_can_be_brought() -> None:
    for rung in LADDER:
        assert from_dict(json.loads(json.dumps(UserKernel.of(rung).as_dict()))) == UserKernel.of(rung)


def test_its_name_is_the_entrys_without_template_arguments() -> None:
    assert UserKernel.of(LADDER[2]).name == "sgemm_shared"


def test_what_is_not_known_is_refused() -> None:
    with pytest.raises(BadSetting, match="this version knows kernel"):
        from_dict({"kind": "oracle"})


@pytest.mark.parametrize("name", ["naive", "cuBLAS"])
def test_it_cannot_take_a_rungs_name(tmp_path: Path, name: str) -> None:
    with pytest.raises(BadSetting, match=f"called {name}"):
        measure([kernel(tmp_path, name)])


def test_its_domain_is_asked_before_anything_is_measured(tmp_path: Path) -> None:
    with pytest.raises(OutsideDomain, match=r"domain stated for mine \(M % 8 == 0\): pad to"):
        carry_out([Task("mine", Shape(9, 16, 16))], Harness(), brought=[kernel(tmp_path)])
