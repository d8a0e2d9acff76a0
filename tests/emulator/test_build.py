"""The core's file: a damaged one is compiled again.

What is wrong with a compiler or a folder is said.
"""

import _ctypes
import ctypes
import os
import resource
import shutil
import stat
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from worklog.emulator.core import build, native
from worklog.errors import WorklogError

ELF_MACHINE = 18  # the byte of an ELF file that names the kind of CPU
GOOD = Path(native.library()._name)
COPIES = f'while [ "$1" != -o ]; do shift; done; cp "{GOOD}" "$2"; echo >>"$0.calls"'


def script(path: Path, body: str) -> str:
    """Write a compiler."""
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


@pytest.fixture
def package(monkeypatch, tmp_path):
    """Return a folder like the package's, without a core.

    CC copies a good core, and counts its calls.
    """
    folder = tmp_path / "package"
    folder.mkdir()
    for source in build.HERE.glob("*.[ch]"):
        shutil.copy(source, folder)
    monkeypatch.setattr(build, "HERE", folder)
    monkeypatch.setenv("CC", script(tmp_path / "cc", COPIES))
    return folder


def calls(tmp_path: Path) -> int:
    log = tmp_path / "cc.calls"
    return len(log.read_text()) if log.exists() else 0


def named(folder: Path, content: bytes, checksum: str = "") -> Path:
    """Write a file that stands for a build, with the checksum of its content or another one."""
    folder.mkdir(exist_ok=True)
    path = folder / "new"
    path.write_bytes(content)
    checksum = checksum or build._checksum(path)
    return path.rename(folder / f"{build.stem(build.fitting()[0])}-{checksum}.so")


def foreign(content: bytes) -> bytes:
    """For another kind of CPU."""
    other = bytearray(content)
    other[ELF_MACHINE] ^= 0xFF
    return bytes(other)


