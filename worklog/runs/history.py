"""The runs that this machine keeps, chosen, and as one frame; and the sides of a comparison, of NVBench too."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from worklog.errors import BadRunFile, BadSetting
from worklog.runs.changes import Reading, Side, side_of
from worklog.runs.estimates import NORMAL
from worklog.runs.run import Run, kept_runs, open_run

if TYPE_CHECKING:
    import pandas

NVBENCH = [f"nv/cold/{of}" for of in ("time/gpu/mean", "time/gpu/stdev/relative", "sample_size", "sm_clock_rate/mean")]


def history(kernel: str = "", gpu: str = "", since: str = "", until: str = "", commit: str = "") -> pandas.DataFrame:
    """The measurements of many runs of this machine as one frame: the columns of `run.frame()`, and before them the
    run's name, when it was made, the card and the commit. The arguments choose as in saved().

    Example: `worklog.history("warptiled", since="2026-11").pivot_table("us", "created", "n")`.
    """
    import pandas

    rows = list[dict[str, Any]]()
    for run in saved(kernel, gpu, since, until, commit):
        about: dict[str, Any] = {"run": run.path and run.path.stem, "created": run.created}
        about |= {"gpu": run.gpu.name, "uuid": run.gpu.uuid, "commit": run.tool.get("commit")}
        rows += [about | row for row in run.rows() if kernel in ("", row["kernel"])]
    return pandas.DataFrame(rows)


def saved(kernel: str = "", gpu: str = "", since: str = "", until: str = "", commit: str = "") -> list[Run]:
    """The runs of this machine, newest first. kernel: one of theirs. gpu: a part of the card's name or UUID. since,
    until: first and last UTC time, as "2026-11", "2026-11-27" or longer. commit: the first digits. Raises
    BadSetting for another form of a time.
    """
    for time in filter(None, (since, until)):
        if not re.fullmatch(r"\d{4}(-\d\d(-\d\d(T[\d:+.]*)?)?)?", time):
            raise BadSetting(
                f"{time!r} isn't a UTC day, month or time: write it as 2026-11-27, 2026-11 or 2026-11-27T03:12"
            )
    runs = list[Run]()
    for run in kept_runs():
        held = not kernel or any(m.kernel == kernel for m in run.measurements)
        card = gpu.lower() in f"{run.gpu.name} {run.gpu.uuid}".lower()
        of_commit = str(run.tool.get("commit") or "").startswith(commit)
        if held and card and of_commit and since <= run.created and run.created[: len(until)] <= until:
            runs.append(run)
    return runs


def sides(words: str) -> list[Side]:
    """The sides of a comparison: runs as for open_run(), or files of NVBench's --json, with commas between them. Raises
    BadSetting and BadRunFile.
    """
    named = list[Side]()
    for word in filter(None, words.split(",")):
        try:
            document = msgspec.json.decode(Path(word).read_bytes())
        except (OSError, ValueError):
            document = None
        nvbench = isinstance(document, dict) and "benchmarks" in document
        named.append(side_of_nvbench(document, word) if nvbench else side_of(open_run(word)))
    if not named:
        raise BadSetting("name a run on each side: a file, a name of `worklog log`, or REVISION:PATH")
    return named


def side_of_nvbench(document: Any, file: str) -> Side:
    """What NVBench's --json of one process says: each benchmark's mean GPU time at each state. Raises BadRunFile."""
    readings = dict[tuple[str, str], Reading | str]()
    try:
        cards = ", ".join(device["name"] for device in document["devices"])
        version = str(document["meta"]["version"]["nvbench"]["string"])
        for benchmark in document["benchmarks"]:
            for state in benchmark["states"]:
                values = dict[str, float]()
                for summary in state["summaries"] or ():
                    said = {part["name"]: part["value"] for part in summary["data"]}
                    values |= {summary["tag"]: float(said["value"])} if summary["tag"] in NVBENCH else {}
                place = benchmark["name"], state["name"]
                readings[place] = f"skipped: {state.get('skip_reason') or 'no time'}"
                if NVBENCH[0] in values:
                    mean, noise, count = (values[tag] for tag in NVBENCH[:3])
                    mhz = values.get(NVBENCH[3], 0.0) / 1e6
                    readings[place] = Reading(1e6 * mean, NORMAL * noise / count**0.5, mhz or None)
    except (KeyError, TypeError, ValueError, AttributeError, ZeroDivisionError) as error:
        raise BadRunFile(f"{file} isn't a whole file of NVBench's --json ({error!r}): write it again") from error
    return Side(f"NVBench · {cards} · {file}", {"GPU": cards}, {"NVBench": version}, readings)
