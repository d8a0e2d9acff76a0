"""A new rung of a checkout: its source, its record and its entry for main.cu."""

from __future__ import annotations

import re
from pathlib import Path

from worklog.errors import BadSetting
from worklog.kernel.ladder.names import RUNGS
from worklog.kernel.source import kernels_dir

RECORD = '    numbered({number}, "{name}", "the idea in a few words"),\n'
ENTRY = """\
#elif RUNG == {number}
#include "{number}_{name}.cu"
const Rung rung = {{sgemm_{name}<32, 32>, 32, 32, 1, 1024}};
#else
"""


def new_rung(number: int, name: str) -> list[Path]:
    """Add a rung to a checkout, as a copy of coalesced with another name.

    Writes its source, its record and its entry for main.cu, and returns these files.

    Raises BadSetting in an installed package, and for a number or a name that is taken.
    """
    kernels = kernels_dir()
    if kernels.name != "kernels":
        raise BadSetting(
            "--rung needs a checkout of worklog, and this is an installed package: clone the "
            "repository"
        )
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise BadSetting(f"cannot name a rung {name!r}: start with a-z, then take a-z, 0-9 and _")
    for other in RUNGS:
        if other.number == number or other.name == name:
            raise BadSetting(
                f"rung {other.number} is {other.name} already: take another number and name"
            )
    code = Path(__file__).with_name("rung.cu").read_text(encoding="utf-8")
    for placeholder, value in (
        ("NUMBER", str(number)),
        ("TITLE", name.replace("_", " ").capitalize()),
        ("NAME", name),
    ):
        code = code.replace(placeholder, value)
    source = kernels / f"{number}_{name}.cu"
    entries = kernels / "rungs.cuh"
    records = Path(__file__).with_name("rungs.py")
    record = RECORD.format(number=number, name=name)
    entry = ENTRY.format(number=number, name=name)
    ladder_name = "FP32" if number <= 20 else "TENSOR"
    ladder = rf"(?ms)^({ladder_name} = \(.*?)^\)$"
    source.write_text(code, encoding="utf-8")
    records.write_text(
        re.sub(ladder, rf"\g<1>{record})", records.read_text(encoding="utf-8")), encoding="utf-8"
    )
    entries.write_text(
        entries.read_text(encoding="utf-8").replace("#else\n", entry), encoding="utf-8"
    )
    return [source, records, entries]
