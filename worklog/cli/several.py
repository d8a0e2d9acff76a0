"""`worklog check` of the kernels of files and folders, in one table."""

from __future__ import annotations

import json
import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from worklog.cli import options
from worklog.errors import BadSetting, Interrupted, NoGpu, NvrtcMissing, WorklogError
from worklog.kernel import RUNGS, Kernel
from worklog.kernel.by_name import DEFAULTS, OPTIONS, product_of_rung
from worklog.kernel.listing import (
    NO_SUM,
    Listed,
    kernels_in,
    own_kernels,
    sources_in,
    text_of_header,
)
from worklog.kernel.trial import kernel_of
from worklog.runner.check import Checked
from worklog.runs.text import Progress, Table, a_few

MAX_LINES = 6  # below the table, about a kernel
OF_ONE_KERNEL = ("grid", "block", "entry", "args", "domain", "shared")
PASSED = "passed"
FAILED = "failed"
NOT_CHECKED = "not checked"
LEFT_OUT = "left out"
NO_KERNEL = "no kernel"
ONLY_IN_HEADERS = "kernels in headers only, which have lines of their own"
MARKS = {PASSED: "✓", FAILED: "✗", NOT_CHECKED: "?", LEFT_OUT: "·"}
NOT_REPEATED = ("as_json", "seed")  # options: of all kernels, and stated by each verdict
# What a message says to give: --args 'M,N,?,A,B,C', or --grid X --block 32,32, or -I include.
ADVISED = re.compile(r"--(args|entry|grid|block|domain|shared) ('[^']+'|[\w,]*\w)")
ADVISED_FOLDER = re.compile(r"as in -I ('[^']+'|\S+\w)")
LACKS_FOLDER = re.compile(r"give its folder with -I(?! if)")
ADVISED_COMMAND = re.compile(r"type: (worklog check [\w.-]+)$")
EXAMPLE = re.compile(r"as in --|such as --|, or others")  # before or behind what isn't known
UNKNOWN_FOLDER = "FOLDER"


@dataclass(frozen=True)
class KernelInFile:
    """A kernel of a file with its verdict, or a file that can't be read."""

    file: Path
    kernel: str = ""  # "" for a file that can't be read
    verdict: str = ""  # "" before the check
    reason: str = ""
    checked: Checked | None = None
    subject: Kernel | None = None  # what was checked
    may_be_named: bool = False  # whether a kernel that is left out can be checked alone

    @property
    def is_file_without_kernel(self) -> bool:
        """True if the row stands for a file that has no kernel."""
        return self.verdict == LEFT_OUT and not self.kernel

    @property
    def whole_reason(self) -> str:
        """The reason with the kernel's name and without the file's name.

        At most MAX_LINES lines.
        """
        reason = self.reason.removeprefix(f"{self.file.name}: ")
        has_name = re.match(rf"{re.escape(self.kernel)}[ (]", reason)
        if self.kernel and not has_name:
            reason = f"{self.kernel}: {reason}"
        lines = reason.splitlines()
        if len(lines) > MAX_LINES:
            lines[MAX_LINES - 1 :] = [f"… and {len(lines) - MAX_LINES + 1} more lines"]
        return "\n".join(lines)

    @property
    def short_reason(self) -> str:
        """The reason's first line without the names of the kernel and its parameters."""
        begin = rf"^{re.escape(self.kernel)}(?:\([^()]*\))?:? "
        return re.sub(begin, "", self.whole_reason).partition("\n")[0]


Check = Callable[[Kernel, Progress], Checked]
Document = Callable[[Kernel, Checked], dict[str, Any]]


def is_folder(argument: str) -> bool:
    """Return whether an argument is a folder, and no rung of the same name."""
    return Path(argument).is_dir() and not _is_rung(argument)


def _is_rung(argument: str) -> bool:
    """Return whether an argument is the name of a rung."""
    return argument in [rung.name for rung in RUNGS]


