"""Compiles the core: with the machine's C compiler, else with the one in the wheel `ziglang`.

The standard library alone, and no module of worklog: the build hook (hatch_build.py) runs this file by its path.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from importlib.util import find_spec
from pathlib import Path

HERE = Path(__file__).parent
TABLE = (
    HERE.parent / "ops.py"
)  # the dispatch is made of it; it needs the standard library alone, too
FLAGS = (
    "-O2",
    "-ftree-vectorize",
    "-std=c11",
    "-ffp-contract=off",
    "-fno-strict-aliasing",
    "-fPIC",
    "-shared",
)
FAST = ("-mavx2", "-mfma")
# By the words in a wheel's platform tag: Zig's target, and in it the version of glibc or macOS.
TARGETS = {"manylinux": "linux-gnu.{}", "musllinux": "linux-musl", "macosx": "macos.{}"}
MACHINES = {"arm64": "aarch64", "amd64": "x86_64"}
MISSING = (
    "the emulator's core is in C, and neither the package nor {} has it as these sources and this machine need it: "
    "install a C compiler (Debian, Ubuntu: apt install gcc) and run this again, or compile it with: {}"
)
WINDOWS = "the emulator's core is not built for Windows: use WSL, where `pip install` compiles it"


def machine() -> str:
    """As a platform tag names it, one name for each kind."""
    name = platform.machine().lower()
    return MACHINES.get(name, name)


def variants(machine: str) -> list[tuple[str, ...]]:
    """The flags of each build for a kind of machine, the fastest first. The last one runs on any."""
    return [FAST, ()] if machine == "x86_64" else [()]


def fitting() -> list[tuple[str, ...]]:
    """Those that run on this machine."""
    cpu = Path("/proc/cpuinfo")
    fast = cpu.exists() and {"avx2", "fma"} <= {*cpu.read_text().split()}
    return [flags for flags in variants(machine()) if fast or flags != FAST]


def file_name(flags: tuple[str, ...], system: str = sys.platform, kind: str = "") -> str:
    """Of a build: it holds the hash of the sources, the flags and the machine that it is for."""
    digest = hashlib.sha256(repr((FLAGS, flags, system, kind or machine())).encode())
    for source in (*sorted(HERE.glob("*.[ch]")), TABLE):
        digest.update(source.read_bytes())
    return f"core-{digest.hexdigest()[:16]}.so"


def compiler() -> tuple[str, ...]:
    """The command of the machine's C compiler, or of Zig's; empty where neither is there."""
    own = shlex.split(os.environ.get("CC", "cc"))
    if shutil.which(own[0]):
        return tuple(own)
    return (sys.executable, "-m", "ziglang", "cc") if find_spec("ziglang") else ()


def compile_core(folder: Path, flags: tuple[str, ...], wheel: str = "") -> Path:
    """A build in a folder, compiled unless it is there: for this machine, or for a wheel's platform tag, for which only
    Zig will do.
    """
    system, kind, target = sys.platform, machine(), ""
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
        target = f"{kind}-{'macos.11.0' if system == 'darwin' else 'linux-musl' if _musl() else 'linux-gnu.2.28'}"
    name = file_name(flags, system, kind)
    if (folder / name).exists():
        return folder / name
    folder.mkdir(parents=True, exist_ok=True)
    # Beside its target, so that the finished file moves in one step, also while others compile it.
    with tempfile.TemporaryDirectory(dir=folder, prefix="core-") as made:
        table = runpy.run_path(str(TABLE))
        for part in ("code", "reductions"):
            (Path(made) / f"{part}.inc").write_text(table[part](), encoding="utf-8")
        given: tuple[str, ...] = (
            ("-target", target, "-fno-sanitize=undefined", "-s") if target else ()
        )
        if system == "darwin" and not target:
            given = ("-mmacosx-version-min=11.0",)
        out = Path(made) / name
        words = (
            *command,
            *given,
            *FLAGS,
            *flags,
            f"-I{made}",
            "-o",
            str(out),
            str(HERE / "core.c"),
            "-lm",
        )
        caches = (
            {f"ZIG_{which}_CACHE_DIR": f"{made}/zig" for which in ("LOCAL", "GLOBAL")}
            if target
            else {}
        )
        done = subprocess.run(words, env=os.environ | caches, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(
                f"the emulator's core does not compile: {shlex.join(words)}\n{done.stderr}"
            )
        out.replace(folder / name)
    return folder / name


def platform_tag() -> str:
    """Of a wheel that is compiled here, with this machine's compiler."""
    if sys.platform == "darwin":
        return f"macosx_11_0_{platform.machine()}"
    return re.sub(r"\W", "_", sysconfig.get_platform())


def _musl() -> bool:
    return "musl" in (sysconfig.get_config_var("HOST_GNU_TYPE") or "")


def find(cache: Path, advice: str) -> Path:
    """The fastest build that runs here: from the package, from the cache, or compiled into it. advice: the command that
    compiles it where no compiler is there. Raises OSError with what is missing.
    """
    names = [file_name(flags) for flags in fitting()]
    if ready := [
        path for name in names for folder in (HERE, cache) if (path := folder / name).exists()
    ]:
        return ready[0]
    if sys.platform == "win32":
        raise OSError(WINDOWS)
    if not compiler():
        raise OSError(MISSING.format(cache, advice))
    return compile_core(cache, fitting()[0])
