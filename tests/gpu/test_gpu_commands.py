"""The README's commands and blocks of Python on a GPU, as a user types them.

And what is only seen live: the panel, the ladder, a watched file, and JupyterLab.

Each command runs in a separate process: in an empty folder, or in a copy of the checkout where it
needs one.
"""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.readme_commands import COMMANDS, LIVE, ROOT, Command, blocks
from worklog.gpu.device import gpu

LIMIT_S = 300  # the longest is `worklog article`
NOT_COPIED = shutil.ignore_patterns(".git", ".venv", ".*_cache", "__pycache__", ".whl*", "shared")


@pytest.fixture(autouse=True)
def home() -> None:
    """In place of this folder's: the commands share their runs."""


@pytest.fixture(scope="module")
def environment(tmp_path_factory) -> dict[str, str]:
    """Of each command: one home for all of their runs."""
    here = {"WORKLOG_HOME": str(tmp_path_factory.mktemp("home"))}
    return {**os.environ, **here, "PYTHONUNBUFFERED": "1"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory, environment) -> Path:
    """Return a folder of the user's own, with the README's benchmarks."""
    folder = tmp_path_factory.mktemp("mine")
    (folder / "mine.py").write_text(blocks("python")[2], encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def checkout(tmp_path_factory) -> Path:
    """Return a copy of the checkout under version control.

    So `git diff` shows what a command changes.
    """
    copy = tmp_path_factory.mktemp("copy") / "worklog"
    shutil.copytree(ROOT, copy, ignore=NOT_COPIED)
    commit(copy, "as it is")
    return copy


def commit(folder: Path, message: str) -> None:
    """Commit everything in the folder, which becomes a repository if it isn't one."""
    name = ["-c", "user.name=me", "-c", "user.email=me@localhost"]
    for words in (["init", "-q"], ["add", "-A"], [*name, "commit", "-qm", message]):
        subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True)


def typed(
    words: str, folder: Path, environment: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    """Run a command as typed in this folder."""
    command = shlex.split(words.replace("worklog ", "python -m worklog ", 1))
    assert command[0] == "python"
    return subprocess.run(
        [sys.executable, *command[1:]],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )


def prepare(command: Command, folder: Path, environment: dict[str, str]) -> None:
    """Make what the README's sentence takes for granted before the command."""
    if "HEAD~1" in command.words:
        commit(folder, "first")
        source = folder / "mine.cu"
        source.write_text(source.read_text() + "\n// a second revision\n")
        commit(folder, "second")
    if command.words.startswith("worklog compare"):
        for name in ("old", "new"):
            made = typed(f"worklog run shared --size 1024 --out {name}.jsonl", folder, environment)
            assert made.returncode == 0, made.stderr


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.words)
def test_it_does_what_the_readme_says(command, folder, checkout, environment):
    here = checkout if command.in_checkout else folder
    if command.in_checkout:
        environment = {**environment, "WORKLOG_SOURCE": "live"}
    prepare(command, here, environment)
    started = time.monotonic()
    result = typed(command.words, here, environment)
    print(f"{time.monotonic() - started:6.1f} s  {command.words}", file=sys.__stderr__, flush=True)
    said = f"{result.stdout}\n{result.stderr}"
    assert result.returncode == command.exit_code, said
    assert "Traceback" not in said, said
    assert command.label in result.stdout, said
    if command.label == LIVE:
        assert f"{LIVE}{gpu().name}" in result.stdout, said
    if command.written == "worklog article":
        assert "not drawn" not in said
        check_article(checkout)


def check_article(checkout: Path) -> None:
    """Only numbers of the README's table and the figures change."""
    changed = subprocess.run(
        ["git", "status", "--porcelain"], cwd=checkout, check=True, capture_output=True, text=True
    ).stdout
    for line in changed.splitlines():
        assert re.match(r" M (README\.md|figures/[\w.]+)$", line), line
    before, after = (
        re.sub(r"[±\d.,]+", "0", page.read_text(encoding="utf-8"))
        for page in (ROOT / "README.md", checkout / "README.md")
    )
    begin = "<!-- worklog table: "
    end = "<!-- worklog table ends"
    assert before.partition(begin)[0] == after.partition(begin)[0]
    assert before.partition(end)[2] == after.partition(end)[2]
    rows = re.compile(r"^\|.*", re.MULTILINE)
    assert rows.findall(before) == rows.findall(after)


def python(text: str, folder: Path, environment: dict[str, str]) -> str:
    """Return what a Python program prints. Raises AssertionError if it fails."""
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(text)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_the_block_of_kernels_and_sgemm_runs(folder, environment):
    matrices = """
    import cupy

    A = cupy.random.rand(512, 512, dtype=cupy.float32)
    B = cupy.random.rand(512, 512, dtype=cupy.float32)
    """
    check = "assert abs(C - A @ B).max() < 1e-2"
    said = python(
        f"{textwrap.dedent(matrices)}\n{blocks('python')[0]}\n{check}", folder, environment
    )
    assert f"{LIVE}{gpu().name}" in said


def test_the_block_that_times_a_function_prints_a_time(folder, environment):
    said = python(blocks("python")[1], folder, environment)
    assert f"{LIVE}{gpu().name}" in said and "TFLOP/s" in said


PANEL = """
import time
from worklog import lab

panel = lab.panel("vectorized", 256, l2="warm")
panel.measure()
while panel.progress["running"]:
    time.sleep(0.1)
print(panel.progress["words"])
print("\\n".join(panel.text()))
print(lab.ladder("vectorized", 256))
"""


def test_the_panel_measures_and_the_ladder_shows_the_newest_run(folder, environment):
    typed("worklog run vectorized --size 256", folder, environment)
    said = python(PANEL, folder, environment)
    assert said.startswith("measured; "), said
    assert said.count(f"{LIVE}{gpu().name}") >= 2, said


@pytest.fixture
def started(environment) -> Iterator:
    """Start commands that don't end by themselves, and collect the lines that they print."""
    running: list[tuple[subprocess.Popen[str], threading.Thread]] = []

    def start(command: list[str], folder: Path) -> tuple[subprocess.Popen[str], list[str]]:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        lines: list[str] = []
        assert process.stdout is not None
        reading = threading.Thread(target=lines.extend, args=(process.stdout,), daemon=True)
        reading.start()
        running.append((process, reading))
        return process, lines

    yield start
    for process, reading in running:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        reading.join()
        process.stdout.close()


def until(lines: list[str], words: str, times: int = 1) -> None:
    """Wait until so many lines hold the words. Raises AssertionError if they don't come."""
    deadline = time.monotonic() + 90
    while sum(words in line for line in lines) < times:
        assert time.monotonic() < deadline, "".join(lines)
        time.sleep(0.1)


def test_a_watched_file_is_checked_again_when_it_is_saved(folder, environment, started):
    typed("worklog new watched.cu", folder, environment)
    command = [sys.executable, "-m", "worklog", "check", "watched.cu", "--watch"]
    process, lines = started(command, folder)
    until(lines, "passed as fp32")
    source = folder / "watched.cu"
    source.write_text(source.read_text() + "\n// saved again\n")
    until(lines, "passed as fp32", times=2)
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 0


def test_jupyterlab_opens_on_the_notebooks(started):
    pytest.importorskip("jupyterlab", reason="JupyterLab isn't installed")
    process, lines = started(["make", "lab", "ARGS=--no-browser --port 0"], ROOT)
    until(lines, "/lab?token=")
    os.killpg(process.pid, signal.SIGTERM)
    process.wait(30)
