"""What gives the same bits on the emulator and on an H200, as `python -m tests.gpu.bit_equality` recorded it."""

from __future__ import annotations

import json
from pathlib import Path

from tests.gpu.test_gpu_instructions import FORMS

RECORD = json.loads(Path(__file__).with_name("bits_h200.json").read_text(encoding="utf-8"))


def test_every_form_was_compared_and_none_differs() -> None:
    """Where the record has a form twice, pytest has numbered it."""
    assert RECORD["failed"] == 0
    recorded = RECORD["tests"]["test_an_instruction_gives_the_gpus_bits"]
    assert [case for case in map(str, FORMS) if not {case, f"{case}0", f"{case}_0"} & recorded.keys()] == []