def has_several(arguments: Sequence[str], launch: Mapping[str, Any]) -> bool:
    """Return whether the arguments have several kernels.

    An option that is for one kernel of a file chooses one.

    launch: the options of a user kernel

    Raises BadSetting for such an option with several files or a folder.
    """
    changed = [name for name in OF_ONE_KERNEL if launch[name] not in (None, DEFAULTS[name])]
    if len(arguments) > 1 or is_folder(arguments[0]):
        if changed:
            option = OPTIONS[changed[0]].flags[-1]
            raise BadSetting(f"{option} is for one kernel: give one file, and --entry NAME")
        return True
    path = Path(arguments[0])
    if changed or not path.is_file() or _is_rung(arguments[0]) or path.suffix in (".py", ".so"):
        return False
    return len(own_kernels(_kernels_in(path, launch))) > 1


def _kernels_in(path: Path, launch: Mapping[str, Any]) -> list[Listed]:
    """Return the kernels of a file and its headers."""
    return kernels_in(path, launch["include"] or (), launch["define"] or ())


def check_all(
    arguments: Sequence[str],
    launch: Mapping[str, Any],
    check: Check,
    document: Document,
    *,
    as_json: bool,
) -> list[KernelInFile]:
    """Check each kernel of files and folders, print the results and return them.

    launch: the options of a user kernel
    check: checks a kernel
    document: returns what --json prints of a kernel that was checked
    """
    rows = find(arguments, launch)
    finished = list[KernelInFile]()

    def show() -> None:
        if as_json:
            documents = [_document(row, document) for row in finished]
            click.echo(json.dumps(documents, indent=1))
        else:
            click.echo("\n".join(_report(arguments, finished)))

    try:
        with options.progress_bar() as progress:
            count = sum(not row.is_file_without_kernel for row in rows)
            number = 0
            for row in rows:
                if not row.is_file_without_kernel:
                    number += 1
                name = f"kernel {number} of {count}, {row.kernel}"
                finished.append(_checked(row, launch, check, _with_name(progress, name)))
    except (KeyboardInterrupt, Interrupted):
        if finished and not as_json:
            show()
        raise
    show()
    return finished


def find(arguments: Sequence[str], launch: Mapping[str, Any]) -> list[KernelInFile]:
    """Return the kernels of files and folders in order, and files without a kernel.

    A file without a kernel is listed if it is a .cu file. A kernel of a header has its line with
    the header if that is among the files, else with the first file that includes it.

    launch: the options of a user kernel

    Raises BadSetting for an argument that is neither a file nor a folder.
    """
    files = _files(arguments)
    has_one_file = len(files) == 1
    headers = {text_of_header(path) for path in files if path.suffix != ".cu"}
    rows = list[KernelInFile]()
    for path in files:
        try:
            kernels = _kernels_in(path, launch)
            product = product_of_rung(path)
        except WorklogError as error:
            rows.append(KernelInFile(path, verdict=NOT_CHECKED, reason=str(error)))
            continue
        listed = own_kernels(kernels) if has_one_file else _not_from(headers, kernels)
        headers |= {kernel.header for kernel in listed}
        rows += [_row(path, kernel, product) for kernel in listed]
        if not listed and path.suffix == ".cu":
            reason = ONLY_IN_HEADERS if kernels else NO_KERNEL
            rows.append(KernelInFile(path, verdict=LEFT_OUT, reason=reason))
    if all(row.is_file_without_kernel for row in rows):
        raise BadSetting(
            f"{a_few(arguments)}: no file has a __global__ function: name another file or folder"
        )
    return rows


def _files(arguments: Sequence[str]) -> list[Path]:
    """Return the files of the arguments and of folders among them, each once."""
    files = dict[Path, Path]()
    for argument in arguments:
        paths = sources_in(Path(argument)) if is_folder(argument) else [_source(argument)]
        for path in paths:
            files.setdefault(path.resolve(), path)
    return [*files.values()]


