"""Run files of schema 1, which users may still have: one JSON document with 47 fields for each measurement."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from worklog.errors import BadRunFile
from worklog.runs.documents import read_json
from worklog.runs.estimates import event_overhead_us
from worklog.runs.measurement import Work

AGAINST = "against"  # among the changed settings: another baseline than the first one


def of_schema_1(path: Path, advice: str) -> dict[str, Any]:
    """What a file holds, by the names of a Run's fields. Raises BadRunFile."""
    document, _ = read_json(path, dict[str, Any], None, [1], advice)
    measurements = list[dict[str, Any]]()
    try:
        for old in document["measurements"]:
            new = _measurement(old, document)
            if AGAINST in old["changed"]:  # of the same turns as the one before
                name, first = old["changed"][AGAINST], measurements[-1]
                first["against"][name] = new["against"][old["baseline"]]
                first["samples"]["sides"] += [{**side, "name": name} for side in new["samples"]["sides"][1:]]
            else:
                measurements.append(new)
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        what = f"isn't a whole run (measurements {len(measurements)}: {error!r})"
        raise BadRunFile(f"{path} {what}: {advice}") from error
    return {**document, "gpu": document.get("device"), "measurements": measurements}


def _measurement(old: Mapping[str, Any], document: Mapping[str, Any]) -> dict[str, Any]:
    baseline, columns = old.get("baseline", "cuBLAS"), old.get("samples", {})

    def estimate(name: str) -> dict[str, Any] | None:
        value = old.get(name) if old["status"] == "measured" else None
        ends = {end: value if old.get(f"{name}_{end}") is None else old[f"{name}_{end}"] for end in ("low", "high")}
        return None if value is None else {"value": value, **ends, "process": old.get(f"{name}_process")}

    sides, kernels = list[dict[str, Any]](), columns.get("kernels") or (None, None)
    for name, prefix, count in ((old["kernel"], "", kernels[0]), (baseline, "baseline_", kernels[1])):
        if columns.get(f"{prefix}us"):
            side = {part: columns.get(f"{prefix}{part}", ()) for part in ("us", "sm_mhz", "placement")}
            sides.append({**side, "name": name, "hot_us": columns.get(f"hot_{prefix}us", ()), "kernels": count})
    overhead_us = old.get("overhead_us")
    if overhead_us is None:
        made_with = {"offset": "removed", "timer": "events", **document["harness"], **old["changed"]}
        overhead_us = event_overhead_us(made_with, document["calibration"]["offset_us"])
    peak = old["tflops"] / old["of_roof"] if old.get("tflops") and old.get("of_roof") else None
    return {
        **old,
        "status": "failed" if old["status"] == "refused" else old["status"],
        "time": estimate("us"),
        "against": {baseline: estimate("ratio")} if baseline else {},
        "verdict": old.get("verdict") and {"precision": None, **old["verdict"]},
        "work": {field.name: old.get(field.name) for field in fields(Work)},
        "roof": peak and {"tflops": peak, "datapath": old.get("datapath")},
        "samples": {
            "sides": sides,
            "counts": [*map(int, columns["counts"])] if sides else [],
            "overhead_us": overhead_us,
            "throttle_mask": old.get("throttle_mask", 0),
        },
    }
