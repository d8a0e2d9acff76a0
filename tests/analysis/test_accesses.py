"""The access viewer's document: its counts are those of `inspect`, on every line; its words are those of the accesses."""

from __future__ import annotations

import gzip
import json
import math
import time
from collections import Counter
from pathlib import Path

import pytest

from worklog.analysis import access
from worklog.analysis.inspection import inspect
from worklog.errors import BadSetting
from worklog.kernel import RUNGS, Kernel, rung
from worklog.problem import Shape

EXPLOITS = sorted((Path(__file__).parents[1] / "exploits").glob("right/*.cu"))
EXPLOITS += sorted((Path(__file__).parents[1] / "exploits").glob("wrong/*.cu"))[:10]
COSTS = ("sectors", "wavefronts", "conflicts")
SHAPES = {"best": Shape(128, 128, 64), "ragged": Shape(128, 256, 32)}


def counted(kernel: Kernel, shape: Shape) -> dict[int, tuple[int, ...]]:
    """By line, what `inspect` counts: sectors, wavefronts and conflicts of all accesses but those to local memory."""
    out = {}
    for line, counts in inspect(kernel, shape).lines.items():
        kinds = (counts.global_load, counts.global_store, counts.shared_load, counts.shared_store, counts.atomic)
        sums = tuple(sum(getattr(kind, name) for kind in kinds) for name in COSTS)
        if any(sums):
            out[line] = sums
    return out


def shown(kernel: Kernel, shape: Shape, blocks: int) -> dict[int, tuple[int, ...]]:
    """The same from the steps of all blocks' documents."""
    sums = dict[int, Counter[str]]()
    for block in range(blocks):
        document = access(kernel, shape, block).document
        for number, *_ in (step for steps in document["steps"] for step in steps):
            kind = document["kinds"][number]
            if "pill" in kind:
                sectors, _, wavefronts, conflicts = kind["counts"]
                line = sums.setdefault(document["pills"][kind["pill"]][0], Counter())
                line.update(dict(zip(COSTS, (sectors, wavefronts, conflicts), strict=True)))
                assert sum(map(len, kind.get("rows", []))) == wavefronts or "not counted" in kind["cost"], kind["text"]
    return {line: tuple(costs[name] for name in COSTS) for line, costs in sums.items() if any(costs.values())}


@pytest.mark.parametrize("name", [kernel.name for kernel in RUNGS])
def test_counts_equal_those_of_inspect_on_every_line_of_a_rung(name: str) -> None:
    kernel = rung(name)
    document = access(kernel, SHAPES.get(name)).document
    shape = Shape(*map(int, document["about"].split(" · ")[0].removeprefix("M, N, K = ").split(", ")))
    kernel = kernel.at(shape, "sm_90") if kernel.choose is not None else kernel
    assert shown(kernel, shape, math.prod(kernel.blocks(shape))) == counted(kernel, shape)
