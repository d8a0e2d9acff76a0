"""Check the JavaScript of the widgets and the web site: `python -m tests.site.scripts`.

Deno, which comes as a wheel, checks format, lint and types; the types are JSDoc's. A script
consists of several files (worklog/site/scripts.py), so it is checked as a whole, and each finding
is reported at its place in a file.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from deno import find_deno_bin

from worklog.lab.assets import RUNG_SCRIPTS
from worklog.site import scripts

ROOT = Path(__file__).parents[2]
CONFIGURATION = Path(__file__).with_name("deno.json")
FOLDERS = ("worklog/lab", "worklog/site")
UNUSED = "no-unused-vars"
BETWEEN_ERRORS = re.compile(r"\n\n(?=TS\d+ |Found \d)")
PLACE = re.compile(r"file://\S*/([\w-]+)\.js:(\d+):\d+")


@dataclass(frozen=True)
class Checked:
    """A script, with what a page or a worker calls of it."""

    script: scripts.Script
    called: tuple[str, ...] = ()

    @cached_property
    def lines(self) -> list[tuple[str, str]]:
        """The script's lines, each after its place as file:line."""
        lines = []
        for path in self.script.files:
            name = path.relative_to(ROOT)
            texts = path.read_text(encoding="utf-8").splitlines()
            lines += [(f"{name}:{number}", text) for number, text in enumerate(texts, 1)]
        lines.append(("what the page calls", f"export {{ {', '.join(self.called)} }};"))
        return lines

    def has(self, place: str) -> bool:
        """Return whether the file of a place belongs to the script."""
        return any(place.startswith(f"{path.relative_to(ROOT)}:") for path in self.script.files)


SCRIPTS = {
    "reader": Checked(scripts.READER),
    "access": Checked(scripts.ACCESS, ("render", "unpacked")),
    "live": Checked(scripts.LIVE, ("LivePage",)),
    "puzzles": Checked(scripts.PUZZLES, ("PuzzleView",)),
    "emulator": Checked(scripts.EMULATOR, ("Emulator", "description")),
    "worker": Checked(scripts.WORKER),
    "rung": Checked(scripts.Script(RUNG_SCRIPTS, ()), ("render",)),
    "cuda_cells": Checked(scripts.Script(("highlighting/cuda_cells.js",), ())),
}
for widget, widget_script in {**scripts.WIDGETS, "live": scripts.LIVE_WIDGET}.items():
    SCRIPTS[f"widget-{widget}"] = Checked(widget_script, ("show",))


def main() -> int:
    """Print the findings. Return 1 if there are any."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        write_scripts(folder)
        findings = [*unformatted(), *linted(folder), *type_errors(folder)]
    print("\n".join(findings) or f"{len(SCRIPTS)} scripts are formatted, linted and type-checked")
    return 1 if findings else 0


def write_scripts(folder: Path) -> None:
    """Write each script as one file."""
    for name, checked in SCRIPTS.items():
        text = "\n".join(line for _, line in checked.lines)
        (folder / f"{name}.js").write_text(f"{text}\n", encoding="utf-8")


def unformatted() -> list[str]:
    """Return what `deno fmt` would change."""
    files = []
    for folder in FOLDERS:
        found = (ROOT / folder).rglob("*")
        files += [str(path) for path in found if path.suffix in (".js", ".css")]
    done = _deno("fmt", "--check", *sorted(files))
    return [f"{done.stdout}{done.stderr}"] if done.returncode else []


def linted(folder: Path) -> list[str]:
    """Return what `deno lint` finds.

    A name is unused if no script with its file uses it.
    """
    done = _deno("lint", "--json", str(folder))
    report = json.loads(done.stdout)
    findings = [f"{error['file_path']}: {error['message']}" for error in report["errors"]]
    scripts_of = dict[str, set[str]]()
    for diagnostic in report["diagnostics"]:
        name = Path(diagnostic["filename"]).stem
        place = SCRIPTS[name].lines[diagnostic["range"]["start"]["line"] - 1][0]
        finding = f"{place}: {diagnostic['code']}: {diagnostic['message']}"
        scripts_of.setdefault(finding, set()).add(name)
    for finding, names in scripts_of.items():
        holders = {name for name, checked in SCRIPTS.items() if checked.has(finding)}
        if f": {UNUSED}: " not in finding or names == holders:
            findings.append(finding)
    return findings


def type_errors(folder: Path) -> list[str]:
    """Return what `deno check` finds, once each."""
    done = _deno("check", *sorted(map(str, folder.glob("*.js"))))
    if done.returncode == 0:
        return []
    errors = []
    for error in BETWEEN_ERRORS.split(done.stderr):
        errors.append(PLACE.sub(lambda at: SCRIPTS[at[1]].lines[int(at[2]) - 1][0], error))
    return [*dict.fromkeys(errors)]


def _deno(command: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command of Deno, which needs no network."""
    environment = {**os.environ, "NO_COLOR": "1", "DENO_NO_UPDATE_CHECK": "1"}
    return subprocess.run(
        [find_deno_bin(), command, "--config", str(CONFIGURATION), *arguments],
        capture_output=True,
        text=True,
        env=environment,
        cwd=ROOT,
    )


if __name__ == "__main__":
    sys.exit(main())
