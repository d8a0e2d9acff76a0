"""A pytest that collects all tests once and then forks for each mutant: mutants_of_code starts it in a copy of the
checkout, with this file as a plugin. A request is a source as it was, the same with a change (both empty where pytest
started with the change), the file, and the names of tests in the order in which they run. The answer is the first test
that fails, "" if none does, or NEW_PROCESS where functions of this process can't take the change.
"""

import gc
import os
import shutil
import signal
import subprocess
import sys
import types
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from itertools import zip_longest
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
LONGEST_S = 600  # of all tests with a mutant
WITHOUT = [
    "--ignore=tests/gpu",
    "--ignore=tests/browser",
]  # a browser does not answer a forked process
NEW_PROCESS = "needs a process that starts with the change"
Key = tuple[str, str, int]  # of code: its file, its name in the module, its first line


def functions() -> dict[Key, list[Any]]:
    """The functions of this process by their code: a module's, a class's, and those that decorators hold."""
    by_code = defaultdict[Key, list[Any]](list)
    gc.unfreeze()
    for function in gc.get_objects():
        if type(function) is types.FunctionType:
            code = function.__code__
            by_code[code.co_filename, code.co_qualname, code.co_firstlineno].append(function)
    gc.freeze()
    return by_code


def codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from codes(constant)


def change(by_code: dict[Key, list[Any]], path: str, before: str, after: str) -> bool:
    """Give functions their changed code; False if that is impossible, as where a closure has lost a variable."""
    old, new = (list(codes(compile(text, path, "exec"))) for text in (before, after))
    if [code.co_qualname for code in old] != [code.co_qualname for code in new]:
        return False
    for was, now in zip(old[1:], new[1:], strict=True):
        for function in by_code.get((path, was.co_qualname, was.co_firstlineno), []):
            if was.co_freevars != now.co_freevars:
                return False
            function.__code__ = now
    return True


def first_failing(session: pytest.Session, names: list[str]) -> str:
    """The first of these tests that fails; where a name has a value that the change alters, all of its function."""
    by_name = defaultdict[str, list[pytest.Item]](list)
    for item in session.items:
        for name in {item.nodeid, item.nodeid.partition("[")[0]}:
            by_name[name].append(item)
    chosen = [item for name in names for item in by_name[name] or by_name[name.partition("[")[0]]]
    for item, after in zip_longest(chosen, chosen[1:]):
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
        if session.testsfailed:
            session._setupstate.teardown_exact(None)
            return item.nodeid
    return ""


def pytest_runtestloop(session: pytest.Session) -> bool:
    requests, by_code = Connection(int(os.environ["MUTANTS"])), functions()
    requests.send(len(session.items))
    while (request := requests.recv()) is not None:
        path, before, after, names = request
        if not (child := os.fork()):
            possible = change(by_code, path, before, after)
            requests.send(first_failing(session, names) if possible else NEW_PROCESS)
            os._exit(0)
        if os.waitpid(child, 0)[1]:
            requests.send("the tests' process ends")
    return True


def copied(to: Path) -> Path:
    """The checkout, without what tests make."""
    return Path(
        shutil.copytree(
            ROOT, to, ignore=shutil.ignore_patterns(".git", ".venv", "__pycache__", "dist")
        )
    )


def testing(folder: Path, *words: str, **given: Any) -> subprocess.Popen[str]:
    """A process that tests a copy of the checkout."""
    command = (
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "--tb=no",
        "--timeout=120",
        *WITHOUT,
        *words,
    )
    environment = {**os.environ, "PYTHONPATH": str(folder), **given.pop("env", {})}
    return subprocess.Popen(command, cwd=folder, env=environment, text=True, **given)


class Copy:
    """A copy of the checkout, and a pytest there that has collected all tests and forks for each mutant."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.changes = copied(folder), 0
        self.process: subprocess.Popen[str] | None = None

    def start(self) -> bool:
        """Whether the tests can be collected."""
        self.stop()
        self.requests, theirs = Pipe()
        plugin = "-p", "tests.record.mutants_fork", "-s", f"--basetemp={self.folder}/temporary"
        given = {
            "env": {"MUTANTS": str(theirs.fileno())},
            "pass_fds": [theirs.fileno()],
            "start_new_session": True,
        }
        quiet = dict.fromkeys(("stdout", "stderr"), subprocess.DEVNULL)
        self.process = testing(self.folder, *plugin, **quiet, **given)
        theirs.close()
        try:
            return bool(self.requests.recv())
        except EOFError:
            return False

    def stop(self) -> None:
        if self.process:
            self.requests.close()
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None

    def ask(self, *request: object) -> str:
        """The answer of the forked process. None within LONGEST_S is a failure."""
        self.requests.send(request)
        with suppress(EOFError):
            if self.requests.poll(LONGEST_S):
                return str(self.requests.recv())
        self.stop()
        return "the tests take too long"

    def failing(self, file: str, changed: str, names: list[str], imported: bool) -> str:
        """The first of these tests that fails with a changed file, "" if none does."""
        path, before = self.folder / file, (ROOT / file).read_text(encoding="utf-8")
        forks = not imported and (bool(self.process) or self.start())
        path.write_text(changed, encoding="utf-8")  # for processes that tests start
        self.changes += 1
        os.utime(
            path, (self.changes, self.changes)
        )  # so that no byte code of an earlier change fits
        try:
            answer = self.ask(str(path), before, changed, names) if forks else NEW_PROCESS
            if answer == NEW_PROCESS:
                answer = (
                    self.ask(str(path), "", "", names) if self.start() else "the tests don't start"
                )
                self.stop()
            return answer
        finally:
            shutil.copy2(ROOT / file, path)
