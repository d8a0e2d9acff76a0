"""Compiles the core: with the machine's C compiler, else with the one in the wheel `ziglang`.

The standard library alone, and no module of worklog: the build hook (hatch_build.py) runs this file
by its path.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import re
import runpy
import shlex
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

HERE = Path(__file__).parent
TABLE = (
    HERE.parent / "ops.py"
)  # the dispatch is made of it; it needs the standard library alone, too
FLAGS = (
    "-O3",
    "-ftree-vectorize",
    "-std=c11",
    "-ffp-contract=off",
    "-fno-strict-aliasing",
    "-fPIC",
    "-shared",
)
FAST = ("-mavx2", "-mfma")
FUNCTIONS = ("launch_run", "launch_free", "costs_of")
# Browsers have these instructions since 2023.
WASM = (
    "-target",
    "wasm32-wasi",
    "-fno-sanitize=undefined",
    "-s",
    "-O3",
    "-std=c11",
    "-ffp-contract=off",
    "-fno-strict-aliasing",
    "-msimd128",
    "-mnontrapping-fptoint",
)
# The module exports what JavaScript calls, and imports nothing. wasm.c has what it needs of C's
# library: Zig would compile 600 files for its own.
WASM_LINK = (
    "-nostdlib",
    "-rtlib=compiler-rt",
    "-Wl,--no-entry",
    "-Wl,-z,stack-size=1048576",
    *(f"-Wl,--export={name}" for name in (*FUNCTIONS, "malloc", "free")),
)
# By the words in a wheel's platform tag: Zig's target, and in it the version of glibc or macOS.
TARGETS = {"manylinux": "linux-gnu.{}", "musllinux": "linux-musl", "macosx": "macos.{}"}
MACHINES = {"arm64": "aarch64", "amd64": "x86_64"}
NO_ZIG = (
    "compiling the emulator's core to WebAssembly needs the package `ziglang`: pip install ziglang"
)
MISSING = (
    "the emulator's core is in C, and neither the package nor {} has it as these sources and this "
    "machine need it: "
    "install a C compiler (Debian, Ubuntu: apt install gcc) and run this again, or compile it "
    "with: {}"
)
COMPILE_S = 600  # most machines take 10; a slow one or an emulated one, minutes
WINDOWS = "the emulator's core is not built for Windows: use WSL, where `pip install` compiles it"


def machine() -> str:
    """Return this machine's kind as a platform tag has it, one name for each kind."""
    name = platform.machine().lower()
    return MACHINES.get(name, name)


def variants(machine: str) -> list[tuple[str, ...]]:
    """Return the flags of each build for a kind of machine, the fastest first.

    The last build runs on any machine of the kind.
    """
    return [FAST, ()] if machine == "x86_64" else [()]


def fitting() -> list[tuple[str, ...]]:
    """Return the variants that run on this machine."""
    cpu = Path("/proc/cpuinfo")
    fast = cpu.exists() and {"avx2", "fma"} <= {*cpu.read_text().split()}
    return [flags for flags in variants(machine()) if fast or flags != FAST]


def stem(flags: tuple[str, ...], system: str = sys.platform, kind: str = "") -> str:
    """Return the start of a build's file name: a hash of sources, flags and machine.

    A hash of the file's content follows it, since loading a truncated file can end the process.
    """
    return _stem((FLAGS, flags, system, kind or machine()))


def _stem(options: tuple[object, ...]) -> str:
    digest = hashlib.sha256(repr(options).encode())
    for source in (*sorted(HERE.glob("*.[ch]")), TABLE):
        digest.update(source.read_bytes())
    return f"core-{digest.hexdigest()[:16]}"


def builds(folder: Path, start: str, suffix: str = ".so") -> list[Path]:
    """Return the files of a build in a folder, damaged ones included."""
    try:
        return sorted(folder.glob(f"{start}-*{suffix}"))
    except OSError:  # a folder that can't be read has none
        return []


def is_whole(path: Path) -> bool:
    """Return whether a build is as it was compiled."""
    try:
        return path.stem.endswith(f"-{_checksum(path)}")
    except OSError:
        return False


