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
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from worklog.emulator.counts import ORDERED, Site
from worklog.emulator.findings import Array, Batch, Mask, Recorder, plain_name
from worklog.emulator.flow import defined, origins, reads
from worklog.emulator.handover import Handover
from worklog.emulator.ptx import Instruction, Kernel, Mem, Reg, Sym
from worklog.emulator.warp import turns

STRONG, AGREED = 1, 2  # bits of a stamp: the access is strong; several threads wrote this value
LOADED = "loaded pointer"


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

    def __init__(self, recorder: Recorder, batch: Batch, numbers: Sequence[int], kernel: Kernel, grain: int) -> None:
        self.recorder, self.batch, self.numbers, self.grain = recorder, batch, numbers, grain
        self.bits = (len(numbers) * batch.block_lanes).bit_length()
        self.thread = (1 << self.bits) - 1  # of a stamp
        self.shadows: dict[int, Shadow] = {}
        self.sites: list[Site | None] = [None]  # by time; the first access has time 1
        self.handover = Handover(batch.block_lanes) if _has_fences(kernel) else None
        self.begun = self.done = 0  # blocks of all batches so far, and of those before this one

    def watch(self, name: str, base: int, size: int, flags: bool) -> None:
        """Check accesses to this buffer; flags: as in Shadow."""
        write, read, other_read = (np.zeros(-(-size // self.grain), np.int64) for _ in range(3))
        self.shadows[base] = Shadow(name, write, read, other_read, flags)

    @property
    def now(self) -> int:
        """The time of the next access."""
        return len(self.sites)

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
        self.barriers[lanes] = self.now
        if self.handover is not None:
            blocks = lanes.reshape(-1, self.batch.block_lanes).any(axis=1)
            self.handover.meet(np.repeat(blocks, self.batch.block_lanes), self.batch.block_lanes)

    def synchronise_warps(self, lanes: Array) -> None:
        """__syncwarp of these lanes."""
        self.warps[lanes] = self.now
        if self.handover is not None:
            self.handover.meet(lanes, 32)

    def fence(self, lanes: Array, wide: bool) -> None:
        """A fence; wide: of a scope beyond the block."""
        if self.handover is not None and lanes.any():
            self.handover.fence(lanes, wide, self.now, self.barriers, self.warps)

    # Accesses.

    def access(
        self, site: Site, base: int, elements: Array, position: Array, mask: Mask, values: Sequence[Array]
    ) -> None:
        """Before an access of the buffer at `base`: elements: the buffer, of the site's dtype; position: the byte of
        each lane; values: to be stored.
        """
        shadow = self.shadows.get(base)
        if shadow is None:
            return
        lanes, full = (self.lanes if mask is None else np.flatnonzero(mask)), self.lanes.shape
        byte = np.broadcast_to(position, full)[lanes]
        bits = f"u{site.size}"
        stored = [np.ascontiguousarray(np.broadcast_to(value, full)[lanes]).view(bits) for value in values]
        stamp = ((self.now << 2 | (STRONG if site.strong else 0)) << self.bits) | self.threads[lanes]
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
        clash = self._unordered(site, before, lanes)
        if clash is not None:
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
        clash = self._unordered(site, before, lanes)
        if clash is not None:
            self._report(site, shadow, clash & matters, before, lanes)
            agreed = clash & ~matters
            shadow.write[word[agreed]] |= AGREED << self.bits
        for known in (shadow.read[word], shadow.other_read[word]):
            clash = self._unordered(site, known, lanes)
            if clash is not None:
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
            clash &= (before >> self.bits & STRONG == 0) | (~same_block if "cta" in _modifiers(site) else False)
        clash &= ~(same_block & (time < self.barriers[lanes]))
        clash &= ~((thread // 32 == self.threads[lanes] // 32) & (time < self.warps[lanes]))
        if not clash.any():
            return None
        if self.handover is not None:
            left = np.flatnonzero(clash)
            lenient = same_block[left] | site.strong | (not _modifiers(site).isdisjoint(("cg", "cv")))
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
        for turn in turns(words, lanes) if site.op == "atom" else [lanes]:
            self._order_turn(site, base, words[turn], turn)

    def _order_turn(self, site: Site, base: int, word: Array, lanes: Array) -> None:
        assert self.handover is not None
        modifiers = _modifiers(site)
        acquires = not modifiers.isdisjoint(("acquire", "acq_rel"))
        mask = np.zeros(len(self.lanes), bool)
        mask[lanes] = True
        if not modifiers.isdisjoint(("release", "acq_rel")):
            self.fence(mask, "cta" not in modifiers)
        if site.op != "st":
            self.handover.see(base, word, lanes)
        if acquires:
            self.fence(mask, "cta" not in modifiers)
        if site.writes:
            self.handover.release(base, word, lanes)

    def _report(self, site: Site, shadow: Shadow, clash: Array, before: Array, lanes: Array) -> None:
        if not clash.any():
            return
        first = int(clash.argmax())
        thread, lane, size = int(before[first]) & self.thread, int(lanes[first]), self.batch.block_lanes
        other = self.sites[int(before[first]) >> self.bits + 2]
        assert other is not None
        block, two = self.batch.locate(lane)
        earlier, one = self.batch.place(self.numbers[thread // size]), thread % size
        callers, place = (site.caller, other.caller), f"the same bytes of {plain_name(shadow.name)}"
        fix = "no __syncthreads() between them"
        if block != earlier:
            fix = "nothing that orders the blocks: use atomics, or a flag with __threadfence() before it is set and "
            fix += "after it is seen"
        message = (
            f"thread {one} of block {earlier} {other.verb} (line {other.line}{other.called}) and thread {two} of block "
            f"{block} {site.verb} (line {site.line}{site.called}) {place}, with {fix}"
        )
        if block == earlier and int(before[first]) >> self.bits + 2 == self.now - 1:
            one, two = sorted((one, two))
            what = f"{place} with one store{site.called}"
            message = f"threads {one} and {two} of block {block} write different values to {what}"
        threads = (one, two) if block == earlier else (two,)
        self.recorder.add("global-race", site.line, message, block, threads, other.line, int(clash.sum()), callers)


def _modifiers(site: Site) -> set[str]:
    return set(site.text.split(maxsplit=1)[0].split("."))


def _has_fences(kernel: Kernel) -> bool:
    """Whether the kernel can hand over at all."""
    fences = ("fence", "membar"), {"release", "acquire", "acq_rel"}
    return any(i.parts[0] in fences[0] or not fences[1].isdisjoint(i.parts) for i in kernel.instructions)


@lru_cache(maxsize=64)
def places(kernel: Kernel) -> tuple[frozenset[str] | None, frozenset[str] | None]:
    """The parameters and variables through which the kernel may write to global memory, and those through which it may
    read flags: by strong loads, and atomics whose result it uses. None: through any.
    """

    def own(i: Instruction) -> tuple[set[str], bool]:
        if i.parts[0] in ("ld", "atom") and "param" not in i.parts:
            return {LOADED} if i.parts[-1][1:] == "64" else set(), False
        named = (operand.base if isinstance(operand, Mem) else operand for operand in i.operands)
        return {symbol.name for symbol in named if isinstance(symbol, Sym)}, True

    known = origins(kernel.instructions, own)
    needed = {register.name for i in kernel.instructions for register in reads(i)}
    pointers = {v.name for v in kernel.variables} | {param.name for param in kernel.params if param.size == 8}
    out: list[set[str] | None] = [set(), set()]
    for i in kernel.instructions:
        if i.parts[0] not in ("ld", "st", "atom", "red") or not {"shared", "local", "param"}.isdisjoint(i.parts):
            continue
        result_used = not needed.isdisjoint(register.name for register in defined(i))
        is_flag = result_used and (i.parts[0] == "atom" or not ORDERED.isdisjoint(i.parts))
        for base in (operand.base for operand in i.operands if isinstance(operand, Mem)):
            found = known.get(base.name, set()) if isinstance(base, Reg) else {base.name} if base else set()
            for number, concerned in enumerate((i.parts[0] != "ld", is_flag)):
                names = out[number]
                if concerned and names is not None:
                    out[number] = None if LOADED in found or found.isdisjoint(pointers) else names | found & pointers
    written, flags = (None if names is None else frozenset(names) for names in out)
    return written, flags
