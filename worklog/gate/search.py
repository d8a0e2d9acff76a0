"""Searches launches that take the paths of a kernel that no launch of the other stages took, and names what it did not
reach.

What a launch chooses is computed before it runs (worklog.emulator.coverage), so that the search is among many
thousands of launches: shapes, scalars, alignments, blocks and threads are drawn, near the numbers in the code, too.
Those with which a condition was met, or a part of one, are varied; the cheapest launch that takes a new path is run,
and its result checked.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Mapping
from itertools import groupby
from typing import Any

import numpy as np

from worklog.emulator import FIRST_ADDRESS, SPACING, EmulatedDevice, TooLarge
from worklog.emulator.coverage import UNKNOWN, UNKNOWN_FLOAT, WAITED, Choice, Coverage
from worklog.errors import LaunchFailed
from worklog.gate import exact
from worklog.gate.edges import mistake_in
from worklog.gate.exact import ExactProblem
from worklog.gate.guarded_buffer import Memory
from worklog.gate.verdict import failed, passed
from worklog.gate.words import Values, condition
from worklog.problem import Shape
from worklog.runs.records import ErrorMap, NeverRan, Stage

RARE_PATHS = "rare paths"
SIZES, SCALARS, MATRICES = ("M", "N", "K"), ("alpha", "beta"), ("A", "B", "C")
BLOCKS, THREADS = ("%ctaid.x", "%ctaid.y"), ("%tid.x", "%tid.y")
NAMES = (*SIZES, *SCALARS, *MATRICES, *BLOCKS, *THREADS, UNKNOWN_FLOAT)  # of what is drawn
DRAWN, GENERATIONS = 1024, 16
FEW = 32  # shapes of them, where the kernel chooses what it launches by the shape, which takes long
LARGEST, MOST_STEPS = 16384, 64  # of a size that isn't near a number of the code; or so many steps of the domain
USUAL, SPECIAL = (2.0, -1.0, 0.5, -2.0, 3.0), (0.0, 1.0, -1.0)  # scalars
VARIED, EQUAL = 0.2, 0.1  # parts of the values of a row, and of all rows
MOST_INT = 2**31 - 1
MOST_ELEMENTS = 2**23  # of a matrix
MOST_BLOCKS, FEW_BLOCKS = 4096, 132  # of a launch; where they hand over data, which takes memory for each pair
WORK_PER_S, LONG = 5e7, 2**20  # before any was measured; work of a launch that tells it
TRIES = 3  # of one choice
FAR = 60  # largest exponent of C, where a scalar is very small
DENSE, NUMBERED = 2048, 300  # steps of the domain, and blocks, to find the words of a condition
CPU_S, QUICK_S = 3.0, 0.2
Rows = dict[str, Values]


class Search:
    """Launches of one kernel of a subject, a row each, with one of its blocks and threads. work: of each, elements of C
    times terms; infinite where a matrix is too large.
    """

    def __init__(self, subject: Any, key: str, coverage: Coverage, rng: np.random.Generator) -> None:
        self.subject, self.key, self.coverage, self.domain, self.rng = subject, key, coverage, subject.domain, rng
        self.threads = (*coverage.block, 1)[:2]
        self.steps = {name: getattr(self.domain, name.lower()) for name in SIZES}
        if self.domain.square:
            self.steps = dict.fromkeys(SIZES, int(np.lcm.reduce([*self.steps.values()])))
        self.hands_over = any(i.row.fence or i.row.memory == "atom" for i in coverage.kernel.instructions)
        _, self.places, count = coverage.judge
        self.rows, self.work, self.notes = Rows(), np.zeros(0), np.zeros((count, 0), bool)
        self.best = np.full((2, count), -1)  # by note, its cheapest row, and the cheapest of the last draws
        self.tried = Counter[Choice]()

    def explore(self, deadline: float) -> None:
        """Draw rows, and vary those that meet some condition at the least price."""
        for _ in range(GENERATIONS if self.places else 0):
            if time.process_time() > deadline:
                break
            rows = self._drawn()
            if len(self.work):
                parents = self.rng.choice(np.unique(self.best[self.best >= 0]), DRAWN)
                for name in NAMES:
                    rows[name] = np.where(self.rng.random(DRAWN) < VARIED, rows[name], self.rows[name][parents])
            self._add(self._completed(rows))

    def _drawn(self) -> Rows:
        rng, domain, rows = self.rng, self.domain, Rows()
        numbers = np.array([1, *(number for number in self.coverage.constants if number < 2**30)])
        near = iter(rng.choice(numbers, (len(NAMES), DRAWN)))
        for name, step in self.steps.items():
            most = max(LARGEST // step, MOST_STEPS)
            any_size = np.exp(rng.uniform(0, np.log(most + 1), DRAWN)).astype(np.int64) * step
            whole = np.minimum(2 ** rng.integers(0, 10, DRAWN) * rng.integers(1, 13, DRAWN), most * step)
            close = next(near).astype(np.int64) * rng.choice((1, 1, 2, 3), DRAWN) + rng.integers(-1, 3, DRAWN)
            rows[name] = np.choose(rng.integers(0, 3, DRAWN), (any_size, whole, close))
        for name in SCALARS:
            divided = 1 / rng.choice(numbers[numbers >= 1], DRAWN)
            times = np.where(rng.random(DRAWN) < 0.3, divided, rng.choice((1, 1, 1, 2, 0.5), DRAWN))
            close = (next(near) * times * rng.choice((1, -1), DRAWN)).astype(np.float32)
            close = np.nextafter(close, close * rng.choice((0, 1, 1, 2), DRAWN).astype(np.float32))
            values = close, rng.choice(SPECIAL, DRAWN), rng.choice(USUAL, DRAWN), rng.choice(USUAL, DRAWN)
            rows[name] = np.choose(rng.integers(0, 4, DRAWN), values).astype(np.float32)
        for place, name in enumerate(MATRICES):
            step = domain.bytes_of[place]
            shift = rng.integers(0, 256 // step, DRAWN) * step * (rng.random(DRAWN) < 0.5)
            rows[name] = FIRST_ADDRESS + SPACING * place + shift
        for name in (*BLOCKS, *THREADS):  # to be taken modulo how many there are
            values = np.zeros(DRAWN), next(near), rng.integers(0, 2**20, DRAWN), rng.integers(0, 2**20, DRAWN)
            rows[name] = np.choose(rng.integers(0, 4, DRAWN), values).astype(np.int64)
        values = np.ones(DRAWN), np.ones(DRAWN), rng.integers(-1, 3, DRAWN), next(near)
        rows[UNKNOWN_FLOAT] = np.choose(rng.integers(0, 4, DRAWN), values).astype(np.float32)
        return rows

    def _completed(self, rows: Rows) -> Rows:
        """In the domain, with equal values here and there, and with what follows from others."""
        for name, other in (("M", "N"), ("N", "K"), ("K", "M"), ("beta", "alpha")):
            rows[name] = np.where(self.rng.random(DRAWN) < EQUAL, rows[other], rows[name])
        for name, usual in zip(SCALARS, (1, 0), strict=True):
            rows[name] = rows[name] if getattr(self.domain, name) else np.full(DRAWN, usual, np.float32)
        few = self.rng.integers(0, DRAWN if self.subject.kernel.choose is None else FEW, DRAWN)
        sizes = {name: rows["M" if self.domain.square else name][few] for name in SIZES}
        for name, step in self.steps.items():
            rows[name] = np.clip(-(-sizes[name] // step), 1, MOST_INT // step) * step
        for name, most in zip(THREADS, self.threads, strict=True):
            rows[name] = rows[name] % most
        rows |= self._derived(rows)
        for name in BLOCKS:
            rows[name] = rows[name] % np.maximum(rows[f"%n{name[1:]}"], 1)
        return rows

    def _derived(self, rows: Mapping[str, Values]) -> Rows:
        """What follows from other values."""
        grid = self.subject.grids(self.key, *(rows[name] for name in SIZES))
        thread = rows["%tid.x"] + rows["%tid.y"] * self.threads[0]
        out = {"%nctaid.x": grid[0], "%nctaid.y": grid[1], "%laneid": thread % 32, "%warpid": thread // 32}
        return out | {UNKNOWN: rows[UNKNOWN_FLOAT].astype(np.int64), WAITED: np.ones_like(thread)}

    def _add(self, rows: Rows) -> None:
        launched = rows["%nctaid.x"] * rows["%nctaid.y"] > 0
        if not launched.any():
            return
        rows = {name: values[launched] for name, values in rows.items()}
        m, n, k = (rows[name].astype(np.float64) for name in SIZES)  # whose products don't overflow
        shifted = np.sum([rows[name] % 256 > 0 for name in MATRICES], axis=0)
        work = np.maximum(m, 32) * np.maximum(n, 32) * (k + 16.0) * (1 + shifted)  # few are easier to read
        many = rows["%nctaid.x"] * rows["%nctaid.y"] > (FEW_BLOCKS if self.hands_over else MOST_BLOCKS)
        work[many | (np.maximum(np.maximum(m * k, k * n), m * n) > MOST_ELEMENTS)] = np.inf
        notes, start, order = self.coverage.notes(rows), len(self.work), np.argsort(work, kind="stable")
        self.notes, self.work = np.concatenate([self.notes, notes], axis=1), np.concatenate([self.work, work])
        self.rows = {name: np.concatenate([self.rows.get(name, more[:0]), more]) for name, more in rows.items()}
        made = np.flatnonzero(notes.any(axis=1))
        cheapest = start + order[notes[made][:, order].argmax(axis=1)]
        self.best[1, made] = cheapest
        better = (self.best[0, made] < 0) | (self.work[cheapest] < self.work[self.best[0, made]])
        self.best[0, made[better]] = cheapest[better]

    def tells(self, rows: Mapping[str, Values]) -> tuple[Values, Values]:
        """Whether launches show that a scalar is wrong, and that an operand is shortened: see problem()."""
        other = [~np.isin(rows[name], (0, 1)) | (not getattr(self.domain, name)) for name in SCALARS]
        return other[0] & other[1], _few_bits(rows) & (rows["alpha"] != 0)

    def keep_vectors(self) -> None:
        """Launch no row in which a matrix is not at a multiple of 16 bytes."""
        odd = np.any([self.rows[name] % 16 > 0 for name in MATRICES], axis=0)
        self.work[odd] = np.inf

    def next(self, most: float) -> int | None:
        """The row of the cheapest launch for its number of choices that no launch had, or only launches that don't show
        each mistake. None where there is none. most: its work.
        """
        if not len(self.work):
            return None
        tells, gain = self.tells(self.rows), np.zeros(len(self.work))
        for choice, place in self.places.items():
            if self.tried[choice] < TRIES:
                new = np.full(len(gain), self.coverage.lacks(choice))
                for kind in range(len(tells)):
                    new |= tells[kind] & self.coverage.lacks(choice, kind)
                gain += self.notes[place] & new
        price = np.where((gain > 0) & (self.work <= most), self.work / np.maximum(gain, 1), np.inf)
        row = int(np.argmin(price))
        if not np.isfinite(price[row]):
            return None
        self.tried.update(choice for choice, place in self.places.items() if self.notes[place, row])
        return row

    def problem(self, row: int, claimed: str) -> tuple[ExactProblem, dict[str, int], str]:
        """The launch of a row: a problem, by how many words its matrices are shifted, and both in words. Where a scalar
        has many bits, each element is one product of ones, so that its result is rounded once, and C is about as large.
        """
        of, rng = {name: values[row] for name, values in self.rows.items()}, self.rng
        shape, alpha, beta = Shape(*(int(of[name]) for name in SIZES)), float(of["alpha"]), float(of["beta"])
        family = "E1" if exact.families(claimed) == ("E1",) else "E2 and E3"
        a, b = exact.family(family, shape, rng, claimed, exact.HEADROOM)
        old = (2 * rng.integers(-(2**15), 2**15, (shape.m, shape.n))).astype(np.float32)
        if not _few_bits(of):
            a, b, old = np.zeros_like(a), np.sign(b), np.sign(old)
            if alpha and beta:
                old *= np.float32(2.0 ** np.clip(np.round(np.log2(abs(alpha / beta))), -FAR, FAR))
            a[np.arange(shape.m), rng.integers(0, shape.k, shape.m)] = 1
            family = "single terms"
        before = old if beta else None
        words = f"at {shape.m} x {shape.n} x {shape.k} with alpha = {alpha:.9g}, beta = {beta:.9g}"
        shifts = {name: int(of[name] % 256) // 4 for name in MATRICES}
        words += "".join(f", {name} {4 * n} bytes behind a 256-byte boundary" for name, n in shifts.items() if n)
        return ExactProblem(family, a, b, alpha=alpha, beta=beta, before=before), shifts, words

    def words(self, choice: Choice, row: int) -> str:
        """When a choice is made as at a row, if that depends on values that are known before a launch."""

        def truth(rows: Mapping[str, Values]) -> Values:
            noted: Values = self.coverage.notes({**rows, **self._derived(rows)})[self.places[choice]]
            return noted

        of = {name: self.rows[name][row : row + 1] for name in NAMES}
        for name in (*BLOCKS, *THREADS):  # each launch has the first of them
            first = {**of, name: np.zeros_like(of[name])}
            of = first if truth(first).all() else of
        dense = {name: range(step, step * DENSE, step) for name, step in self.steps.items()}
        tried = {name: np.append(self.rows[name], dense.get(name, ())) for name in (*SIZES, *SCALARS, *MATRICES)}
        tried |= {name: np.arange(NUMBERED) for name in BLOCKS if of[name]}
        return condition(truth, {name: values[0] for name, values in of.items()}, tried, self.rng)


def _few_bits(rows: Mapping[str, Any]) -> Any:
    """Whether alpha and beta, multiplied with the numbers of an exact problem, round nothing."""
    alpha, beta = ((np.abs(rows[name]) < 8) & (rows[name] * 4 % 1 == 0) for name in SCALARS)
    return alpha & beta


def check_rare_paths(subject: Any, memory: Memory, *, quick: bool) -> tuple[Stage, tuple[NeverRan, ...]]:
    """Search launches for what has not run on the emulator, and check their results as those on edge shapes. Returns
    also what did not run. subject: a worklog.kernel.device.Loaded. quick: take less time. Raises LaunchFailed.
    """
    device, launches, per_s = memory.device, 0, WORK_PER_S
    assert isinstance(device, EmulatedDevice)
    own = [(key, of) for (key, _), of in device.coverage.items() if key in subject.programs]
    searches = [Search(subject, key, coverage, memory.rng) for key, coverage in own]
    until = time.process_time() + (limit_s := QUICK_S if quick else CPU_S)
    for number, search in enumerate(searches):
        started = time.process_time()
        deadline = started + (until - started) / (len(searches) - number)
        search.explore(started + (deadline - started) / 3)
        while (row := search.next((deadline - time.process_time()) * per_s)) is not None:
            problem, shifts, words = search.problem(row, subject.claimed)
            launches, started = launches + 1, time.process_time()
            device.deadline = deadline + limit_s / 2
            for other in searches:
                other.coverage.latest[:] = 0
            try:
                mistake = mistake_in(subject, memory, problem, shifts)
            except TooLarge:
                break
            except LaunchFailed as error:
                if error.kinds != {"misaligned"} or all(words % 4 == 0 for words in shifts.values()):
                    raise
                search.keep_vectors()  # it takes whole ones, which the stage before says
                continue
            finally:
                device.deadline = math.inf
            if mistake is not None:
                where = mistake if isinstance(mistake, ErrorMap) else None
                return failed(RARE_PATHS, f"{words}: {mistake}", where.wrong if where else 1, where), ()
            for kind, tells in enumerate(search.tells(search.rows)):
                for other in searches if tells[row] else ():
                    other.coverage.told[kind] |= other.coverage.latest
            if search.work[row] > LONG:
                per_s = min(per_s, float(search.work[row]) / (time.process_time() - started + 1e-3))
    choices = sum(len(search.coverage.deciding) for search in searches)
    said = f"{choices} branches and selections, {launches or 'no more'} launches" if choices else "it has no branches"
    return passed(RARE_PATHS, said), _never_ran(searches, until + limit_s / 2)


def _never_ran(searches: list[Search], until: float) -> tuple[NeverRan, ...]:
    """What no launch has run, a clause for each line; with conditions while there is time. Of kernels among which the
    shape chooses, only lines that none of them ran: most choices of one are those of another.
    """
    ran, when = set[int]().union(*(search.coverage.lines for search in searches)), dict[int, str]()
    for search in searches:
        coverage, alone = search.coverage, search.subject.kernel.choose is None
        for choice, place in search.places.items():
            i, rows = coverage.kernel.instructions[choice[0]], np.flatnonzero(search.notes[place])
            # A limit or a joined condition that was tried in vain is behind one that depends on loaded values. Where
            # blocks hand over data, those of most rows are too many.
            sure = choice[0] in coverage.deciding or not (search.tried[choice] or search.hands_over)
            if sure and coverage.ran[i.pc] and coverage.lacks(choice):
                behind = coverage.behind(choice)
                whole = behind or coverage.divides(choice)
                own = {i.line} if len(rows) and alone and not whole else set[int]()
                lines = ((behind - ran) | own) - when.keys() - {0}
                known = lines and len(rows) and not search.tried[choice]  # if tried, it depends on loaded values
                words = search.words(choice, int(rows[0])) if known and time.process_time() < until else ""
                when |= dict.fromkeys(lines, words)
    runs = groupby(enumerate(sorted(when)), key=lambda pair: (pair[1] - pair[0], when[pair[1]], pair[1] in ran))
    parts = ([line for _, line in run] for _, run in runs)
    return tuple(NeverRan(part[0], part[-1], when[part[0]], part[0] in ran) for part in parts)
