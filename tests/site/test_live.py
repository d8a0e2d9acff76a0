"""The kernels of the live viewer: their files, and each mistake's finding on the native core."""

import gzip
import json
import re
from base64 import b64decode
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

from worklog.errors import CompileFailed, WorklogError
from worklog.kernel import rung
from worklog.kernel.emulated import CHIP
from worklog.kernel.portable import planned
from worklog.problem import Shape
from worklog.site import build, live
from worklog.site.front_page import FrontPage
from worklog.site.mistakes import BANK_CONFLICTS, MISTAKES, UNUSED_SECTORS
from worklog.viewer.accesses import access

LEAST_MISTAKES = 20


def findings(kernel, shape):
    """Return the kinds and lines of what the emulator finds in a kernel, whatever its domain."""
    [(_, arrays, launches)] = planned(replace(kernel, rules="any"), [shape])
    for name in ("A", "B"):
        arrays[name][:] = np.random.default_rng(0).integers(-4, 5, arrays[name].size)
    found = {
        (finding.kind, finding.text) for launch in launches for finding in launch.run().findings
    }
    document = access(replace(kernel, rules="any"), shape).document
    lines = kernel.source.splitlines()
    for kind in document["kinds"]:
        if kind.get("bad"):
            line = document["pills"][kind["pill"]][0]
            name = BANK_CONFLICTS if "rows" in kind else UNUSED_SECTORS
            found.add((name, lines[line - 1].strip()))
    return found


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: f"{mistake.rung} {mistake.name}")
def test_a_mistake_has_its_finding_at_its_line_and_the_rung_does_not(mistake):
    [variant] = [one for one in live.broken(rung(mistake.rung)) if one.mistake == mistake]
    shape = variant.shapes[variant.entry()["start"]]
    found = findings(variant.kernel, shape)
    assert (mistake.kind, mistake.line) in found
    right = findings(rung(mistake.rung), shape) if shape in rung(mistake.rung).domain else set()
    assert (mistake.kind, mistake.line) not in right


def test_there_are_enough_mistakes_and_each_has_its_own_file_and_address():
    assert len(MISTAKES) >= LEAST_MISTAKES
    variants = [
        variant
        for kernel in live.rungs()
        for variant in (*live.tiles(kernel), *live.broken(kernel))
    ]
    files = [variant.file for variant in variants]
    assert len({*files}) == len(files)
    addresses = [(mistake.rung, mistake.name) for mistake in MISTAKES]
    assert len({*addresses}) == len(addresses)
    sources = [variant.kernel.source for variant in variants if variant.mistake]
    assert len({*sources}) == len(MISTAKES)


@pytest.mark.parametrize("old", ["no such text", "float"])
def test_an_edit_whose_text_is_not_in_the_rung_once_is_an_error_that_names_the_rung(old):
    mistake = replace(MISTAKES[0], old=old)
    with pytest.raises(WorklogError, match=r"mistake no-guard of naive: 01_naive\.cu has "):
        _ = mistake.kernel


def test_a_file_has_the_decoded_kernel_at_each_size_of_the_menu():
    [variant] = live.tiles(rung("vectorized"))
    [(name, packed)] = re.findall(
        r'^worklogPrograms\["(.+)"\] = "([\w+/=]+)";$', variant.content().decode()
    )
    assert name == variant.file == "program-vectorized.js"
    document = json.loads(gzip.decompress(b64decode(packed)))
    sizes = ["x".join(map(str, shape["shape"])) for shape in document["shapes"]]
    assert sizes == [size["size"] for size in variant.entry()["sizes"]]
    assert sizes == ["256x256x32", "128x128x128", "256x256x256", "253x251x33"]
    outside = [size["outside"] for size in variant.entry()["sizes"]]
    assert outside == [False, False, False, True]


def test_the_sizes_of_a_dispatcher_need_one_tile():
    [variant] = live.tiles(rung("split"))
    kernels = [rung("split").at(shape, CHIP) for shape in variant.shapes]
    assert len(kernels) > 1 and len({str(kernel.template) for kernel in kernels}) == 1


def test_a_size_with_edges_needs_as_many_blocks_and_a_step_more():
    shape = live.with_edges(Shape(64, 64, 32))
    kernel = rung("naive")
    assert shape.k == 33 and shape.m % 32 and shape.n % 32
    assert kernel.blocks(shape) == kernel.blocks(Shape(64, 64, 32))


def test_the_tiles_and_mistakes_of_a_rung_have_files():
    kernel = rung("coalesced")
    files = live.programs(kernel)
    [entry] = live.catalogue([kernel])
    named = [one["file"] for one in (*entry["tiles"], *entry["mistakes"])]
    assert [*files] == named
    assert entry["tiles"][1]["about"] == "BM16 BN16"


def without_the_other_pages(monkeypatch):
    """Leave a site of one rung, whose panel, chapters and first page aren't written.

    Its parts are made here: a process wouldn't see what a test replaces.
    """
    monkeypatch.setattr(build, "processes", lambda: ThreadPoolExecutor(1))
    monkeypatch.setattr(build.live, "rungs", lambda: (rung("naive"),))
    monkeypatch.setattr(build, "PUZZLES", ())
    monkeypatch.setattr(build, "answers", lambda *_: b"")
    monkeypatch.setattr(build, "chapters", lambda *_, **how: [])
    monkeypatch.setattr(build, "chapter_pages", lambda _: {})
    monkeypatch.setattr(build, "front_page", lambda *_, **how: FrontPage("", {}))
    monkeypatch.setattr(build.widgets, "script_files", lambda **how: {})


def test_a_site_without_the_core_for_browsers_has_computed_accesses_and_says_why(monkeypatch):
    def missing():
        raise WorklogError("there is <no> compiler")

    without_the_other_pages(monkeypatch)
    monkeypatch.setattr(build.emulator, "parts_file", missing)
    site = build.site_files()
    assert site.not_live == "there is <no> compiler"
    page = site.files["access.html"].decode()
    assert "This viewer isn't live" in page and "there is &lt;no&gt; compiler" in page
    assert not any(name.startswith(("program-", "emulator")) for name in site.files)
    assert "there is &lt;no&gt; compiler" in site.files["puzzles.html"].decode()


def test_a_site_that_cannot_compile_the_core_decodes_no_kernels(monkeypatch):
    without_the_other_pages(monkeypatch)
    monkeypatch.setattr(build, "missing_core", lambda: "there is no Zig")
    monkeypatch.delattr(build, "processes")
    site = build.site_files()
    assert site.not_live == "there is no Zig"
    assert "there is no Zig" in site.files["access.html"].decode()


def test_a_site_with_the_core_has_a_file_for_each_kernel(monkeypatch):
    without_the_other_pages(monkeypatch)
    monkeypatch.setattr(build.emulator, "parts_file", lambda: b"core")
    site = build.site_files()
    assert site.not_live == "" and site.files["emulator.js"] == b"core"
    for mistake in MISTAKES:
        assert (f"program-naive-{mistake.name}.js" in site.files) == (mistake.rung == "naive")


def test_a_kernel_that_does_not_compile_ends_the_site(monkeypatch):
    without_the_other_pages(monkeypatch)
    broken = rung("naive").with_text("__global__ void sgemm_naive() { nonsense }")
    monkeypatch.setattr(build.emulator, "parts_file", lambda: b"core")
    monkeypatch.setattr(build.live, "rungs", lambda: (broken,))
    with pytest.raises(CompileFailed, match="nonsense"):
        build.site_files()
