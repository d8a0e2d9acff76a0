"""Starter code: for a problem, from its signature, CUDA source that compiles and a Python function; and a rung."""

from __future__ import annotations

import inspect
import re
import shlex
import textwrap
from pathlib import Path

from worklog.errors import BadSetting
from worklog.kernel.ladder import RUNGS
from worklog.kernel.source import kernels_dir
from worklog.problem import Problem

STARTERS = {
    name: Path(__file__).with_name(file)
    for name, file in (("solution.cu", "solution.cu"), ("solution.py", "solution.py.txt"))
}
HEADERS = {"__half": "cuda_fp16.h", "half": "cuda_fp16.h", "__nv_bfloat16": "cuda_bf16.h"}
WIDTH, KEPT = 98, "\0"  # of starter code: columns, and a space at which a line isn't broken


def starters(problem: Problem, called: str, folder: Path) -> dict[Path, str]:
    """Starter code for a problem, by file: CUDA source that compiles, and a Python function. called: the problem as the
    command line names it, with its dtype. Raises BadSetting for a signature that isn't known.
    """
    declared = problem.signature
    written = [one.name for one in declared if one.pointer and not one.const] or ["the output"]
    needed = {HEADERS[one.type] for one in declared if one.type in HEADERS}
    values = {
        "ABOUT": " ".join((inspect.getdoc(problem) or "a problem").partition("\n\n")[0].split()),
        "CALLED": called,
        "INCLUDES": "".join(f"#include <{header}>\n" for header in sorted(needed)),
        "PROBLEM": problem.name,
        "ENTRY": re.sub(r"\W", "_", problem.name) + "_kernel",
        "PASSED": ", ".join(one.name for one in declared),
        "WRITTEN": " and ".join(written),
        "DECLARED": ", ".join(one.declaration.replace(" ", KEPT) for one in declared),
    }
    found = {}
    for name, template in STARTERS.items():
        text, of_file = template.read_text(encoding="utf-8"), values | {"FILE": shlex.quote(str(folder / name))}
        filled = "".join(of_file.get(word, word) for word in re.split(rf"({'|'.join(of_file)})", text))
        found[folder / name] = "".join(map(_wrapped, filled.splitlines(keepends=True)))
    return found


RUNG = Path(__file__).with_name("rung.cu")  # a copy of coalesced
RECORD = '    numbered({number}, "{name}", dict(BM=32, BN=32), ELEMENTS, "the idea in a few words", COVERING),\n'
ENTRY = """\
#elif RUNG == {number}
#include "{number}_{name}.cu"
const Rung rung = {{sgemm_{name}<32, 32>, 32, 32, 1, 1024}};
"""


def new_rung(number: int, name: str) -> list[Path]:
    """Add a rung to a checkout, as a copy of coalesced with another name: its source, its record and its entry for
    main.cu. Returns these files. Raises BadSetting in an installed package, and for a number or a name that is taken.
    """
    kernels, records = kernels_dir(), Path(__file__).with_name("rungs.py")
    if kernels.name != "kernels":
        raise BadSetting("--rung needs a checkout of worklog, and this is an installed package: clone the repository")
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise BadSetting(f"cannot name a rung {name!r}: start with a-z, then take a-z, 0-9 and _")
    for known in RUNGS:
        if known.number == number or known.name == name:
            raise BadSetting(f"rung {known.number} is {known.name} already: take another number and name")
    source, entries, code = kernels / f"{number}_{name}.cu", kernels / "rungs.cuh", RUNG.read_text(encoding="utf-8")
    for word, meant in (("NUMBER", str(number)), ("TITLE", name.replace("_", " ").capitalize()), ("NAME", name)):
        code = code.replace(word, meant)
    record, entry = (text.format(number=number, name=name) for text in (RECORD, ENTRY))
    ladder = "FP32" if number <= 20 else "TENSOR"
    changed = re.sub(rf"(?ms)^({ladder} = \(.*?)^\)$", rf"\g<1>{record})", records.read_text(encoding="utf-8"))
    source.write_text(code, encoding="utf-8")
    records.write_text(changed, encoding="utf-8")
    entries.write_text(entries.read_text(encoding="utf-8").replace("#else\n", f"{entry}#else\n"), encoding="utf-8")
    return [source, records, entries]


def _wrapped(line: str) -> str:
    """A line of starter code in the width of a page: text and parameters go on in the next one."""
    if len(line) <= WIDTH:
        return line.replace(KEPT, " ")
    opened = 0 if line.startswith(("//", '"')) else line.find("(") + 1
    indent = "// " if line.startswith("//") else " " * (opened or len(line) - len(line.lstrip()))
    kept = line.rstrip().replace(") {", f"){KEPT}{{")
    return textwrap.fill(kept, WIDTH, subsequent_indent=indent, break_on_hyphens=False).replace(KEPT, " ") + "\n"