def _not_from(headers: Set[str], kernels: Sequence[Listed]) -> list[Listed]:
    """Return the kernels, except those of headers that have lines of their own.

    headers: texts
    """
    return [kernel for kernel in kernels if not kernel.header or kernel.header not in headers]


def _row(path: Path, kernel: Listed, product: str) -> KernelInFile:
    """Return a kernel's row before the check.

    product: the kernel of the file that is checked as a rung of several launches
    """
    row = KernelInFile(path, kernel.name)
    reason = kernel.why_no_product
    # Other parameters can't be passed, and a helper is checked with the kernel that it works for.
    may_be_named = not product and reason == NO_SUM
    if product and not reason:
        reason = f"launched with {product}, for it"
    if not reason or kernel.name == product:
        return row
    reason = f"no product of float matrices: {reason}"
    return replace(row, verdict=LEFT_OUT, reason=reason, may_be_named=may_be_named)


def _source(argument: str) -> Path:
    """Return the path of a file among several arguments. Raises BadSetting for others."""
    path = Path(argument)
    is_source = path.exists() or path.suffix == ".cu"
    if _is_rung(argument) or path.suffix in (".py", ".so") or not is_source:
        raise BadSetting(f"{argument} isn't a .cu file or a folder: check it alone")
    if not path.exists():
        raise BadSetting(f"{argument} doesn't exist: name another file or folder")
    return path


def _with_name(progress: Progress, name: str) -> Progress:
    """Return progress that begins with the kernel's name."""

    def report(count: int, total: int, activity: str) -> None:
        progress(count, total, f"{name}: {activity}")

    return report


def _checked(
    row: KernelInFile, launch: Mapping[str, Any], check: Check, progress: Progress
) -> KernelInFile:
    """Return the row with its verdict. A row that has a verdict is returned as it is."""
    if row.verdict:
        return row
    try:
        subject = kernel_of(str(row.file), {**launch, "entry": row.kernel})
        checked = check(subject, progress)
    except (Interrupted, NoGpu, NvrtcMissing):
        raise
    except WorklogError as error:
        return replace(row, verdict=NOT_CHECKED, reason=str(error))
    verdict = PASSED if checked.verdict.accepted else FAILED
    reason = checked.verdict.reason or checked.result.removeprefix(f"{PASSED} ")
    return replace(row, verdict=verdict, reason=reason, checked=checked, subject=subject)


def exit_code(rows: Sequence[KernelInFile]) -> int:
    """Return 1 if a product fails, 2 if a file has no kernel that was checked, else 0."""
    if any(row.verdict == FAILED for row in rows):
        return 1
    checked = {row.file for row in rows if row.checked is not None}
    unclear = {row.file for row in rows if row.verdict == NOT_CHECKED}
    return 2 if unclear - checked or not checked else 0


def _document(row: KernelInFile, document: Document) -> dict[str, Any]:
    """Return what --json has of a kernel."""
    about: dict[str, Any] = {"file": str(row.file), "verdict": row.verdict}
    _, command = _next_command(row)
    if command:
        about["next"] = command
    if row.subject is None or row.checked is None:
        return {**about, "kernel": row.kernel, "accepted": None, "reason": row.reason}
    if row.verdict == FAILED:
        about["repeat"] = _repeat(row, row.checked)
    return {**about, **document(row.subject, row.checked)}


