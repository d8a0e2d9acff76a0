"""Starter code: for a problem, from its signature, CUDA source that compiles and a Python function; and a rung."""

from __future__ import annotations

import inspect
import re
import shlex
from pathlib import Path

from worklog.errors import BadSetting
from worklog.kernel.ladder import RUNGS
from worklog.kernel.source import kernels_dir
from worklog.problem import Problem

HEADERS = {"__half": "cuda_fp16.h", "half": "cuda_fp16.h", "__nv_bfloat16": "cuda_bf16.h"}


def starters(problem: Problem, called: str, folder: Path) -> dict[Path, str]:
    """Starter code by file, in CUDA and Python. called: the problem as one types it. Raises BadSetting."""
    declared = problem.signature
    written = [parameter.name for parameter in declared if parameter.pointer and not parameter.const]
    needed = {HEADERS[parameter.type] for parameter in declared if parameter.type in HEADERS}
    values = {
        "ABOUT": " ".join((inspect.getdoc(problem) or "a problem").partition("\n\n")[0].split()),
        "CALLED": called,
        "INCLUDES": "".join(f"#include <{header}>\n" for header in sorted(needed)),
        "PROBLEM": problem.name,
        "ENTRY": re.sub(r"\W", "_", problem.name) + "_kernel",
        "PASSED": ", ".join(parameter.name for parameter in declared),
        "WRITTEN": " and ".join(written or ["the output"]),
        "DECLARED": ",\n    ".join(parameter.declaration for parameter in declared),
    }
    files = {}
    for name, template in (("solution.cu", "solution.cu"), ("solution.py", "solution.py.txt")):
        text = Path(__file__).with_name(template).read_text(encoding="utf-8")
        words = values | {"FILE": shlex.quote(str(folder / name))}
        files[folder / name] = re.sub("|".join(words), lambda match: words[match[0]], text)  # noqa: B023
    return files


RECORD = '    numbered({number}, "{name}", "the idea in a few words"),\n'
ENTRY = """\
#elif RUNG == {number}
#include "{number}_{name}.cu"
const Rung rung = {{sgemm_{name}<32, 32>, 32, 32, 1, 1024}};
#else
"""


def new_rung(number: int, name: str) -> list[Path]:
    """Add a rung to a checkout, as a copy of coalesced with another name: its source, its record and its entry for
    main.cu. Returns these files. Raises BadSetting in an installed package, and for a number or a name that is taken.
    """
    kernels = kernels_dir()
    if kernels.name != "kernels":
        raise BadSetting("--rung needs a checkout of worklog, and this is an installed package: clone the repository")
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise BadSetting(f"cannot name a rung {name!r}: start with a-z, then take a-z, 0-9 and _")
    for known in RUNGS:
        if known.number == number or known.name == name:
            raise BadSetting(f"rung {known.number} is {known.name} already: take another number and name")
    code = Path(__file__).with_name("rung.cu").read_text(encoding="utf-8")
    for word, meant in (("NUMBER", str(number)), ("TITLE", name.replace("_", " ").capitalize()), ("NAME", name)):
        code = code.replace(word, meant)
    source, entries, records = (
        kernels / f"{number}_{name}.cu",
        kernels / "rungs.cuh",
        Path(__file__).with_name("rungs.py"),
    )
    record, entry = (text.format(number=number, name=name) for text in (RECORD, ENTRY))
    ladder = rf"(?ms)^({'FP32' if number <= 20 else 'TENSOR'} = \(.*?)^\)$"
    source.write_text(code, encoding="utf-8")
    records.write_text(re.sub(ladder, rf"\g<1>{record})", records.read_text(encoding="utf-8")), encoding="utf-8")
    entries.write_text(entries.read_text(encoding="utf-8").replace("#else\n", entry), encoding="utf-8")
    return [source, records, entries]
