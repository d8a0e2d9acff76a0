"""Runs of schema 1, one JSON document with 47 fields for each measurement, which users may still have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NotRequired, TypedDict, TypeVar

import msgspec

from worklog.errors import BadRunFile
from worklog.runs.calibration import Calibration
from worklog.runs.documents import Date, read_json
from worklog.runs.estimates import Estimate
from worklog.runs.gpu import Gpu
from worklog.runs.measurement import Energy, Measurement, Roof, Work
from worklog.runs.record import RunRecord
from worklog.runs.samples import Samples, Side, event_overhead_us
from worklog.runs.verdict import Verdict

BEFORE_PLACEMENT = {"placement": "fixed"}  # what a run file without this setting did; the shipped sweep is one
AGAINST = "against"  # among the changed settings: another baseline than the first one
R = TypeVar("R", bound=RunRecord)


class Document(TypedDict):
    """What a document must hold, as far as it is read."""

    origin: NotRequired[Literal["live", "recorded"]]
    tool: dict[str, Any]
    created: Date
    complete: bool
    device: dict[str, Any]
    software: dict[str, str]
    harness: dict[str, Any]
    calibration: dict[str, Any]
    kernels: dict[str, dict[str, Any]]
    notes: list[str]
    measurements: list[dict[str, Any]]


def from_schema_1(cls: type[R], path: Path, origin: str, advice: str) -> R:
    """Read such a run. Raises BadRunFile, naming the part that is missing or damaged."""
    document, _ = read_json(path, Document, None, [1], advice)
    where = "device "
    try:
        gpu = msgspec.convert(document["device"], Gpu)
        where = "calibration "
        calibration = msgspec.convert(document["calibration"], Calibration)
        harness = BEFORE_PLACEMENT | document["harness"] if document["harness"] else {}
        measurements = list[Measurement]()
        for number, entry in enumerate(document["measurements"], 1):
            where = f"measurements {number} "
            m = _measurement(entry, harness, calibration.offset_us)
            if AGAINST in m.changed:
                measurements[-1] = _joined(measurements[-1], m)
            else:
                measurements.append(m)
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise BadRunFile(f"{path} isn't a whole document of a run ({where}{error}): {advice}") from error
    known = {name: document[name] for name in ("tool", "created", "complete", "software", "kernels", "notes")}
    origin = origin or document.get("origin", "recorded")
    return cls(harness, gpu, calibration, measurements=measurements, origin=origin, path=path, **known)


def _measurement(entry: Mapping[str, Any], harness: Mapping[str, Any], offset_us: float) -> Measurement:
    status = "failed" if entry["status"] == "refused" else entry["status"]
    time, ratio = _estimate(entry, "us"), _estimate(entry, "ratio")
    baseline = entry.get("baseline", "cuBLAS")
    tflops, of_roof = entry.get("tflops"), entry.get("of_roof")
    overhead, settings = (
        entry.get("overhead_us"),
        {"offset": "removed", "timer": "events", **harness, **entry["changed"]},
    )
    verdict = entry.get("verdict") and msgspec.convert({"precision": None, **entry["verdict"]}, Verdict)
    values: dict[str, Any] = {
        "kernel": entry["kernel"],
        "shape": entry["shape"],
        "status": status,
        "reason": entry.get("reason"),
        "axes": entry.get("axes", {}),
        "changed": entry["changed"],
        "overhead_us": event_overhead_us(settings, offset_us) if overhead is None else overhead,
        "throttle_mask": entry.get("throttle_mask", 0),
        "converged": entry.get("converged", False),
        "degradations": entry.get("degradations", []),
        "witnesses": entry.get("witnesses", {}),
    }
    m = msgspec.convert(values, Measurement)
    if status == "measured" and time is None:
        raise ValueError("it is measured, but has no time")
    joules, watts = entry.get("joules"), entry.get("watts")
    return replace(
        m,
        time=time if status == "measured" else None,
        against={baseline: ratio if status == "measured" else None} if baseline else {},
        verdict=verdict,
        work=Work(*(entry.get(name) for name in ("flops", "elements", "bytes_read", "bytes_written"))),
        roof=Roof(tflops / of_roof, entry.get("datapath")) if tflops and of_roof else None,
        energy=Energy(joules, watts, entry.get("celsius")) if joules and watts else None,
        samples=_samples(entry.get("samples", {}), entry["kernel"], baseline),
    )


def _estimate(entry: Mapping[str, Any], name: str) -> Estimate | None:
    value = entry.get(name)
    if value is None:
        return None
    low, high = (entry.get(f"{name}_{end}") for end in ("low", "high"))
    parts = (entry.get(f"{name}_{part}") for part in ("launches", "placement", "process"))
    return Estimate(value, value if low is None else low, value if high is None else high, *parts)


def _samples(columns: Mapping[str, Sequence[Any]], kernel: str, baseline: str) -> Samples:
    kernels = columns.get("kernels", ())

    def side(name: str, prefix: str, number: int) -> Side:
        of = {column: [*columns.get(f"{prefix}{column}", ())] for column in ("us", "sm_mhz", "placement")}
        hot = [*columns.get(f"hot_{prefix}us", ())]
        return Side(name, **of, hot_us=hot, kernels=kernels[number] if number < len(kernels) else None)

    if not columns.get("us"):
        return Samples()
    sides = [side(kernel, "", 0)] + ([side(baseline, "baseline_", 1)] if columns.get("baseline_us") else [])
    return Samples(sides, [*map(int, columns["counts"])])


def _joined(m: Measurement, further: Measurement) -> Measurement:
    """A measurement with that of the same turns against another baseline."""
    name = further.changed[AGAINST]
    sides = [replace(side, name=name) for side in further.samples.sides[1:]]
    samples = replace(m.samples, sides=[*m.samples.sides, *sides])
    return replace(m, against={**m.against, name: further.against.get(further.baseline)}, samples=samples)
