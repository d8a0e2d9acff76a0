"""What came of a tried kernel, in words: for a terminal, for a notebook, and every line number as the writer counts
them.
"""

from __future__ import annotations

import re
from html import escape
from typing import TYPE_CHECKING

from worklog.bench.check import report, took
from worklog.gate import Stage
from worklog.kernel.nvrtc import UnknownEntry
from worklog.runs import report as run_report

if TYPE_CHECKING:
    from worklog.lab.tried import Tried

MOST_COMPLAINTS = 5


def text(tried: Tried) -> str:
    """The gate's report, then, if it let the kernel pass, the table with the rungs."""
    told = in_lines(report(tried.checked), tried.kernel.program.name)
    return f"{told}\n\n{run_report.text(tried.shown)}".rstrip() if tried.accepted else told


def html(tried: Tried) -> str:
    """The same for a notebook, but for the map, which is a chart there."""
    checked, name = tried.checked, tried.kernel.program.name
    verdict, compiled = checked.verdict, checked.compiled
    assert compiled is not None  # a cell holds a kernel, not host code
    word = f"accepted as {verdict.precision}" if verdict.accepted else "refused"
    head = f"<b>{escape(tried.kernel.name)}</b>: {word} at {checked.shape}{took(verdict)}"
    stages = "".join(f"<li>{_stage(stage, name)}</li>" for stage in verdict.stages)
    findings = "".join(
        f"<li>{_lines(f'{name}: {finding}', name)}</li>"
        for finding in checked.findings
        if finding.message not in str(verdict.reason)
    )
    spent = (
        f"{compiled.registers} registers, {compiled.stack_bytes} bytes of local memory a thread, "
        f"{compiled.shared_bytes} bytes of shared memory a block ({compiled.arch})"
    )
    return (
        f'<div role="status"><p>{head} · {escape(checked.label)}</p>'
        f'<ul style="list-style:none;padding-left:0.5em">{stages}{findings}</ul><p>{spent}</p></div>'
        f"{run_report.html(tried.shown) if tried.accepted else ''}"
    )


def _stage(stage: Stage, name: str) -> str:
    return _lines(f"{'✓' if stage.passed else '✗'} {stage.name}: {stage.detail}", name)


def _lines(told: str, name: str) -> str:
    """Line by line; what stands four characters in is source, or a drawing in characters."""
    return "<br>".join(
        f'<code style="white-space:pre">{escape(line)}</code>' if line.startswith("    ") else escape(line)
        for line in in_lines(told, name).splitlines()
    )


def in_lines(words: str, file: str) -> str:
    """The words with "cell:7" and "cell: line 7" as "cell line 7"."""
    return re.sub(rf"\b{re.escape(file)}: ?(?:line )?(\d+)", rf"{file} line \1", words)


def complaints(error: Exception, file: str, source: str) -> str:
    """What the compiler did not like, each with its line and that line's text; for any other error, its words, without
    the log of a compiler that was asked for a name that is not there.
    """
    found = re.findall(
        rf"^{re.escape(file)}\((\d+)\):\s*(?:catastrophic )?error[^:]*:\s*(.+)$", str(error), re.MULTILINE
    )
    if not found:
        words = str(error).splitlines()[0] if isinstance(error, UnknownEntry) else str(error)
        return in_lines(words, file)
    lines = source.splitlines()
    told = [f"{file} line {number}: {what}\n    {lines[int(number) - 1].strip()}" for number, what in found]
    more = len(told) - MOST_COMPLAINTS
    return "\n".join(told[:MOST_COMPLAINTS] + [f"… and {more} more"] * (more > 0))
