"""An inspection as text: resources, memory counts, and the source with the cost of each line beside it."""

from __future__ import annotations

from worklog.analysis.inspection import Inspection
from worklog.emulator import Counts
from worklog.kernel.nvrtc import Compiled
from worklog.runs.table import Table

SASS_SHOWN = 12
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
_MEMORY = ("memory", "requests", "bytes", "sectors", "sectors/request", "wavefronts", "per request", "conflicts")


def report(found: Inspection) -> str:
    """For a terminal."""
    threads = "" if found.threads is None else f" · {found.threads} threads per block"
    resources = Table("", _RESOURCES, [_resources(found, out) for out in found.compiled])
    parts = [f"{found.main.name}: {found.main.entry}{threads}", resources.text(), _sass(found)]
    if found.lines:
        parts += [
            f"{found.label} · {found.shape} with alpha = 1, beta = 0",
            _mix(found.counts),
            Table("", _MEMORY, _memory(found.counts)).text(),
            *(f"note: {caveat}" for caveat in found.caveats),
            *map(str, found.findings),
            _source(found),
        ]
    else:
        parts += [found.label, *(found.caveats or ["give --grid and --block to count memory requests by line"])]
    return "\n\n".join(parts)


def _resources(found: Inspection, out: Compiled) -> tuple[str, ...]:
    spills = f"{out.spill_store_bytes}+{out.spill_load_bytes}"
    own = (out.arch, str(out.registers), str(out.stack_bytes), spills, str(out.shared_bytes))
    at_once = found.occupancy(out)
    if at_once is None:
        return (*own, "?", "?", "?", "give --block")
    share = f"{100 * at_once.share:.0f} %"
    return (*own, str(at_once.blocks), str(at_once.warps), share, " and ".join(at_once.limited_by))


def _sass(found: Inspection) -> str:
    """The most frequent instructions of the main loop, one column per architecture."""
    if not found.sass:
        return found.sass_note
    counts = {name: [mix.get(name, 0) for mix in found.sass.values()] for mix in found.sass.values() for name in mix}
    shown = sorted(counts, key=lambda name: -max(counts[name]))
    rows = [(name, *map(str, counts[name])) for name in shown[:SASS_SHOWN]]
    rest = [sum(column) for column in zip(*(counts[name] for name in shown[SASS_SHOWN:]), strict=True)]
    if rest:
        rows.append(("others", *map(str, rest)))
    rows.append(("all", *(str(sum(mix.values())) for mix in found.sass.values())))
    return Table("", ("main loop, SASS", *found.sass), rows).text()


def _mix(counts: Counts) -> str:
    """Shares of the executed PTX instructions, largest first."""
    mix = sorted(counts.instructions.items(), key=lambda item: -item[1])
    shares = [f"{name} {100 * count / counts.all_instructions:.1f} %" for name, count in mix]
    fma = counts.instructions.get("fma", 0)
    shared = counts.shared_load.wavefronts + counts.shared_store.wavefronts
    each = f"; {shared / fma:.3f} shared wavefronts per warp multiply-add" if fma else ""
    return f"{short(counts.all_instructions)} PTX instructions of a warp: {', '.join(shares)}{each}"


def _memory(counts: Counts) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for name in ("global_load", "global_store", "shared_load", "shared_store", "local", "atomic"):
        cost = getattr(counts, name)
        if not cost.requests:
            continue
        row = (name.replace("_", " "), short(cost.requests), short(cost.bytes))
        if name.startswith("shared"):
            waves = f"{cost.wavefronts / cost.requests:.2f}"
            rows.append((*row, "", "", short(cost.wavefronts), waves, short(cost.conflicts)))
        else:
            rows.append((*row, short(cost.sectors), f"{cost.sectors_per_request:.2f}", "", "", ""))
    return rows


def _source(found: Inspection) -> str:
    """The source below its header, each line with its share of the instructions and the cost of its requests."""
    total = found.counts.all_instructions
    rows = [
        f"{'of all':>7} {'sectors per':>14} {'wavefronts per':>14}",
        f"{'instr.':>7} {'global request':>14} {'shared request':>14}  line   (! bank conflicts; load + store)",
    ]
    text = found.main.source.splitlines()
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


def short(count: int) -> str:
    """1234567 as 1.23 M; below ten thousand in full."""
    for unit, scale in (("T", 10**12), ("G", 10**9), ("M", 10**6), ("k", 10**3)):
        if count >= 10 * scale or (count >= scale and unit != "k"):
            return f"{count / scale:.4g} {unit}"
    return str(count)
