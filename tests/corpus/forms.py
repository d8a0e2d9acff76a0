"""Count the instruction forms that the emulator has: `python -m tests.corpus.forms [--ptxas]`.

forms.txt has one instruction per form: an opcode with its types and modifiers, where rounding modes, .ftz, .sat and the
kinds of comparison count once. ptxas 13.0 takes each of them for sm_90a, which --ptxas repeats with the ptxas on PATH.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections import Counter
from pathlib import Path

import click

from tests.corpus.trial import forms_missing
from worklog.errors import WorklogError
from worklog.runs.tables import Table

LIST = Path(__file__).with_name("forms.txt")
HEAD = ".version 9.0\n.target sm_90a\n.address_size 64\n"
WIDE = ".reg .b128 x<3>;"
REGISTERS = (
    ".reg .pred p, q, r; .reg .b16 h<6>; .reg .b32 w<20>; .reg .b64 d<8>; .reg .f32 f<70>; .reg .f64 e<6>;" + WIDE
)


def forms() -> list[str]:
    """The instructions of the list."""
    return LIST.read_text(encoding="utf-8").splitlines()


def entry(number: int, form: str) -> str:
    """A kernel that consists of one instruction, after one that sets the carry."""
    carry = "add.cc.u32 w0, w1, w2;" if re.match(r"(?:add|sub|mad)c\.", form) else ""
    return f".visible .entry k{number}()\n{{ {REGISTERS} {carry}\n{form}\nret; }}\n"


def covered(form: str) -> bool:
    """Whether the emulator translates an instruction."""
    text = HEAD + entry(0, form)
    try:
        return not forms_missing(text if re.search(r"\bx\d", form) else text.replace(WIDE, ""), "k0")
    except WorklogError:
        return False


def rejected(ptxas: str = "ptxas") -> str:
    """What ptxas says against the instructions of the list: "" where it takes all."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "forms.ptx")
        source.write_text(HEAD + "".join(entry(*each) for each in enumerate(forms())), encoding="utf-8")
        command = (ptxas, "-arch=sm_90a", "-O0", source, "-o", Path(folder, "forms.cubin"))
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.stderr if done.returncode else ""


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


@click.command()
@click.option("--ptxas", is_flag=True, help="Assemble every form with the ptxas on PATH first.")
def main(ptxas: bool) -> None:
    """Print how many of the forms the emulator has, by instruction."""
    if ptxas and (words := rejected()):
        raise click.ClickException(f"ptxas rejects forms of {LIST.name}:\n{words}")
    print(table())


if __name__ == "__main__":
    main()
