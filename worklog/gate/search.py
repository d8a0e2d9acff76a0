"""Searches launches that take the paths of a kernel that no launch of the other stages took, and names what it did not
reach.

What a launch chooses is computed before it runs (worklog.emulator.conditions), so that the search is among many
thousands of launches: shapes, scalars, alignments, blocks and threads are drawn, near the numbers in the code, too.
Those with which a condition was met, or a part of one, are varied; the cheapest launch that takes a new path is run,
and its result checked.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any

import numpy as np

from worklog.emulator import FIRST_ADDRESS, SPACING, EmulatedDevice
from worklog.emulator.conditions import UNKNOWN, Choice
from worklog.emulator.coverage import Coverage
from worklog.errors import LaunchFailed
from worklog.gate import exact
from worklog.gate.exact import ExactProblem
from worklog.gate.guarded_buffer import Memory
from worklog.gate.mistake import mistake_in
from worklog.gate.verdict import failed, passed
from worklog.gate.words import Values, condition
from worklog.problem import Shape
from worklog.runs.verdict import ErrorMap, NeverRan, Stage

RARE_PATHS = "rare paths"
SIZES, SCALARS, MATRICES = ("M", "N", "K"), ("alpha", "beta"), ("A", "B", "C")
BLOCKS, THREADS = ("%ctaid.x", "%ctaid.y"), ("%tid.x", "%tid.y")
NAMES = (*SIZES, *SCALARS, *MATRICES, *BLOCKS, *THREADS, UNKNOWN)  # of what is drawn
DRAWN, GENERATIONS = 1024, 16
FEW = 32  # shapes of them, where the kernel chooses what it launches by the shape, which takes long
DENSE = 2048  # steps of the domain
LARGEST, MOST_STEPS = 4096, 64  # of a size that isn't near a number of the code; or so many steps of the domain
USUAL = 2.0, -1.0, 0.5, -2.0, 3.0  # scalars, where they don't matter for a path
SPECIAL = 0.0, 1.0, -1.0
PARENTS = 3  # rows that meet a condition and are varied
VARIED, EQUAL = 0.2, 0.1  # parts of the values of a row, and of all rows
MOST_ELEMENTS = 2**22  # of a matrix
WORK_PER_S = 1e8  # before any was measured
TRIES = 3  # of one choice
CPU_S, QUICK_S = 2.0, 0.2
Rows = dict[str, Values]


class Search:
    """Launches of one kernel of a subject, a row each, with one of its blocks and threads."""

    def __init__(self, subject: Any, key: str, coverage: Coverage, rng: np.random.Generator) -> None:
        self.subject, self.key, self.coverage, self.rng = subject, key, coverage, rng
        self.conditions, self.domain = coverage.conditions, subject.domain
        self.threads = (*coverage.block, 1)[:2]
        self.steps = {name: getattr(self.domain, name.lower()) for name in SIZES}
        if self.domain.square:
            self.steps = dict.fromkeys(SIZES, int(np.lcm.reduce([*self.steps.values()])))
        self.rows, self.notes = Rows(work=np.zeros(0)), np.zeros((len(self.conditions.places), 0), bool)
        self.tried = dict[Choice, int]()

    def explore(self, deadline: float) -> None:
        """Draw rows, and vary those that meet some condition at the least price."""
        for _ in range(GENERATIONS):
            if not self.conditions.deciding or time.process_time() > deadline:
                break
            rows = self._drawn()
            if self.notes.size:
                parents = self._parents()
                for name in NAMES:
                    kept = self.rng.random(DRAWN) > VARIED
                    rows[name] = np.where(kept, self.rows[name][parents], rows[name])
            self._add(self._completed(rows))

    def _parents(self) -> Values:
        order = np.argsort(self.work, kind="stable")
        notes = self.notes[:, order]
        best = [order[np.flatnonzero(note)[:PARENTS]] for note in notes]
        return self.rng.choice(np.unique(np.concatenate(best)), DRAWN)

    def _drawn(self) -> Rows:
        rng, domain = self.rng, self.domain
        numbers = np.array([1, *(number for number in self.conditions.constants if number < 2**30)])

        def near() -> Values:
            return rng.choice(numbers, DRAWN)

        rows = Rows()
        for name in SIZES:
            step = self.steps[name]
            most = max(LARGEST // step, MOST_STEPS)
            any_size = np.exp(rng.uniform(0, np.log(most + 1), DRAWN)).astype(np.int64) * step
            whole = np.minimum(2 ** rng.integers(0, 10, DRAWN) * rng.integers(1, 13, DRAWN), most * step)
            close = near().astype(np.int64) * rng.choice((1, 1, 2, 3), DRAWN) + rng.integers(-1, 3, DRAWN)
            rows[name] = np.choose(rng.integers(0, 3, DRAWN), (any_size, whole, close))
        for name, usual in zip(SCALARS, (1.0, 0.0), strict=True):
            close = (near() * rng.choice((1, 1, 1, 2, 0.5), DRAWN) * rng.choice((1, -1), DRAWN)).astype(np.float32)
            close = np.nextafter(close, close * rng.choice((0, 1, 1, 2), DRAWN).astype(np.float32))
            kinds = close, rng.choice(SPECIAL, DRAWN), rng.choice(USUAL, DRAWN), rng.choice(USUAL, DRAWN)
            values = np.choose(rng.integers(0, 4, DRAWN), kinds)
            rows[name] = (values if getattr(domain, name) else np.full(DRAWN, usual)).astype(np.float32)
        for place, name in enumerate(MATRICES):
            step = domain.bytes_of[place]
            shifted = rng.integers(0, 256 // step, DRAWN) * step * (rng.random(DRAWN) < 0.5)
            rows[name] = FIRST_ADDRESS + SPACING * place + shifted
        for name in (*BLOCKS, *THREADS):  # to be taken modulo how many there are
            kinds = np.zeros(DRAWN), near(), rng.integers(0, 2**20, DRAWN), rng.integers(0, 2**20, DRAWN)
            rows[name] = np.choose(rng.integers(0, 4, DRAWN), kinds).astype(np.int64)
        kinds = np.ones(DRAWN), np.ones(DRAWN), rng.integers(-1, 3, DRAWN), near()
        rows[UNKNOWN] = np.choose(rng.integers(0, 4, DRAWN), kinds).astype(np.int64)
        return rows

    def _completed(self, rows: Rows) -> Rows:
        """In the domain, with equal values here and there, and with what follows from others."""
        for name, other in zip(SIZES, (*SIZES[1:], *SIZES[:1]), strict=True):
            rows[name] = np.where(self.rng.random(DRAWN) < EQUAL, rows[other], rows[name])
        if self.domain.alpha and self.domain.beta:
            rows["beta"] = np.where(self.rng.random(DRAWN) < EQUAL, rows["alpha"], rows["beta"])
        if self.domain.square:
            rows |= {"N": rows["M"], "K": rows["M"]}
        for name, step in self.steps.items():
            rows[name] = np.maximum(1, -(-rows[name] // step)) * step
        if self.subject.kernel.choose is not None:
            few = self.rng.integers(0, FEW, DRAWN)
            rows |= {name: rows[name][few] for name in SIZES}
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
        return {"%nctaid.x": grid[0], "%nctaid.y": grid[1], "%laneid": thread % 32, "%warpid": thread // 32}

    def _add(self, rows: Rows) -> None:
        launched = rows["%nctaid.x"] * rows["%nctaid.y"] > 0
        rows = {name: values[launched] for name, values in rows.items()}
        m, n, k = (rows[name] for name in SIZES)
        shifted = np.sum([rows[name] % 256 > 0 for name in MATRICES], axis=0)
        rows["work"] = np.maximum(m, 32) * np.maximum(n, 32) * (k + 16.0) * (1 + shifted)  # few are easier to read
        rows["work"][np.maximum(np.maximum(m * k, k * n), m * n) > MOST_ELEMENTS] = np.inf
        notes = self.conditions.of(rows)
        self.notes = np.concatenate([self.notes, notes], axis=1) if self.notes.size else notes
        self.rows = {name: np.concatenate([self.rows.get(name, more[:0]), more]) for name, more in rows.items()}

    @property
    def work(self) -> Values:
        """Of the launch of each row, elements of C times terms; infinite where a matrix is too large."""
        return self.rows["work"]

    def next(self, most: float) -> int | None:
        """The row of the cheapest launch for its number of choices that no launch had, or only launches that don't show
        a wrong scalar. None where there is none. most: its work.
        """
        if not self.notes.size:
            return None
        alpha, beta = (self.rows[name] for name in SCALARS)
        telling = ((alpha != 1) | (not self.domain.alpha)) & (alpha != 0) & ((beta != 0) | (not self.domain.beta))
        gain = np.zeros(len(self.work))
        for choice, place in self.conditions.places.items():
            if self.tried.get(choice, 0) < TRIES and self.coverage.lacks(choice, told=True):
                gain += self.notes[place] & (telling | self.coverage.lacks(choice))
        price = np.where((gain > 0) & (self.work <= most), self.work / np.maximum(gain, 1), np.inf)
        row = int(np.argmin(price))
        if not np.isfinite(price[row]):
            return None
        for choice, place in self.conditions.places.items():
            if self.notes[place, row]:
                self.tried[choice] = self.tried.get(choice, 0) + 1
        return row

    def problem(self, row: int, claimed: str) -> tuple[ExactProblem, dict[str, int]]:
        """The launch of a row: a problem, and by how many words its matrices are shifted. Where a scalar has many bits,
        each element is one product of ones, so that its result is rounded once.
        """
        of, rng = {name: values[row] for name, values in self.rows.items()}, self.rng
        shape, alpha, beta = Shape(*(int(of[name]) for name in SIZES)), float(of["alpha"]), float(of["beta"])
        shifts = {name: int(of[name] % 256) // 4 for name in MATRICES}
        few = all(abs(x) < 8 and x * 4 == int(x * 4) for x in (alpha, beta))
        a, b = exact.family("E1", shape, rng, claimed, exact.HEADROOM)
        old = (2 * rng.integers(-(2**15), 2**15, (shape.m, shape.n))).astype(np.float32)
        if not few:
            a, b, old = np.zeros_like(a), np.sign(b), np.sign(old)
            a[np.arange(shape.m), rng.integers(0, shape.k, shape.m)] = 1
        family = "E1" if few else "single terms"
        return ExactProblem(family, a, b, alpha=alpha, beta=beta, before=old if beta else None), shifts

    def missing(self) -> Iterator[tuple[Choice, set[int], int | None]]:
        """Choices that no launch had, though some could or lines are behind them: with these lines, and a row."""
        for choice, place in self.conditions.places.items():
            if self.coverage.ran[choice[0]] and self.coverage.lacks(choice):
                lines, rows = self.coverage.behind(choice), np.flatnonzero(self.notes[place])
                if lines or len(rows):
                    yield choice, lines, int(rows[0]) if len(rows) else None

    def words(self, choice: Choice, row: int) -> str:
        """When a choice is made as at a row, if that depends on values that are known before a launch."""
        of = {name: self.rows[name][row] for name in NAMES}
        tried = {name: np.unique(self.rows[name]) for name in (*SCALARS, *MATRICES)}
        for name, step in self.steps.items():
            tried[name] = np.unique([*range(step, step * DENSE, step), *self.rows[name]])
        tried |= {name: np.arange(300) for name in BLOCKS if of[name]}  # each launch has block 0

        def truth(rows: Mapping[str, Values]) -> Values:
            noted: Values = self.conditions.of({**rows, **self._derived(rows)})[self.conditions.places[choice]]
            return noted

        return condition(truth, of, tried, self.rng)


def check_rare_paths(subject: Any, memory: Memory, *, quick: bool) -> tuple[Stage, tuple[NeverRan, ...]]:
    """Search launches for what has not run on the emulator, and check their results as those on edge shapes. Returns
    also what did not run. subject: a worklog.kernel.loaded.Loaded. quick: take less time. Raises LaunchFailed.
    """
    device, launches, per_s = memory.device, 0, WORK_PER_S
    assert isinstance(device, EmulatedDevice)
    searches = [Search(subject, key, coverage, memory.rng) for (key, _), coverage in device.coverage.items()]
    until = time.process_time() + (QUICK_S if quick else CPU_S)
    for number, search in enumerate(searches):
        deadline = _share(until, len(searches) - number)
        search.explore(_share(deadline, 3))
        while (row := search.next((deadline - time.process_time()) * per_s)) is not None:
            problem, shifts = search.problem(row, subject.claimed)
            launches, started = launches + 1, time.process_time()
            try:
                mistake = mistake_in(subject, memory, problem, shifts)
            except LaunchFailed as error:
                if error.kinds != {"misaligned"} or all(words % 4 == 0 for words in shifts.values()):
                    raise  # else it takes whole vectors, which the stage before says
                continue
            if mistake is not None:
                where = mistake if isinstance(mistake, ErrorMap) else None
                detail = f"{_launch(problem, shifts)}: {mistake}"
                return failed(RARE_PATHS, detail, where.wrong if where else 1, where), ()
            per_s = min(per_s, float(search.work[row]) / (time.process_time() - started + 1e-3))
    choices = sum(len(search.conditions.deciding) for search in searches)
    said = f"{choices} branches and selections, {launches or 'no more'} launches" if choices else "it has no branches"
    return passed(RARE_PATHS, said), _never_ran(searches, until + (QUICK_S if quick else CPU_S) / 2)


def _share(until: float, parts: int) -> float:
    """When the first of so many parts of the time is over."""
    return time.process_time() + (until - time.process_time()) / parts


def _never_ran(searches: list[Search], until: float) -> tuple[NeverRan, ...]:
    """What no launch has run, a clause for each line; with conditions while there is time. What several kernels have,
    one of them has run.
    """
    ran = set[int]().union(*(search.coverage.lines for search in searches))
    chosen = set[tuple[int, str, bool]]().union(*(search.coverage.chosen for search in searches))
    when = dict[int, str]()
    for search in searches:
        for choice, behind, row in search.missing():
            i = search.coverage.kernel.instructions[choice[0]]
            if len(searches) > 1 and (i.line, i.op, choice[1]) in chosen:
                continue
            new = (behind - ran if behind else {i.line}) - when.keys() - {0}
            if new:
                known = row is not None and time.process_time() < until
                when |= dict.fromkeys(new, search.words(choice, row) if row is not None and known else "")
    runs = groupby(enumerate(sorted(when)), key=lambda pair: (pair[1] - pair[0], when[pair[1]]))
    parts = ([line for _, line in run] for _, run in runs)
    return tuple(NeverRan(part[0], part[-1], when[part[0]]) for part in parts)


def _launch(problem: ExactProblem, shifts: Mapping[str, int]) -> str:
    shape = problem.shape
    words = f"at {shape.m} x {shape.n} x {shape.k} with alpha = {problem.alpha:.9g}, beta = {problem.beta:.9g}"
    return words + "".join(f", {name} {4 * n} bytes behind a 256-byte boundary" for name, n in shifts.items() if n)
