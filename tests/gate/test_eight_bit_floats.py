"""A kernel that multiplies 8-bit floats is refused as that, whichever precision class it claims."""

from pathlib import Path

import pytest

from worklog.kernel import Kernel
from worklog.runner.check import check

SOURCE = Path(__file__).with_name("eight_bit_floats.cu")


@pytest.mark.parametrize("claimed", ["fp32", "tf32", "bf16"])
def test_products_of_8_bit_floats_are_named(claimed):
    kernel = Kernel.from_file(SOURCE, claimed=claimed)
    checked = check(kernel, on="emulated", seed=1)
    assert "A and B are rounded to FP8 (e4m3)" in str(checked.verdict.reason)
    assert f"{claimed} is claimed, and the code multiplies 8-bit floats (e4m3)" in "".join(
        checked.warnings
    )
