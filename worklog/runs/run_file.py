"""Run files: JSON Lines. First the head, then what is known, a line each; every line has a `kind`.

A file only grows, so a run that is cut short keeps every finished line. What can be derived is derived when it is read.
A file of schema 1, which users may still have, is one JSON document with 47 fields for each measurement.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import msgspec

from worklog.errors import BadRunFile
from worklog.runs.documents import read_json, read_text
from worklog.runs.measurement import Measurement, Work
from worklog.runs.samples import event_overhead_us

SCHEMA = 2
ADVICE = "measure again, or give a file that `worklog run` wrote"
AGAINST = "against"  # of schema 1, among the changed settings: another baseline than the first one


def line(kind: str, value: Any) -> str:
    """One line of a run file: a record of this kind, or a mapping, without what isn't known. NaN becomes null."""
    if isinstance(value, Measurement):
        value = replace(value, context=None)
    known = {name: part for name, part in msgspec.to_builtins(value).items() if part is not None}
    return msgspec.json.encode({"kind": kind, **known}).decode()


def read_line(text: str) -> Measurement:
    """The measurement of a line. Raises ValueError."""
    return sound(msgspec.json.decode(text, type=Measurement))


def read(path: Path) -> dict[str, Any]:
    """What a file holds, by the names of a Run's fields; it isn't checked yet. Raises BadRunFile: see Run.load."""
    try:
        texts = read_text(path).rstrip("\n").split("\n")
    except OSError as error:
        raise BadRunFile(f"cannot read {path}: {error.strerror}; {ADVICE}") from error
    except ValueError as error:
        raise BadRunFile(f"{path} is not a run: {error}: {ADVICE}") from error
    try:
        first = msgspec.json.decode(texts[0])
    except (ValueError, RecursionError):
        first = None
    if isinstance(first, dict) and first.get("kind") == "head":
        return read_lines(texts, path)
    return _of_schema_1(path)


def read_lines(texts: Sequence[str], path: Path) -> dict[str, Any]:
    """The same from the lines of a file; those of a kind that this version doesn't know say nothing."""
    document: dict[str, Any] = {"kernels": {}, "notes": [], "measurements": [], "complete": False}
    for number, text in enumerate(texts, 1):
        try:
            entry = msgspec.json.decode(text, type=dict[str, Any])
        except (ValueError, RecursionError) as error:
            if number == len(texts) and not document["complete"]:  # it was cut short while it was written
                break
            raise BadRunFile(f"{path}:{number} is damaged ({error}): {ADVICE}") from error
        kind = entry.get("kind")
        if kind == "head":
            document |= entry
        elif kind in ("gpu", "calibration"):
            document[kind] = entry
        elif kind == "kernel":
            document["kernels"][str(entry.get("name"))] = entry.get("about")
        elif kind == "note":
            document["notes"].append(entry.get("text"))
        elif kind == "measurement":
            samples = entry.setdefault("samples", {})
            for name in {"overhead_us", "throttle_mask"} & entry.keys():  # since November 2026 of the samples
                if isinstance(samples, dict):
                    samples[name] = entry[name]
            document["measurements"].append(entry)
        elif kind == "end":
            document["complete"] = True
    if isinstance(document.get("schema"), int) and document["schema"] > SCHEMA:
        schema = f"schema {document['schema']}; this version reads {SCHEMA}"
        raise BadRunFile(f"{path} has {schema}: install a newer gemm-worklog")
    return document


def sound(m: Measurement) -> Measurement:
    """The measurement. Raises ValueError where its parts don't fit together."""
    if m.status == "measured" and (m.time is None or not m.time.value > 0):
        raise ValueError(f"measurements: {m.title} is measured, but has no time")
    if any(ratio and not ratio.value > 0 for ratio in m.against.values()):
        raise ValueError(f"measurements: against: a ratio of {m.title} isn't above 0")
    if m.status == "measured" and m.verdict and not (m.verdict.accepted and m.verdict.precision):
        raise ValueError(f"measurements: {m.title} is measured, but its verdict isn't passed with a precision")
    return m


# ------------------------------------------------------------------------------------------------------------ schema 1


def _of_schema_1(path: Path) -> dict[str, Any]:
    document, _ = read_json(path, dict[str, Any], None, [1], ADVICE)
    measurements = list[dict[str, Any]]()
    try:
        for old in document["measurements"]:
            new = _measurement(old, document)
            if AGAINST not in old["changed"]:
                measurements.append(new)
                continue
            first, name = measurements[-1], old["changed"][AGAINST]  # of the same turns
            first["against"][name] = new["against"][old["baseline"]]
            first["samples"]["sides"] += [{**side, "name": name} for side in new["samples"]["sides"][1:]]
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        what = f"isn't a whole run (measurements {len(measurements)}: {error!r})"
        raise BadRunFile(f"{path} {what}: {ADVICE}") from error
    return {**document, "gpu": document.get("device"), "measurements": measurements}


def _measurement(old: Mapping[str, Any], document: Mapping[str, Any]) -> dict[str, Any]:
    measured, baseline = old["status"] == "measured", old.get("baseline", "cuBLAS")
    new: dict[str, Any] = {
        **old,
        "status": "failed" if old["status"] == "refused" else old["status"],
        "time": _estimate(old, "us") if measured else None,
        "against": {baseline: _estimate(old, "ratio") if measured else None} if baseline else {},
        "verdict": old.get("verdict") and {"precision": None, **old["verdict"]},
        "work": {field.name: old.get(field.name) for field in fields(Work)},
        "roof": None,
        "samples": {},
    }
    if old.get("tflops") and old.get("of_roof"):
        new["roof"] = {"tflops": old["tflops"] / old["of_roof"], "datapath": old.get("datapath")}
    columns: dict[str, Any] = old.get("samples", {})
    if columns.get("us"):
        sides = list[dict[str, Any]]()
        for name, prefix in ((old["kernel"], ""), (baseline, "baseline_")):
            if columns.get(f"{prefix}us"):
                side = {part: columns.get(f"{prefix}{part}", ()) for part in ("us", "sm_mhz", "placement")}
                sides.append({**side, "name": name, "hot_us": columns.get(f"hot_{prefix}us", ())})
        for side, kernels in zip(sides, columns.get("kernels") or (), strict=False):
            side["kernels"] = kernels
        new["samples"] = {"sides": sides, "counts": [*map(int, columns["counts"])]}
    overhead_us = old.get("overhead_us")
    if overhead_us is None:
        made_with = {"offset": "removed", "timer": "events", **document["harness"], **old["changed"]}
        overhead_us = event_overhead_us(made_with, document["calibration"]["offset_us"])
    new["samples"] |= {"overhead_us": overhead_us, "throttle_mask": old.get("throttle_mask", 0)}
    return new


def _estimate(old: Mapping[str, Any], name: str) -> dict[str, Any] | None:
    value = old.get(name)
    if value is None:
        return None
    parts = {part: old.get(f"{name}_{part}") for part in ("launches", "placement", "process")}
    ends = {end: value if old.get(f"{name}_{end}") is None else old[f"{name}_{end}"] for end in ("low", "high")}
    return {"value": value, **ends, **parts}
