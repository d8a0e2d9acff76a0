"""Put right kernels in other people's styles through the gate: none may be refused.

`python -m tests.record.right_kernels`, no GPU, about 15 minutes. Each kernel gets the full check of
`worklog check --emulate`. --only names some of them, whose rows are replaced in the table.

None is a rung of the ladder. tests/gate/right has the styles of textbooks, blogs, libraries and
contests. The others are the right exploits, the small kernels of the emulator's tests, and the
right answers to the puzzles of notebook 04.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click

from tests.record import recording
from tests.record.mutants import small_kernels
from worklog.errors import WorklogError
from worklog.kernel import Kernel
from worklog.kernel.trial import completed, kernel_of
from worklog.peers.exploits import exploits
from worklog.runner.check import check
from worklog.runs.files import write_text

TESTS = Path(__file__).parents[1]
STYLES = TESTS / "gate" / "right"
PUZZLES = TESTS / "lab" / "solutions"
RECORDED = TESTS.parent / "worklog" / "recordings" / "right_kernels" / "verdicts.json"
SEED = 1
JUDGED_RIGHT = "// judged: right"
ENTRY_OF_PUZZLES = "mine"
STATED = re.compile(r"^// (class|entry): (.+)$", re.MULTILINE)
OPTION_NAMES = {"class": "claimed", "entry": "entry"}


def right_kernels() -> dict[str, Callable[[], Kernel]]:
    """Return functions that read the kernels, by the kernels' names, as "styles/iterators"."""
    found = dict[str, Callable[[], Kernel]]()
    for path in sorted(STYLES.glob("*.cu")):
        found[f"styles/{path.stem}"] = partial(style, path)
    exploit_names = {exploit.name for exploit in exploits()}
    for kernel in small_kernels():
        stem = Path(kernel.file).stem
        group = "exploits" if stem in exploit_names else "small"
        found[f"{group}/{stem}"] = partial(completed, kernel)
    for path in sorted(PUZZLES.glob("*/*.cu")):
        if path.read_text(encoding="utf-8").startswith(JUDGED_RIGHT):
            puzzle = partial(kernel_of, str(path), {"entry": ENTRY_OF_PUZZLES})
            found[f"puzzles/{path.parent.name}-{path.stem}"] = puzzle
    return found


def style(path: Path) -> Kernel:
    """Return a kernel of tests/gate/right with the options that its comments state.

    Its other options are read from the file, as `worklog check` does it.
    """
    stated = STATED.findall(path.read_text(encoding="utf-8"))
    return kernel_of(str(path), {OPTION_NAMES[name]: value for name, value in stated})


def row(name: str, kernel: Kernel, *, is_quick: bool = False) -> dict[str, Any]:
    """Return the gate's verdict on a kernel.

    is_quick: check a sample of the sizes
    """
    started = time.process_time()
    try:
        done = check(kernel, on="emulated", seed=SEED, quick=is_quick, sweep=not is_quick)
    except WorklogError as error:
        reason = str(error).partition("\n")[0]
        outcome = {"verdict": "refused", "stage": type(error).__name__, "reason": reason}
        notes = list[str]()
    else:
        verdict = done.verdict
        failed = verdict.failed
        outcome = {
            "verdict": "refused" if failed else "passed",
            "stage": failed.name if failed else "",
            "reason": verdict.result,
        }
        notes = [*verdict.notes]
        if done.unchecked_arrays:
            notes.append(f"bounds of arrays not checked: {done.unchecked_arrays}")
    return {
        "kernel": name,
        "claimed": kernel.claimed,
        **outcome,
        "notes": notes,
        "seconds": round(time.process_time() - started, 1),
    }


@click.command()
@click.option("--only", multiple=True, help="A kernel, as styles/iterators; repeat for more.")
def main(only: Sequence[str]) -> None:
    """Check every kernel in full, and write the table."""
    rows = dict[str, dict[str, Any]]()
    if only:
        before = json.loads(RECORDED.read_text(encoding="utf-8"))
        rows = {old["kernel"]: old for old in before["rows"]}
    kernels = right_kernels()
    for name in only or kernels:
        rows[name] = row(name, kernels[name]())
        print(rows[name]["verdict"], name, rows[name]["reason"][:100], file=sys.stderr, flush=True)
        present = [rows[known] for known in kernels if known in rows]
        write_text(RECORDED, recording.document("right_kernels", present, seed=SEED))
    refused = [known for known in rows if rows[known]["verdict"] == "refused"]
    print(f"{len(rows)} right kernels, {len(refused)} refused:", *refused)


if __name__ == "__main__":
    main()
