"""Descriptions of launches for a core elsewhere: tests/browser/test_core.py runs them."""

import gzip
import json
import os
import subprocess
import sys
from base64 import b64decode
from pathlib import Path

import numpy as np
import pytest

from worklog.emulator import Pointer, load, portable
from worklog.emulator.core import build, native, record
from worklog.emulator.launching import prepare
from worklog.errors import BadSetting
from worklog.kernel.ladder import rung
from worklog.kernel.ladder.rungs import equal_shares
from worklog.kernel.portable import compressed, described, planned
from worklog.problem import Shape

COPY = """.version 8.0 .target sm_90 .address_size 64
.visible .entry copy(.param .u64 from, .param .u64 to) {
.reg.b64 %a, %b; .reg.f32 %x;
ld.param.u64 %a, [from]; ld.param.u64 %b, [to];
ld.global.f32 %x, [%a]; st.global.f32 [%b], %x; ret;
}"""


def launch(first, second, **options):
    """Return a launch of COPY."""
    return prepare(load(COPY), (1,), 1, [first, second], **options)


def test_the_compiler_lays_the_records_out_as_stated(tmp_path):
    lines = ['#include "core.h"', "#include <stddef.h>"]
    for name, layout in portable.layouts()["records"].items():
        lines.append(f'_Static_assert(sizeof({name}) == {layout["size"]}, "{name}");')
        for field, (offset, number, count) in layout["fields"].items():
            size = count * np.dtype(number).itemsize
            place = f"offsetof({name}, {field}) == {offset}"
            extent = f"sizeof(({name} *)0)->{field} == {size}"
            lines.append(f'_Static_assert({place} && {extent}, "{name}.{field}");')
    source = tmp_path / "layouts.c"
    source.write_text("\n".join(lines))
    options = ("-target", "wasm32-wasi", "-std=c11", "-c", f"-I{build.HERE}")
    command = [sys.executable, "-m", "ziglang", "cc", *options, str(source)]
    caches = {f"ZIG_{scope}_CACHE_DIR": str(tmp_path) for scope in ("LOCAL", "GLOBAL")}
    command += ["-o", str(tmp_path / "layouts.o")]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | caches)
    assert done.returncode == 0, done.stderr


def test_a_buffer_is_a_part_of_an_argument_or_has_its_content():
    data = np.arange(8, dtype=np.float32)
    described = portable.launch(launch(data[:2], data[4:]), {"data": data})
    first, second, *others = described["buffers"]
    assert (first["argument"], first["offset"], first["size"]) == ("data", 0, 8)
    assert (second["argument"], second["offset"], second["size"]) == ("data", 16, 16)
    assert (first["checked"], second["checked"]) == (False, True)  # only the second is written
    parameters = [buffer for buffer in others if buffer["name"] in ("from", "to")]
    bases = [int.from_bytes(b64decode(buffer["data"]), "little") for buffer in parameters]
    assert bases == [first["base"], second["base"]]


def test_an_array_that_is_no_argument_and_unknown_values_are_told_apart():
    data = np.arange(2, dtype=np.float32)
    described = portable.launch(launch(data, Pointer(None, 8, "out")), {})
    first, second = described["buffers"][:2]
    assert b64decode(first["data"]) == data.tobytes()
    assert "data" not in second and "argument" not in second


def test_an_address_that_javascript_cannot_represent_is_refused():
    prepared = launch(np.zeros(2, np.float32), Pointer(None, 1 << 53, "huge"))
    with pytest.raises(ValueError, match="huge is at 0x"):
        portable.launch(prepared, {})


def test_blocks_are_counted_or_listed():
    data = np.zeros(2, np.float32)
    assert portable.launch(launch(data, data), {})["blocks"] == 1
    grid = prepare(load(COPY), (8,), 1, [data, data], only_blocks=[5, 2])
    assert portable.launch(grid, {})["blocks"] == [5, 2]


def test_an_image_is_the_register_file_that_a_warp_starts_with():
    core = launch(np.zeros(2, np.float32), np.zeros(2, np.float32)).core
    runs = np.array(portable.program(core)["image"], np.uint32).reshape(-1, 2)
    image = np.repeat(runs[:, 0], runs[:, 1])
    assert image.tobytes() == core.decoder.image.tobytes()


def test_a_launch_has_the_fields_of_its_record_without_addresses():
    core = launch(np.zeros(2, np.float32), np.zeros(2, np.float32), budget=77)
    fields = portable.launch(core, {})["fields"]
    assert fields["budget"] == 77 and fields["block"] == [1, 1, 1]
    assert fields.keys().isdisjoint(("code", "buffers", "resident", "seed"))
    assert fields.keys() < record("Launch").fields.keys()


def test_a_file_has_each_program_once_and_the_launches_of_each_shape():
    kernel = equal_shares(3)
    shapes = [Shape(128, 256, 16), Shape(256, 256, 32)]
    plans = planned(kernel, shapes)
    file = compressed(described(kernel, plans))
    assert file == compressed(described(kernel, plans))
    document = json.loads(gzip.decompress(file))
    assert [program["name"].count("add_parts") for program in document["programs"]] == [0, 1]
    assert [entry["shape"] for entry in document["shapes"]] == [[128, 256, 16], [256, 256, 32]]
    for entry in document["shapes"]:
        assert [launch["program"] for launch in entry["launches"]] == [0, 1]
        assert entry["sizes"].keys() == {"A", "B", "C", "workspace"}
    assert document["source"] == kernel.source


def test_a_shape_outside_the_domain_is_refused():
    with pytest.raises(BadSetting, match="outside warptiled's domain"):
        planned(rung("warptiled"), [Shape(1, 1, 1)])


def test_without_zig_only_a_whole_core_is_found(tmp_path, monkeypatch):
    monkeypatch.setattr(build, "find_spec", lambda name: None)
    with pytest.raises(FileNotFoundError, match="pip install ziglang"):
        build.compile_wasm(tmp_path)
    content = tmp_path / "content"
    content.write_bytes(b"a core")
    name = f"{Path(build._wasm_name()).stem}-{build._checksum(content)}.wasm"
    core = content.rename(tmp_path / name)
    assert build.compile_wasm(tmp_path) == core
    core.write_bytes(b"damaged")
    with pytest.raises(FileNotFoundError, match="pip install ziglang"):
        build.compile_wasm(tmp_path)


def test_bytes_between_the_fields_of_a_record_are_zeros_and_not_what_memory_held():
    sites = record("Site")
    [(_, _, [prepared])] = planned(rung("shared"), [Shape(32, 32, 32)])
    size = prepared.core.common.sites.nbytes
    dirty = [np.full(size, 0xAA, np.uint8) for _ in range(64)]
    del dirty
    common = native._common.__wrapped__(prepared.core.decoder)
    is_field = np.zeros(sites.itemsize, bool)
    for dtype, offset, *_ in sites.fields.values():
        is_field[offset : offset + dtype.itemsize] = True
    between = common.sites.reshape(-1, sites.itemsize)[:, ~is_field]
    assert between.size and not between.any()
