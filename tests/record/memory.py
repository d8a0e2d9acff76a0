"""Records the latency and the bandwidth of each memory of a GPU.

`python -m tests.record.memory worklog/recordings/memory/h200.json` on a machine with a GPU; less
than a minute. `worklog.kernel.memories` reads it, for notebook 03.

A latency is the cycles of a load that the next load waits for: one thread follows a chain through
lines of 128 bytes, in a random order. Its footprint decides which memory has the lines. If they fit
into L2, a first walk loads them. If they don't, L2 is overwritten before, and each line is visited
once.
"""

import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from worklog.kernel import Program
from worklog.kernel.memories import CHASED, KIND, SCHEMA
from worklog.kernel.nvrtc import nvrtc_version
from worklog.runs.files import write_text

SOURCE = Path(__file__).with_suffix(".cu")
CHASES = {
    "fma": "chase_registers",
    "ld.shared": "chase_shared",
    "ld.global.ca": "chase<true>",
    "ld.global.cg": "chase<false>",
}
STREAMS = {
    "shared memory": "stream_shared",
    "L1": "stream<true>",
    "L2": "stream<false>",
    "DRAM": "stream<false>",
}
KIB = 1024
LINE = 128  # bytes
QUAD = 16  # bytes
THREADS = 1024
FOOTPRINTS = [KIB << power for power in range(20)]  # up to 512 MiB
SHARED_FOOTPRINTS = [size for size in FOOTPRINTS if size <= 32 * KIB]  # the array in the source
LEAST_STEPS = 4096
MOST_STEPS = 65536
TIMES = 3  # that each number is measured
SEED = 8
BLOCKS_PER_SM = 2
L1_BYTES = 64 * KIB  # of each block, so that two blocks fit into L1
READ_BYTES = 100e9  # by each stream: some milliseconds
CLOCK_NS = 10_000_000


def program(entry: str) -> Program:
    """Return a kernel of memory.cu."""
    return Program(SOURCE.name, SOURCE.read_text(encoding="utf-8"), entry)


def order_of(lines: int) -> NDArray[np.uint32]:
    """Return the lines in a random order, in which a chain visits them."""
    return np.random.default_rng(SEED).permutation(lines).astype(np.uint32)


