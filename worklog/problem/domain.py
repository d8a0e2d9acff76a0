"""The domain of a kernel: which shapes it takes."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from worklog.errors import BadSetting
from worklog.problem.gemm import Shape

NO_NAMES: Mapping[str, int] = MappingProxyType({})


@dataclass(frozen=True)
class Domain:
    """M, N and K must be multiples of these."""

    m: int = 1
    n: int = 1
    k: int = 1

    def __contains__(self, shape: Shape) -> bool:
        return shape.m % self.m == 0 and shape.n % self.n == 0 and shape.k % self.k == 0

    def padded(self, shape: Shape) -> Shape:
        """The smallest shape in the domain that holds this one."""
        steps = ((shape.m, self.m), (shape.n, self.n), (shape.k, self.k))
        return Shape(*(math.ceil(size / step) * step for size, step in steps))

    @classmethod
    def of(cls, rules: str, names: Mapping[str, int] = NO_NAMES) -> Domain:
        """Read "M % 128 == 0, K % BK == 0", or "any" for every shape. names: values of names such as BK. Raises
        BadSetting.
        """
        steps = {"M": 1, "N": 1, "K": 1}
        if rules.strip() in ("any", "any M, N, K"):
            return cls()
        for rule in re.split(r",|\band\b", rules):
            match = re.fullmatch(r"\s*([MNK])\s*%\s*(?:([1-9][0-9]{0,8})|([A-Za-z_]\w*))\s*==\s*0\s*", rule)
            if match is None or (match[3] and names.get(match[3], 0) < 1):
                raise BadSetting(
                    f"cannot read the domain {rules!r}: give rules such as 'M % 64 == 0, K % 8 == 0', or any"
                )
            steps[match[1]] = math.lcm(steps[match[1]], names[match[3]] if match[3] else int(match[2]))
        return cls(steps["M"], steps["N"], steps["K"])

    def __str__(self) -> str:
        rules = [f"{name} % {step} == 0" for name, step in (("M", self.m), ("N", self.n), ("K", self.k)) if step > 1]
        return ", ".join(rules) or "any M, N, K"
