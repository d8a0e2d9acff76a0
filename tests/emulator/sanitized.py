"""Run tests on a core that ASan and UBSan watch.

Python -m tests.emulator.sanitized [ARGUMENTS OF PYTEST].

Without arguments, all tests of the emulator, which takes some minutes, but those of how a core is
compiled, as it is here before they run. test_sanitized.py runs some.
"""

import os
import subprocess
import sys
from pathlib import Path

from worklog.emulator.core import build
from worklog.kernel.disk_cache import cache_folder

ROOT = Path(__file__).parents[2]
VARIABLE = "WORKLOG_SANITIZED_CORE"  # helpers.py loads that file
# Those of null, alignment and object-size double the time to compile, and ASan finds such accesses.
FLAGS = (
    "-O0", "-g1", "-fno-omit-frame-pointer", "-fsanitize=address,undefined",
    "-fno-sanitize=null,alignment,object-size", "-fno-sanitize-recover=undefined",
)  # fmt: skip
OPTIONS = {
    "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1",
    "UBSAN_OPTIONS": "print_stacktrace=1",
}


class NoSanitizers(Exception):
    """The compiler has no runtime of sanitizers; the message says which compiler."""


def runtime() -> tuple[Path, tuple[str, ...]]:
    """Return ASan's library, which must be loaded first, and flags for it. Raises NoSanitizers."""
    command = build.compiler()
    if not command or sys.platform != "linux":
        raise NoSanitizers("sanitizers need Linux and a C compiler")
    said = subprocess.run((*command, "--version"), capture_output=True, text=True).stdout
    clang = f"libclang_rt.asan-{build.machine()}.so"
    name, flags = (clang, ("-shared-libasan",)) if "clang" in said else ("libasan.so", ())
    found = subprocess.run((*command, f"-print-file-name={name}"), capture_output=True, text=True)
    library = Path(found.stdout.strip() or name)
    if not library.is_absolute():
        raise NoSanitizers(
            f"{' '.join(command)} has no {name}: install gcc, or clang's compiler-rt"
        )
    return library, flags


def environment() -> dict[str, str]:
    """Compile the core, and return the variables of a process that loads it.

    Raises NoSanitizers.
    """
    library, flags = runtime()
    core = build.compile_core(cache_folder(), (*FLAGS, *flags))
    return {**os.environ, **OPTIONS, "LD_PRELOAD": str(library.resolve()), VARIABLE: str(core)}


def command(*arguments: str) -> tuple[str, ...]:
    """Return the command that runs tests.

    pytest's handler of signals and its capture would hide ASan's report.
    """
    alone = ("-n", "0", "-q", "-s", "-p", "no:faulthandler", "-p", "no:cacheprovider")
    emulator = ("tests/emulator", "--ignore=tests/emulator/test_build.py")
    return (sys.executable, "-m", "pytest", *alone, *(arguments or emulator))


if __name__ == "__main__":
    try:
        variables = environment()
    except NoSanitizers as error:
        sys.exit(f"not run: {error}")
    sys.exit(subprocess.run(command(*sys.argv[1:]), cwd=ROOT, env=variables).returncode)
