"""Searches launches that take the paths of a kernel that no launch of the other stages took, and names what it did not
reach.

What a launch chooses is computed before it runs (worklog.emulator.coverage), so that the search is among many
thousands of launches: shapes, scalars, alignments, blocks and threads are drawn, near the numbers in the code, too.
Those with which a condition was met, or a part of one, are varied; the cheapest launch that takes a new path is run,
and its result checked.

A search ends by its effort, which is counted in instructions of the emulator's warps, and never by a clock: so a seed
repeats it on every machine, however busy that is.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np

from worklog.emulator import FIRST_ADDRESS, SPACING, TooLarge
from worklog.emulator.coverage import UNKNOWN, UNKNOWN_FLOAT, WAITED, Choice, Coverage
from worklog.errors import LaunchFailed, apart
from worklog.gate import exact, precision
from worklog.gate.edges import mistake_in
from worklog.gate.exact import ExactProblem
from worklog.gate.guarded_buffer import Memory
from worklog.gate.words import Values, condition
from worklog.kernel.emulated import EmulatedDevice
from worklog.problem import Shape
from worklog.runs import ErrorMap, NeverRan, Stage, failed, passed

RARE_PATHS = "rare paths"
SIZES = ("M", "N", "K")
SCALARS = ("alpha", "beta")
MATRICES = ("A", "B", "C")
BLOCKS = ("%ctaid.x", "%ctaid.y")
THREADS = ("%tid.x", "%tid.y")
PLACES = {name: FIRST_ADDRESS + SPACING * place for place, name in enumerate(MATRICES)}
NAMES = (*SIZES, *SCALARS, *MATRICES, *BLOCKS, *THREADS, UNKNOWN_FLOAT)  # of what is drawn
DRAWN = 1024
GENERATIONS = 16
FEW = (
    128  # shapes of them, where the kernel chooses what it launches by the shape, which takes long
)
# of a size that isn't near a number of the code; or so many steps of the domain
LARGEST = 16384
MOST_STEPS = 64
# scalars
USUAL = (2.0, -1.0, 0.5, -2.0, 3.0)
SPECIAL = (0.0, 1.0, -1.0)
# parts of the values of a row, of its sizes, and of all rows
VARIED = 0.2
SMALLER = 0.1
EQUAL = 0.1
ELSEWHERE = 0.02  # part of the drawn addresses: where no launch has a matrix
MOST_INT = 2**31 - 1
MOST_ELEMENTS = 2**23  # of a matrix
MOST_BLOCKS = 2**16  # of a launch
# Instructions of warps for one unit of work, before a launch counted them; work of a launch that tells it.
PER_WORK = 0.2
LONG = 2**24
BUDGETED = 2**21  # work up to which a launch takes no more instructions than the budget allows
TRIES = 6  # of one choice
# what a choice counts that no launch had, and one that leads to new lines; 1: one that had no
NEW = 8
LINES = 10**5
# right result which shows a mistake
# work; M and N of a tile
PER_THREAD = 24
LEAST = 32
WIDE = 9  # largest exponent of B's elements, where a choice depends on loaded values
FAR = 60  # largest exponent of C, where a scalar is very small
# steps of the domain, and blocks, to find the words of a condition
DENSE = 2048
NUMBERED = 300
# The effort of a search, in instructions of warps: some ten million take a second. The others are what Python takes for
# a generation, a shape for which a kernel is chosen, a launch, and a choice in a row, as so many instructions.
EFFORT = 4e7
QUICK_EFFORT = 2e6
GENERATION = 5e4
CHOSEN = 4e3
LAUNCHED = 3e4
WEIGHED = 0.25
Rows = dict[str, Values]


class Search:
    """Launches of one kernel of a subject, a row each, with one of its blocks and threads. work: of each, elements of C
    times terms; infinite where a matrix is too large. effort: that exploring, weighing and wording took so far.
    """

    def __init__(
        self, subject: Any, key: str, coverage: Coverage, rng: np.random.Generator
    ) -> None:
        self.subject = subject
        self.key = key
        self.coverage = coverage
        self.domain = subject.domain
        self.rng = rng
        self.threads = (*coverage.block, 1)[:2]
        self.tile = [max(LEAST, subject.kernel.template.get(name, 0)) for name in ("BM", "BN")]
        self.steps = {name: getattr(self.domain, name.lower()) for name in SIZES}
        if self.domain.square:
            self.steps = dict.fromkeys(SIZES, int(np.lcm.reduce([*self.steps.values()])))
        self.hands_over = any(
            i.row.fence or i.row.memory == "atom" for i in coverage.kernel.instructions
        )
        self.places = coverage.judge.places
        count = coverage.judge.notes
        of = coverage.kernel.file
        self.file = "" if of == subject.kernel.file else of
        self.rows = Rows()
        self.work = np.zeros(0)
        self.notes = np.zeros((count, 0), bool)
        self.best = np.full(
            (2, count), -1
        )  # by note, its cheapest row, and the cheapest of the last draws
        self.signs = [set[int]() for _ in coverage.judge.equal]  # of the gaps that were met
        lacking = [choice for choice in self.places if coverage.lacks(choice)]
        self.worth = {choice: LINES if coverage.behind(choice) else NEW for choice in lacking}
        self.tried = Counter[Choice]()
        self.hoped = list[Choice]()
        self.by_data = False
        self.effort = 0.0

    def judged(self, rows: Mapping[str, Values]) -> tuple[Values, Values]:
        """Return what Coverage.judged returns, and count its effort."""
        before = self.coverage.instructions
        noted = self.coverage.judged(rows)
        self.effort += self.coverage.instructions - before
        return noted

    def explore(self, most: float) -> None:
        """Draw rows, and vary those that meet some condition at the least price, above all one that no launch met.

        most: effort, after which it draws no more
        """
        worthiest = max(self.worth.values(), default=0)
        lacking = [
            self.places[choice] for choice, worth in self.worth.items() if worth == worthiest
        ]
        generation = 0 if self.places else GENERATIONS
        while (generation < GENERATIONS or self.hopeful()) and self.effort < most:
            generation += 1
            self.effort += GENERATION
            rows = self._drawn()
            if len(self.work):
                best = (np.unique(made[made >= 0]) for made in (self.best, self.best[:, lacking]))
                parents = np.concatenate(
                    [self.rng.choice(rows, DRAWN) for rows in best if len(rows)]
                )
                parents = self.rng.choice(parents, DRAWN)
                for name in NAMES:
                    rows[name] = np.where(
                        self.rng.random(DRAWN) < VARIED, rows[name], self.rows[name][parents]
                    )
                for name in SIZES:
                    part = np.where(self.rng.random(DRAWN) < SMALLER, self.rng.random(DRAWN), 1)
                    rows[name] = np.ceil(rows[name] * part).astype(np.int64)
            self._add(rows := self._completed(rows))
            unmet = [
                place
                for place, note in enumerate(self.coverage.judge.equal)
                if self.best[0, note] < 0
            ]
            if unmet and any(self.signs[place] - {0} for place in unmet):
                self._add(self._solved(rows, unmet))

    def _drawn(self) -> Rows:
        rng = self.rng
        domain = self.domain
        rows = Rows()
        numbers = np.array([1, *(number for number in self.coverage.constants if number < 2**30)])
        near = iter(rng.choice(numbers, (len(NAMES), DRAWN)))
        for name, step in self.steps.items():
            most = max(LARGEST // step, MOST_STEPS)
            any_size = np.exp(rng.uniform(0, np.log(most + 1), DRAWN)).astype(np.int64) * step
            whole = np.minimum(
                2 ** rng.integers(0, 10, DRAWN) * rng.integers(1, 13, DRAWN), most * step
            )
            close = next(near).astype(np.int64) * rng.choice((1, 1, 2, 3), DRAWN) + rng.integers(
                -1, 3, DRAWN
            )
            rows[name] = np.choose(rng.integers(0, 3, DRAWN), (any_size, whole, close))
        for name in SCALARS:
            divided = 1 / rng.choice(numbers[numbers >= 1], DRAWN)
            times = np.where(rng.random(DRAWN) < 0.3, divided, rng.choice((1, 1, 1, 2, 0.5), DRAWN))
            close = (next(near) * times * rng.choice((1, -1), DRAWN)).astype(np.float32)
            close = np.nextafter(close, close * rng.choice((0, 1, 1, 2), DRAWN).astype(np.float32))
            values = close, close, rng.choice(SPECIAL, DRAWN), rng.choice(USUAL, DRAWN)
            rows[name] = np.choose(rng.integers(0, 4, DRAWN), values).astype(np.float32)
        for place, name in enumerate(MATRICES):
            step = domain.bytes_of[place]
            shift = rng.integers(0, 256 // step, DRAWN) * step * (rng.random(DRAWN) < 0.5)
            far = (rng.random(DRAWN) < ELSEWHERE) * rng.integers(0, 2**38, DRAWN) * 256
            rows[name] = PLACES[name] + far + shift
        for name in (*BLOCKS, *THREADS):  # to be taken modulo how many there are
            values = (
                np.zeros(DRAWN),
                next(near),
                rng.integers(0, 2**20, DRAWN),
                rng.integers(0, 2**20, DRAWN),
            )
            rows[name] = np.choose(rng.integers(0, 4, DRAWN), values).astype(np.int64)
        values = np.ones(DRAWN), np.ones(DRAWN), rng.integers(-1, 3, DRAWN), next(near)
        rows[UNKNOWN_FLOAT] = np.choose(rng.integers(0, 4, DRAWN), values).astype(np.float32)
        return rows

    def _completed(self, rows: Rows) -> Rows:
        """With equal values here and there, in the domain, and with what follows from others."""
        for name, other in (("M", "N"), ("N", "K"), ("K", "M"), ("beta", "alpha"), ("B", "A")):
            rows[name] = np.where(self.rng.random(DRAWN) < EQUAL, rows[other], rows[name])
        for name, usual in zip(SCALARS, (1, 0), strict=True):
            rows[name] = (
                rows[name] if getattr(self.domain, name) else np.full(DRAWN, usual, np.float32)
            )
        few = self.rng.integers(0, DRAWN if self.subject.kernel.choose is None else FEW, DRAWN)
        return self._fitted({**rows, **{name: rows[name][few] for name in SIZES}})

    def _fitted(self, rows: Rows) -> Rows:
        """In the domain, and with what follows from other values."""
        sizes = {name: rows["M" if self.domain.square else name] for name in SIZES}
        for name, step in self.steps.items():
            rows[name] = np.clip(-(-sizes[name] // step), 1, MOST_INT // step) * step
        for name, most in zip(THREADS, self.threads, strict=True):
            rows[name] = rows[name] % most
        rows |= self._derived(rows)
        for name in BLOCKS:
            rows[name] = rows[name] % np.maximum(rows[f"%n{name[1:]}"], 1)
        return rows

    def _solved(self, rows: Rows, unmet: list[int]) -> Rows:
        """These rows, in each of which one value is changed so that one of these equalities holds, if its gap grows
        with that value everywhere as it does here.
        """
        steps = {**self.steps, **dict.fromkeys((*BLOCKS, *THREADS), 1)}
        which = self.rng.choice(unmet, DRAWN)
        of = self.rng.integers(0, len(steps), DRAWN)
        chosen = {name: step * (of == place) for place, (name, step) in enumerate(steps.items())}
        moved = self._fitted(rows | {name: rows[name] + step for name, step in chosen.items()})
        gap, further = (
            self.judged(given)[1][which, np.arange(DRAWN)].astype(float) for given in (rows, moved)
        )
        turns = np.round(-gap / np.where(further == gap, np.inf, further - gap)).clip(
            -MOST_INT, MOST_INT
        )
        return self._fitted(
            rows
            | {name: rows[name] + turns.astype(np.int64) * step for name, step in chosen.items()}
        )

    def _derived(self, rows: Mapping[str, Values]) -> Rows:
        """What follows from other values."""
        if self.subject.kernel.choose is not None:
            self.effort += CHOSEN * len(
                {*zip(*(rows[name].tolist() for name in SIZES), strict=True)}
            )
        grid = self.subject.grids(self.key, *(rows[name] for name in SIZES))
        thread = rows["%tid.x"] + rows["%tid.y"] * self.threads[0]
        out = {
            "%nctaid.x": grid[0],
            "%nctaid.y": grid[1],
            "%laneid": thread % 32,
            "%warpid": thread // 32,
        }
        return out | {UNKNOWN: rows[UNKNOWN_FLOAT].astype(np.int64), WAITED: np.ones_like(thread)}

    def _add(self, rows: Rows) -> None:
        launched = rows["%nctaid.x"] * rows["%nctaid.y"] > 0
        if not launched.any():
            return
        rows = {name: values[launched] for name, values in rows.items()}
        m, n, k = (rows[name].astype(np.float64) for name in SIZES)  # whose products don't overflow
        shifted = np.sum([rows[name] % 256 > 0 for name in MATRICES], axis=0)
        tall, wide = (-(-size // tile) * tile for size, tile in zip((m, n), self.tile, strict=True))
        work = tall * wide * (k + 16.0) * (1 + shifted)  # few are easier to read
        blocks = rows["%nctaid.x"] * rows["%nctaid.y"]
        work += PER_THREAD * math.prod(self.coverage.block) * blocks
        work[
            np.any([rows[name] // 256 != first // 256 for name, first in PLACES.items()], axis=0)
        ] = np.inf
        work[
            (blocks > MOST_BLOCKS) | (np.maximum(np.maximum(m * k, k * n), m * n) > MOST_ELEMENTS)
        ] = np.inf
        (notes, gaps) = self.judged(rows)
        start = len(self.work)
        order = np.argsort(work, kind="stable")
        for place, of in enumerate(gaps):
            self.signs[place] |= {*np.sign(of).tolist()}
        self.notes, self.work = (
            np.concatenate([self.notes, notes], axis=1),
            np.concatenate([self.work, work]),
        )
        self.rows = {
            name: np.concatenate([self.rows.get(name, more[:0]), more])
            for name, more in rows.items()
        }
        made = np.flatnonzero(notes.any(axis=1))
        cheapest = start + order[notes[made][:, order].argmax(axis=1)]
        self.best[1, made] = cheapest
        better = (self.best[0, made] < 0) | (self.work[cheapest] < self.work[self.best[0, made]])
        self.best[0, made[better]] = cheapest[better]

    def tells(self, rows: Mapping[str, Values]) -> Values:
        """Whether launches show that a scalar is wrong, and that A or B is shortened: see problem()."""
        other = [
            ~np.isin(np.abs(rows[name]), (0, 1)) | (not getattr(self.domain, name))
            for name in SCALARS
        ]
        return np.array(
            [other[0] & other[1], *[_few_bits(rows) & (rows["alpha"] != 0) & (rows["K"] > 1)] * 2]
        )

    def could_hold(self, choice: Choice) -> bool:
        """Whether a choice that no row made is one that others may: each comparison in it was true in some rows and
        false in others, or is an equality of which now one side was larger and now the other.
        """
        judge = self.coverage.judge
        compared = self.coverage.comparisons(choice) if choice[0] in self.coverage.deciding else ()
        for note in (judge.compared[pc] for pc in compared):
            ways = [self.best[0, note ^ fails] >= 0 for fails in (0, 1)]
            equal = [
                signs
                for signs, of in zip(self.signs, judge.equal, strict=True)
                if of in (note, note ^ 1)
            ]
            if not (all(ways) or any({-1, 1} <= signs for signs in equal)):
                return False
        return bool(compared)

    def hopeful(self) -> bool:
        """Whether no row made some choice, but others may."""
        return any(
            self.best[0, self.places[choice]] < 0 and self.could_hold(choice)
            for choice in self.worth
        )

    def keep_vectors(self) -> None:
        """Launch no row in which a matrix is not at a multiple of 16 bytes."""
        odd = np.any([self.rows[name] % 16 > 0 for name in MATRICES], axis=0)
        self.work[odd] = np.inf

    def next(self, most: float) -> tuple[float, int]:
        """The row of the cheapest launch for its number of choices that no launch had, or that no right result showed
        for each mistake, behind its price: infinite where there is none. What the search alone has launched it launches
        once more, in a drawn row, since one result may be right by chance. most: its work.
        """
        if not len(self.work):
            return math.inf, 0
        self.effort += WEIGHED * len(self.work) * len(self.places)
        cheap = self.work < LONG
        gain = np.zeros(len(self.work))
        tells = self.tells(self.rows)
        for choice, place in self.places.items():
            new = self.coverage.lacks(choice)
            lacking = self.coverage.lacking(choice)
            if any(lacking) and self.tried[choice] < (TRIES if new else 2 * TRIES):
                worth = new * self.worth.get(choice, 0) * (cheap | (self.tried[choice] == 0))
                shown = tells[lacking].sum(axis=0)
                gain += self.notes[place] * (shown + worth * (1 + shown))
            elif self.tried[choice] == 1 and choice in self.worth and not new:
                gain += self.notes[place] * cheap * self.rng.random(len(cheap))
        # A path for long or narrow matrices may be right at the least size alone, which is mostly even.
        even = np.sum(
            [self.rows[name] // step % 2 == 0 for name, step in self.steps.items()], axis=0
        )
        price = np.where(
            (gain > 0) & (self.work <= most),
            self.work * (1 + even) / np.maximum(gain, 1e-9),
            np.inf,
        )
        row = int(np.argmin(price))
        return float(price[row]), row

    def problem(self, row: int, claimed: str) -> tuple[ExactProblem, dict[str, int], str]:
        """The launch of a row: a problem, by how many words its matrices are shifted, and both in words. Where a scalar
        has many bits, each element is one product of ones, so that its result is rounded once, and C is about as large.
        If a choice that no launch had depends on loaded values, since it was tried in vain, then B has powers of two in
        place of these ones.
        """
        of = {name: values[row] for name, values in self.rows.items()}
        rng = self.rng
        made = [choice for choice, place in self.places.items() if self.notes[place, row]]
        lacking = [choice for choice in made if self.coverage.lacks(choice)]
        tells = self.tells(of)
        self.by_data |= any(not self.coverage.lacks(choice) for choice in self.hoped)
        self.hoped = [choice for choice in lacking if self.tried[choice]]
        wide = claimed in precision.CLASSES and bool(self.hoped or (lacking and self.by_data))
        again = (
            c
            for c in made
            if c in lacking or self.tried[c] or tells[self.coverage.lacking(c)].any()
        )
        self.tried.update([*again])
        shape = Shape(*(int(of[name]) for name in SIZES))
        alpha = float(of["alpha"])
        beta = float(of["beta"])
        family = "E1" if exact.families(claimed) == ("E1",) else exact.MIXED
        a, b = exact.family(family, shape, rng, claimed, exact.HEADROOM)
        old = (2 * rng.integers(-(2**15), 2**15, (shape.m, shape.n))).astype(np.float32)
        if wide or not _few_bits(of):
            a, b, old = np.zeros_like(a), np.sign(b), np.sign(old)
            b *= (
                np.float32(2.0) ** rng.integers(-WIDE, WIDE + 1, b.shape) if wide else np.float32(1)
            )
            terms = rng.integers(0, shape.k, shape.m)
            if alpha and beta:
                old *= np.float32(
                    2.0 ** np.clip(np.round(np.log2(abs(alpha / beta))), -FAR, FAR)
                ) * abs(b[terms])
            a[np.arange(shape.m), terms] = 1
            family = "single terms"
        before = old if beta else None
        words = f"at {shape.m} x {shape.n} x {shape.k} with alpha = {alpha:.9g}, beta = {beta:.9g}"
        shifts = {name: int(of[name] % 256) // 4 for name in MATRICES}
        words += "".join(
            f", {name} {4 * n} bytes behind a 256-byte boundary" for name, n in shifts.items() if n
        )
        return ExactProblem(family, a, b, alpha=alpha, beta=beta, before=before), shifts, words

    def words(self, choice: Choice, row: int) -> str:
        """When a choice is made as at a row, if that depends on values that are known before a launch. Raises TooLarge
        where that takes more than EFFORT.
        """
        most = self.effort + EFFORT

        def truth(rows: Mapping[str, Values]) -> Values:
            if self.effort > most:
                raise TooLarge("the condition takes too long")
            noted: Values = self.judged({**rows, **self._derived(rows)})[0][self.places[choice]]
            return noted

        of = {name: self.rows[name][row : row + 1] for name in NAMES}
        for name in (*BLOCKS, *THREADS):  # each launch has the first of them
            first = {**of, name: np.zeros_like(of[name])}
            of = first if truth(first).all() else of
        dense = {name: range(step, step * DENSE, step) for name, step in self.steps.items()}
        tried = {name: np.append(self.rows[name], of_size) for name, of_size in dense.items()}
        tried |= {name: self.rows[name] for name in (*SCALARS, *MATRICES)}
        tried |= {name: np.arange(NUMBERED) for name in BLOCKS if of[name]}
        return condition(truth, {name: values[0] for name, values in of.items()}, tried, self.rng)


def _few_bits(rows: Mapping[str, Any]) -> Any:
    """Whether alpha and beta, multiplied with the numbers of an exact problem, round nothing."""
    alpha, beta = ((np.abs(rows[name]) < 8) & (rows[name] * 4 % 1 == 0) for name in SCALARS)
    return alpha & beta


def check_rare_paths(
    subject: Any, memory: Memory, *, quick: bool
) -> tuple[Stage, tuple[NeverRan, ...]]:
    """Search launches for what has not run on the emulator, and check their results as those on edge shapes. Returns
    also what did not run. subject: a worklog.kernel.device.Loaded. quick: search less. Raises LaunchFailed.
    """
    device = memory.device
    launches = 0
    per_work = PER_WORK
    assert isinstance(device, EmulatedDevice)
    budget = device.budget
    limit = device.most_instructions
    effort = QUICK_EFFORT if quick else EFFORT

    def tried(problem: ExactProblem, most: float) -> ErrorMap | str | None:
        device.most_instructions = min(limit, device.instructions + most)
        device.budget = int(budget * max(1.0, search.work[row] / BUDGETED))
        try:
            return mistake_in(subject, memory, problem, shifts)
        finally:
            device.most_instructions = limit
            device.budget = budget

    own = [(key, of) for (key, _), of in device.coverage.items() if key in subject.programs]
    searches = [Search(subject, key, coverage, memory.rng) for key, coverage in own]
    for number, search in enumerate(searches):
        share = effort / 4 * (number + 1) / len(searches)
        search.explore(share - sum(other.effort for other in searches[:number]))
    explored = sum(search.effort for search in searches)
    launched = 0.0

    def left() -> float:
        return effort + explored - launched - sum(search.effort for search in searches)

    while searches:
        (price, row), search = min(
            ((search.next(left() / per_work), search) for search in searches),
            key=lambda offer: offer[0],
        )
        if math.isinf(price):
            break
        problem, shifts, words = search.problem(row, subject.claimed)
        launches += 1
        before = device.instructions
        try:
            mistake = tried(problem, left() + effort / 2)
        except TooLarge:
            break
        except LaunchFailed as error:
            if error.kinds != {"misaligned"} or all(words % 4 == 0 for words in shifts.values()):
                raise
            search.keep_vectors()  # it takes whole ones, which the stage before says
            launched += LAUNCHED + device.instructions - before
            continue
        taken = LAUNCHED + device.instructions - before
        launched += taken
        if isinstance(mistake, ErrorMap) and problem.family == exact.MIXED:
            alone_a, alone_b, again = (
                tried(other, math.inf)
                for other in (*problem.alone(subject.claimed, memory.rng), problem)
            )
            # Strassen's algorithm rounds the same products when it is repeated: another result is a mistake.
            mistake = alone_a or alone_b or (mistake if again != mistake else None)
        if mistake is not None:
            where = mistake if isinstance(mistake, ErrorMap) else None
            return failed(RARE_PATHS, f"{words}: {mistake}", where.wrong if where else 1, where), ()
        if search.work[row] > LONG:
            per_work = taken / float(search.work[row])
        search.work[row] = np.inf  # another row shows more
    choices = sum(len(search.coverage.deciding) for search in searches)
    said = (
        f"{choices} branches and selections, {launches or 'no more'} launches"
        if choices
        else "it has no branches"
    )
    notes: list[str] = []
    nothing: tuple[NeverRan, ...] = ()
    never_ran = apart(
        "the search for code that never ran",
        lambda: _never_ran(searches, left() + effort / 2),
        nothing,
        notes,
    )
    return passed(RARE_PATHS, said, note=" ".join(notes)), never_ran


def _never_ran(searches: list[Search], most: float) -> tuple[NeverRan, ...]:
    """What no launch has run, a clause for each line; with conditions up to so much effort. Of kernels among which the
    shape chooses, only lines that none of them ran, since most choices of one are those of another, and that launches
    are known to run: each is made for its shapes, and has code for others.
    """
    ran = set[tuple[str, int]]()
    when = dict[tuple[str, int], str]()
    most += sum(search.effort for search in searches)
    for search in searches:
        ran |= {(search.file, line) for line in search.coverage.lines}
    for search in searches:
        coverage = search.coverage
        alone = search.subject.kernel.choose is None
        # A branch or a selection comes first: its words are those of the whole condition on its line.
        for choice, place in sorted(
            search.places.items(), key=lambda known: known[0][0] not in coverage.deciding
        ):
            i = coverage.kernel.instructions[choice[0]]
            rows = np.flatnonzero(search.notes[place])
            # A limit or a joined condition that was tried in vain is behind one that depends on loaded values. Where
            # blocks hand over data, those of most rows are too many.
            sure = choice[0] in coverage.deciding or not (search.tried[choice] or search.hands_over)
            if sure and coverage.ran[i.pc] and coverage.lacks(choice):
                behind = coverage.behind(choice)
                whole = behind or coverage.divides(choice) or choice[0] in coverage.voted
                own = (
                    {i.line}
                    if alone and not whole and (len(rows) or search.could_hold(choice))
                    else set[int]()
                )
                lines = {(search.file, line) for line in behind if alone or len(rows)} - ran
                lines = (lines | {(search.file, line) for line in own if line}) - when.keys()
                known = (
                    lines and alone and len(rows) and not search.tried[choice]
                )  # if tried, loaded values decide
                words = ""
                if known and sum(search.effort for search in searches) < most:
                    with suppress(TooLarge):
                        words = search.words(choice, int(rows[0]))
                when |= dict.fromkeys(lines, words)
    parts = list[NeverRan]()
    for (file, line), words in sorted(when.items()):
        part = NeverRan(line, line, words, (file, line) in ran, file)
        if parts and parts[-1] == replace(part, first=parts[-1].first, last=line - 1):
            part = replace(part, first=parts.pop().first)
        parts.append(part)
    return tuple(parts)
