"""wgmma.mma_async: a warp group multiplies 64 rows by up to 256 columns, with B, and maybe A, in shared memory.

Each warp computes its own 16 rows when it issues the instruction. That registers and shared memory are left alone until
wgmma.wait_group is checked. PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions".
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from worklog.emulator.floats import Array
from worklog.emulator.program import Site
from worklog.emulator.ptx import Mask, UnsupportedInstruction
from worklog.emulator.running import Running
from worklog.emulator.tensor import Form, Places, Words, accumulator, left, numbers, registers_of, right, transposed

LINE = 16  # bytes that lie together in every layout
# Bytes per line of a swizzled pattern, by bits 62 and 63 of a descriptor; 0: no swizzle.
WIDTHS = np.array([0, 128, 64, 32])


def lines_of(descriptors: Array, rows: int, first: Array, trans: bool) -> Array:
    """Shared bytes at which the 16-byte lines of a matrix start. descriptors: (warps,) uint64.

    (warps, rows, 2) for rows of A, or columns of B, from `first` on, with 32 bytes along K each. trans: (warps, 16,
    rows / 8), for 16 k. PTX ISA, "Matrix Descriptor Format", and the canonical layouts of CUTLASS (mma_sm90_desc.hpp).
    """
    fields = (descriptors[:, None, None] >> np.uint64(bit) for bit in (0, 16, 32))
    start, leading, stride = ((field & np.uint64(0x3FFF)).astype(np.int64) << 4 for field in fields)
    width = WIDTHS[(descriptors >> np.uint64(62)).astype(np.int64)][:, None, None]
    if trans:
        k, chunk = np.arange(16)[None, :, None], first[:, None, None] // 8 + np.arange(rows // 8)[None, None]
        per_line = np.maximum(width // LINE, 1)
        plain = chunk * stride + k % 8 * LINE + k // 8 * leading
        turned = chunk % per_line * LINE + chunk // per_line * leading + k % 8 * width + k // 8 * stride
    else:
        row, chunk = first[:, None, None] + np.arange(rows)[None, :, None], np.arange(2)[None, None]
        plain = row // 8 * stride + row % 8 * LINE + chunk * leading
        turned = row // 8 * stride + row % 8 * width + chunk * LINE
    place = start + np.where(width == 0, plain, turned)
    return place ^ (place >> 3 & np.maximum(width - LINE, 0))


class Tensor:
    """What generated code calls, as `S.tensor`. Registers are arrays of uint32."""

    def __init__(self, machine: Running) -> None:
        self.machine = machine

    def mma(self, pc: int, form: Form, mask: Mask, a: Words, b: Words, c: Words) -> tuple[Array, ...]:
        """mma.sync and wmma.mma."""
        warps = self.whole(pc, mask)
        words = self.words(c, warps)
        if not self.machine.batch.values or not len(warps):
            return (np.zeros(1, words.dtype),) * len(c)
        x, y = left(self.words(a, warps), form.type_, form.rows), right(self.words(b, warps), form.other, form.columns)
        for k in range(0, x.shape[-1], form.step):
            old = accumulator(words, form.sum_type, form.rows)
            sums = form.sums(x[..., k : k + form.step], y[..., k : k + form.step, :], old)
            results = registers_of(sums, form.sum_type, form.how)
            words = results.reshape(words.shape)
        return self.spread(results, warps)

    def load(self, pc: int, site: Site, address: Array, mask: Mask, count: int, trans: bool) -> tuple[Array, ...]:
        """ldmatrix: lane 8 k + r has the address of row r of matrix k; lane 4 r + t gets word t of row r of each."""
        self.whole(pc, mask)
        rows = self.machine.load(site, address, self._first(mask, 8 * count))
        words = np.stack([self._wide(row) for row in rows], axis=1).reshape(-1, 4, 8, 4)
        words = transposed(words) if trans else words
        return tuple(words[:, k].ravel() for k in range(count))

    def store(self, pc: int, site: Site, address: Array, mask: Mask, values: Words, trans: bool) -> None:
        """stmatrix: `load` backwards."""
        self.whole(pc, mask)
        words = np.zeros((self.machine.batch.lanes // 32, 4, 8, 4), np.uint32)
        for k, value in enumerate(values):
            words[:, k] = self._wide(value).reshape(-1, 8, 4)
        rows = (transposed(words) if trans else words).reshape(-1, 4)
        self.machine.store(site, address, self._first(mask, 8 * len(values)), [rows[:, k].copy() for k in range(4)])

    def transpose(self, pc: int, mask: Mask, value: Array) -> Array:
        """movmatrix."""
        self.whole(pc, mask)
        return transposed(self._wide(value).reshape(-1, 8, 4)).ravel()

    def load_fragment(self, pc: int, site: Site, base: Array, mask: Mask, stride: Array, form: Places) -> list[Array]:
        """wmma.load. stride: bytes from line to line."""
        self._check(pc, site, base, mask, stride, form)
        if form.matrices and site.count == 4:
            lane, out = np.arange(self.machine.batch.lanes), list[Array]()
            for first in range(0, len(form.places), form.matrices):
                line, byte = np.array(form.places)[first + lane // 8 % form.matrices].T
                offset = (line + lane % 8) * self._wide(stride).astype(np.int64) + byte
                address = base + offset.astype(base.dtype)
                out += self.load(pc, site, address, mask, form.matrices, form.trans)
            return out
        address = (self._address(base, stride, form, place) for place in form.places)
        out = [register for each in address for register in self.machine.load(site, each, mask)]
        if form.size == 1:
            columns = np.stack([self._wide(byte) for byte in out], axis=1)
            out = list(np.ascontiguousarray(columns).view(np.uint32).T)
        return [self.transpose(pc, mask, each) for each in out] if form.trans else out

    def store_fragment(
        self, pc: int, site: Site, base: Array, mask: Mask, stride: Array, form: Places, values: Words
    ) -> None:
        """wmma.store: `load_fragment` backwards."""
        self._check(pc, site, base, mask, stride, form)
        values = [self.transpose(pc, mask, each) for each in values] if form.trans else values
        for k, place in enumerate(form.places):
            own = values[site.count * k : site.count * (k + 1)]
            self.machine.store(site, self._address(base, stride, form, place), mask, own)

    # Lanes and warps.

    def _address(self, base: Array, stride: Array, form: Places, place: tuple[int, int]) -> Array:
        lane = np.arange(self.machine.batch.lanes, dtype=np.int64) % 32
        g, t = lane // 4, lane % 4
        line, byte = (k + g * form.steps[n] + t * form.steps[n + 1] for k, n in zip(place, (0, 2), strict=True))
        return base + (line * self._wide(stride).astype(np.int64) + byte).astype(base.dtype)

    def _check(self, pc: int, site: Site, base: Array, mask: Mask, stride: Array, form: Places) -> None:
        """Whole warps, and the alignment that wmma needs."""
        self.whole(pc, mask)
        lanes = self.machine.lanes_of(mask)
        start = self._wide(base).astype(np.int64) + site.offset
        crooked: Array = lanes & ((start % form.align != 0) | (self._wide(stride).astype(np.int64) % 16 != 0))
        if crooked.any():
            first = int(crooked.argmax())
            what = f"gives a matrix at byte {start[first] % 2**32:#x} with {self._wide(stride)[first]} bytes from line "
            what += f"to line: multiples of {form.align} and 16 are needed"
            self.machine.batch.tell("misaligned", site, crooked, what)

    def whole(self, pc: int, mask: Mask) -> Array:
        """The numbers of the warps that execute an instruction, and a finding where some of their lanes do not."""
        lanes: Array = self.machine.lanes_of(mask).reshape(-1, 32)
        some = lanes.any(axis=1)
        absent: Array = (some[:, None] & ~lanes).ravel()
        if absent.any():
            instruction = self.machine.program.kernel.instructions[pc]
            what = f"does not execute {instruction.op.split('.')[0]}, which needs all 32 threads of its warp"
            self.machine.batch.tell("divergent-warp", instruction, absent, what)
        return np.flatnonzero(some)

    def _first(self, mask: Mask, count: int) -> Mask:
        """The first `count` lanes of each warp of a mask."""
        if count == 32 or mask is False:
            return mask
        return self.machine.lanes_of(mask) & (np.arange(self.machine.batch.lanes) % 32 < count)

    def _wide(self, value: Array) -> Array:
        return np.broadcast_to(value, (self.machine.batch.lanes,))

    def words(self, registers: Words, warps: Array) -> Array:
        """Registers as (count, warps, 8, 4), of some warps."""
        words = np.stack([self._wide(each) for each in registers]).reshape(len(registers), -1, 8, 4)
        return words if len(warps) == words.shape[1] else words[:, warps]

    def spread(self, results: Array, warps: Array) -> tuple[Array, ...]:
        """Results of some warps as registers of all lanes."""
        whole = results
        if len(warps) != self.machine.batch.lanes // 32:
            whole = np.zeros((len(results), self.machine.batch.lanes // 32, 32), results.dtype)
            whole[:, warps] = results
        return tuple(whole.reshape(len(results), -1))


class Wgmma:
    """What generated code calls, as `S.wgmma`."""

    def __init__(self, machine: Running, tensor: Tensor) -> None:
        self.machine, self.tensor, lanes = machine, tensor, machine.batch.lanes
        self.group: Array = np.ones(lanes, np.int32)  # the number of each lane's open group
        self.fenced: Array = np.zeros(lanes, bool)
        # Of shared memory: site, and by line its first byte, a lane that reads it, and the lane's group.
        self.reading: list[tuple[Site, Array, Array, Array]] = []

    # Called by generated code.

    def fence(self, mask: Mask) -> None:
        """wgmma.fence."""
        self.fenced = self.fenced | self.machine.lanes_of(mask)

    def commit(self, mask: Mask) -> None:
        """wgmma.commit_group."""
        self.group = self.group + self.machine.lanes_of(mask)

    def wait(self, mask: Mask, count: int) -> None:
        """wgmma.wait_group: all groups but the `count` newest are complete."""
        done = np.where(self.machine.lanes_of(mask), self.group - 1 - count, 0)
        self.machine.shared.marks.complete(done)
        order = self.machine.shared.order
        reading, self.reading = self.reading, []
        for site, lanes, lines, groups in reading:
            ended = groups <= done[lanes]
            if order is not None and ended.any():
                order.drained(site, lanes[ended], lines[ended], LINE)
            if not ended.all():
                self.reading.append((site, lanes[~ended], lines[~ended], groups[~ended]))

    def mma(
        self, site: Site, form: Form, mask: Mask, a: Array, b: Array, scaled: Array, c: Sequence[Array]
    ) -> tuple[Array, ...]:
        """a: a tuple of registers, or a descriptor, as b; scaled: whether c is added."""
        tensor, lanes = self.tensor, self.machine.lanes_of(mask)
        warps = tensor.whole(site.pc, mask)
        self._check(site, lanes, warps, [b] if isinstance(a, tuple) else [a, b])
        self.machine.shared.marks.fresh[site.pc] = site, np.where(lanes, self.group, 0)
        if not self.machine.batch.values or not len(warps):
            return (np.zeros(1, np.uint32),) * len(c)
        if isinstance(a, tuple):
            x = left(tensor.words(a, warps), form.type_, 16)
        else:
            x = self._matrix(site, warps, a, 16, warps % 4 * 16, form.type_, form.trans[0])
        y = self._matrix(site, warps, b, form.columns, warps * 0, form.other, form.trans[1]).swapaxes(1, 2)
        old = accumulator(tensor.words(c, warps), form.sum_type, 16)
        adding = np.broadcast_to(scaled, lanes.shape)[warps * 32][:, None, None]
        sums = form.sums(x * form.signs[0], y * form.signs[1], np.where(adding, old, 0.0))
        return tensor.spread(registers_of(sums, form.sum_type, form.how), warps)

    # Registers and memory.

    def _check(self, site: Site, lanes: Array, warps: Array, descriptors: Sequence[Array]) -> None:
        """The warp group is whole, has passed a wgmma.fence, and gives one descriptor that is supported."""
        tell, count = self.machine.batch.tell, self.machine.batch.block_lanes // 32
        alive: Array = self.machine.live.reshape(-1, 32).all(axis=1)
        for warp in warps.tolist():
            group = warp - warp % count + warp % count // 4 * 4
            if group % count + 4 > count or not alive[group : group + 4].all():
                what = "executes wgmma, which needs 4 whole warps from a multiple of 4 on"
                tell("divergent-warp", site, 32 * warp, what)
        if not self.fenced[lanes].all():
            first = int((lanes & ~self.fenced).argmax())
            tell("missing-fence", site, first, "executes wgmma.mma_async before any wgmma.fence")
        for each in descriptors:
            values: Array = np.broadcast_to(each, lanes.shape).reshape(-1, 32)[warps]
            if (values != values[:, :1]).any():
                what = "gives a matrix descriptor that differs from its warp's others"
                tell("descriptor", site, int(32 * warps[0]), what)
            if (values >> np.uint64(49) & np.uint64(7)).any():
                what = "a matrix descriptor with a base offset: align the pattern to 8 of its lines"
                raise UnsupportedInstruction(f"line {site.line}: the emulator doesn't support {what}")

    def _matrix(
        self, site: Site, warps: Array, descriptor: Array, rows: int, first: Array, type_: str, trans: bool
    ) -> Array:
        """(warps, rows, K) numbers, from shared memory."""
        shared = self.machine.shared
        own = np.broadcast_to(descriptor, (self.machine.batch.lanes,))[warps * 32]
        lines = lines_of(own, rows, first, trans)
        outside = (lines + LINE > shared.size).any(axis=(1, 2))
        for warp in np.flatnonzero(outside):
            what = f"reads up to byte {lines[warp].max() + LINE} of the block's {shared.size} bytes of shared memory"
            self.machine.batch.tell("shared-out-of-bounds", site, int(warps[warp]) * 32, what)
        lines = np.where(outside[:, None, None], 0, lines)
        index = (lines + shared.lane_base[warps * 32][:, None, None]) // LINE
        if shared.order is not None:
            self._account(site, warps[~outside], lines[~outside], index[~outside])
        words = shared.bytes.view(np.uint32).reshape(-1, 4)[index]
        words = words.reshape(*words.shape[:2], -1)
        values = numbers(words, type_)
        values = values.reshape(*values.shape[:2], -1)
        return values.swapaxes(1, 2) if trans else values

    def _account(self, site: Site, warps: Array, lines: Array, index: Array) -> None:
        """Check that the lines were written and are visible, and keep that they are being read."""
        shared = self.machine.shared
        fresh = ~shared.written.reshape(-1, LINE)[:, :: shared.grain][index].all(axis=(1, 2, 3))
        for warp in warps[fresh].tolist():
            what = "multiplies shared memory that no thread has written"
            self.machine.batch.tell("uninitialised-shared", site, warp * 32, what)
        lanes, starts = np.repeat(warps * 32, lines[:1].size), lines.ravel()
        if (order := self.machine.shared.order) is not None:
            order.drain(site, lanes, starts, LINE)
        self.reading.append((site, lanes, starts, self.group[lanes]))