def _report(arguments: Sequence[str], finished: Sequence[KernelInFile]) -> Iterator[str]:
    """Yield the table, and below it what is wrong and what to type."""
    rows = [row for row in finished if not row.is_file_without_kernel]
    files = _shown_files(arguments, rows)
    table = _table(_title(arguments, rows), files, rows)
    yield table
    for reason in (ONLY_IN_HEADERS, NO_KERNEL):
        skipped = [str(row.file) for row in finished if not row.kernel and row.reason == reason]
        if skipped:
            yield f"{reason}: {a_few(skipped)}"
    choices = [row for row in rows if row.verdict == LEFT_OUT and row.may_be_named]
    if choices:
        yield f"a kernel that is left out is checked if it is named: {_command(choices[0])}"
    for file, row in zip(files, rows, strict=True):
        lines = _below(row, is_cut=row.short_reason not in table)
        if lines:
            yield "\n".join([f"\n{file}: {lines[0]}" if file else f"\n{lines[0]}", *lines[1:]])


def _title(arguments: Sequence[str], rows: Sequence[KernelInFile]) -> str:
    """Return the number of kernels of each verdict, and the labels of the checks."""
    counts = Counter(row.verdict for row in rows)
    kinds = ", ".join(f"{counts[verdict]} {verdict}" for verdict in MARKS if counts[verdict])
    labels = dict.fromkeys(row.checked.label for row in rows if row.checked is not None)
    kernels = f"{len(rows)} kernel{'s' if len(rows) > 1 else ''}"
    return " · ".join([f"{a_few(arguments)}: {kernels}, {kinds}", *labels])


def _below(row: KernelInFile, *, is_cut: bool) -> list[str]:
    """Return the lines about a kernel below the table.

    is_cut: the table doesn't have all of the reason
    """
    checked = row.checked
    if row.verdict == NOT_CHECKED:
        return _advice(row, is_cut=is_cut)
    if checked is None:
        return []
    if row.verdict == FAILED:
        lines = [f"{row.kernel}: {checked.brief(MAX_LINES)}", f"repeat: {_repeat(row, checked)}"]
        label, command = _next_command(row)
        return [*lines, f"{label}: {command}"] if command else lines
    leaves_open = bool(checked.verdict.never_ran or checked.kernel.warnings)
    return [f"{row.kernel}: {checked.result}"] if is_cut and leaves_open else []


def _advice(row: KernelInFile, *, is_cut: bool) -> list[str]:
    """Return the command with what is missing, after a reason that the table lacks.

    is_cut: as for _below()
    """
    label, command = _next_command(row)
    has_more_lines = "\n" in row.whole_reason
    lines = [f"{label}: {command}"]
    if is_cut or has_more_lines or _advised(row.reason):
        lines.insert(0, row.whole_reason)
    return lines


def _next_command(row: KernelInFile) -> tuple[str, str]:
    """Return a label and the command to type next; "" if there is none."""
    entry = shlex.quote(row.kernel)
    if row.verdict == FAILED and row.checked is not None:
        domain = _advised(row.checked.brief(MAX_LINES)).get("domain")
        if domain is None:
            return "", ""
        return "with this domain", _command(row, entry=entry, domain=domain)
    if row.verdict == LEFT_OUT and row.may_be_named:
        return "named", _command(row)
    if row.verdict != NOT_CHECKED:
        return "", ""
    stated = ADVISED_COMMAND.search(row.reason)
    if stated is not None:
        return "next", stated[1]
    advised = _advised(row.reason)
    if not advised:
        return "next, after a change", _command(row)
    command = _command(row, **{"entry": entry, **advised})
    if _has_unknown_value(row.reason, advised):
        return "next, with your values", command
    return "next", command


def _has_unknown_value(reason: str, advised: Mapping[str, str]) -> bool:
    """Return whether a value of the advised options is the user's to fill in."""
    values = "".join(advised.values())
    if "?" in values or UNKNOWN_FOLDER in values:
        return True
    return EXAMPLE.search(reason) is not None


def _advised(message: str) -> dict[str, str]:
    """Return the options that a message advises, with their values, quoted."""
    advised = dict(ADVISED.findall(message))
    folder = ADVISED_FOLDER.search(message)
    if folder is not None:
        advised["include"] = folder[1]
    elif LACKS_FOLDER.search(message):
        advised["include"] = UNKNOWN_FOLDER
    return advised


