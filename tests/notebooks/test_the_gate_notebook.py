"""What 04_the_gate says in prose is true of its outputs, which test_notebooks holds to a fresh run."""

from __future__ import annotations

import re

import nbformat
import pytest

from worklog.lab.notebooks import FOLDER
from worklog.peers.exploits import open_exploits


@pytest.fixture(scope="module")
def said() -> str:
    """All text outputs."""
    notebook = nbformat.read(FOLDER / "04_the_gate.ipynb", as_version=4)
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    return "\n".join(o.get("text") or str(o.get("data", {}).get("text/plain")) for o in outputs)


def numbers(said: str, row: str) -> list[float]:
    """The numbers of one line of a table, the last of that name."""
    line = re.findall(rf"^{re.escape(row)} +(.*)$", said, re.MULTILINE)[-1]
    return [float(word) for word in re.findall(r"[-\d.e+]+", line) if any(c.isdigit() for c in word)]


def test_fp32_is_thousands_of_times_better_than_the_rule_and_tf32_is_not(said: str) -> None:
    assert numbers(said, "FP32, nothing wrong")[0] < 1e-5
    [tf32] = re.findall(r"^TF32 or FP16 operands +(\S+)", said, re.MULTILINE)
    assert 1e-4 < float(tf32) < 1e-3


def test_every_mistake_passes_the_articles_rule(said: str) -> None:
    assert len(re.findall(r"^\w.*  passes$", said, re.MULTILINE)) == 6


def test_the_law_and_the_limit(said: str) -> None:
    for k in (64, 256, 1024, 4096):
        fp32, law, limit, tf32, bf16 = numbers(said, str(k))
        assert 0.27 < law < 0.34 and 3 < limit / fp32 < 6
        assert tf32 > 40 * limit and bf16 > 5 * tf32


def test_integers_agree_in_every_order(said: str) -> None:
    orders = re.findall(r"integers: (\d+) of 32768 differ, real data: +(\d+)%", said)
    assert len(orders) == 5 and all(int(integers) == 0 for integers, _ in orders)
    in_order, *others = [int(share) for _, share in orders]
    assert in_order == 0 and min(others) > 50, "on real data the order shows in most elements"


def test_1e_3_lies_between_tf32_and_bf16(said: str) -> None:
    [fp32], [tf32], [bf16] = (
        re.findall(rf"^{re.escape(name)} +(\S+)  passes", said, re.MULTILINE)
        for name in ("FP32, nothing wrong", "TF32 or FP16 operands", "BF16 operands")
    )
    assert 100 * float(fp32) < float(tf32) < 1e-3 < float(bf16), '"by a factor of hundreds"'


def test_no_peer_is_right_about_all_of_the_zoo(said: str) -> None:
    zoo = open_exploits()
    kernels = [row for row in zoo.rows if row.kind == "kernel"]
    assert all(row.as_it_should for row in kernels), "the gate is"
    strict = []
    for peer in zoo.peers:
        passed = sum(peer["name"] in row.passed_by for row in kernels if row.wrong)
        refused = sum(peer["name"] in row.refused_by for row in kernels if not row.wrong)
        assert passed or refused, peer["name"]
        strict += [refused] if not passed else []
    assert strict and all(refused > 0.75 * sum(not row.wrong for row in kernels) for refused in strict)
    assert f"{len(zoo.peers)} pass “" in said
    assert len({stage for row in kernels for stage in row.stages}) >= 4, "no stage does it all"


def test_some_family_sees_each_mistake_and_none_sees_all(said: str) -> None:
    rows = ["TF32 operands", "TF32 for B only", "BF16 operands", "FP16 accumulator", "last term missing"]
    table = [numbers(said, row) for row in rows]
    assert all(any(row) for row in table)
    assert all(any(row[family] == 0 for row in table) for family in (0, 1))


def test_the_projection_names_the_element(said: str) -> None:
    assert "right product, rows that cannot be right: []" in said and "rows: [21] columns: [300]" in said


def test_every_slip_is_refused_and_every_right_kernel_is_not(said: str) -> None:
    assert len(re.findall(r"^    refused at (launch|exact on edge shapes): ", said, re.MULTILINE)) == 11
    assert said.count("fp32 ok") == 2
