"""The bets of the stored notebooks: each folded answer is the recording's.

None is on the page before its bet.
"""

import ast
import math
import re
from collections.abc import Callable
from typing import Any

import nbformat
import pytest
from pytest import approx

import worklog
from tests.notebooks.cells import text_of
from tests.notebooks.test_claims import COUNTED, COUNTERS, us
from tests.record.notebooks import notebook_of, sources
from worklog.gpu.clocks import TENSOR as TENSOR_LANES
from worklog.kernel.ladder import FP32, TENSOR
from worklog.kernel.prediction import bound
from worklog.lab.bets import LadderStep, recorded_step, step_to
from worklog.problem import Shape
from worklog.runs import CUBLAS
from worklog.runs.facts import FP32_LANES, FP32_LANES_SINCE_8_6

THE_LADDER = ("04", "05", "06")


def step_of_bet(source: str, make: Callable[..., LadderStep] = recorded_step) -> LadderStep | None:
    """Return the step of a cell that is a call of lab.bet(); None for another cell.

    make: step_to counts on the emulator for the floors, for which a collection shouldn't wait
    """
    if not source.startswith("lab.bet("):
        return None
    call = ast.parse(source, mode="eval").body
    assert isinstance(call, ast.Call)
    options: dict[str, Any] = {
        str(word.arg): ast.literal_eval(word.value) for word in call.keywords
    }
    return make(*map(ast.literal_eval, call.args), **options)


def bets() -> list[tuple[str, LadderStep, list[Any], Any, Any]]:
    """Return each bet: its notebook and step, the cells above, its own cell, and the cell below."""
    rows = []
    for source in sources():
        cells = nbformat.read(notebook_of(source), as_version=4).cells
        for place, cell in enumerate(cells):
            step = step_of_bet(cell.source) if cell.cell_type == "code" else None
            if step is not None:
                rows.append((source.name[:2], step, cells[:place], cell, cells[place + 1]))
    return rows


BETS = bets()
EACH_BET = pytest.mark.parametrize(
    ("above", "cell", "below", "step"),
    [(above, cell, below, step) for _, step, above, cell, below in BETS],
    ids=[f"{number}-{step.later}" for number, step, *_ in BETS],
)


def numbers_of(text: str) -> list[float]:
    """Return what the floors say and what was measured, in a sentence about a step."""
    said = re.findall(r"[Tt]he floors say ([\d.]+)", text)
    measured = re.findall(r"it was ([\d.]+) times as fast", text)
    return [float(number) for number in said + measured]


def test_the_reader_bets_on_every_step_of_the_ladder_in_its_order():
    later = [step.later for number, step, *_ in BETS if number in THE_LADDER]
    assert later == [rung.name for rung in worklog.LADDER[1:]]


def test_the_reader_bets_on_every_step_past_cublas_and_on_tensor_cores():
    for notebook, rungs in (("09", FP32), ("10", TENSOR)):
        later = [step.later for number, step, *_ in BETS if number == notebook]
        assert later == [rung.name for rung in rungs if rung.name != "best"]
    assert all(step.earlier == "best" for _, step, *_ in BETS if step.later == "tf32")


@EACH_BET
def test_the_folded_answer_below_a_bet_has_the_recordings_numbers(above, cell, below, step):
    step = step_of_bet(cell.source, step_to)
    assert below.cell_type == "markdown"
    [folded] = re.findall(
        r"<details><summary>.*?</summary>(.*?)</details>", below.source, re.DOTALL
    )
    assert below.source.startswith("<details>")
    assert numbers_of(folded) == numbers_of(step.sentence())
    assert len(numbers_of(folded)) == (1 if step.floors is None else 2)


