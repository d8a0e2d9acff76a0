"""A domain that a file or an option states is the domain, also if the grid covers less."""

import pytest

from tests.helpers import PLAIN
from worklog.kernel import Kernel

GRID = "// grid: N / 128, M / 64   block: 32, 8\n"
INFERRED = "M % 64 == 0, N % 128 == 0"


@pytest.mark.parametrize(
    ("comment", "option", "domain"),
    [
        ("", None, INFERRED),
        ("// domain: M % 64 == 0\n", None, "M % 64 == 0"),
        ("// domain: M % 64 == 0, N % 64 == 0\n", None, "M % 64 == 0, N % 64 == 0"),
        ("// domain: any\n", None, "any M, N, K"),
        ("// domain: whatever fits\n", None, INFERRED),
        ("// domain: M % 64 == 0\n", "N % 32 == 0", "N % 32 == 0"),
    ],
)
def test_a_stated_domain_is_not_narrowed_to_what_the_grid_covers(comment, option, domain):
    kernel = Kernel.from_source(f"{comment}{GRID}{PLAIN}", domain=option)
    assert str(kernel.domain) == domain
    is_inferred = any("the domain is inferred from the grid" in line for line in kernel.warnings)
    assert is_inferred is (domain == INFERRED)
