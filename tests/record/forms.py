"""Count the instruction forms that the emulator has: `python -m tests.record.forms` (a second, no GPU).

forms.txt has one instruction per form: an opcode with its types and modifiers, where rounding modes, .ftz, .sat and the
kinds of comparison count once. ptxas 13.0 takes each of them for sm_90a.
"""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd

from tests.record.corpus import forms_missing
from worklog.errors import WorklogError

FORMS = Path(__file__).with_name("forms.txt").read_text(encoding="utf-8").splitlines()
WIDE = ".reg .b128 x<3>;"
REGISTERS = (
    ".reg .pred p, q, r; .reg .b16 h<6>; .reg .b32 w<20>; .reg .b64 d<8>; .reg .f32 f<70>; .reg .f64 e<6>;" + WIDE
)


def module(form: str) -> str:
    """PTX of a kernel k that consists of one instruction, after one that sets the carry."""
    carry = "add.cc.u32 w0, w1, w2;" if re.match(r"(?:add|sub|mad)c\.", form) else ""
    head = ".version 9.0\n.target sm_90a\n.address_size 64\n"
    text = f"{head}.visible .entry k()\n{{ {REGISTERS} {carry}\n{form}\nret; }}\n"
    return text if re.search(r"\bx\d", form) else text.replace(WIDE, "")


def covered(form: str) -> bool:
    """Whether the emulator translates an instruction."""
    try:
        return not forms_missing(module(form), "k")
    except WorklogError:
        return False


def table() -> pd.DataFrame:
    """Covered and all forms by the first word of the opcode, the most missing first."""
    frame = pd.DataFrame({"covered": map(covered, FORMS), "forms": 1}, [re.split(r"[ .;]", form)[0] for form in FORMS])
    counts = frame.groupby(level=0).sum()
    return counts.loc[(counts["covered"] - counts["forms"]).sort_values(kind="stable").index]


if __name__ == "__main__":
    counts = table()
    print(counts.to_string())
    print(f"{counts['covered'].sum()} of {counts['forms'].sum()} instruction forms of sm_90a")
