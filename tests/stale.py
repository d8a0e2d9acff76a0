"""Which generated files are out of date: `python -m tests.stale` lists them with the command for each (2 s, no GPU).

`python -m tests.stale --make NAME`, repeated for more, runs the command, and notes in made.json what the files were
made from: the code that the command imports (without comments), its data, and the files themselves.
"""

import hashlib
import json
import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import NamedTuple

import click
from grimp import ImportGraph, build_graph

ROOT = Path(__file__).parents[1]
MADE = Path(__file__).with_name("made.json")


class Target(NamedTuple):
    """Files that a command makes, or several joined by &&. code: modules of worklog whose imports count. data,
    files: glob patterns; of README.md only the parts between markers count.
    """

    command: str
    code: tuple[str, ...]
    data: tuple[str, ...]
    files: tuple[str, ...]


RECORDINGS = "worklog/recordings/**/*.json*"
CORE = ("worklog/emulator/core/*.c", "worklog/emulator/core/*.h")
TARGETS = {
    "figures": Target(
        "python -m worklog article && python -m tests.record.readme",
        ("worklog.cli.figures", "worklog.kernel.best", "worklog.runs.changes"),
        (
            RECORDINGS,
            "worklog/plots/*.toml",
            "kernels/*",
            "tests/record/readme.*",
            "constraints.txt",
        ),
        ("figures/*.svg", "figures/*.png", "figures/README.md", "README.md"),
    ),
    "notebooks": Target(
        "python -m tests.record.notebooks",
        ("worklog",),
        (
            RECORDINGS,
            "kernels/*",
            "notebooks/source/*.py",
            "tests/record/notebooks.py",
            *CORE,
            "constraints.txt",
        ),
        ("notebooks/*.ipynb",),
    ),
    "ptx": Target(
        "python -m tests.record.ptx",
        ("worklog.analysis.prediction", "worklog.gate"),
        ("kernels/*", "tests/record/ptx.py"),
        ("worklog/kernel/ptx/*",),
    ),
    "seeds": Target(
        "python -m tests.seeds", (), ("tests/seeds.csv", "tests/seeds.py"), ("notebooks/seeds.md",)
    ),
    "draws": Target(
        "python -m tests.gate.test_draws",
        ("worklog.gate.sgemm",),
        (
            "tests/gate/test_draws.py",
            "tests/gate/kernels.py",
            "tests/gate/numpy_device.py",
            "constraints.txt",
        ),
        ("tests/gate/draws.json",),
    ),
    "looks": Target(
        "python -m tests.plots.test_charts",
        ("worklog.plots", "worklog.lab"),
        ("tests/plots/test_charts.py", "tests/plots/conftest.py", "kernels/*", "constraints.txt"),
        ("tests/plots/looks.json",),
    ),
    "animation": Target(
        "python -m tests.browser.animation",
        ("worklog.lab",),
        ("worklog/lab/*.[jc]s*",),
        ("figures/panel.gif", "figures/access.gif"),
    ),
}


@cache
def imports() -> ImportGraph:
    return build_graph("worklog", exclude_type_checking_imports=True, cache_dir=None)


def sources(module: str) -> list[Path]:
    """The files of a module and of all that it imports; of the package, whose names load on first use, all."""
    names = (
        imports().modules
        if module == "worklog"
        else {module, *imports().find_upstream_modules(module)}
    )
    paths = [ROOT / name.replace(".", "/") for name in sorted(names)]
    return [path / "__init__.py" if path.is_dir() else path.with_suffix(".py") for path in paths]


def content(path: Path) -> str:
    """What counts of a file: of code no empty lines and lines of comments."""
    if path.suffix not in (".py", ".md"):
        return path.read_bytes().hex()
    text = path.read_text(encoding="utf-8")
    if path == ROOT / "README.md":
        return "".join(re.findall(r"<!-- worklog \w+:.*?-->(.*?)<!--", text, re.DOTALL))
    return re.sub(r"^\s*(#.*)?\n", "", text, flags=re.MULTILINE) if path.suffix == ".py" else text


def fingerprint(target: Target) -> str:
    """Of everything that a target's files depend on, and of the files."""
    paths = [path for module in target.code for path in sources(module)]
    for pattern in (*target.data, *target.files):
        paths += sorted(path for path in ROOT.glob(pattern) if path.is_file())
    digest = hashlib.sha256()
    for path in paths:
        digest.update(f"{path.name} {content(path)}".encode())
    return digest.hexdigest()[:16]


def stale() -> list[str]:
    """Names of the targets whose files are out of date."""
    made = json.loads(MADE.read_text(encoding="utf-8"))
    return [name for name, target in TARGETS.items() if made.get(name) != fingerprint(target)]


@click.command()
@click.option(
    "--make",
    "names",
    multiple=True,
    type=click.Choice([*TARGETS, "all"]),
    help="Make these files again.",
)
def main(names: tuple[str, ...]) -> None:
    """List the generated files that are out of date, or make files again."""
    for name in stale() if "all" in names else names:
        for command in TARGETS[name].command.split(" && "):
            words = [sys.executable, *command.split()[1:]]
            subprocess.run(
                words, cwd=ROOT, env={**os.environ, "WORKLOG_SOURCE": "recorded"}, check=True
            )
        made = json.loads(MADE.read_text(encoding="utf-8")) | {name: fingerprint(TARGETS[name])}
        MADE.write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")
    if not names:
        for name in stale():
            print(f"{', '.join(TARGETS[name].files)}: python -m tests.stale --make {name}")


if __name__ == "__main__":
    main()
