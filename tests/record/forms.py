"""Count the instruction forms that the emulator has: `python -m tests.record.forms` (a second, no GPU).

forms.txt has one instruction per form: an opcode with its types and modifiers, where rounding modes, .ftz, .sat and the
kinds of comparison count once. ptxas 13.0 takes each of them for sm_90a.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from tests.record.corpus_trial import forms_missing
from worklog.errors import WorklogError
from worklog.runs.table import Table

LIST = Path(__file__).with_name("forms.txt")
HEAD = ".version 9.0\n.target sm_90a\n.address_size 64\n"
WIDE = ".reg .b128 x<3>;"
REGISTERS = (
    ".reg .pred p, q, r; .reg .b16 h<6>; .reg .b32 w<20>; .reg .b64 d<8>; .reg .f32 f<70>; .reg .f64 e<6>;" + WIDE
)


def forms() -> list[str]:
    """The instructions of the list."""
    return LIST.read_text(encoding="utf-8").splitlines()


def module(form: str) -> str:
    """PTX of a kernel k that consists of one instruction, after one that sets the carry."""
    carry = "add.cc.u32 w0, w1, w2;" if re.match(r"(?:add|sub|mad)c\.", form) else ""
    text = f"{HEAD}.visible .entry k()\n{{ {REGISTERS} {carry}\n{form}\nret; }}\n"
    return text if re.search(r"\bx\d", form) else text.replace(WIDE, "")


def covered(form: str) -> bool:
    """Whether the emulator translates an instruction."""
    try:
        return not forms_missing(module(form), "k")
    except WorklogError:
        return False


def table() -> Table:
    """Covered and all forms by the first word of the opcode, the most missing first; the last line is for all."""
    every, have = Counter[str](), Counter[str]()
    for form in forms():
        name = form.split()[0].split(".")[0].rstrip(";")
        every[name] += 1
        have[name] += covered(form)
    order = sorted(every, key=lambda name: (have[name] - every[name], name))
    rows = [{"instruction": name, "forms": str(every[name]), "covered": str(have[name])} for name in order]
    rows.append({"instruction": "all", "forms": str(every.total()), "covered": str(have.total())})
    return Table.of("instruction forms of sm_90a on the emulator", rows)


if __name__ == "__main__":
    print(table())