CONTENT = GOOD.read_bytes()
CUT = {f"{count} bytes": CONTENT[:count] for count in (0, 1, 64, 4096, len(CONTENT) // 2)}
CUT["all but one byte"] = CONTENT[:-1]
CUT["a page of zeros"] = CONTENT[:4096] + bytes(4096) + CONTENT[8192:]
WHOLE = {
    "of another CPU": foreign(CONTENT),
    "another library": Path(_ctypes.__file__).read_bytes(),
    "a text": b"a text",
}


@pytest.mark.parametrize("place", ["package", "cache"])
@pytest.mark.parametrize("damage", [*CUT, *WHOLE])
def test_a_damaged_or_foreign_core_is_deleted_and_compiled_again(damage, place, package, tmp_path):
    cache = tmp_path / "cache"
    folder = package if place == "package" else cache
    if damage in CUT:
        bad = named(folder, CUT[damage], checksum=GOOD.stem.rpartition("-")[2])
    else:
        bad = named(folder, WHOLE[damage])
    core = build.load(cache, "")
    assert calls(tmp_path) == 1 and Path(core._name).parent == cache
    assert core.launch_run and Path(core._name).read_bytes() == CONTENT
    assert not bad.exists() or bad == Path(core._name)
    assert build.load(cache, "")._name == core._name and calls(tmp_path) == 1
    assert os.listdir(cache) == [Path(core._name).name], "no temporary file is left"


def test_a_core_that_cannot_be_read_or_deleted_is_passed_over(package, tmp_path, monkeypatch):
    """As root everything can be: a folder in its place can't."""
    start = build.stem(build.fitting()[0])
    (package / f"{start}-0123456789abcdef.so").mkdir()
    assert Path(build.load(tmp_path / "cache", "")._name).parent == tmp_path / "cache"


def test_processes_that_compile_at_once_get_the_same_core(package, tmp_path):
    with ThreadPoolExecutor(4) as pool:
        made = {*pool.map(lambda _: build.load(tmp_path / "cache", "")._name, range(8))}
    assert len(made) == 1


def test_a_relative_folder_and_a_command_with_arguments_are_taken(package, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CC", f"{os.environ['CC']} -g '-D A'")
    assert isinstance(build.load(Path(), ""), ctypes.CDLL)


COMPILERS = {
    "": "^CC is empty: set CC to a C compiler",
    "  ": "^CC is empty",
    "gcc 'a": "isn't a command .No closing quotation.: set CC",
    "none-such -O1": "command none-such doesn't exist: set CC",
    "FAILS": r"does not compile: .*\nexit code 3\nno space left",
    "NOTHING": "succeeded, but wrote no file: set CC to another",
    "TEXT": "cannot be loaded after it was compiled with .*TEXT: .*(?:ELF|file).*: set CC",
    "HANGS": r"hasn't ended after 0\.5 s: set CC to another",
    "BINARY": "Exec format error: set CC to another",
}
BODIES = {
    "FAILS": "echo no space left >&2; exit 3",
    "NOTHING": "exit 0",
    "TEXT": 'while [ "$1" != -o ]; do shift; done; echo text >"$2"',
    "HANGS": 'sleep 60 & echo $! >"$0.child"; wait',
}


@pytest.mark.parametrize("command", COMPILERS)
def test_a_compiler_that_does_not_work_is_an_error_that_says_so(
    command, package, tmp_path, monkeypatch
):
    path = tmp_path / command
    if command in BODIES:
        script(path, BODIES[command])
    elif command == "BINARY":
        path.write_bytes(b"\0")
        path.chmod(0o755)
    monkeypatch.setenv("CC", str(path) if command.isupper() else command)
    monkeypatch.setattr(build, "COMPILE_S", 0.5)
    monkeypatch.setenv("WORKLOG_CACHE", str(tmp_path / "cache"))
    with pytest.raises(WorklogError, match=COMPILERS[command]):
        native.library.__wrapped__()
    assert not (tmp_path / "cache").exists() or not os.listdir(tmp_path / "cache")


def test_a_compiler_that_hangs_leaves_no_process(package, tmp_path, monkeypatch):
    monkeypatch.setenv("CC", script(tmp_path / "HANGS", BODIES["HANGS"]))
    monkeypatch.setattr(build, "COMPILE_S", 0.5)
    with pytest.raises(RuntimeError, match="hasn't ended"):
        build.load(tmp_path / "cache", "")
    child = int((tmp_path / "HANGS.child").read_text())
    until = time.monotonic() + 5
    while time.monotonic() < until and _runs(child):
        time.sleep(0.01)
    assert not _runs(child)


def _runs(number: int) -> bool:
    try:
        state = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def test_without_a_compiler_the_error_names_the_command_that_compiles_it(
    package, tmp_path, monkeypatch
):
    monkeypatch.delenv("CC")
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(build, "find_spec", lambda name: None)
    with pytest.raises(OSError, match=r"install a C compiler .*: a command$"):
        build.load(tmp_path / "cache", "a command")


@pytest.mark.parametrize("reason", ["File exists", "Not a directory", "File too large"])
def test_a_cache_that_cannot_be_written_is_an_error_that_names_it(
    reason, package, tmp_path, monkeypatch
):
    """XDG_CACHE_HOME or WORKLOG_CACHE may be a file.

    A full disk ends a write as a limit of a file's size does.
    """
    file = tmp_path / "file"
    file.touch()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    caches = {"File exists": file, "Not a directory": file / "worklog"}
    cache = caches.get(reason, tmp_path / "cache")
    monkeypatch.setenv("WORKLOG_CACHE", str(cache))
    if reason == "File too large":
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with pytest.raises(WorklogError, match=f"core to {cache}: {reason}: set WORKLOG_CACHE to"):
            native.library.__wrapped__()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@pytest.mark.parametrize("in_a_terminal", [True, False])
def test_a_terminal_says_once_that_the_core_is_compiled(
    package, tmp_path, monkeypatch, capsys, in_a_terminal
):
    monkeypatch.setattr(build.sys.stderr, "isatty", lambda: in_a_terminal, raising=False)
    for _ in range(2):
        build.load(tmp_path / "cache", "")
    said = capsys.readouterr().err
    assert said.count("compiling the emulator's core") == in_a_terminal


ZIG = (sys.executable, "-m", "ziglang", "cc", *build.WASM, *build.WASM_LINK[:3])


@pytest.fixture(scope="module")
def zig_cache(tmp_path_factory):
    """Return Zig's cache after two compilations that began at once, without one."""
    folder = tmp_path_factory.mktemp("zig")
    with ThreadPoolExecutor(2) as pool:
        [*pool.map(lambda number: compiled_by_zig(folder, number, folder / "cache"), range(2))]
    return folder / "cache"


def compiled_by_zig(folder: Path, number: int, cache: Path | None) -> bytes:
    """Compile a function that needs Zig's runtime."""
    source = folder / f"{number}.c"
    source.write_text("double cos(double); double of(double x) { return cos(x); }")
    out = folder / f"{number}.wasm"
    command = (*ZIG, "-Wl,--export=of", "-o", str(out), str(source))
    build._run_zig(command, folder / f"own{number}", cache)
    return out.read_bytes()


def runtime(cache: Path) -> dict[Path, int]:
    """Return the compiled runtime in a cache: its files, and when they were written."""
    return {path: path.stat().st_mtime_ns for path in cache.rglob("*.a")}


def test_zig_compiles_its_runtime_once_also_for_processes_at_once(zig_cache, tmp_path, capsys):
    before = runtime(zig_cache)
    assert len(before) == 1
    compiled_by_zig(tmp_path, 0, zig_cache)
    assert runtime(zig_cache) == before
    assert not runtime(tmp_path), "nothing is compiled beside the cache"
    assert capsys.readouterr().err == ""


def test_a_damaged_cache_of_zig_is_deleted_and_said(zig_cache, tmp_path, capsys):
    damaged = shutil.copytree(zig_cache, tmp_path / "cache")
    for path in runtime(damaged):
        path.write_bytes(b"damaged")
    assert compiled_by_zig(tmp_path, 0, damaged) == compiled_by_zig(tmp_path, 1, zig_cache)
    assert str(damaged) in capsys.readouterr().err and not damaged.exists()


def test_a_cache_of_zig_that_cannot_be_written_is_said(tmp_path, capsys):
    file = tmp_path / "file"
    file.touch()
    assert compiled_by_zig(tmp_path, 0, file / "zig")
    said = capsys.readouterr().err
    assert f"cannot write to {file / 'zig'}: Not a directory" in said


def test_an_error_of_the_sources_keeps_the_cache_of_zig(zig_cache, tmp_path):
    before = runtime(zig_cache)
    source = tmp_path / "wrong.c"
    source.write_text("nonsense")
    command = (*ZIG, "-o", str(tmp_path / "wrong.wasm"), str(source))
    with pytest.raises(RuntimeError, match="nonsense"):
        build._run_zig(command, tmp_path / "own", zig_cache)
    assert runtime(zig_cache) == before
