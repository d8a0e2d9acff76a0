"""The kernels that measure a GPU's memories, on the emulator: addresses and bytes, and no time."""

from typing import Any

import numpy as np
import pytest

from tests.record import memory
from worklog.emulator import launch, load
from worklog.emulator.launching import Result
from worklog.kernel.emulated import build
from worklog.kernel.memories import CHASED

LINES = 64


def ran(entry: str, blocks: int, threads: int, *arguments: Any) -> Result:
    """Launch a kernel of memory.cu; it has no finding but that there is no time here."""
    compiled, _ = build(memory.program(entry))
    kernel = load(compiled.ptx, compiled.symbol)
    result = launch(kernel, (blocks,), threads, [*arguments])
    assert {finding.kind for finding in result.findings} <= {"no-time"}, result.findings
    return result


@pytest.fixture(scope="module")
def chain():
    """Return the linked lines, 16 words of 8 bytes each."""
    words = np.zeros(16 * LINES, np.uint64)
    ran("link", 1, LINES, words, memory.order_of(LINES), LINES)
    return words


def test_a_chain_visits_each_line_once_and_returns_to_the_first(chain):
    starts = chain[::16]
    assert np.count_nonzero(chain) == LINES, "only the first word of a line is an address"
    visited = []
    line = 0
    for _ in range(LINES):
        visited.append(line)
        byte = int(starts[line] - starts.min())
        assert byte % memory.LINE == 0
        line = byte // memory.LINE
    assert line == 0 and sorted(visited) == list(range(LINES))
    steps = np.abs(np.diff(visited))
    assert len({*steps.tolist()}) > LINES // 4, "no stride that a GPU could guess"


@pytest.mark.parametrize("entry", ["chase<true>", "chase<false>"])
def test_a_walk_goes_on_where_the_last_one_ended(entry, chain):
    once, twice, whole = (np.zeros(2, np.uint64) for _ in range(3))
    counts = ran(entry, 1, 1, chain, 0, 24, once).counts
    ran(entry, 1, 1, chain, int(once[1]), LINES - 24, twice)
    ran(entry, 1, 1, chain, 0, LINES, whole)
    assert twice[1] == whole[1] == chain[::16].min(), "after each line, the first one again"
    assert once[1] != whole[1]
    assert counts.global_load.requests == counts.global_load.cache_lines == 24


@pytest.mark.parametrize("lines", [8, 256])
def test_a_walk_through_shared_memory_follows_the_order(lines):
    order = memory.order_of(lines)
    result = np.zeros(2, np.uint64)
    for steps in (0, 1, lines - 1, lines):
        counts = ran("chase_shared", 1, 1, order, lines, steps, result).counts
        assert result[1] == memory.LINE * order[steps % lines]
        assert counts.shared_load.requests == steps


def test_each_multiply_add_of_the_walk_through_registers_needs_the_one_before():
    result = np.zeros(2, np.uint64)
    counts = ran("chase_registers", 1, 1, np.float32(0.5), 100, result).counts
    assert counts.thread_fma == 100
    assert result[1].astype(np.uint32).view(np.float32) == np.float32(1.0), "x = x/2 + 1/2"


@pytest.mark.parametrize("level", memory.STREAMS)
def test_a_stream_reads_the_bytes_that_its_rate_counts(level):
    blocks, rounds = 2, 3
    part = memory.part_bytes(level, 64 * memory.KIB, blocks)
    buffer = np.repeat(np.arange(1, blocks + 1, dtype=np.float32), part // 4)
    sums = np.zeros((blocks, memory.THREADS), np.float32)
    is_shared = level == "shared memory"
    quads = [] if is_shared else [part // memory.QUAD]
    counts = ran(memory.STREAMS[level], blocks, memory.THREADS, buffer, *quads, rounds, sums).counts
    loads = counts.shared_load if is_shared else counts.global_load
    assert loads.bytes == blocks * part * rounds
    values = [1, 1] if is_shared else [1, 2]  # shared memory has the start of the buffer
    assert sums.sum(axis=1).tolist() == [value * rounds * part / 4 for value in values]


def test_each_level_has_the_size_that_its_name_says():
    l2_bytes = 60 << 20
    blocks = 264
    whole = {level: blocks * memory.part_bytes(level, l2_bytes, blocks) for level in memory.STREAMS}
    assert whole["L2"] < l2_bytes / 2 and whole["DRAM"] > 4 * l2_bytes
    assert whole["L1"] // blocks * memory.BLOCKS_PER_SM <= 128 * memory.KIB
    assert {*memory.CHASES} == {*CHASED.values()}
    assert memory.FOOTPRINTS[0] == 1024 and memory.FOOTPRINTS[-1] == 512 << 20