def _checksum(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def compiler() -> tuple[str, ...]:
    """Return the C compiler's command: CC, else cc, else Zig's; empty if there is none.

    Raises ValueError if CC isn't a command.
    """
    stated = os.environ.get("CC")
    if stated is None:
        if shutil.which("cc"):
            return ("cc",)
        return (sys.executable, "-m", "ziglang", "cc") if find_spec("ziglang") else ()
    advice = "set CC to a C compiler, such as gcc, or unset it"
    try:
        command = shlex.split(stated)
    except ValueError as error:
        raise ValueError(f"CC={stated!r} isn't a command ({error}): {advice}") from error
    if not command:
        raise ValueError(f"CC is empty: {advice}")
    if not shutil.which(command[0]):
        raise ValueError(f"CC={stated!r}: the command {command[0]} doesn't exist: {advice}")
    return tuple(command)


def compile_core(
    folder: Path, flags: tuple[str, ...], wheel: str = "", zig_cache: Path | None = None
) -> Path:
    """Return a build in a folder, compiled unless a whole one is there.

    folder: its name may be relative
    flags: of a variant
    wheel: the platform tag that only Zig compiles for; empty: this machine
    zig_cache: a folder that keeps what Zig compiles of its own; None: it isn't kept
    Raises OSError for the folder, RuntimeError for the compiler, ValueError for the arguments.
    """
    system = sys.platform
    kind = machine()
    target = ""
    command = compiler()
    if not command:
        raise FileNotFoundError("no C compiler")
    if wheel:
        command = (sys.executable, "-m", "ziglang", "cc")
        tag = re.fullmatch(r"([a-z]+)_(\d+)_(\d+)_(\w+)", wheel)
        if tag is None or tag[1] not in TARGETS:
            raise ValueError(f"{wheel}: a platform tag such as manylinux_2_28_x86_64 is meant")
        kind = MACHINES.get(tag[4], tag[4])
        system = "darwin" if tag[1] == "macosx" else "linux"
        target = f"{kind}-{TARGETS[tag[1]].format(f'{tag[2]}.{tag[3]}')}"
    elif "ziglang" in command:  # a named target is compiled for any CPU of its kind
        target = f"{kind}-{_own_system(system)}"
    options: tuple[str, ...] = ()
    if target:
        options = ("-target", target, "-fno-sanitize=undefined", "-s")
    elif system == "darwin":
        options = ("-mmacosx-version-min=11.0",)
    start = stem(flags, system, kind)
    arguments = (*command, *options, *FLAGS, *flags, str(HERE / "core.c"), "-lm")
    return _compiled(folder, f"{start}.so", [arguments], zig_cache)


def built_wasm(folder: Path) -> Path | None:
    """Return the core for browsers in a folder; None if it isn't there or is damaged."""
    return _built(folder, _wasm_name())


def compile_wasm(folder: Path, zig_cache: Path | None = None) -> Path:
    """Return the core for browsers in a folder, compiled unless a whole file is there.

    zig_cache: as for compile_core
    Raises OSError for the folder, RuntimeError for the compiler, FileNotFoundError without Zig.
    """
    path = built_wasm(folder)
    if path is None and not find_spec("ziglang"):
        raise FileNotFoundError(NO_ZIG)
    command = (sys.executable, "-m", "ziglang", "cc", *WASM)
    # In two steps: with -nostdlib, Zig has no headers of C's library.
    commands = [
        (*command, "-c", str(HERE / "core.c")),
        (*command, *WASM_LINK, str(HERE / "wasm.c")),
    ]
    return path or _compiled(folder, _wasm_name(), commands, zig_cache)


def _wasm_name() -> str:
    """Return the name of the core for browsers, without the hash of its content."""
    return f"{_stem((WASM, WASM_LINK))}.wasm"


def _built(folder: Path, name: str) -> Path | None:
    """Return a build in a folder; None if it isn't there or is damaged.

    name: of the file, without the hash of its content
    """
    start, _, suffix = name.rpartition(".")
    return next(filter(is_whole, builds(folder, start, f".{suffix}")), None)


def _compiled(
    folder: Path, name: str, commands: Sequence[tuple[str, ...]], zig_cache: Path | None
) -> Path:
    """Return a build in a folder, compiled unless a whole file is there.

    name: of the file, without the hash of its content
    commands: the compiler with its options and a source, for each step; a step also gets the
        object of the step before
    zig_cache: as for compile_core
    """
    if (path := _built(folder, name)) is not None:
        return path
    start, _, suffix = name.rpartition(".")
    folder.mkdir(parents=True, exist_ok=True)
    # Beside its target, so that the finished file moves in one step, also while others compile it.
    with tempfile.TemporaryDirectory(dir=folder, prefix="core-") as temporary:
        table = runpy.run_path(str(TABLE))
        for part in ("code", "reductions"):
            (Path(temporary) / f"{part}.inc").write_text(table[part](), encoding="utf-8")
        if sys.stderr.isatty():
            print("compiling the emulator's core, once on this machine …", file=sys.stderr)
        out = Path(temporary) / name
        objects: tuple[str, ...] = ()
        for command in commands:
            output = out if command is commands[-1] else Path(temporary) / "core.o"
            arguments = (*command, f"-I{temporary}", "-o", str(output), *objects)
            if "-target" in command:
                _run_zig(arguments, Path(temporary) / "zig", zig_cache)
            else:
                _run(arguments, os.environ)
            if not output.is_file():
                raise RuntimeError(
                    f"the emulator's core wasn't compiled: {shlex.join(arguments)} succeeded, but "
                    "wrote no file: "
                    "set CC to another C compiler"
                )
            objects = (str(output),)
        path = folder / f"{start}-{_checksum(out)}.{suffix}"
        out.replace(path)
    return path


def _run_zig(command: Sequence[str], temporary: Path, cache: Path | None) -> None:
    """Run Zig, which compiles its own runtime unless its cache has it.

    A cache that can't be written isn't used. With a cache that is damaged, Zig fails, but not
    without one: then the cache is deleted. Each is reported on stderr.

    temporary: a folder that Zig may create
    cache: the folder to keep the runtime in; None: it isn't kept
    Raises RuntimeError as _run does.
    """
    if cache is not None and (reason := _why_unwritable(cache)):
        _note(f"cannot write to {cache}: {reason}: Zig compiles its runtime, and it isn't kept")
        cache = None
    if cache is None:
        _run(command, _zig_environment(temporary, temporary))
        return
    try:
        _run(command, _zig_environment(temporary, cache))
    except RuntimeError:
        # Of the core's sources, or of the cache: an empty one tells.
        _run(command, _zig_environment(temporary, temporary))
        shutil.rmtree(cache, ignore_errors=True)
        _note(f"Zig failed with its cache, and not without: {cache} is deleted")


def _zig_environment(local: Path, shared: Path) -> dict[str, str]:
    """Return the environment of a process of Zig.

    local: the folder for what it compiles of a program
    shared: the folder for its own runtime, which all programs have in common
    """
    folders = {"ZIG_LOCAL_CACHE_DIR": local, "ZIG_GLOBAL_CACHE_DIR": shared}
    return os.environ | {name: str(folder.absolute()) for name, folder in folders.items()}


def _why_unwritable(folder: Path) -> str:
    """Return why no file can be written into a folder, which is created; "" if it can."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return ""
    except OSError as error:
        return error.strerror or str(error)


def _note(text: str) -> None:
    """Print what a user should know of a build that succeeds."""
    print(f"the emulator's core: {text}", file=sys.stderr)


def zig_folder(cache: Path) -> Path:
    """Return where a cache folder keeps what Zig compiles of its own."""
    return cache / "zig"


def _own_system(system: str) -> str:
    """Return Zig's target for this machine's system."""
    if system == "darwin":
        return "macos.11.0"
    return "linux-musl" if _musl() else "linux-gnu.2.28"


def _run(command: Sequence[str], environment: Mapping[str, str]) -> None:
    """Run the compiler. Raises RuntimeError if it can't start, fails, or doesn't end."""
    failed = f"the emulator's core does not compile: {shlex.join(command)}"
    try:
        process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            process_group=0,  # to end what the compiler has started, too
        )
    except OSError as error:
        raise RuntimeError(f"{failed}\n{error.strerror}: set CC to another C compiler") from error
    with process:
        try:
            _, stderr = process.communicate(timeout=COMPILE_S)
        except BaseException as error:  # also Ctrl-C
            os.killpg(process.pid, signal.SIGKILL)
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            raise RuntimeError(
                f"{failed}\nit hasn't ended after {COMPILE_S} s: set CC to another C compiler"
            ) from error
    if process.returncode:
        raise RuntimeError(f"{failed}\nexit code {process.returncode}\n{stderr}".rstrip())


def platform_tag() -> str:
    """Return the platform tag of a wheel that this machine's compiler makes."""
    if sys.platform == "darwin":
        return f"macosx_11_0_{platform.machine()}"
    return re.sub(r"\W", "_", sysconfig.get_platform())


def _musl() -> bool:
    return "musl" in (sysconfig.get_config_var("HOST_GNU_TYPE") or "")


def load(cache: Path, advice: str) -> ctypes.CDLL:
    """Load the fastest build that runs here: the package's, the cache's or a new one.

    A file that is damaged, or was made for another system, is deleted.

    cache: a folder
    advice: the command that compiles the core if there is no compiler
    Raises OSError, RuntimeError and ValueError: what is wrong, and what to do.
    """
    for path in _candidates(cache):
        try:
            return _opened(path)
        except OSError:
            with suppress(OSError):  # of a package that is read only
                path.unlink()
    if sys.platform == "win32":
        raise OSError(WINDOWS)
    if not compiler():
        raise OSError(MISSING.format(cache, advice))
    try:
        path = compile_core(cache, fitting()[0], zig_cache=zig_folder(cache))
    except OSError as error:
        raise OSError(
            f"cannot write the emulator's core to {cache}: {error.strerror}: "
            "set WORKLOG_CACHE to a folder that you can write to"
        ) from error
    try:
        return _opened(path)
    except OSError as error:
        with suppress(OSError):
            path.unlink()
        raise OSError(
            "the emulator's core cannot be loaded after it was compiled with "
            f"{shlex.join(compiler())}: {error}: "
            "set CC to another C compiler, or WORKLOG_CACHE to another folder"
        ) from error


def _candidates(cache: Path) -> Iterator[Path]:
    for flags in fitting():
        start = stem(flags)
        for folder in (HERE, cache):
            yield from builds(folder, start)


def _opened(path: Path) -> ctypes.CDLL:
    """Load a build. Raises OSError if it is damaged, or this system can't load it."""
    if not is_whole(path):
        raise OSError("it is damaged")
    core = ctypes.CDLL(str(path.absolute()))
    for name in FUNCTIONS:
        if not hasattr(core, name):
            raise OSError(f"it has no function {name}")
    return core
