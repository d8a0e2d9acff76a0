"""Checks of accesses to global memory: races between threads of one block and of different blocks.

Of each word of a buffer that the kernel may write, a shadow knows the last write and the last reads of two threads. An
access races with one of another thread, of which at least one writes, unless one of these orders them (PTX ISA, "Memory
Consistency Model", causality order):

- a barrier of their block, or __syncwarp() of their warp;
- a hand-over: the first thread, or another one of its block after a barrier, executes a fence and then writes a flag
  with an atomic or a volatile, relaxed or release store; the second one, or another one of its block before a barrier,
  reads the flag with an atomic or a volatile, relaxed or acquire load, and then executes a fence. .release and .acquire
  contain the fence. Between blocks its scope is at least .gpu.

Not reported: two strong accesses (see Site.strong); two writes of one value, as of a flag that many threads set (by PTX
a race, but no result depends on it; compute-sanitizer's racecheck does not warn of it in shared memory either), and
reads of what they wrote; a missing fence behind the flag where the read itself is strong or ld.cg: it bypasses the L1
cache, and the CUDA C++ Programming Guide hands over partial sums so ("Memory Fence Functions").

Where the shadow keeps less than all accesses it may miss a race, but it invents none. Bulk copies are not checked.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, lru_cache
from typing import NamedTuple

import numpy as np

from worklog.emulator.findings import ONE_STORE, Batch
from worklog.emulator.flow import origins
from worklog.emulator.integers import turns
from worklog.emulator.isa import defined, is_strong, loads, reads, row_of
from worklog.emulator.program import Site
from worklog.emulator.ptx import Array, Instruction, Kernel, Mask, Mem, Reg, Sym, plain_name

STRONG, AGREED = 1, 2  # bits of a stamp: the access is strong; several threads wrote this value
LOADED = "loaded pointer"
MOST_ROWS = 1 << 24  # elements of rows: afterwards a block's last row grows in place, and a missing fence may be missed


class Shadow(NamedTuple):
    """Of each word of a buffer, stamps of accesses: of the last write, of the last read, and of the last one by another
    thread. 0: none. A stamp holds the time of the access, the two bits above, and the thread. flags: whether strong
    reads may be of this buffer.
    """

    name: str
    write: Array
    read: Array
    other_read: Array
    flags: bool


class GlobalChecks:
    """The accesses of one launch. numbers: of its blocks, in the order in which they run; a thread's number here counts
    the lanes of the blocks in this order.
    """

    def __init__(self, batch: Batch, numbers: Sequence[int], fences: bool, grain: int) -> None:
        self.batch, self.numbers, self.grain = batch, numbers, grain
        self.bits = (len(numbers) * batch.block_lanes).bit_length()
        self.thread = (1 << self.bits) - 1  # of a stamp
        self.shadows: dict[int, Shadow] = {}
        self.sites: list[Site | None] = [None]  # by time; the next access has time len(sites)
        self.handover = Handover(batch.block_lanes) if fences else None
        self.begun = self.done = 0  # blocks of all batches so far, and of those before this one

    def watch(self, name: str, base: int, size: int, flags: bool) -> None:
        """Check accesses to this buffer; flags: as in Shadow."""
        write, read, other_read = (np.zeros(-(-size // self.grain), np.int64) for _ in range(3))
        self.shadows[base] = Shadow(name, write, read, other_read, flags)

    def start(self) -> None:
        """Begin a new batch."""
        self.done, self.begun, lanes = self.begun, self.begun + len(self.batch.blocks), self.batch.lanes
        self.lanes = np.arange(lanes)
        self.threads = self.lanes + self.done * self.batch.block_lanes
        # By lane: when its block or its warp synchronised last.
        self.barriers: Array = np.zeros(lanes, np.int64)
        self.warps: Array = np.zeros(lanes, np.int64)
        if self.handover is not None:
            self.handover.start(self.done, lanes)

    def barrier(self, lanes: Array) -> None:
        """These lanes have passed a barrier of their blocks. Where it is one of some warps, or an mbarrier, what other
        lanes did counts as ordered, too.
        """
        self.barriers[lanes] = len(self.sites)
        if self.handover is not None:
            blocks = lanes.reshape(-1, self.batch.block_lanes).any(axis=1)
            self.handover.meet(np.repeat(blocks, self.batch.block_lanes), self.batch.block_lanes)

    def synchronise_warps(self, lanes: Array) -> None:
        """__syncwarp of these lanes."""
        self.warps[lanes] = len(self.sites)
        if self.handover is not None:
            self.handover.meet(lanes, 32)

    def fence(self, lanes: Array, wide: bool) -> None:
        """A fence; wide: of a scope beyond the block."""
        if self.handover is not None and lanes.any():
            self.handover.fence(lanes, wide, len(self.sites), self.barriers, self.warps)

    # Accesses.

    def access(
        self, site: Site, base: int, elements: Array, position: Array, mask: Mask, values: Sequence[Array]
    ) -> None:
        """Before an access of the buffer at `base`: elements: the buffer, of the site's dtype; position: the byte of
        each lane; values: to be stored.
        """
        if (shadow := self.shadows.get(base)) is None:
            return
        lanes, full = (self.lanes if mask is None else np.flatnonzero(mask)), self.lanes.shape
        byte = np.broadcast_to(position, full)[lanes]
        bits = f"u{site.size}"
        stored = [np.ascontiguousarray(np.broadcast_to(value, full)[lanes]).view(bits) for value in values]
        stamp = ((len(self.sites) << 2 | (STRONG if site.strong else 0)) << self.bits) | self.threads[lanes]
        self.sites.append(site)
        for k in range(site.count):
            new = stored[k] if stored else None
            unchanged = None if new is None else elements[k:].view(bits)[byte // site.size] == new
            for cell in range(k * site.size, (k + 1) * site.size, self.grain):
                word = (byte + cell) // self.grain
                if site.writes:
                    self._write(site, shadow, word, lanes, stamp, new, unchanged)
                else:
                    self._read(site, shadow, word, lanes, stamp)
        if self.handover is not None and site.strong and shadow.flags:
            words = np.zeros(full, np.int64)
            words[lanes] = byte // self.grain
            self._order(site, base, words, lanes)

    def _read(self, site: Site, shadow: Shadow, word: Array, lanes: Array, stamp: Array) -> None:
        before = shadow.write[word]
        if "nc" in site.parts and before.any():
            self._report(site, shadow, before != 0, before, lanes)
        elif (clash := self._unordered(site, before, lanes)) is not None:
            self._report(site, shadow, clash & (before >> self.bits & AGREED == 0), before, lanes)
        old = shadow.read[word]
        shadow.read[word] = stamp
        lost = shadow.read[word] != stamp
        if old.any():
            others = ~lost & (old != 0) & ((old ^ stamp) & self.thread != 0)
            shadow.other_read[word[others]] = old[others]
        if lost.any():
            shadow.other_read[word[lost]] = stamp[lost]

    def _write(
        self, site: Site, shadow: Shadow, word: Array, lanes: Array, stamp: Array, new: Array | None, same: Array | None
    ) -> None:
        before = shadow.write[word]
        shadow.write[word] = stamp
        matters = np.ones(len(lanes), bool) if same is None else ~same
        if (clash := self._unordered(site, before, lanes)) is not None:
            self._report(site, shadow, clash & matters, before, lanes)
            agreed = clash & ~matters
            shadow.write[word[agreed]] |= AGREED << self.bits
        for known in (shadow.read[word], shadow.other_read[word]):
            if (clash := self._unordered(site, known, lanes)) is not None:
                self._report(site, shadow, clash & matters, known, lanes)
        if new is None or site.strong:
            return
        winner = shadow.write[word]
        lost = (winner ^ stamp) & self.thread != 0
        if lost.any():
            value = np.zeros(len(self.lanes), new.dtype)
            value[lanes] = new
            differs = value[(winner & self.thread) - self.threads[0]] != new
            shadow.write[word[lost & ~differs]] |= AGREED << self.bits
            self._report(site, shadow, lost & differs, winner, lanes)

    def _unordered(self, site: Site, before: Array, lanes: Array) -> Array | None:
        """Of the accesses with these stamps, those that nothing orders before the lanes' own; None for none."""
        if not before.any():
            return None
        thread, time = before & self.thread, before >> self.bits + 2
        clash = (before != 0) & (thread != self.threads[lanes])
        if not clash.any():
            return None
        size = self.batch.block_lanes
        same_block = thread // size == self.threads[lanes] // size
        if site.strong:
            clash &= (before >> self.bits & STRONG == 0) | (~same_block if "cta" in site.parts else False)
        clash &= ~(same_block & (time < self.barriers[lanes]))
        clash &= ~((thread // 32 == self.threads[lanes] // 32) & (time < self.warps[lanes]))
        if not clash.any():
            return None
        if self.handover is not None:
            left = np.flatnonzero(clash)
            lenient = same_block[left] | site.strong | bool({"cg", "cv"} & {*site.parts})
            ordered = self.handover.ordered(thread[left], time[left], lanes[left], same_block[left], lenient)
            clash[left[ordered]] = False
        return clash if clash.any() else None

    def shared_flag(self, site: Site, address: Array, lanes: Array) -> None:
        """A strong access to shared memory may hand over what is in global memory, too."""
        if self.handover is not None and lanes.any():
            place = address.astype(np.int64) + (self.threads // self.batch.block_lanes << 32)
            self._order(site, -1, place, np.flatnonzero(lanes))

    def _order(self, site: Site, base: int, words: Array, lanes: Array) -> None:
        """What a strong access hands over: its lanes see what others released there, and release what they fenced.
        words: of all lanes.
        """
        assert self.handover is not None
        for turn in turns(words, lanes) if site.op == "atom" else [lanes]:
            mask = np.isin(self.lanes, turn)
            if {"release", "acq_rel"} & {*site.parts}:
                self.fence(mask, "cta" not in site.parts)
            if site.op != "st":
                self.handover.see(base, words[turn], turn)
            if {"acquire", "acq_rel"} & {*site.parts}:
                self.fence(mask, "cta" not in site.parts)
            if site.writes:
                self.handover.release(base, words[turn], turn, site.op != "st")

    def _report(self, site: Site, shadow: Shadow, clash: Array, before: Array, lanes: Array) -> None:
        if not clash.any():
            return
        first = int(clash.argmax())
        stamp, size = int(before[first]), self.batch.block_lanes
        thread, time, other = stamp & self.thread, stamp >> self.bits + 2, self.sites[stamp >> self.bits + 2]
        assert other is not None
        threads = [(self.batch.place(self.numbers[thread // size]), thread % size)]
        threads.append(self.batch.locate(int(lanes[first])))
        fix = "with no __syncthreads() between them"
        if threads[0][0] != threads[1][0]:
            fix = "with nothing that orders the blocks: use atomics, or a flag with __threadfence() before it is set "
            fix += "and after it is seen"
        elif time == len(self.sites) - 1:
            fix = ONE_STORE
            threads.sort()
        kind = "global-race"
        if "nc" in site.parts:
            kind, fix = "read-only-load", "with a load (const __restrict__ or __ldg) that needs memory that no thread "
            fix += "writes during the launch"
        what = f"the same bytes of {plain_name(shadow.name)}, {fix}"
        self.batch.tell_race(kind, (other, site), threads, what, int(clash.sum()))


class Handover:
    """What threads hand over through flags in one launch, and what the lanes of the running batch know. size: lanes per
    block.

    What a block has released is a row: per lane, the time before which its accesses are released. Rows are only added,
    and a row of a block contains the earlier ones. What a thread, a block or a flag knows of all blocks is a clock: per
    block that ever released, the number of its row. Clocks are kept once each and named by number; clock 0 and row 0
    are empty.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.last: dict[int, int] = {}  # by block, its newest row
        # Of each row, by lane: what any fence of the block released, and what one of a wider scope did.
        self.rows: list[Array] = [np.zeros((2, size), np.int64)]
        self.clocks: list[dict[int, int]] = [{}]
        self.numbers: dict[frozenset[tuple[int, int]], int] = {}
        self.flags: dict[tuple[int, int], int] = {}  # by buffer and word, a clock
        self.joined = cache(self._joined)

    def start(self, done: int, lanes: int) -> None:
        """Begin a new batch, after this number of blocks."""
        self.done = done
        # As rows: what each lane's own fences released, and what any strong write of its block publishes.
        self.own, self.fenced = np.zeros((2, 2, lanes), np.int64)
        # Clocks of the lanes: what a fence has acquired, and what flags have shown.
        self.known, self.seen = np.zeros((2, lanes), np.int64)

    def meet(self, lanes: Array, size: int) -> None:
        """A barrier of these lanes, in groups of `size` lanes: what one of them has seen and fenced counts for all."""
        self.fenced[:, lanes] = np.maximum(self.fenced, self.own)[:, lanes]
        for clocks in (self.known, self.seen):
            if clocks.any():
                mine = np.where(lanes, clocks, 0).reshape(-1, size)
                every = mine.max(axis=1)
                for group in np.flatnonzero(((mine != 0) & (mine != every[:, None])).any(axis=1)):
                    for clock in np.unique(mine[group]):
                        every[group] = self.joined(int(every[group]), int(clock))
                clocks[lanes] = np.repeat(every, size)[lanes]

    def fence(self, lanes: Array, wide: bool, now: int, barriers: Array, warps: Array) -> None:
        """A fence of these lanes. barriers, warps: when the block and the warp of each lane last synchronised."""
        levels = slice(0, 2 if wide else 1)
        self.own[levels, lanes] = now
        for size, times in ((self.size, barriers), (32, warps)):
            latest = np.repeat(np.where(lanes, times, 0).reshape(-1, size).max(axis=1), size)
            self.fenced[levels] = np.maximum(self.fenced[levels], latest)
        if wide and self.seen.any():
            self.known[lanes] = self._join(self.known[lanes], self.seen[lanes])

    def see(self, buffer: int, word: Array, lanes: Array) -> None:
        """These lanes read these words with strong reads."""
        if self.flags:
            shown = np.array([self.flags.get((buffer, each), 0) for each in word.tolist()])
            if shown.any():
                self.seen[lanes] = self._join(self.seen[lanes], shown)

    def release(self, buffer: int, word: Array, lanes: Array, atomic: bool) -> None:
        """These lanes write these words with strong writes. An atomic hands on what the flag had handed over before; a
        store of another block replaces that (PTX ISA, "Release and Acquire Patterns": the value that is read counts).
        """
        for start, stop in _runs(lanes // self.size):
            lane, first = lanes[start:stop], int(lanes[start]) // self.size * self.size
            own, fenced = (times[:, first : first + self.size] for times in (self.own, self.fenced))
            if atomic and not own.any() and not fenced.any():
                continue
            block = self.done + first // self.size
            last = self.last.get(block, 0)
            row = np.maximum(self.rows[last], fenced)
            row[:, lane - first] = np.maximum(row, own)[:, lane - first]
            if not np.array_equal(row, self.rows[last]):
                if last and len(self.rows) * row.size > MOST_ROWS:
                    self.rows[last] = row
                else:
                    last = self.last[block] = len(self.rows)
                    self.rows.append(row)
            released = self._number({block: last} if last else {})
            flags = self.flags if atomic else {}
            for each, known in zip(word[start:stop].tolist(), self.known[lane].tolist(), strict=True):
                flags[buffer, each] = self.joined(flags.get((buffer, each), 0), self.joined(known, released))
            self.flags |= flags

    def ordered(self, thread: Array, time: Array, lanes: Array, same_block: Array, lenient: Array) -> Array:
        """Whether accesses of these threads at these times were handed over to these lanes. lenient: the lane need not
        have executed a fence after it saw the flag.
        """
        known = self.known[lanes]
        clocks = np.where(lenient, self._join(known, self.seen[lanes]), known)
        level, block = np.where(same_block, 0, 1), thread // self.size
        out = np.zeros(len(lanes), bool)
        for start, stop in _runs(clocks, block):
            row = self.clocks[clocks[start]].get(int(block[start]))
            if row is not None:
                part = slice(start, stop)
                out[part] = time[part] < self.rows[row][level[part], thread[part] % self.size]
        return out

    def _join(self, some: Array, others: Array) -> Array:
        """Clocks that know what both know."""
        out = np.maximum(some, others)
        for start, stop in _runs(some, others):
            if some[start] and others[start]:
                out[start:stop] = self.joined(int(some[start]), int(others[start]))
        return out

    def _joined(self, one: int, other: int) -> int:
        if not one or not other or one == other:
            return max(one, other)
        out = dict(self.clocks[one])
        for block, row in self.clocks[other].items():
            out[block] = max(row, out.get(block, 0))
        return self._number(out)

    def _number(self, clock: dict[int, int]) -> int:
        if not clock:
            return 0
        number = self.numbers.setdefault(frozenset(clock.items()), len(self.clocks))
        if number == len(self.clocks):
            self.clocks.append(clock)
        return number


def _runs(*values: Array) -> zip[tuple[int, int]]:
    """Where runs of equal values start and stop."""
    changes = np.flatnonzero(np.logical_or.reduce([each[1:] != each[:-1] for each in values])) + 1
    return zip([0, *changes.tolist()], [*changes.tolist(), len(values[0])], strict=True)


@lru_cache(maxsize=64)
def places(kernel: Kernel) -> tuple[frozenset[str] | None, frozenset[str] | None]:
    """The parameters and variables through which the kernel may write to global memory, and those through which it may
    read flags: by strong loads, and atomics whose result it uses. None: through any.
    """

    def own(i: Instruction) -> tuple[set[str], bool]:
        if loads(i):
            return {LOADED} if i.parts[-1][1:] == "64" else set(), False
        named = (operand.base if isinstance(operand, Mem) else operand for operand in i.operands)
        return {symbol.name for symbol in named if isinstance(symbol, Sym)}, True

    known = origins(kernel.instructions, own)
    needed = {register.name for i in kernel.instructions for register in reads(i)}
    pointers = {v.name for v in kernel.variables} | {param.name for param in kernel.params if param.size == 8}
    out: list[set[str] | None] = [set(), set()]
    for i in kernel.instructions:
        if row_of(i).memory not in ("ld", "st", "atom") or not {"shared", "local", "param", "sync"}.isdisjoint(i.parts):
            continue
        result_used = not needed.isdisjoint(register.name for register in defined(i))
        is_flag = result_used and is_strong(i)
        for base in (operand.base for operand in i.operands if isinstance(operand, Mem)):
            found = known.get(base.name, set()) if isinstance(base, Reg) else {base.name} if base else set()
            for number, concerned in enumerate((i.parts[0] != "ld", is_flag)):
                names = out[number]
                if concerned and names is not None:
                    out[number] = None if LOADED in found or found.isdisjoint(pointers) else names | found & pointers
    written, flags = (None if names is None else frozenset(names) for names in out)
    return written, flags
