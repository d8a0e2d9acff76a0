"""Describes prepared launches for a core that runs elsewhere, such as in a browser.

Kernels are decoded here. A description is JSON, and its records are base64 of the bytes that the
core reads. Records with pointers are described by field, since a pointer has 4 bytes in
WebAssembly: layouts() says where the fields are.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from worklog.emulator.core import enum, findings, pointers, record
from worklog.emulator.core.build import HERE, NO_ZIG, built_wasm, compile_wasm, zig_folder
from worklog.emulator.core.decode import MEMORIES
from worklog.emulator.core.native import PreparedRun
from worklog.emulator.launching import PreparedLaunch
from worklog.emulator.memory import LAYOUTS, AllocatedBuffer, address_of
from worklog.emulator.ptx import Array, Instruction
from worklog.errors import WorklogError, own_folder

Document = dict[str, Any]
POINTER = "u4"  # of WebAssembly
RECORDS = ("Launch", "Buffer", "Site", "Instruction", "Event", "Step", "Cell")
EXACT = 1 << 53  # up to here JavaScript has every integer


def core_file() -> Path:
    """Return the core for browsers: the package's, the cache's or a new one.

    Raises WorklogError.
    """
    try:
        cache = own_folder("WORKLOG_CACHE", "cache")
        return built_wasm(HERE) or compile_wasm(cache, zig_folder(cache))
    except (OSError, RuntimeError) as error:
        raise WorklogError(str(error)) from error


def missing_core() -> str:
    """Return why there is no core for browsers and none can be compiled, or ""."""
    if built_wasm(HERE) or built_wasm(own_folder("WORKLOG_CACHE", "cache")):
        return ""
    return "" if find_spec("ziglang") else NO_ZIG


def layouts() -> Document:
    """Return what the core's records and events mean, in WebAssembly.

    That is the layouts, the enumerations and the texts of findings. A layout has, by field of
    numbers, the offset, the type as in NumPy, and the count.
    """
    records = {}
    for name in RECORDS:
        dtype = record(name, POINTER)
        assert dtype.fields is not None
        fields = {}
        for field, (number, offset, *_) in dtype.fields.items():
            if number.base.fields is None:
                count = int(np.prod(number.shape, dtype=int))
                fields[field] = [offset, number.base.str[1:], count]
        records[name] = {"size": dtype.itemsize, "fields": fields}
    return {
        "records": records,
        "status": enum("status"),
        "events": list(enum("event_kind")),
        "texts": findings.texts(),
    }


def program(core: PreparedRun) -> Document:
    """Return the description of a decoded kernel, which its launches have in common."""
    decoder = core.decoder
    return {
        "name": core.program.kernel.name,
        "code": _base64(decoder.records),
        "sites": _base64(core.common.sites),
        "specials": _base64(core.common.specials),
        "lists": decoder.lists,
        "image": _runs(decoder.image.view(np.uint32)),
        "lengths": core.common.lengths.tolist(),
        "lines": [instruction.line for instruction in decoder.code],
        "callers": _callers(decoder.code),
        "ops": [instruction.op for instruction in decoder.code],
        "asserts": [code.pc for code in decoder.code if code.parts[0] == "trap" and code.operands],
        "places": _places(core),
        "polls": bool(core.program.flow.polling),
        "blocks": [[block.start, block.stop] for block in core.program.flow.blocks],
        "loops": [[start, stop] for _, start, stop in core.program.flow.loops],
        "classes": [instruction.opcode.counted for instruction in decoder.code],
        "owners": [[site.line, site.counted] for site in decoder.owners],
        "refused": decoder.refused,
    }


def launch(prepared: PreparedLaunch, arguments: Mapping[str, Array]) -> Document:
    """Return the description of a launch, without its kernel.

    arguments: arrays by name. The description leaves out their content, and says which part of an
        array each buffer is.
    """
    core = prepared.core
    count = len(prepared.numbers)
    is_whole = np.array_equal(prepared.numbers, np.arange(count))
    launched = core.decoder.launched
    specials = core.launch.specials
    checked = prepared.memory.checked
    return {
        "fields": _numbers(core.record),
        "grain": core.common.grain,
        "registers": findings.registers_of(prepared.batch),
        "image": [[offset, int(specials[name])] for name, offset in launched.items()],
        "blocks": count if is_whole else prepared.numbers.tolist(),
        "layouts": _base64(np.frombuffer(b"".join(LAYOUTS), np.uint8)),
        "buffers": [
            _buffer(buffer, arguments, is_checked=buffer.base in checked)
            for buffer in prepared.memory.buffers
        ],
    }


def _callers(code: Sequence[Instruction]) -> dict[int, int]:
    """Return, by pc, the line that called the function of an instruction."""
    return {instruction.pc: instruction.caller for instruction in code if instruction.caller}


def _places(core: PreparedRun) -> dict[int, dict[str, Document]]:
    """Return what findings say of access sites, by pc and memory.

    A site with a generic address has several memories. "source" is the other side of a copy.
    """
    places = {}
    for pc, site in core.program.sites.items():
        sides = {site.space: site}
        if site.space == "generic":
            sides |= {space: site.at(space) for space in MEMORIES}
        if site.source:
            sides["source"] = site.source
        described = {}
        for name, side in sides.items():
            described[name] = findings.site_fields(core.program, side, core.launch.shared) | {
                "op": side.op,
                "guess": side.guess,
                "writes": side.writes,
                "place": side.place,
            }
        places[pc] = described
    return places


def _numbers(record_bytes: bytes) -> dict[str, Any]:
    """Return the fields of a launch's record that aren't 0, without pointers."""
    values = np.frombuffer(record_bytes, record("Launch"))[0]
    addresses = pointers("Launch")
    numbers = {}
    for field in values.dtype.names:
        if field not in addresses and values[field].dtype.base.fields is None:
            value = values[field].tolist()
            if np.any(values[field]):
                numbers[field] = value
    return numbers


def _buffer(
    buffer: AllocatedBuffer, arguments: Mapping[str, Array], *, is_checked: bool
) -> Document:
    """Return the description of a buffer: an argument's part, or content.

    Raises ValueError for an address that JavaScript can't represent.
    """
    if buffer.base + buffer.size > EXACT:
        raise ValueError(f"{buffer.name} is at {buffer.base:#x}, which exceeds {EXACT:#x}")
    described = {
        "name": buffer.name,
        "base": buffer.base,
        "size": buffer.size,
        "writable": buffer.writable,
        "checked": is_checked,
    }
    if buffer.data is None:
        return described
    address = address_of(buffer.data)
    for name, array in arguments.items():
        start = address_of(array)
        if start <= address < start + array.nbytes:
            return described | {"argument": name, "offset": address - start}
    return described | {"data": _base64(buffer.data)}


def _base64(array: Array) -> str:
    return b64encode(array.tobytes()).decode()


def _runs(values: Array) -> list[int]:
    """Return values, each with the number of times that it is repeated.

    Most registers of the image have the same value in all lanes.
    """
    starts = np.flatnonzero(np.diff(values, prepend=np.uint32(values[0] ^ 1)))
    counts = np.diff(starts, append=len(values))
    return [*map(int, np.stack([values[starts], counts], axis=1).ravel())]