@EACH_BET
def test_no_answer_is_on_the_page_above_its_bet(above, cell, below, step):
    shown = [cell.source, *map(text_of, cell.outputs)]
    for earlier in above:
        shown += [earlier.source, *map(text_of, earlier.get("outputs", []))]
    for text in shown:
        assert f"{step.measured:.3g} times as fast" not in text
        assert f'lab.step("{step.later}"' not in text
        assert not re.search(rf"^ *{step.later} .*\d, [\d.]+ %", text, re.MULTILINE), "lab.steps"
    outputs = "".join(map(text_of, cell.outputs))
    assert f"How many times as fast as {step.earlier} is {step.later}" in outputs


@pytest.mark.parametrize("source", sources(THE_LADDER), ids=lambda path: path.stem)
def test_a_stored_answer_is_folded_if_no_viewer_is_between_it_and_its_bet(source):
    """JupyterLab shows stored outputs: an answer on the screen of its bet would be read first."""
    is_close = False
    for cell in nbformat.read(notebook_of(source), as_version=4).cells:
        if cell.source.startswith("lab.bet("):
            is_close = True
        if cell.source.startswith("lab.access("):
            is_close = False
        if cell.source.startswith("lab.step(") and is_close:
            assert cell.metadata["jupyter"]["outputs_hidden"], cell.source


@pytest.mark.parametrize(("notebook", "later"), [("00", "coalesced"), ("06", "warptiled")])
def test_no_rate_is_on_the_page_above_the_last_bet(notebook, later):
    [above] = [
        above for number, step, above, *_ in BETS if (number, step.later) == (notebook, later)
    ]
    rates = [output for earlier in above for output in earlier.get("outputs", [])]
    assert rates and not any("TFLOP/s" in text_of(output) for output in rates)


def test_the_numbers_of_the_questions():
    assert [us("naive", 4096) / 1e3, us(CUBLAS, 4096) / 1e3] == approx([276, 2.7], rel=0.01)
    assert us("shared", 4096) / 1e3 == approx(16.2, abs=0.05)
    assert bound(worklog.rung("shared")).ms == approx(12.9, abs=0.05)
    waves = {name: rung.wavefronts_per_fma for name, rung in COUNTED.rungs.items()}
    names = ("shared", "tiles_1d", "tiles_2d", "vectorized")
    assert [waves[name] for name in names] == approx([1.56, 0.66, 0.52, 0.34], abs=5e-3)
    assert 1 - waves["conflict_free"] / waves["vectorized"] == approx(0.4, abs=5e-3)
    assert 1 - waves["warptiled"] / waves["register_banks"] == approx(1 / 3, abs=0.02)
    assert COUNTED.rungs["shared"].sectors_per_fma == approx(0.25, abs=2e-3)
    assert max(COUNTERS["conflict_free"]["percent"].values()) == approx(69, abs=0.5)
    shares = {name: us(CUBLAS, 4096) / us(name, 4096) for name in ("conflict_free", "warptiled")}
    assert [*shares.values()] == approx([0.73, 1.015], abs=5e-3)


def test_the_numbers_of_the_questions_past_cublas_and_on_tensor_cores():
    gpu = worklog.open_run().gpu
    blocks = math.prod(worklog.rung("specialized").blocks(Shape.of(4096)))
    waves = blocks / gpu.multiprocessors
    assert 1 - waves / math.ceil(waves) == approx(0.03, abs=5e-3)
    lanes = FP32_LANES.get(gpu.compute_capability, FP32_LANES_SINCE_8_6)
    tensor = TENSOR_LANES[gpu.compute_capability]
    assert tensor["tf32"] / lanes == 8
    assert [tensor[name] / 3 / lanes for name in ("tf32", "fp16")] == approx([2.7, 5.3], abs=0.05)
    busy = {name: COUNTERS[name]["percent"]["tensor cores"] for name in ("tf32x3", "promoted")}
    assert [*busy.values()] == approx([43, 18], abs=0.5)
    slower = [step.later for number, step, *_ in BETS if number == "10" and step.measured < 1]
    assert len(slower) == 3, "three of the six steps"
    worst = min((step for number, step, *_ in BETS if number == "09"), key=lambda s: s.measured)
    assert worst.later == "async_copies" and 1 - worst.measured == approx(0.07, abs=5e-3)