def _repeat(row: KernelInFile, checked: Checked) -> str:
    """Return the command that repeats a verdict."""
    return f"{_command(row)} --seed {checked.verdict.seed}"


def _shown_files(arguments: Sequence[str], rows: Sequence[KernelInFile]) -> list[str]:
    """Return each row's file as the table names it.

    A folder's files are without the folder. Each name is "" if the only argument is a file.
    """
    if len(arguments) > 1:
        return [str(row.file) for row in rows]
    folder = Path(arguments[0])
    return [str(row.file.relative_to(folder)) if is_folder(arguments[0]) else "" for row in rows]


def _table(title: str, files: Sequence[str], rows: Sequence[KernelInFile]) -> str:
    """Return the table for the width of the terminal.

    Names and reasons that are too long are cut.
    """
    width = options.terminal_width()
    has_files = any(files)
    columns = 4 if has_files else 3
    verdicts = [f"{MARKS[row.verdict]} {row.verdict}" for row in rows]
    room = width - 2 * columns - max(map(len, verdicts))  # a column takes two more characters
    file_width, kernel_width = _name_widths(files if has_files else (), rows, room - width // 3)
    reason_width = room - file_width - kernel_width
    cells = list[dict[str, str]]()
    for row, file, verdict in zip(rows, files, verdicts, strict=True):
        names = {"file": _cut_inside(file, file_width)} if has_files else {}
        names["kernel"] = _cut_inside(row.kernel, kernel_width)
        cells.append({**names, "verdict": verdict, "reason": _cut(row.short_reason, reason_width)})
    return Table.of(title, cells, left=columns).text(width)


def _name_widths(files: Sequence[str], rows: Sequence[KernelInFile], room: int) -> tuple[int, int]:
    """Return the widths of the columns of files and kernels.

    files: none without a column of files
    room: characters for both
    """
    longest_file = max(map(len, ("file", *files))) if files else 0
    longest_kernel = max(map(len, ("kernel", *(row.kernel for row in rows))))
    file_width = min(longest_file, max(room - longest_kernel, room // 2))
    return file_width, min(longest_kernel, room - file_width)


def _cut(text: str, limit: int) -> str:
    """Return the begin of a text that is longer than a limit."""
    return text if len(text) <= limit else f"{text[: limit - 1].rstrip()}…"


def _cut_inside(name: str, limit: int) -> str:
    """Return the begin and the end of a name that is longer than a limit.

    Names in a file often differ at their end.
    """
    if len(name) <= limit:
        return name
    end = max(limit // 2, 1)
    return f"{name[: limit - end - 1]}…{name[-end:]}"


def _command(row: KernelInFile, **launch: str) -> str:
    """Return the command that checks one kernel, with the options of this command.

    launch: options of the kernel, quoted (default: its name)
    """
    kernel_options = []
    if row.kernel:
        values = launch or {"entry": shlex.quote(row.kernel)}
        kernel_options = [f"{OPTIONS[name].flags[0]} {value}" for name, value in values.items()]
    typed = [shlex.quote(argument) for argument in _typed_options() if argument]
    return " ".join(["worklog check", shlex.quote(str(row.file)), *kernel_options, *typed])


def _typed_options() -> Iterator[str]:
    """Yield the options that were typed, with their values, except those in NOT_REPEATED."""
    context = click.get_current_context()
    for option in context.command.params:
        name = option.name or ""
        is_typed = context.get_parameter_source(name) is ParameterSource.COMMANDLINE
        if not isinstance(option, click.Option) or not is_typed or name in NOT_REPEATED:
            continue
        value = context.params[name]
        if option.is_flag:
            yield (option.opts if value else option.secondary_opts)[0]
            continue
        for argument in value if option.multiple else [value]:
            yield from (option.opts[-1], str(argument))
