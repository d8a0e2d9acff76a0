"""A pytest that collects all tests once and then forks for each mutant.

mutants_of_code starts it in a copy of the checkout, with this file as a plugin. A request is a
source as it was, the same with a change (both empty where pytest started with the change), the
file, and the names of tests in the order in which they run. The answer is the first test that
fails, or why there is no answer; NEW_PROCESS if functions of this process can't take the change.
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
from mmap import mmap
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
LONGEST_S = 1800  # of all tests with a mutant, on a machine that others use, too
WITHOUT = [
    "--ignore=tests/gpu",
    "--ignore=tests/browser",
]  # a browser does not answer a forked process
Key = tuple[str, str, int]  # of code: its file, its name in the module, its first line


def functions() -> dict[Key, list[Any]]:
    """Return the functions of this process by their code.

    A module's, a class's, and those that decorators hold.
    """
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
    """Give functions their changed code.

    False if that is impossible, as where a closure has lost a variable.
    """
    old, new = (list(codes(compile(text, path, "exec"))) for text in (before, after))
    if [code.co_qualname for code in old] != [code.co_qualname for code in new]:
        return False
    for was, now in zip(old[1:], new[1:], strict=True):
        for function in by_code.get((path, was.co_qualname, was.co_firstlineno), []):
            if was.co_freevars != now.co_freevars:
                return False
            function.__code__ = now
    return True


class Answer(NamedTuple):
    """What tests say about a mutant; two empty words: no test notices it."""

    test: str = ""  # the first test that fails
    why: str = ""  # or the reason for which there is no answer: a time limit, a process that died


NEW_PROCESS = Answer(why="needs a process that starts with the change")


class Failures:
    """A plugin that keeps the error of the last failed test."""

    error: BaseException | None = None

    def pytest_runtest_makereport(self, call: pytest.CallInfo[None]) -> None:
        if call.excinfo and not call.excinfo.errisinstance(pytest.skip.Exception):
            self.error = call.excinfo.value

    def is_time_limit(self) -> bool:
        """Return whether a test took too long, here or in a process that it waits for."""
        if isinstance(self.error, TimeoutError | subprocess.TimeoutExpired):
            return True
        words = f"{type(self.error).__name__} {self.error}"
        return "pytest-timeout" in words or "DeadKernelError" in words


def chosen_items(session: pytest.Session, names: list[str]) -> list[pytest.Item]:
    """Return these tests; where a name has a value that the change alters, all of its function."""
    by_name = defaultdict[str, list[pytest.Item]](list)
    for item in session.items:
        for name in {item.nodeid, item.nodeid.partition("[")[0]}:
            by_name[name].append(item)
    return [item for name in names for item in by_name[name] or by_name[name.partition("[")[0]]]


def first_failing(session: pytest.Session, items: list[pytest.Item], running: Any) -> Answer:
    """Return the first of these tests that fails, and not by a time limit.

    running: shared memory that gets the index of the test that runs
    """
    failures = Failures()
    session.config.pluginmanager.register(failures)
    late = list[str]()
    for index, (item, after) in enumerate(zip_longest(items, items[1:])):
        running[:4] = index.to_bytes(4)
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
        if session.testsfailed:
            if not failures.is_time_limit():
                return Answer(item.nodeid)
            late.append(f"{item.nodeid} takes too long")
            session.testsfailed = 0
    return Answer(why=", ".join(late))


def answer_in_forks(session: pytest.Session, by_code: dict[Key, list[Any]], request: Any) -> Answer:
    """Run a request's tests in a forked process.

    After a test in which it dies, the tests behind it run in another.
    """
    path, before, after, names = request
    items = chosen_items(session, names)
    running = mmap(-1, 4)
    dead = list[str]()
    while items:
        mine, theirs = Pipe(duplex=False)
        if not (child := os.fork()):
            possible = change(by_code, path, before, after)
            theirs.send(first_failing(session, items, running) if possible else NEW_PROCESS)
            os._exit(0)
        theirs.close()
        try:
            answer = mine.recv()
        except EOFError:
            answer = None
        os.waitpid(child, 0)
        if answer:
            return answer if answer.test or not dead else Answer(why=", ".join([*dead, answer.why]))
        last = int.from_bytes(running[:4])
        dead.append(f"{items[last].nodeid} ends its process")
        items = items[last + 1 :]
    return Answer(why=", ".join(dead))


def pytest_runtestloop(session: pytest.Session) -> bool:
    requests = Connection(int(os.environ["MUTANTS"]))
    by_code = functions()
    requests.send(len(session.items))
    while (request := requests.recv()) is not None:
        requests.send(answer_in_forks(session, by_code, request))
    return True


def copied(to: Path) -> Path:
    """Return a copy of the checkout, without what tests make."""
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
    """Yield a pytest in a copy of the checkout that has collected all tests.

    It forks for each mutant.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = copied(folder)
        self.changes = 0
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

    def ask(self, *request: object) -> Answer:
        """Return the answer of the forked process; there is none after LONGEST_S."""
        self.requests.send(request)
        with suppress(EOFError):
            if self.requests.poll(LONGEST_S):
                return Answer(*self.requests.recv())
        self.stop()
        return Answer(why=f"the tests take more than {LONGEST_S} s")

    def failing(self, file: str, changed: str, names: list[str], imported: bool) -> Answer:
        """Return the first of these tests that fails with a changed file."""
        path = self.folder / file
        before = (ROOT / file).read_text(encoding="utf-8")
        forks = not imported and (bool(self.process) or self.start())
        path.write_text(changed, encoding="utf-8")  # for processes that tests start
        self.changes += 1
        os.utime(
            path, (self.changes, self.changes)
        )  # so that no byte code of an earlier change fits
        try:
            answer = self.ask(str(path), before, changed, names) if forks else NEW_PROCESS
            if answer == NEW_PROCESS:
                answer = Answer(why="the tests don't start")
                if self.start():
                    answer = self.ask(str(path), "", "", names)
                self.stop()
            return answer
        finally:
            shutil.copy2(ROOT / file, path)
