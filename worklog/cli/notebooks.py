"""`worklog notebooks`: the notebooks of this version in a folder of the user's."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path

import click

from worklog.kernel import source_folder
from worklog.runs import require_writable


@click.command()
@click.argument(
    "folder", metavar="[DIR]", type=click.Path(file_okay=False, path_type=Path), default="worklog-notebooks"
)
@click.option("--force", is_flag=True, help="Overwrite files that differ from this version.")
def notebooks(folder: Path, force: bool) -> None:
    """Write the notebooks and their examples into DIR (default: worklog-notebooks), and print how to open them. An
    existing file that differs is kept, and named.
    """
    require_writable(folder, f"notebooks into {folder}", "give another folder")
    shipped = source_folder("_notebooks", "notebooks")
    sources = [path for kind in ("*.ipynb", "*.md", "examples/*.*") for path in sorted(shipped.glob(kind))]
    written, kept = 0, []
    for source in sources:
        name = source.relative_to(shipped)
        target, content = folder / name, source.read_bytes()
        differs = target.exists() and target.read_bytes() != content
        if differs and not force:
            kept.append(str(name))
        elif differs or not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
            written += 1
    click.echo(f"{written} of {len(sources)} files written into {folder}")
    if kept:
        click.echo(f"kept, because they differ from this version: {', '.join(kept)} (--force overwrites them)")
    click.echo(f"to open them: {_jupyter()} {shlex.quote(str(folder))}")


def _jupyter() -> str:
    """The command that starts JupyterLab in this environment."""
    on_path = shutil.which("jupyter-lab")
    here = on_path is not None and Path(on_path).parent == Path(sys.executable).parent
    command = "jupyter lab" if here else f"{shlex.quote(sys.executable)} -m jupyterlab"
    return f"{command} --allow-root" if os.geteuid() == 0 else command
