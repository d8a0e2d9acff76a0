"""An inspection as text: resources, traffic, and the source with what each line costs beside it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from worklog.analysis.inspection import Inspection, Spent
from worklog.emulator import Access, Counts

SASS_SHOWN = 12


def report(found: Inspection) -> str:
    """For a terminal."""
    size = "" if found.threads is None else f" · {found.threads} threads a block"
    parts = [f"{found.file}: {found.entry}{size}", _table(_RESOURCES, map(_resources, found.spent))]
    parts.append(_sass(found))
    if found.lines:
        parts += [
            f"{found.label} · {found.shape} with alpha = 1, beta = 0",
            _mix(found.counts),
            _table(_TRAFFIC, _traffic(found.counts)),
            *(f"note: {caveat}" for caveat in found.caveats),
        ]
        parts += [str(finding) for finding in found.findings]
        parts.append(_source(found))
    elif found.caveats:
        parts += [found.label, *found.caveats]
    else:
        parts += [found.label, "with --grid and --block its traffic is counted, line by line"]
    return "\n\n".join(parts)


_RESOURCES = (
    "arch",
    "registers",
    "stack B",
    "spills B",
    "shared B",
    "blocks/SM",
    "warps/SM",
    "occupancy",
    "limited by",
)


def _resources(spent: Spent) -> tuple[str, ...]:
    spills = f"{spent.spill_store_bytes}+{spent.spill_load_bytes}"
    own = (spent.arch, str(spent.registers), str(spent.stack_bytes), spills, str(spent.shared_bytes))
    at_once = spent.occupancy
    if at_once is None:
        return (*own, "?", "?", "?", "give --block")
    share = f"{100 * at_once.share:.0f} %"
    return (*own, str(at_once.blocks), str(at_once.warps), share, " and ".join(at_once.limited_by))


def _sass(found: Inspection) -> str:
    """The main loop of each architecture, a column each, by its most frequent instructions."""
    if not found.sass:
        return found.sass_note
    counts = {name: [mix.get(name, 0) for mix in found.sass.values()] for mix in found.sass.values() for name in mix}
    shown = sorted(counts, key=lambda name: -max(counts[name]))
    rows = [(name, *map(str, counts[name])) for name in shown[:SASS_SHOWN]]
    rest = [sum(column) for column in zip(*(counts[name] for name in shown[SASS_SHOWN:]), strict=True)]
    if rest:
        rows.append(("others", *map(str, rest)))
    rows.append(("all", *(str(sum(mix.values())) for mix in found.sass.values())))
    return _table(("main loop, SASS", *found.sass), rows)


def _mix(counts: Counts) -> str:
    """Shares of the executed PTX instructions, largest first."""
    all_of_them = counts.all_instructions
    mix = sorted(counts.instructions.items(), key=lambda item: -item[1])
    shares = [f"{name} {100 * count / all_of_them:.1f} %" for name, count in mix]
    fma = counts.instructions.get("fma", 0)
    shared = counts.shared_load.wavefronts + counts.shared_store.wavefronts
    each = f"; {shared / fma:.3f} shared wavefronts per warp multiply-add" if fma else ""
    return f"{short(all_of_them)} PTX instructions of a warp: {', '.join(shares)}{each}"


_TRAFFIC = (
    "traffic",
    "requests",
    "bytes asked",
    "sectors",
    "sectors/request",
    "wavefronts",
    "per request",
    "conflicts",
)


def _traffic(counts: Counts) -> list[tuple[str, ...]]:
    kinds = ("global_load", "global_store", "shared_load", "shared_store", "local", "atomic")
    return [_kind(name, getattr(counts, name)) for name in kinds if getattr(counts, name).requests]


def _kind(name: str, cost: Access) -> tuple[str, ...]:
    words = (name.replace("_", " "), short(cost.requests), short(cost.bytes))
    if name.startswith("shared"):
        waves = f"{cost.wavefronts / cost.requests:.2f}"
        return (*words, "", "", short(cost.wavefronts), waves, short(cost.conflicts))
    return (*words, short(cost.sectors), f"{cost.sectors_per_request:.2f}", "", "", "")


def _source(found: Inspection) -> str:
    """The source below its header, each line with its share of the instructions and the price of its accesses."""
    total = found.counts.all_instructions
    rows = [
        f"{'of all':>7} {'sectors per':>14} {'wavefronts per':>14}",
        f"{'instr.':>7} {'global request':>14} {'shared request':>14}  line   (! bank conflicts; load + store)",
    ]
    text = found.source.splitlines()
    header = next((n for n, line in enumerate(text) if line.strip() and not line.startswith("//")), 0)
    for number, line in enumerate(text[header:], start=header + 1):
        counts = found.lines.get(number)
        cost = " " * 37 if counts is None else _line(counts, total)
        rows.append(f"{cost}  {number:>4}  {line}".rstrip())
    return "\n".join(rows)


def _line(counts: Counts, total: int) -> str:
    share = f"{100 * counts.all_instructions / total:.1f} %" if total and counts.all_instructions else ""
    sectors = [f"{cost.sectors_per_request:.3g}" for cost in (counts.global_load, counts.global_store) if cost.requests]
    waves = [
        f"{cost.wavefronts / cost.requests:.3g}" + ("!" if cost.conflicts else "")
        for cost in (counts.shared_load, counts.shared_store)
        if cost.requests
    ]
    return f"{share:>7} {' + '.join(sectors):>14} {' + '.join(waves):>14}"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Columns of text, the first one left-aligned."""
    table = [head, *rows]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = []
    for row in table:
        first, *others = row
        right = [cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True)]
        lines.append("  ".join([first.ljust(widths[0]), *right]).rstrip())
    return "\n".join(lines)


def short(count: int) -> str:
    """1234567 as 1.23 M; below ten thousand in full."""
    for unit, scale in (("T", 10**12), ("G", 10**9), ("M", 10**6), ("k", 10**3)):
        if count >= 10 * scale or (count >= scale and unit != "k"):
            return f"{count / scale:.4g} {unit}"
    return str(count)
