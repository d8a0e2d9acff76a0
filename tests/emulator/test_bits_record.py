"""What gives the same bits on the emulator and on an H200, as `python -m tests.gpu.bit_equality` recorded it."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from tests.gpu.test_gpu_instructions import FORMS

RECORD = json.loads(Path(__file__).with_name("bits_h200.json").read_text(encoding="utf-8"))


def test_every_form_was_compared_and_none_differs() -> None:
    assert RECORD["failed"] == 0
    forms = Counter(f"{instruction} {' '.join(kinds)}" for instruction, _, kinds in FORMS)
    recorded = RECORD["tests"]["test_an_instruction_gives_the_gpus_bits"]
    assert len(recorded) == len(FORMS)
    assert {form for form, times in forms.items() if times == 1} <= recorded.keys()  # pytest numbers the others
