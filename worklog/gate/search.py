"""Searches for launches on paths of a kernel that no launch of the other stages took.

It also names the paths that it did not reach.

What a launch chooses is computed before it runs (worklog.emulator.coverage), so the search is
among many thousands of launches: shapes, scalars, alignments, blocks and threads are drawn, also
near the numbers in the code. Those that meet a condition, or a part of a condition, are varied.
The cheapest launch that takes a new path is run, and its result is checked.

A search ends by its effort, which is counted in instructions of the emulator's warps, and never by
a clock: so a seed repeats it on every machine, however busy that is.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np

from worklog.emulator.coverage import UNKNOWN, UNKNOWN_FLOAT, WAITED, Choice, Coverage
from worklog.emulator.memory import FIRST_ADDRESS, SPACING
from worklog.emulator.reports import TooLarge
from worklog.errors import LaunchFailed, apart
from worklog.gate import exact, precision
from worklog.gate.edges import OLD_C_ROOM, mistake_in
from worklog.gate.exact import ExactProblem
from worklog.gate.guarded_buffer import Memory
from worklog.gate.words import Values, condition
from worklog.kernel.emulated import EmulatedDevice
from worklog.problem import Shape
from worklog.problem.formats import FLOAT32, ClaimedResult, Format
from worklog.runs import ErrorMap, NeverRan, Stage, failed, passed

RARE_PATHS = "rare paths"
SIZES = ("M", "N", "K")
SCALARS = ("alpha", "beta")
MATRICES = ("A", "B", "C")
BLOCKS = ("%ctaid.x", "%ctaid.y")
THREADS = ("%tid.x", "%tid.y")
PLACES = {name: FIRST_ADDRESS + SPACING * place for place, name in enumerate(MATRICES)}
NAMES = (*SIZES, *SCALARS, *MATRICES, *BLOCKS, *THREADS, UNKNOWN_FLOAT)  # of what is drawn
DRAWN = 1024  # rows of one generation
GENERATIONS = 16
FEW_SHAPES = 128  # of a generation, if the shape chooses the kernel: each choice takes long
# The largest size that isn't near a number of the code, or the most steps of the domain.
LARGEST = 16384
MOST_STEPS = 64
# Values of alpha and beta.
USUAL = (2.0, -1.0, 0.5, -2.0, 3.0)
SPECIAL = (0.0, 1.0, -1.0)
# Shares of values that are varied, of sizes that are made smaller, and of values that equal others.
VARIED = 0.2
SMALLER = 0.1
EQUAL = 0.1
ELSEWHERE = 0.02  # share of the drawn addresses at which no launch has a matrix
MOST_INT = 2**31 - 1
MOST_ELEMENTS = 2**23  # of a matrix
MOST_BLOCKS = 2**16  # of a launch
PER_WORK = 0.2  # instructions of warps for one unit of work, until a launch has counted them
LONG = 2**24  # work from which a launch isn't cheap, and updates PER_WORK
BUDGETED = 2**21  # work up to which a launch takes no more instructions than the budget allows
TRIES = 6  # of one choice
# The gain of a choice that no launch made, and of one that leads to new lines. A right result that
# shows one more mistake has a gain of 1.
NEW = 8
LINES = 10**5
PER_THREAD = 24  # work of a thread
LEAST = 32  # M and N of a tile, at least
WIDE = 9  # largest exponent of B's elements, if a choice depends on loaded values
FAR = 60  # largest exponent of C, if a scalar is very small
# Steps of the domain, and blocks, with which the words of a condition are found.
DENSE = 2048
NUMBERED = 300
# The effort of a search, in instructions of warps: some ten million take a second. The others are
# what Python takes for a generation, for a shape for which a kernel is chosen, for a launch, and
# for a choice in a row, in as many instructions.
EFFORT = 4e7
QUICK_EFFORT = 2e6
GENERATION = 5e4
CHOSEN = 4e3
LAUNCHED = 3e4
WEIGHED = 0.25
Rows = dict[str, Values]
Line = tuple[str, int]  # a file and its line


class Search:
    """Launches of one kernel of a subject, a row each, with one of its blocks and threads.

    rows: the values of each launch, by name
    work: elements of C times terms of each row; infinite if a matrix is too large
    is_met: whether a row meets the condition of a note, (notes, rows)
    note_of: the note of each choice
    cheapest: the cheapest row of each note, of all rows and of the last draws; -1 for none
    signs: of each equality, the signs of the differences that were met
    gains: the gain of each choice that no launch made before the search
    tries: how often each choice was launched
    retried: choices of the latest problem that were tried before and that no launch made
    effort: the effort that exploring, weighing and wording took so far
    """

    def __init__(
        self, subject: Any, key: str, coverage: Coverage, rng: np.random.Generator
    ) -> None:
        self.subject = subject
        self.key = key
        self.coverage = coverage
        self.domain = subject.domain
        self.types = subject.types
        self.rng = rng
        self.threads = (*coverage.block, 1)[:2]
        self.tile = [max(LEAST, subject.kernel.template.get(name, 0)) for name in ("BM", "BN")]
        self.steps = {name: getattr(self.domain, name.lower()) for name in SIZES}
        if self.domain.square:
            self.steps = dict.fromkeys(SIZES, int(np.lcm.reduce([*self.steps.values()])))
        self.hands_over = any(
            instruction.opcode.fence or instruction.opcode.memory == "atom"
            for instruction in coverage.kernel.instructions
        )
        file = coverage.kernel.file
        self.file = "" if file == subject.kernel.file else file
        self.note_of = coverage.judge.places
        note_count = coverage.judge.notes
        self.rows = Rows()
        self.work = np.zeros(0)
        self.is_met = np.zeros((note_count, 0), bool)
        self.cheapest = np.full((2, note_count), -1)
        self.signs = [set[int]() for _ in coverage.judge.equal]
        self.gains = dict[Choice, int]()
        for choice in self.note_of:
            if coverage.lacks(choice):
                self.gains[choice] = LINES if coverage.behind(choice) else NEW
        self.tries = Counter[Choice]()
        self.retried = list[Choice]()
        self.depends_on_data = False
        self.effort = 0.0

    def judged(self, rows: Mapping[str, Values]) -> tuple[Values, Values]:
        """Return what Coverage.judged returns, and count its effort."""
        effort_before = self.coverage.instructions
        judged = self.coverage.judged(rows)
        self.effort += self.coverage.instructions - effort_before
        return judged

    def sized(self, rows: Mapping[str, Values]) -> tuple[Values, Values]:
        """Return what Coverage.sized returns, and count its effort."""
        effort_before = self.coverage.instructions
        sized = self.coverage.sized(rows)
        self.effort += self.coverage.instructions - effort_before
        return sized

    def explore(self, effort_limit: float) -> None:
        """Draw rows, and vary those that meet some condition at the least price.

        Rows that meet a condition which no launch met are preferred.

        effort_limit: the effort after which no more rows are drawn
        """
        largest_gain = max(self.gains.values(), default=0)
        wanted_notes = [
            self.note_of[choice] for choice, gain in self.gains.items() if gain == largest_gain
        ]
        generation = 0 if self.note_of else GENERATIONS
        while (generation < GENERATIONS or self.hopeful()) and self.effort < effort_limit:
            generation += 1
            self.effort += GENERATION
            rows = self._random_rows()
            if len(self.work):
                self._vary(rows, wanted_notes)
            rows = self._tie_values(rows)
            self._append(rows)
            unmet = [
                place
                for place, note in enumerate(self.coverage.judge.equal)
                if self.cheapest[0, note] < 0
            ]
            if any(self.signs[place] - {0} for place in unmet):
                self._append(self._solve_equalities(rows, unmet))

    def _vary(self, rows: Rows, wanted_notes: list[int]) -> None:
        """Replace most values of drawn rows, in place, by those of earlier and cheap rows."""
        parents = list[Values]()
        for cheapest in (self.cheapest, self.cheapest[:, wanted_notes]):
            candidates = np.unique(cheapest[cheapest >= 0])
            if len(candidates):
                parents.append(self.rng.choice(candidates, DRAWN))
        chosen = self.rng.choice(np.concatenate(parents), DRAWN)
        for name in NAMES:
            is_varied = self.rng.random(DRAWN) < VARIED
            rows[name] = np.where(is_varied, rows[name], self.rows[name][chosen])
        for name in SIZES:
            is_smaller = self.rng.random(DRAWN) < SMALLER
            share = np.where(is_smaller, self.rng.random(DRAWN), 1)
            rows[name] = np.ceil(rows[name] * share).astype(np.int64)

    def _random_rows(self) -> Rows:
        """Return random rows, many of whose values are near numbers of the code."""
        rng = self.rng
        numbers = np.array([1, *(number for number in self.coverage.constants if number < 2**30)])
        numbers_of_code = iter(rng.choice(numbers, (len(NAMES), DRAWN)))
        rows = Rows()
        for name, step in self.steps.items():
            rows[name] = self._random_sizes(step, next(numbers_of_code))
        for name in SCALARS:
            divisors = numbers[numbers >= 1]
            rows[name] = self._random_scalars(divisors, next(numbers_of_code))
        for place, name in enumerate(MATRICES):
            rows[name] = PLACES[name] + self._random_shifts(self.domain.bytes_of[place])
        for name in (*BLOCKS, *THREADS):  # modulo their number, later
            indices = self._mixed(
                np.zeros(DRAWN),
                next(numbers_of_code),
                rng.integers(0, 2**20, DRAWN),
                rng.integers(0, 2**20, DRAWN),
            )
            rows[name] = indices.astype(np.int64)
        loaded = self._mixed(
            np.ones(DRAWN), np.ones(DRAWN), rng.integers(-1, 3, DRAWN), next(numbers_of_code)
        )
        rows[UNKNOWN_FLOAT] = loaded.astype(np.float32)
        return rows

    def _mixed(self, *alternatives: Values) -> Values:
        """Return one of some arrays' elements at each place."""
        mixed: Values = np.choose(self.rng.integers(0, len(alternatives), DRAWN), alternatives)
        return mixed

    def _random_sizes(self, step: int, numbers: Values) -> Values:
        """Return sizes: any multiple of a step, round numbers, and sizes near given numbers."""
        rng = self.rng
        most_steps = max(LARGEST // step, MOST_STEPS)
        any_steps = np.exp(rng.uniform(0, np.log(most_steps + 1), DRAWN)).astype(np.int64)
        round_sizes = 2 ** rng.integers(0, 10, DRAWN) * rng.integers(1, 13, DRAWN)
        sizes_near_numbers = numbers.astype(np.int64) * rng.choice((1, 1, 2, 3), DRAWN)
        sizes_near_numbers = sizes_near_numbers + rng.integers(-1, 3, DRAWN)
        return self._mixed(
            any_steps * step, np.minimum(round_sizes, most_steps * step), sizes_near_numbers
        )

    def _random_scalars(self, divisors: Values, numbers: Values) -> Values:
        """Return scalars: near given numbers and simple fractions of them, special and usual."""
        rng = self.rng
        fractions = 1 / rng.choice(divisors, DRAWN)
        is_fraction = rng.random(DRAWN) < 0.3
        factors = np.where(is_fraction, fractions, rng.choice((1, 1, 1, 2, 0.5), DRAWN))
        scalars_near_numbers = (numbers * factors * rng.choice((1, -1), DRAWN)).astype(np.float32)
        towards = scalars_near_numbers * rng.choice((0, 1, 1, 2), DRAWN).astype(np.float32)
        scalars_near_numbers = np.nextafter(scalars_near_numbers, towards)
        special = rng.choice(SPECIAL, DRAWN)
        usual = rng.choice(USUAL, DRAWN)
        scalars = self._mixed(scalars_near_numbers, scalars_near_numbers, special, usual)
        rounded: Values = self.types.rounded_scalars(scalars.astype(np.float32))
        return rounded

    def _random_shifts(self, alignment: int) -> Values:
        """Return bytes by which a matrix begins later; a few of them are very large."""
        rng = self.rng
        short_shifts = rng.integers(0, 256 // alignment, DRAWN) * alignment
        short_shifts = np.where(rng.random(DRAWN) < 0.5, short_shifts, 0)
        is_far = rng.random(DRAWN) < ELSEWHERE
        long_shifts = rng.integers(0, 2**38, DRAWN) * 256
        return np.where(is_far, long_shifts, 0) + short_shifts

    def _tie_values(self, rows: Rows) -> Rows:
        """Return rows in the domain, some of whose values are equal."""
        for name, other in (("M", "N"), ("N", "K"), ("K", "M"), ("beta", "alpha"), ("B", "A")):
            is_equal = self.rng.random(DRAWN) < EQUAL
            rows[name] = np.where(is_equal, rows[other], rows[name])
        for name, usual in zip(SCALARS, (1, 0), strict=True):
            if not getattr(self.domain, name):
                rows[name] = np.full(DRAWN, usual, np.float32)
        shape_count = DRAWN if self.subject.passes else FEW_SHAPES
        shapes = self.rng.integers(0, shape_count, DRAWN)
        for name in SIZES:
            rows[name] = rows[name][shapes]
        return self.clip_to_domain(rows)

    def clip_to_domain(self, rows: Rows) -> Rows:
        """Change rows so that they are in the domain, and add what follows from them."""
        sizes = {name: rows["M" if self.domain.square else name] for name in SIZES}
        for name, step in self.steps.items():
            rows[name] = np.clip(-(-sizes[name] // step), 1, MOST_INT // step) * step
        for name, thread_count in zip(THREADS, self.threads, strict=True):
            rows[name] = rows[name] % thread_count
        rows |= self._derived_inputs(rows)
        for name in BLOCKS:
            rows[name] = rows[name] % np.maximum(rows[f"%n{name[1:]}"], 1)
        return rows

    def _solve_equalities(self, rows: Rows, unmet: list[int]) -> Rows:
        """Return these rows, with one value changed so that an equality may hold in each.

        It holds if the difference of its sides grows with that value everywhere as it does here.

        unmet: the places of the equalities
        """
        steps = {**self.steps, **dict.fromkeys((*BLOCKS, *THREADS), 1)}
        equalities = self.rng.choice(unmet, DRAWN)
        changed = self.rng.integers(0, len(steps), DRAWN)
        changes = {}
        for place, (name, step) in enumerate(steps.items()):
            changes[name] = np.where(changed == place, step, 0)
        gap = self._gaps(rows, equalities)
        moved = self.clip_to_domain(rows | {name: rows[name] + changes[name] for name in changes})
        moved_gap = self._gaps(moved, equalities)
        growth = np.where(moved_gap == gap, np.inf, moved_gap - gap)
        times = np.round(-gap / growth).clip(-MOST_INT, MOST_INT).astype(np.int64)
        solved = {name: rows[name] + times * changes[name] for name in changes}
        return self.clip_to_domain(rows | solved)

    def _gaps(self, rows: Rows, equalities: Values) -> Values:
        """Return the difference of both sides of one equality in each row."""
        gaps: Values = self.judged(rows)[1][equalities, np.arange(DRAWN)].astype(float)
        return gaps

    def _derived_inputs(self, rows: Mapping[str, Values]) -> Rows:
        """Return the values that follow from others."""
        if not self.subject.passes:
            shapes = set(zip(*(rows[name].tolist() for name in SIZES), strict=True))
            self.effort += CHOSEN * len(shapes)
        grid = self.subject.grids(self.key, *(rows[name] for name in SIZES))
        thread = rows["%tid.x"] + rows["%tid.y"] * self.threads[0]
        return {
            "%nctaid.x": grid[0],
            "%nctaid.y": grid[1],
            "%laneid": thread % 32,
            "%warpid": thread // 32,
            UNKNOWN: rows[UNKNOWN_FLOAT].astype(np.int64),
            WAITED: np.ones_like(thread),
        }

    def _append(self, rows: Rows) -> None:
        """Add the rows that launch blocks, their work, and the conditions that they meet."""
        is_launched = rows["%nctaid.x"] * rows["%nctaid.y"] > 0
        if not is_launched.any():
            return
        rows = {name: values[is_launched] for name, values in rows.items()}
        work = self.work_of(rows)
        is_met, gaps = self.judged(rows)
        for signs, differences in zip(self.signs, gaps, strict=True):
            signs |= {*np.sign(differences).tolist()}
        start = len(self.work)
        self.is_met = np.concatenate([self.is_met, is_met], axis=1)
        self.work = np.concatenate([self.work, work])
        for name, values in rows.items():
            self.rows[name] = np.concatenate([self.rows.get(name, values[:0]), values])
        order = np.argsort(work, kind="stable")
        notes = np.flatnonzero(is_met.any(axis=1))
        cheapest = start + order[is_met[notes][:, order].argmax(axis=1)]
        self.cheapest[1, notes] = cheapest
        former = self.cheapest[0, notes]
        is_cheaper = (former < 0) | (self.work[cheapest] < self.work[former])
        self.cheapest[0, notes[is_cheaper]] = cheapest[is_cheaper]

    def work_of(self, rows: Rows) -> Values:
        """Return the work of each row; infinite if it is no launch of this gate."""
        m, n, k = (rows[name].astype(np.float64) for name in SIZES)  # whose products don't overflow
        shifted_count = np.sum([rows[name] % 256 > 0 for name in MATRICES], axis=0)
        tall, wide = (-(-size // tile) * tile for size, tile in zip((m, n), self.tile, strict=True))
        work = tall * wide * (k + 16.0) * (1 + shifted_count)  # few are easier to read
        blocks = rows["%nctaid.x"] * rows["%nctaid.y"]
        work += PER_THREAD * math.prod(self.coverage.block) * blocks
        for name, address in PLACES.items():
            work[rows[name] // 256 != address // 256] = np.inf
        largest_matrix = np.maximum(np.maximum(m * k, k * n), m * n)
        work[(blocks > MOST_BLOCKS) | (largest_matrix > MOST_ELEMENTS)] = np.inf
        result: Values = work
        return result

    def detectable_errors(self, rows: Mapping[str, Values]) -> Values:
        """Return whether launches show a wrong scalar, a shortened A and a shortened B.

        problem() makes the launches.
        """
        shows_scalars: Any = True
        for name in SCALARS:
            is_special = np.isin(np.abs(rows[name]), (0, 1))
            shows_scalars &= ~is_special | (not getattr(self.domain, name))
        shows_operands = _few_bits(rows) & (rows["alpha"] != 0) & (rows["K"] > 1)
        return np.array([shows_scalars, shows_operands, shows_operands])

    def could_hold(self, choice: Choice) -> bool:
        """Return whether a choice that no row made is one that other rows may make.

        Then each comparison in it was true in some rows and false in others, or it is an equality
        whose left side was larger in some rows and smaller in others.
        """
        if choice[0] not in self.coverage.deciding:
            return False
        judge = self.coverage.judge
        compared = self.coverage.comparisons(choice)
        for note in (judge.compared[pc] for pc in compared):
            is_decided = all(self.cheapest[0, note ^ fails] >= 0 for fails in (0, 1))
            if not is_decided and not self._is_crossed(note):
                return False
        return bool(compared)

    def _is_crossed(self, note: int) -> bool:
        """Return whether each side of an equality was the larger one in some row."""
        for signs, equality in zip(self.signs, self.coverage.judge.equal, strict=True):
            if equality in (note, note ^ 1) and {-1, 1} <= signs:
                return True
        return False

    def hopeful(self) -> bool:
        """Return whether no row made some choice, but other rows may."""
        unmet = (choice for choice in self.gains if self.cheapest[0, self.note_of[choice]] < 0)
        return any(self.could_hold(choice) for choice in unmet)

    def keep_vectors(self) -> None:
        """Launch no row in which a matrix isn't at a multiple of 16 bytes."""
        for name in MATRICES:
            self.work[self.rows[name] % 16 > 0] = np.inf

    def cheapest_launch(self, work_limit: float) -> tuple[float, int]:
        """Return the price and the row of the launch that shows most for its work.

        The price is the work per gain. It is infinite if no launch within the limit shows
        anything new.
        """
        if not len(self.work):
            return math.inf, 0
        self.effort += WEIGHED * len(self.work) * len(self.note_of)
        shows = self.detectable_errors(self.rows)
        gain = np.zeros(len(self.work))
        for choice in self.note_of:
            gain += self._gain(choice, shows)
        # A path for long or narrow matrices may be right at the least size alone, which is mostly
        # even: prefer odd sizes.
        even_sizes = np.zeros(len(self.work))
        for name, step in self.steps.items():
            even_sizes += self.rows[name] // step % 2 == 0
        price = self.work * (1 + even_sizes) / np.maximum(gain, 1e-9)
        price[(gain == 0) | (self.work > work_limit)] = np.inf
        row = int(np.argmin(price))
        return float(price[row]), row

    def _gain(self, choice: Choice, shows: Values) -> Any:
        """Return the gain of each row by one choice.

        A choice has a gain until a launch made it and right results showed each kind of mistake.
        """
        is_made = self.is_met[self.note_of[choice]]
        is_cheap = self.work < LONG
        is_new = self.coverage.lacks(choice)
        unconfirmed = self.coverage.lacking(choice)
        tries = self.tries[choice]
        if any(unconfirmed) and tries < (TRIES if is_new else 2 * TRIES):
            confirms = shows[unconfirmed].sum(axis=0)
            if not is_new:
                return is_made * confirms
            gain = self.gains.get(choice, 0) * (is_cheap | (tries == 0))
            return is_made * (confirms + gain * (1 + confirms))
        if tries == 1 and choice in self.gains and not is_new:
            # Only the search launched it. Launch it once more, in a random row: one result may be
            # right by chance.
            return is_made * is_cheap * self.rng.random(len(is_made))
        return 0.0

    def problem(self, row: int, claim: ClaimedResult) -> tuple[ExactProblem, dict[str, int], str]:
        """Return a row's problem, each matrix's shift in elements, and a description.

        If a scalar has many bits, each element is one product of ones, so that its result is
        rounded once, and C is about as large. If a choice that no launch made depends on loaded
        values, since it was tried in vain, B has powers of two in place of these ones.
        """
        launch = {name: values[row] for name, values in self.rows.items()}
        shape = Shape(*(int(launch[name]) for name in SIZES))
        alpha = float(launch["alpha"])
        beta = float(launch["beta"])
        needs_other_data = self._count_tries(row, launch)
        is_wide = claim.precision in precision.CLASSES and needs_other_data
        is_wide = is_wide and not claim.types.is_narrow  # which has no such numbers

        family = "E1" if exact.families(claim) == ("E1",) else exact.MIXED
        a, b = exact.family(family, shape, self.rng, claim, headroom=exact.HEADROOM)
        limit = 1 << max(0, exact.sum_bits(claim) - OLD_C_ROOM - 2)
        even_integers = 2 * self.rng.integers(-limit, limit, (shape.m, shape.n))
        c = even_integers.astype(np.float32)
        if is_wide or not _few_bits(launch):
            family = "single terms"
            a, b, c = self._single_terms(b, c, shape, alpha=alpha, beta=beta, is_wide=is_wide)
            c = _clipped(claim.types.c, c)
        initial_c = c if beta else None
        problem = ExactProblem(family, a, b, alpha=alpha, beta=beta, initial_c=initial_c)
        shifts = {name: int(launch[name] % 256) // 4 for name in MATRICES}
        return problem, shifts, _launch_in_words(problem, shifts)

    def _count_tries(self, row: int, launch: Mapping[str, Any]) -> bool:
        """Count a try of each choice in a row; return whether one may need other data.

        A choice that was tried in vain depends on loaded values.
        """
        choices = [choice for choice, note in self.note_of.items() if self.is_met[note, row]]
        new_choices = [choice for choice in choices if self.coverage.lacks(choice)]
        if not all(map(self.coverage.lacks, self.retried)):
            self.depends_on_data = True  # other data made the launch before take a new path
        self.retried = [choice for choice in new_choices if self.tries[choice]]
        shows = self.detectable_errors(launch)
        for choice in choices:
            confirms = shows[self.coverage.lacking(choice)].any()
            if choice in new_choices or self.tries[choice] or confirms:
                self.tries[choice] += 1
        if self.retried:
            return True
        return bool(new_choices) and self.depends_on_data

    def _single_terms(
        self, b: Values, c: Values, shape: Shape, *, alpha: float, beta: float, is_wide: bool
    ) -> tuple[Values, Values, Values]:
        """Return A, B and C so that each element of A B is one term of B, rounded once.

        The terms are ±1, or powers of two if is_wide. C is scaled to be about as large.
        """
        b = np.sign(b)
        c = np.sign(c)
        if is_wide:
            b *= np.float32(2.0) ** self.rng.integers(-WIDE, WIDE + 1, b.shape)
        terms = self.rng.integers(0, shape.k, shape.m)
        a = np.zeros((shape.m, shape.k), np.float32)
        a[np.arange(shape.m), terms] = 1
        if alpha and beta:
            exponent = np.clip(np.round(np.log2(abs(alpha / beta))), -FAR, FAR)
            c *= np.float32(2.0**exponent) * abs(b[terms])
        return a, b, c

    def condition_of(self, choice: Choice, row: int) -> str:
        """Return the condition under which a choice is made as in a row.

        "" if it isn't known before a launch. Raises TooLarge if that takes more than EFFORT.
        """
        effort_limit = self.effort + EFFORT

        def truth(rows: Mapping[str, Values]) -> Values:
            if self.effort > effort_limit:
                raise TooLarge("the condition takes too long")
            is_met, _ = self.judged({**rows, **self._derived_inputs(rows)})
            is_made: Values = is_met[self.note_of[choice]]
            return is_made

        launch = {name: self.rows[name][row : row + 1] for name in NAMES}
        for name in (*BLOCKS, *THREADS):  # each launch has the first of them
            with_first = {**launch, name: np.zeros_like(launch[name])}
            if truth(with_first).all():
                launch = with_first
        candidates = Rows()
        for name, step in self.steps.items():
            candidates[name] = np.append(self.rows[name], range(step, step * DENSE, step))
        for name in (*SCALARS, *MATRICES):
            candidates[name] = self.rows[name]
        for name in BLOCKS:
            if launch[name]:
                candidates[name] = np.arange(NUMBERED)
        values = {name: column[0] for name, column in launch.items()}
        return condition(truth, values, candidates, self.rng)


def _clipped(format_: Format, powers: Values) -> Values:
    """Return powers of two with a sign, none larger than a format's numbers or smaller."""
    if format_ == FLOAT32:
        return powers
    sizes = np.clip(np.abs(powers), format_.tiny, 2.0 ** (format_.largest_exponent - 1))
    clipped: Values = (np.sign(powers) * sizes).astype(np.float32)
    return clipped


def _launch_in_words(problem: ExactProblem, shifts: Mapping[str, int]) -> str:
    """Return the shape, the scalars and the shifts of a launch in words.

    shifts: of each matrix, in words of 4 bytes
    """
    shape = problem.shape
    text = f"at {shape.m} x {shape.n} x {shape.k}"
    text += f" with alpha = {problem.alpha:.9g}, beta = {problem.beta:.9g}"
    for name, shift in shifts.items():
        if shift:
            text += f", {name} {4 * shift} bytes behind a 256-byte boundary"
    return text


def _few_bits(rows: Mapping[str, Any]) -> Any:
    """Return whether alpha and beta, times numbers of an exact problem, round nothing."""
    alpha, beta = ((np.abs(rows[name]) < 8) & (rows[name] * 4 % 1 == 0) for name in SCALARS)
    return alpha & beta


class _Searches:
    """The searches of one subject's kernels, and the launches that share their effort.

    effort: the effort of all launches
    explored: the effort of the searches when the launches begin
    launched: the effort of launches so far
    per_work: instructions for one unit of work
    """

    def __init__(self, subject: Any, memory: Memory, effort: float) -> None:
        assert isinstance(memory.device, EmulatedDevice)
        self.subject = subject
        self.memory = memory
        self.device = memory.device
        self.instruction_budget = self.device.budget
        self.instruction_limit = self.device.most_instructions
        self.effort = effort
        self.explored = 0.0
        self.launched = 0.0
        self.launches = 0
        self.per_work = PER_WORK
        self.searches = [
            Search(subject, key, coverage, memory.rng)
            for (key, _), coverage in self.device.coverage.items()
            if key in subject.programs
        ]

    def explore(self) -> None:
        """Explore the launches of each kernel.

        Each kernel gets an equal share of a quarter of the effort.
        """
        for number, search in enumerate(self.searches):
            share = self.effort / 4 * (number + 1) / len(self.searches)
            search.explore(share - sum(former.effort for former in self.searches[:number]))
        self.explored = self.searched()

    def searched(self) -> float:
        """Return the effort of the searches so far."""
        return sum(search.effort for search in self.searches)

    def left(self) -> float:
        """Return the effort that is left for launches."""
        return self.effort + self.explored - self.launched - self.searched()

    def failure(self) -> Stage | None:
        """Launch what shows most for its work while effort is left.

        Return the failed stage, or None if no result is wrong. Raises LaunchFailed.
        """
        while self.searches:
            price, row, search = self._cheapest_launch()
            if math.isinf(price):
                return None
            problem, shifts, text = search.problem(row, self.subject.claim)
            self.launches += 1
            instructions_before = self.device.instructions
            work = float(search.work[row])
            try:
                mistake = self._launch(problem, shifts, work, self.left() + self.effort / 2)
            except TooLarge:
                return None
            except LaunchFailed as error:
                is_shifted = any(shift % 4 for shift in shifts.values())
                if error.kinds != {"misaligned"} or not is_shifted:
                    raise
                search.keep_vectors()  # it loads whole vectors, as the stage before states
                self.launched += LAUNCHED + self.device.instructions - instructions_before
                continue
            effort = LAUNCHED + self.device.instructions - instructions_before
            self.launched += effort
            if isinstance(mistake, ErrorMap) and problem.family == exact.MIXED:
                mistake = self._confirmed(problem, shifts, work, mistake)
            if isinstance(mistake, ErrorMap):
                return failed(RARE_PATHS, f"{text}: {mistake}", mistake.wrong, mistake)
            if mistake is not None:
                return failed(RARE_PATHS, f"{text}: {mistake}", 1)
            if work > LONG:
                self.per_work = effort / work
            search.work[row] = np.inf  # another row shows more
        return None

    def _cheapest_launch(self) -> tuple[float, int, Search]:
        """Return the price, the row and the search of the launch that shows most."""
        offers = []
        for search in self.searches:
            price, row = search.cheapest_launch(self.left() / self.per_work)
            offers.append((price, row, search))
        return min(offers, key=lambda offer: offer[:2])

    def _launch(
        self, problem: ExactProblem, shifts: dict[str, int], work: float, instructions: float
    ) -> ErrorMap | str | None:
        """Return the mistake in a launch that may take this many more instructions."""
        device = self.device
        device.most_instructions = min(self.instruction_limit, device.instructions + instructions)
        device.budget = int(self.instruction_budget * max(1.0, work / BUDGETED))
        try:
            return mistake_in(self.subject, self.memory, problem, shifts)
        finally:
            device.most_instructions = self.instruction_limit
            device.budget = self.instruction_budget

    def _confirmed(
        self, problem: ExactProblem, shifts: dict[str, int], work: float, mistake: ErrorMap
    ) -> ErrorMap | str | None:
        """Return the mistake in a launch whose A and B are both long, if it isn't rounding.

        Strassen's algorithm rounds the same products when it is repeated, so another result is a
        mistake.
        """
        in_a, in_b, repeated = (
            self._launch(other, shifts, work, math.inf)
            for other in (
                *problem.with_long_operands(self.subject.claim, self.memory.rng),
                problem,
            )
        )
        if in_a or in_b:
            return in_a or in_b
        return mistake if repeated != mistake else None


def check_rare_paths(
    subject: Any, memory: Memory, *, quick: bool
) -> tuple[Stage, tuple[NeverRan, ...]]:
    """Search launches for what has not run on the emulator.

    Their results are checked as those on edge shapes. Returns the stage, and what did not run.
    Raises LaunchFailed.

    subject: a worklog.kernel.device.Loaded
    quick: whether to search less
    """
    effort = QUICK_EFFORT if quick else EFFORT
    run = _Searches(subject, memory, effort)
    run.explore()
    stated_shapes = set(memory.shapes)
    failure = run.failure()
    # The verdict's sizes are those that were launched for them, not what a path needed.
    memory.shapes = stated_shapes
    if failure is not None:
        return failure, ()
    choice_count = sum(len(search.coverage.deciding) for search in run.searches)
    detail = "it has no branches"
    if choice_count:
        detail = f"{choice_count} branches and selections, {run.launches or 'no more'} launches"
    notes: list[str] = []
    nothing: tuple[NeverRan, ...] = ()
    never_ran = apart(
        "the search for code that never ran",
        lambda: _never_ran(run.searches, run.left() + effort / 2),
        nothing,
        notes,
    )
    return passed(RARE_PATHS, detail, note=" ".join(notes)), never_ran


def _never_ran(searches: list[Search], effort: float) -> tuple[NeverRan, ...]:
    """Return the lines that no launch has run, with conditions up to so much effort.

    Of kernels among which the shape chooses, these are only lines that none of them ran and that
    launches are known to run: most choices of one kernel are choices of another one, since each is
    made for its shapes and has code for others.
    """
    effort_limit = effort + sum(search.effort for search in searches)
    ran = set[Line]()
    for search in searches:
        ran |= {(search.file, line) for line in search.coverage.lines}
    conditions = dict[Line, str]()
    for search in searches:
        deciding = search.coverage.deciding
        # A branch or a selection comes first: its words describe the whole condition of the line.
        for choice in sorted(search.note_of, key=lambda choice: choice[0] not in deciding):
            lines = _unrun_lines(search, choice, ran) - conditions.keys()
            text = ""
            if lines and sum(search.effort for search in searches) < effort_limit:
                text = _known_condition(search, choice)
            conditions |= dict.fromkeys(lines, text)
    parts = list[NeverRan]()
    for (file, line), text in sorted(conditions.items()):
        part = NeverRan(line, line, text, (file, line) in ran, file)
        if parts and parts[-1] == replace(part, first=parts[-1].first, last=line - 1):
            part = replace(part, first=parts.pop().first)
        parts.append(part)
    return tuple(parts)


def _unrun_lines(search: Search, choice: Choice, ran: set[Line]) -> set[Line]:
    """Return the lines that did not run because no launch made a choice.

    ran: the lines that ran; the line of the choice itself may be one of them
    """
    coverage = search.coverage
    pc = choice[0]
    instruction = coverage.kernel.instructions[pc]
    # A limit or a joined condition that was tried in vain is behind one that depends on loaded
    # values. If blocks hand over data, such conditions of most rows are too many.
    if pc not in coverage.deciding and (search.tries[choice] or search.hands_over):
        return set()
    if not coverage.ran[instruction.pc] or not coverage.lacks(choice):
        return set()
    is_only_kernel = bool(search.subject.passes)
    is_made = bool(search.is_met[search.note_of[choice]].any())
    # No thread of the block makes it: the compiler has left code for other numbers of threads.
    if pc in coverage.by_thread and not is_made:
        return set()
    lines_behind = coverage.behind(choice)
    lines = set[Line]()
    if is_only_kernel or is_made:
        lines = {(search.file, line) for line in lines_behind} - ran
    if not is_only_kernel or not instruction.line:
        return lines
    if lines_behind or coverage.divides(choice) or pc in coverage.voted:
        return lines
    if is_made or search.could_hold(choice):
        lines.add((search.file, instruction.line))
    return lines


def _known_condition(search: Search, choice: Choice) -> str:
    """Return when a choice is made, or "" if the values that decide it aren't known."""
    rows = np.flatnonzero(search.is_met[search.note_of[choice]])
    is_tried = search.tries[choice] > 0  # then loaded values decide
    if not search.subject.passes or is_tried or not len(rows):
        return ""
    with suppress(TooLarge):
        return search.condition_of(choice, int(rows[0]))
    return ""
