"""What threads hand over to each other through flags in global memory: a fence and a strong write of the flag release
accesses, a strong read of the flag and a fence acquire them (PTX ISA, "Release and Acquire Patterns").

What a block has released is a row: per lane, the time before which its accesses are released. Rows are only added, and
a row of a block contains the earlier ones. What a thread, a block or a flag knows of all blocks is a clock: per block
that ever released, the number of its row. Clocks are kept once each and named by number; clock 0 and row 0 are empty.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from worklog.emulator.findings import Array

MOST_ROWS = 1 << 24  # elements of rows: afterwards a block's last row grows in place, and a missing fence may be missed


class Handover:
    """The flags of one launch, and what the lanes of the running batch know. size: lanes per block."""

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

    def release(self, buffer: int, word: Array, lanes: Array) -> None:
        """These lanes write these words with strong writes."""
        for start, stop in _runs(lanes // self.size):
            lane, first = lanes[start:stop], int(lanes[start]) // self.size * self.size
            own, fenced = (times[:, first : first + self.size] for times in (self.own, self.fenced))
            if not own.any() and not fenced.any():
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
            for each, known in zip(word[start:stop].tolist(), self.known[lane].tolist(), strict=True):
                clock = self.joined(self.flags.get((buffer, each), 0), self.joined(known, released))
                self.flags[buffer, each] = clock

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
