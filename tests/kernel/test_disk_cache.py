"""A program is compiled once on a machine, and again as soon as anything is another one."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from worklog.errors import CompileFailed
from worklog.kernel import disk_cache, nvrtc
from worklog.kernel.device import Program
from worklog.kernel.disk_cache import cached, entries
from worklog.kernel.nvrtc import Compiled, Outputs, compile_cuda

SOURCE = "__global__ void mine(float* x) { *x = TWO; }"
PROGRAM = Program("mine.cu", SOURCE, "mine", ("-DTWO=2",))


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Program]:
    """The programs that NVRTC has compiled. The cache is empty."""
    seen: list[Program] = []
    through = nvrtc.COMPILER.compile

    def compile(program: Program, arch: str) -> Outputs:
        seen.append(program)
        return through(program, arch)

    monkeypatch.setattr(nvrtc.COMPILER, "compile", compile)
    monkeypatch.setenv("WORKLOG_CACHE", str(tmp_path / "cache"))
    return seen


def another_process(program: Program, arch: str = "sm_90") -> Compiled:
    compile_cuda.cache_clear()
    return compile_cuda(program, arch)


def test_a_second_process_compiles_only_what_is_another_program(compiled: list[Program]) -> None:
    first = another_process(PROGRAM)
    assert another_process(PROGRAM) == first and compiled == [PROGRAM]
    assert first.cubin.startswith(b"\x7fELF") and first.registers > 0
    others = [
        replace(PROGRAM, source=SOURCE + "\n"),
        replace(PROGRAM, name="other.cu"),
        replace(PROGRAM, options=("-DTWO=3",)),
        replace(PROGRAM, entry="again", source=SOURCE + SOURCE.replace("mine", "again")),
    ]
    assert len({another_process(other).ptx for other in others}) == 4 and compiled == [PROGRAM, *others]
    another_process(PROGRAM, "sm_80")
    assert compiled[-1] == PROGRAM


def test_a_program_that_reads_a_file_and_one_with_a_mistake_are_compiled_each_time(
    compiled: list[Program], tmp_path: Path
) -> None:
    header = tmp_path / "two.h"
    outside = Program("mine.cu", f'#include "two.h"\n{SOURCE}', "mine", (f"-I{tmp_path}",))
    found = []
    for value in "23":
        header.write_text(f"#define TWO {value}\n")
        found.append(another_process(outside).ptx)
        with pytest.raises(CompileFailed):
            another_process(replace(PROGRAM, options=()))
    assert len(compiled) == 4 and found[0] != found[1]
    within = replace(outside, options=(), headers=(("two.h", "#define TWO 2\n"),))
    assert another_process(within) == another_process(within) and len(compiled) == 5
    assert another_process(replace(within, headers=(("two.h", "#define TWO 3\n"),))).ptx == found[1]


@pytest.mark.parametrize("damage", [b"", b"noise", b"x\x9c\x03\x00\x00\x00\x00\x01"])
def test_a_damaged_entry_is_made_again(compiled: list[Program], damage: bytes) -> None:
    first = another_process(PROGRAM)
    [(_, _, path)] = entries(disk_cache.folder())
    path.write_bytes(damage)
    assert [another_process(PROGRAM).cubin for _ in range(2)] == [first.cubin] * 2 and len(compiled) == 2


def test_where_nothing_can_be_written_it_is_compiled(
    compiled: list[Program], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("WORKLOG_CACHE", str(tmp_path / "file"))
    assert another_process(PROGRAM).ptx == another_process(PROGRAM).ptx and len(compiled) == 2


def test_a_new_tool_begins_anew_and_the_oldest_entries_are_removed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("WORKLOG_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(disk_cache, "ENTRIES", 2)
    tool, made = tmp_path / "tool", []
    tool.write_text("version 1")

    def ask(*given: str) -> list[bytes]:
        def make() -> Sequence[str]:
            made.append(given)
            return [word.upper() for word in given]

        return cached(tool, given, make)

    assert ask("ab", "c") == ask("ab", "c") == [b"AB", b"C"] and ask("a", "bc") == [b"A", b"BC"] and len(made) == 2
    tool.write_text("version 2.0")
    assert ask("ab", "c") == [b"AB", b"C"] and len(made) == 3
    for time, (_, _, path) in enumerate(entries(disk_cache.folder())):
        os.utime(path, (time, time))
    for word in ("d", "e"):
        ask(word)
    assert len(entries(disk_cache.folder())) == 2 and len(made) == 5
    ask("e")
    assert len(made) == 5, "the newest ones stay"
