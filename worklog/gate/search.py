"""Searches launches that take the paths of a kernel that no launch of the other stages took, and names what it did not
reach.

Whether a launch takes a path is computed before it runs (worklog.emulator.conditions), so that the search is among many
thousands of shapes, scalars, alignments and blocks. First each of them alone is varied; values at which something
changes are then combined, and the smallest launch that reaches something new is run, and its result checked.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import astuple
from functools import cache, cached_property
from itertools import permutations, product
from typing import Any

import numpy as np

from worklog.emulator import FIRST_ADDRESS, SPACING, EmulatedDevice
from worklog.emulator.conditions import Decided, Outcome
from worklog.emulator.coverage import Coverage, ranges, telling
from worklog.errors import BadSetting, LaunchFailed
from worklog.gate import exact
from worklog.gate.exact import ExactProblem
from worklog.gate.guarded_buffer import Memory
from worklog.gate.mistake import mistake_in
from worklog.gate.verdict import failed, passed
from worklog.gate.words import Values, condition
from worklog.problem import Shape
from worklog.runs.verdict import ErrorMap, NeverRan, Stage

RARE_PATHS = "rare paths"
SIZES, MATRICES, SCALARS = ("M", "N", "K"), ("A", "B", "C"), ("alpha", "beta")
BLOCKS, THREADS = ("%ctaid.x", "%ctaid.y"), ("%tid.x", "%tid.y")
DENSE = 2048  # sizes that are tried alone, in steps of the domain
NUMBERED = 300  # blocks
ALONE = 4096  # of these rows of one sweep
COMBINED, EQUAL = 12_288, 0.1  # rows, and the part of them in which two sizes are equal
MOST_KEPT = 24  # values of one variable
MOST_WORK, MOST_ELEMENTS = 2**25, 2**22  # of a launch: threads times terms, and elements of a matrix
TRIES = 3  # of one outcome
LAUNCHES = 80
CPU_S, QUICK_S = 2.0, 0.3
VARIED = 2.0, -1.0, 1.0  # scalars, where they don't matter for a path
MUTE = 1e3  # times the price of a launch that doesn't show a wrong scalar
CANDIDATES = 40  # rows, until one has its block in the grid
Rows = dict[str, Values]


class Paths:
    """One kernel of a subject: the outcomes of its branches that were not seen, and launches that may have them."""

    def __init__(self, subject: Any, key: str, coverage: Coverage, rng: np.random.Generator) -> None:
        self.subject, self.key, self.coverage, self.rng = subject, key, coverage, rng
        self.conditions, self.domain = coverage.conditions, subject.domain
        self.tried, self.decided = dict[Outcome, int](), dict[Outcome, Values]()
        self.rows, self.kept = Rows(), Rows()
        self.grid = cache(self._grid)
        threads = (*coverage.block, 1)[:2]
        self.values = {name: self._values(name, threads) for name in self._names}

    @cached_property
    def _names(self) -> list[str]:
        """What is varied: inputs, but for those that follow from others."""
        inputs = {*self.conditions.inputs}
        if inputs & {"%laneid", "%warpid"}:
            inputs |= {*THREADS}
        if inputs & {"%nctaid.x", "%nctaid.y", *BLOCKS}:
            inputs |= {"M", "N"}
        return [name for name in (*SIZES, *SCALARS, *MATRICES, *BLOCKS, *THREADS, "unknown") if name in inputs]

    def _values(self, name: str, threads: tuple[int, ...]) -> Values:
        """The values that are tried alone, the usual one first."""
        numbers = [number for number in self.conditions.constants if abs(number) < 2**30]
        if name in SIZES:
            step = getattr(self.domain, name.lower())
            dense = range(step, max(64 * step, DENSE) + 1, step)
            return np.array([*dense, *(size for size in self.near(name) if size not in dense)][:ALONE], np.int64)
        if name in SCALARS:
            floats = [np.float32(x) for number in numbers for x in (number, -number, 2 * number, number + 1)]
            near = {float(np.nextafter(x, np.float32(to))) for x in floats for to in (-np.inf, np.inf)}
            taken = getattr(self.domain, name)
            usual = [1.0 if name == "alpha" else 0.0]
            return np.array(
                [*usual, *((0.0, 1.0, -1.0, 2.0, 0.5, *map(float, floats), *sorted(near)) if taken else ())], np.float32
            )
        if name in MATRICES:
            return FIRST_ADDRESS + SPACING * MATRICES.index(name) + 4 * np.arange(64, dtype=np.int64)
        if name in BLOCKS:
            large = [int(number) + d for number in numbers for d in (-1, 0, 1) if NUMBERED <= number < 2**20]
            return np.array([*range(NUMBERED), *large], np.int64)
        if name in THREADS:
            return np.arange(threads[THREADS.index(name)], dtype=np.int64)
        return np.array([0, 1, 2, -1], np.int64)

    def near(self, name: str) -> list[int]:
        """Sizes near the constants of the code, in the domain."""
        step = getattr(self.domain, name.lower())
        numbers = [int(number) for number in self.conditions.constants if 1 < number < 2**30]
        return sorted({-(-(number + d) // step) * step for number in numbers for d in (-1, 0, 1, 2)})

    def bases(self) -> Iterator[dict[str, Any]]:
        """Assignments around which each value is varied alone: small ones, and one of values that were kept."""
        usual = {name: values[0] for name, values in self.values.items()}
        for sizes, scalars in (((1, 1, 1), (1, 0)), ((50, 35, 41), (2, 1))):
            shape = self.domain.padded(Shape(*sizes))
            given = {"M": shape.m, "N": shape.n, "K": shape.k, "alpha": scalars[0], "beta": scalars[1]}
            yield usual | {name: value for name, value in given.items() if name in usual}
        yield {name: self.rng.choice(values) for name, values in self.kept.items()}

    def completed(self, rows: Rows) -> Rows:
        """The rows with what follows from other values."""
        if self.domain.square and rows.keys() & {*SIZES}:
            size = rows[next(name for name in SIZES if name in rows)]
            rows |= {name: size for name in SIZES if name in rows}
        inputs = {*self.conditions.inputs}
        if inputs & {"%laneid", "%warpid"}:
            thread = rows["%tid.x"] + rows["%tid.y"] * self.coverage.block[0] if "%tid.y" in rows else rows["%tid.x"]
            rows |= {"%laneid": thread % 32, "%warpid": thread // 32}
        if inputs & {"%nctaid.x", "%nctaid.y"}:
            shapes = np.stack(
                [rows.get(name, np.full(len(rows["M"]), getattr(self.domain, name.lower()))) for name in SIZES]
            )
            distinct, which = np.unique(shapes, axis=1, return_inverse=True)
            grids = np.array([self.grid(*map(int, column)) or (0, 0, 0) for column in distinct.T])[which.reshape(-1)]
            rows |= {"%nctaid.x": grids[:, 0], "%nctaid.y": grids[:, 1]}
        return rows | {"unknown float": rows["unknown"].astype(np.float32)} if "unknown" in rows else rows

    def _grid(self, m: int, n: int, k: int) -> tuple[int, int, int] | None:
        """Blocks of this kernel at a shape; None where it is not launched."""
        try:
            grid = self.subject.grids(Shape(m, n, k)).get(self.key)
        except (BadSetting, LaunchFailed):
            return None
        return (*grid, 1, 1)[:3] if grid else None

    def explore(self) -> None:
        """Each value alone, then those at which something changes, combined at random."""
        for base in self.bases():
            for name, values in self.values.items():
                rows = {other: np.full(len(values), value, self.values[other].dtype) for other, value in base.items()}
                patterns = np.packbits(self.judge(self.completed(rows | {name: values})).all, axis=0).T.copy()
                patterns = patterns.view([("", patterns.dtype, patterns.shape[1])]).reshape(-1)
                _, first = np.unique(patterns, return_index=True)
                kept = [*self.kept.get(name, ()), *values[np.sort(first)[:MOST_KEPT]]]
                if name in SIZES:
                    kept += [size for size in self.near(name) if size <= DENSE][:MOST_KEPT]
                self.kept[name] = np.array([*dict.fromkeys(kept)], values.dtype)
        drawn = {name: self.rng.choice(values, COMBINED) for name, values in self.kept.items()}
        for name, other in permutations([name for name in SIZES if name in drawn], 2):
            equal = (self.rng.random(COMBINED) < EQUAL) & (drawn[other] % getattr(self.domain, name.lower()) == 0)
            drawn[name] = np.where(equal, drawn[other], drawn[name])
        if drawn.keys() >= {*SCALARS}:
            drawn["beta"] = np.where(self.rng.random(COMBINED) < EQUAL, drawn["alpha"], drawn["beta"])
        self.judge(self.completed(drawn))

    def see(self, rows: list[int]) -> None:
        """Mark what launches of these rows decided, where no branch tells it."""
        self.mark({o: where[rows] for o, where in self.decided.items()}, self.telling[rows])

    def mark(self, decided: Mapping[Outcome, Values], telling: Values) -> None:
        """Outcomes of selects by launch, and which launches are telling."""
        for o, where in decided.items():
            if self.conditions.deciding[o[0]].parts[0] != "bra" and where.any():
                self.coverage.seen.add(o)
                self.coverage.told |= {o} if where[telling].any() else set()

    def see_launched(self) -> None:
        """Mark the outcomes of selects that launches had, which only the conditions tell."""
        calls = list({(grid, tuple(given.items())) for grid, given in self.coverage.calls})
        count = max(1, COMBINED // len(calls))
        rows: dict[str, list[Any]] = {name: [] for name in self.values}
        for grid, given in calls:
            for name in rows:
                if name in BLOCKS:
                    most = grid[BLOCKS.index(name)]
                    known = [*self.kept[name][self.kept[name] < most], most - 1]
                    rows[name].append(self.rng.choice(known, count))
                elif name in THREADS or name == "unknown":
                    rows[name].append(self.rng.choice(self.kept[name], count))
                else:
                    value = dict(given).get(name, dict(given).get(f"long {name}", self.values[name][0]))
                    value = self.values[name][0] + value if name in MATRICES else value
                    rows[name].append(np.full(count, value, self.values[name].dtype))
        told = np.concatenate([np.full(count, telling(dict(given))) for _, given in calls])
        decided = self.conditions.of(self.completed({name: np.concatenate(parts) for name, parts in rows.items()}))
        self.mark(decided.outcomes, told)

    def judge(self, rows: Rows) -> Decided:
        """Add rows."""
        decided = self.conditions.of(rows)
        self.rows = {
            name: np.concatenate([self.rows[name], more]) if self.rows else more for name, more in rows.items()
        }
        for o, where in decided.outcomes.items():
            self.decided[o] = np.concatenate([self.decided[o], where]) if o in self.decided else where
        return decided

    def missing(self) -> list[Outcome]:
        """Outcomes that no launch had which shows a wrong scalar, too, and some row has."""
        return [o for o, where in self.decided.items() if o not in self.coverage.told and where.any()]

    @property
    def telling(self) -> Values:
        """Whether a launch of a row shows that alpha or beta is wrong."""
        rows = np.ones(len(self.work), np.bool_)
        for name in SCALARS:
            if name in self.rows and getattr(self.domain, name):
                rows &= ~np.isin(self.rows[name], (0, 1) if name == "alpha" else (0,))
        return rows

    @property
    def work(self) -> Values:
        """Of a launch for each row; infinite for those that are too large."""
        m, n, k = (self.rows.get(name, np.array(getattr(self.domain, name.lower()))) for name in SIZES)
        work = np.asarray(np.maximum(m, 32) * np.maximum(n, 32) * (k + 16.0))
        fits = (work <= MOST_WORK) & (np.maximum(np.maximum(m * k, k * n), m * n) <= MOST_ELEMENTS)
        return np.broadcast_to(np.where(fits, work, np.inf), len(next(iter(self.rows.values()))))

    def next(self) -> list[int]:
        """The row of the cheapest launch for its number of outcomes that no launch had, and the same with other
        scalars, if it has these outcomes too. Empty where there is none.
        """
        wanted = [o for o in self.missing() if self.tried.get(o, 0) < TRIES]
        if not wanted:
            return []
        gain = np.sum([self.decided[o] for o in wanted], axis=0)
        price = np.where(gain > 0, self.work / np.maximum(gain, 1), np.inf) * np.where(self.telling, 1, MUTE)
        for row in map(int, np.argsort(price, kind="stable")[:CANDIDATES]):
            if not np.isfinite(price[row]):
                break
            if self.in_grid(row):
                reached = [o for o in wanted if self.decided[o][row]]
                self.tried |= {o: self.tried.get(o, 0) + 1 for o in reached}
                return [row, *self.varied(row, reached)]
        for o in wanted:  # its blocks are beyond the grids of these shapes
            self.tried[o] = TRIES
            start = len(self.work)
            self.enlarge(int(np.flatnonzero(self.decided[o])[0]))
            fits = np.flatnonzero(self.decided[o][start:] & np.isfinite(self.work[start:])) + start
            for row in sorted(map(int, fits), key=lambda row: self.work[row])[:CANDIDATES]:
                if self.in_grid(row):
                    return [row, *self.varied(row, [o])]
        return []

    def varied(self, row: int, reached: list[Outcome]) -> list[int]:
        """The number of a new row that has other scalars and these outcomes."""
        start, one = len(self.work), {name: values[row] for name, values in self.rows.items()}
        scalars = [name for name in SCALARS if name in one and getattr(self.domain, name)]
        choices = list(product(*([*VARIED, one[name]] for name in scalars)))
        rows = {name: np.full(len(choices), value) for name, value in one.items()}
        rows |= {
            name: np.array(column, np.float32) for name, column in zip(scalars, zip(*choices, strict=True), strict=True)
        }
        self.judge(self.completed(rows))
        same = np.logical_and.reduce([self.decided[o][start:] for o in reached])[:-1]
        return [start + int(np.argmax(same))] if same.any() else []

    def shape(self, row: int) -> Shape:
        """Of a row."""
        m, n, k = (
            int(self.rows[name][row]) if name in self.rows else getattr(self.domain, name.lower()) for name in SIZES
        )
        return Shape(m, n, k)

    def in_grid(self, row: int) -> bool:
        """Whether a launch has the row's block."""
        shape = self.shape(row)
        grid = self.grid(shape.m, shape.n, shape.k)
        return grid is not None and all(
            name not in self.rows or self.rows[name][row] < most for name, most in zip(BLOCKS, grid, strict=False)
        )

    def enlarge(self, row: int) -> None:
        """Add rows with more rows and columns of C, so that there is a block like this row's."""
        one = {name: values[row] for name, values in self.rows.items()}
        m, n, k = astuple(self.shape(row))
        factors = [1 << power for power in range(12)]
        for f, g in (
            (f, g)
            for total in range(14)
            for f, g in product(range(total + 1), repeat=2)
            if f + g == total and max(f, g) < 12
        ):
            grid = self.grid(m * factors[f], n * factors[g], k)
            if grid is not None and all(one.get(name, 0) < most for name, most in zip(BLOCKS, grid, strict=False)):
                m, n = m * factors[f], n * factors[g]
                break
        more = np.arange(8)
        rows = {name: np.full(64, value) for name, value in one.items()}
        for name, size in (("M", np.repeat(m + more * self.domain.m, 8)), ("N", np.tile(n + more * self.domain.n, 8))):
            rows |= {name: size} if name in rows else {}
        self.judge(self.completed(rows))

    def problem(self, row: int, claimed: str) -> tuple[ExactProblem, dict[str, int]]:
        """The launch of a row: a problem, and by how many words its matrices are shifted. Where a scalar has many bits,
        each element is one product of ones, so that its result is rounded once.
        """
        shape, rng, of = self.shape(row), self.rng, {name: values[row] for name, values in self.rows.items()}
        alpha, beta = (
            float(of[name] if name in of else rng.choice(VARIED) if getattr(self.domain, name) else usual)
            for name, usual in zip(SCALARS, (1.0, 0.0), strict=True)
        )
        shifts = {name: int(of[name] % 256) // 4 for name in MATRICES if name in of}
        few = all(abs(x) < 8 and x * 4 == int(x * 4) for x in (alpha, beta))
        a, b = exact.family("E1", shape, rng, claimed, exact.HEADROOM)
        old = (2 * rng.integers(-(2**15), 2**15, (shape.m, shape.n))).astype(np.float32)
        if not few:
            a, b, old = np.zeros_like(a), np.sign(b), np.sign(old)
            a[np.arange(shape.m), rng.integers(0, shape.k, shape.m)] = 1
        family = "E1" if few else "single terms"
        return ExactProblem(family, a, b, alpha=alpha, beta=beta, before=old if beta else None), shifts

    def never_ran(self, cpu_s: float) -> list[NeverRan]:
        """What no launch has run; with conditions while there is time."""
        started = time.process_time()
        out = list[NeverRan]()
        code, named = self.coverage.kernel.instructions, set[int]()
        for outcome, where in self.decided.items():
            pc = outcome[0]
            if outcome in self.coverage.seen or code[pc].line == 0 or not self.coverage.ran(pc):
                continue
            lines = self.coverage.behind(outcome) - named
            in_time = time.process_time() - started < cpu_s
            words = self.words(outcome, int(np.flatnonzero(where)[0])) if where.any() and in_time else ""
            if not lines and words:
                lines = {code[pc].line}
            named |= lines
            out += [NeverRan(first, last, words) for first, last in ranges(lines)]
        return out

    def words(self, outcome: Outcome, row: int) -> str:
        """When it occurs, if that depends on values that are known before a launch."""
        if self.conditions.is_unsure(outcome[0]):
            return ""
        one = {name: self.rows[name][row] for name in self.values}
        silent = {*THREADS, "unknown", *(name for name in BLOCKS if one.get(name) == 0)}  # each launch has block 0
        told = {name: values for name, values in self.values.items() if name not in silent}

        def truth(rows: Mapping[str, Values]) -> Values:
            return self.conditions.of(self.completed({**rows})).outcomes[outcome]

        return condition(truth, one, told, self.rng)


def check_rare_paths(subject: Any, memory: Memory, *, quick: bool) -> tuple[Stage, tuple[NeverRan, ...]]:
    """Search launches for what has not run on the emulator, and check their results as those on edge shapes. Returns
    also what did not run. subject: a worklog.kernel.loaded.Loaded. quick: take less time. Raises LaunchFailed.
    """
    device, launches, never = memory.device, 0, list[NeverRan]()
    assert isinstance(device, EmulatedDevice)
    started = time.process_time()
    for (key, _), coverage in device.coverage.items():
        paths = Paths(subject, key, coverage, memory.rng)
        if not paths.values:  # no branch depends on what a launch can choose
            continue
        paths.explore()
        paths.see_launched()
        while launches < LAUNCHES and time.process_time() - started < (QUICK_S if quick else CPU_S):
            if not (rows := paths.next()):
                break
            for row in rows:
                problem, shifts = paths.problem(row, subject.claimed)
                launches += 1
                try:
                    mistake = mistake_in(subject, memory, problem, shifts)
                except LaunchFailed as error:
                    if error.kinds != {"misaligned"} or all(words % 4 == 0 for words in shifts.values()):
                        raise  # else it takes whole vectors, which the stage before says
                    continue
                if isinstance(mistake, ErrorMap):
                    return failed(RARE_PATHS, f"{_launch(problem, shifts)}: {mistake}", mistake.wrong, mistake), ()
                if mistake is not None:
                    return failed(RARE_PATHS, f"{_launch(problem, shifts)}: {mistake}"), ()
            paths.see(rows)
            launched = {o for o in paths.decided if paths.decided[o][rows].any()}
            coverage.told |= launched & coverage.seen  # the most telling launches that it has
        never += paths.never_ran(QUICK_S if quick else CPU_S / 2)
    said = f"{launches} launches" if launches else "none: the other launches took all that could be found"
    return passed(RARE_PATHS, said), tuple(never)


def _launch(problem: ExactProblem, shifts: Mapping[str, int]) -> str:
    shape = problem.shape
    words = f"at {shape.m} x {shape.n} x {shape.k} with alpha = {problem.alpha:.9g}, beta = {problem.beta:.9g}"
    return words + "".join(f", {name} {4 * n} bytes behind a 256-byte boundary" for name, n in shifts.items() if n)