def part_bytes(memory: str, l2_bytes: int, blocks: int) -> int:
    """Return the bytes that a block reads in a round: at least one quad of each thread."""
    whole_bytes = {
        "shared memory": SHARED_FOOTPRINTS[-1] * blocks,
        "L1": L1_BYTES * blocks,
        "L2": l2_bytes // 4,
        "DRAM": 8 * l2_bytes,
    }
    unit = THREADS * QUAD
    return max(1, whole_bytes[memory] // blocks // unit) * unit


class Machine:
    """The current GPU with the kernels of memory.cu."""

    def __init__(self) -> None:
        import cupy

        from worklog.gpu.cuda import CudaKernel
        from worklog.gpu.device import gpu

        self.cupy = cupy
        self.gpu = gpu()
        entries = {"link", "tell_clock", *CHASES.values(), *STREAMS.values()}
        self.kernels = {entry: CudaKernel(program(entry), self.gpu.arch) for entry in entries}
        self.numbers = cupy.zeros(2, np.uint64)

    def launch(self, entry: str, blocks: int, threads: int, *arguments: Any) -> None:
        """Enqueue a kernel."""
        self.kernels[entry].launch((blocks,), (threads,), arguments)

    def numbers_of(self, entry: str, *arguments: Any) -> list[int]:
        """Run one thread of a kernel, and return the two numbers that it writes."""
        self.launch(entry, 1, 1, *arguments, self.numbers)
        return [int(number) for number in self.numbers.get()]

    def clock_mhz(self) -> float:
        """Return the clock of a multiprocessor right now."""
        cycles, ns = self.numbers_of("tell_clock", np.uint64(CLOCK_NS))
        return 1e3 * cycles / ns

    def latency(self, chased: str, footprint_bytes: int) -> float:
        """Return the cycles of a step through a chain of this footprint."""
        lines = footprint_bytes // LINE
        steps = min(max(lines, LEAST_STEPS), MOST_STEPS)
        if chased == "fma":
            return self._cycles(CHASES[chased], steps, np.float32(0.5))
        order = self.cupy.asarray(order_of(lines))
        if chased == "ld.shared":
            return self._cycles(CHASES[chased], steps, order, np.int32(lines))
        return self._global_cycles(CHASES[chased], steps, order)

    def _cycles(self, entry: str, steps: int, *arguments: Any) -> float:
        """Return the cycles of a step of a walk outside global memory."""
        walks = [self.numbers_of(entry, *arguments, np.int32(steps)) for _ in range(TIMES)]
        return median(cycles for cycles, _ in walks) / steps

    def _global_cycles(self, entry: str, steps: int, order: Any) -> float:
        """Return the cycles of a step of a walk through the lines of global memory."""
        lines = order.size
        chain = self.cupy.zeros(lines * LINE // 8, np.uint64)
        self.launch("link", -(-lines // THREADS), THREADS, chain, order, np.int32(lines))
        if lines * LINE > self.gpu.l2_bytes:
            self._overwrite_l2()
        else:
            self.numbers_of(entry, chain, np.uint64(0), np.int32(lines))
        at = 0
        walks = []
        for _ in range(TIMES):
            cycles, at = self.numbers_of(entry, chain, np.uint64(at), np.int32(steps))
            walks.append(cycles)
        return median(walks) / steps

    def _overwrite_l2(self) -> None:
        """Fill L2 with lines of another buffer."""
        size = 2 * self.gpu.l2_bytes
        self.cupy.zeros(size, np.uint8).data.memset_async(1, size)

    def read_gbs(self, memory: str, read_bytes: float) -> float:
        """Return the rate at which all multiprocessors together read from a memory.

        read_bytes: how much they read
        """
        blocks = BLOCKS_PER_SM * self.gpu.multiprocessors
        part = part_bytes(memory, self.gpu.l2_bytes, blocks)
        rounds = max(1, round(read_bytes / (blocks * part)))
        arguments: list[Any] = [self.cupy.zeros(blocks * part // 4, np.float32)]
        if memory != "shared memory":
            arguments.append(np.uint64(part // QUAD))
        arguments += [np.int32(rounds), self.cupy.zeros(blocks * THREADS, np.float32)]
        times_ms = [self._ms(STREAMS[memory], blocks, arguments) for _ in range(1 + TIMES)]
        return blocks * part * rounds / median(times_ms[1:]) / 1e6

    def _ms(self, entry: str, blocks: int, arguments: Sequence[Any]) -> float:
        """Return the milliseconds of a launch."""
        begin = self.cupy.cuda.Event()
        end = self.cupy.cuda.Event()
        begin.record()
        self.launch(entry, blocks, THREADS, *arguments)
        end.record()
        end.synchronize()
        return float(self.cupy.cuda.get_elapsed_time(begin, end))


def document(machine: Machine, footprints: Sequence[int], read_bytes: float) -> dict[str, Any]:
    """Return the recording of the current GPU.

    footprints: of the chains in global memory, in bytes
    read_bytes: how much each stream reads
    """
    rates = {memory: machine.read_gbs(memory, read_bytes) for memory in STREAMS}
    latencies = []
    for chased in dict.fromkeys(CHASED.values()):
        sizes = {"fma": [4], "ld.shared": SHARED_FOOTPRINTS}.get(chased, footprints)
        for size in sizes:
            cycles = machine.latency(chased, size)
            latencies.append({"chased": chased, "bytes": size, "cycles": cycles})
            print(f"{chased}, {size / KIB:g} KiB: {cycles:.1f} cycles", file=sys.stderr)
    clock_mhz = machine.clock_mhz()
    now = datetime.now(UTC)
    gpu = machine.gpu
    return {
        "kind": KIND,
        "schema": SCHEMA,
        "device": gpu.name,
        "arch": gpu.arch,
        "driver": gpu.driver,
        "nvrtc": ".".join(map(str, nvrtc_version())),
        "utc": now.isoformat(timespec="seconds"),
        "label": f"recorded · {gpu.name} · {now.date()} · SM clock {clock_mhz:.0f} MHz",
        "sm_mhz": clock_mhz,
        "latencies": latencies,
        "read_gbs": rates,
    }


if __name__ == "__main__":
    out = Path(sys.argv[1])
    out.parent.mkdir(exist_ok=True)
    write_text(out, document(Machine(), FOOTPRINTS, READ_BYTES))
