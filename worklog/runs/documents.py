"""Results for users: tables, formatted numbers, and JSON documents.

Documents are written atomically, and checked against declared types when they are opened: a file
may have been cut, edited, or written by another tool. Later code needs no checks.
"""

from __future__ import annotations

import errno
import hashlib
import math
import os
import re
import stat
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import msgspec

from worklog import __version__
from worklog.errors import BadRunFile, BadSetting

T = TypeVar("T")
# Numbers with limits. Don't declare `Positive | tuple[int, int]`: msgspec 0.22 crashes on a union
# of such a number with a tuple of fixed length.
Positive = Annotated[float, msgspec.Meta(gt=0)]
Count = Annotated[int, msgspec.Meta(gt=0, le=2**62)]
Whole = Annotated[int, msgspec.Meta(ge=0, le=2**62)]
Date = Annotated[str, msgspec.Meta(pattern=r"^\d{4}-\d\d-\d\d")]
# Called before each step, and twice a second in between, with the number of finished steps, the
# number of all steps (0 if it's unknown), and a description of the step.
Progress = Callable[[int, int, str], None]
WIDE = 0.05  # if an interval exceeds this share of its number, the number has one or two digits
WIDTH = 160  # characters of a terminal whose width is unknown
WRITTEN: dict[Path, None] = {}  # files that this process has written for its user, in order
FEW = 5  # notes below a table of a page; more are folded
# Bars are translucent, so that the text on them is readable on a light page and on a dark page.
WITHIN = "#3b93d055"
BEYOND = "#e0702455"


def read_text(path: Path) -> str:
    """Return the text of a user's file. Raises OSError and UnicodeDecodeError."""
    require_file(path)
    return path.read_text(encoding="utf-8")


def require_file(path: Path) -> None:
    """Raise OSError for a pipe or a device: reading from it may never end."""
    mode = path.stat().st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise OSError(errno.EINVAL, "it is a pipe or a device, not a file", str(path))


def own_folder(variable: str, kind: Literal["data", "cache"]) -> Path:
    """Return this package's folder of a kind.

    variable: an environment variable that may name the folder; the default is the user's folder
    Raises BadSetting if the user has no home folder.
    """
    import platformdirs

    if path := os.environ.get(variable):
        return Path(path)
    folder = {"data": platformdirs.user_data_dir, "cache": platformdirs.user_cache_dir}[kind]
    try:
        return Path(folder("worklog", appauthor=False))
    except RuntimeError as error:  # an account without a home
        raise BadSetting(f"there is no home folder: set HOME, or {variable} to a folder") from error


def git(*arguments: str, folder: Path = Path()) -> bytes:
    """Return the output of a git command. Raises BadSetting with git's own first line."""
    try:
        return subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, check=True, timeout=60
        ).stdout
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BadSetting(f"cannot run git: {error}; install it, or name files") from error
    except subprocess.CalledProcessError as error:
        lines = error.stderr.decode(errors="replace").strip().splitlines()
        first_line = lines[0] if lines else "it failed"
        advice = "give a revision and a path that it holds"
        if "not a git repository" in first_line:
            advice = "run it in a git repository, or name files"
        raise BadSetting(f"git {arguments[0]}: {first_line}; {advice}") from error


# The files that decide how a launch is timed: if they change, a time may differ.
TIMING = ("harness/*.py", "harness/*.cu", "runner/launches.py", "runs/estimates.py")


def tool() -> dict[str, Any]:
    """Return this package's name, version and commit, for a file of results.

    commit: of the checkout that the package runs from. For a copy without .git, WORKLOG_COMMIT
        names it. An installed wheel has none.
    dirty: whether the checkout has changed since
    harness: a hash of the files that decide how a launch is timed
    """
    package = Path(__file__).resolve().parents[1]
    description = {"name": "gemm-worklog", "version": __version__, "harness": _timing_hash(package)}
    root = package.parent
    if not (root / ".git").exists():
        commit = os.environ.get("WORKLOG_COMMIT")
        return {**description, "commit": commit} if commit else description
    try:
        is_dirty = bool(git("status", "--porcelain", "--untracked-files=no", folder=root))
        commit = git("rev-parse", "HEAD", folder=root).decode().strip()
    except BadSetting:
        return description
    return {**description, "commit": commit, "dirty": is_dirty}


def _timing_hash(package: Path) -> str:
    """Return a hash of the files that decide how a launch is timed."""
    paths = list[Path]()
    for pattern in TIMING:
        paths += package.glob(pattern)
    digest = hashlib.sha256()
    for path in sorted(paths):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def read_json(
    path: Path, to: type[T], kind: str | None, schemas: Sequence[int], advice: str
) -> tuple[Any, T]:
    """Return a document as JSON decodes it, and converted to a type.

    to: a type whose fields the document must have; other fields are ignored
    kind: of the document; None for a run, which states no kind
    schemas: those that are accepted
    Raises BadRunFile, ending in `advice`, for any other file.
    """
    try:
        document: Any = msgspec.json.decode(read_text(path))
    except OSError as error:
        raise BadRunFile(f"cannot read {path}: {error.strerror}; {advice}") from error
    except (ValueError, RecursionError) as error:
        fault = f"is not a whole JSON document: it was cut short or is another format ({error})"
        raise BadRunFile(f"{path} {fault}: {advice}") from error
    if not isinstance(document, dict) or document.get("kind") != kind:
        content = document.get("kind") if isinstance(document, dict) else None
        raise BadRunFile(
            f"{path} holds {content or 'another document'!s:.60}, not {kind or 'a run'}: {advice}"
        )
    require_schema(path, document.get("schema"), schemas, advice)
    try:
        return document, msgspec.convert(document, to, str_keys=True)
    except ValueError as error:
        raise BadRunFile(
            f"{path} isn't a whole document of {kind or 'a run'} ({error}): {advice}"
        ) from error


def require_schema(path: Path, schema: object, schemas: Sequence[int], advice: str) -> None:
    """Raise BadRunFile, with advice, unless this version can read a document's schema."""
    if type(schema) is not int or schema not in schemas:
        if isinstance(schema, int) and schema > max(schemas):
            advice = "install a newer gemm-worklog"
        stated = "no schema" if schema is None else f"schema {schema!r:.60}"
        raise BadRunFile(f"{path} has {stated}; this version reads {max(schemas)}: {advice}")


def write_text(path: Path, document: dict[str, Any] | str) -> None:
    """Write a text, or a document as JSON (NaN as null), atomically.

    Raises BadRunFile if that isn't possible.
    """
    if isinstance(document, str):
        write_bytes(path, document.encode())
        return
    json = msgspec.json.encode(document, enc_hook=float)  # enc_hook converts NumPy's numbers
    write_bytes(path, msgspec.json.format(json, indent=1) + b"\n")


def write_bytes(path: Path, content: bytes, advice: str = "give another place with --out") -> None:
    """Write a user's file in one atomic step, and create its folder.

    Raises BadRunFile, ending in `advice`, if that isn't possible; the old content stays.
    """
    write_atomically(path, content, advice)
    WRITTEN[path] = None


def write_atomically(path: Path, content: bytes, advice: str) -> None:
    """Write a file that users don't ask for, such as a cache entry.

    Works like write_bytes()."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        if not path.parent.exists():  # if it's a file, the write fails
            path.parent.mkdir(parents=True, exist_ok=True)
        try:
            temporary.write_bytes(content)
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)  # exists only if it didn't become the target
    except OSError as error:
        raise BadRunFile(f"cannot write {path}: {error.strerror}; {advice}") from error


def written_so_far() -> str:
    """Describe the files written by this process, for the message of an interrupt."""
    match len(WRITTEN):
        case 0:
            return "nothing was saved"
        case 1:
            return f"saved: {next(iter(WRITTEN))}"
        case number:
            return f"{number} files were saved, the last one is {next(reversed(WRITTEN))}"


def not_writable(folder: Path) -> str | None:
    """Return the reason why a folder isn't writable; None if it is.

    Tests the nearest parent if the folder doesn't exist.
    """
    parents = (parent for parent in (folder, *folder.parents) if parent.exists())
    existing = next(parents, folder)
    try:
        with tempfile.TemporaryFile(dir=existing):
            return None
    except OSError as error:
        return f"{existing}: {error.strerror}"


def require_writable(folder: Path, subject: str, advice: str) -> None:
    """Raise BadSetting, ending in `advice`, unless a folder is writable.

    subject: the files for the folder, for the message
    """
    if reason := not_writable(folder):
        raise BadSetting(f"cannot write {subject}: {reason}; {advice}")


@contextmanager
def claimed(path: Path) -> Iterator[None]:
    """Reserve the file of a command's results before the command's work starts.

    So no other process writes there. The file is deleted if it stays empty.
    Raises BadRunFile for a file that exists or isn't writable.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.open("x").close()
    except OSError as error:
        if path.exists():
            raise BadRunFile(
                f"{path} exists already: give --out another name, or remove it first"
            ) from error
        advice = "give another place with --out, or set WORKLOG_HOME"
        raise BadRunFile(f"cannot write {path}: {error.strerror}; {advice}") from error
    try:
        yield
    finally:
        if not path.stat().st_size:
            path.unlink()


@dataclass(frozen=True)
class Bar:
    """A cell with a bar behind its text."""

    words: str  # the text
    share: float | None  # length of the bar as a share of the cell, drawn between 0 and 1
    beyond: bool = False  # drawn in the colour of a value that exceeds its limit

    def __str__(self) -> str:
        return self.words

    def html(self) -> str:
        """Return the text on its bar; without a share, the text alone."""
        if self.share is None:
            return escape(self.words)
        length = 100 * min(max(self.share, 0.0), 1.0)
        colour = BEYOND if self.beyond else WITHIN
        gradient = f"linear-gradient(90deg,{colour} {length:.1f}%,transparent 0)"
        return f'<span style="display:block;background:{gradient}">{escape(self.words)}</span>'


Cell = str | Bar


@dataclass(frozen=True, repr=False)
class Table:
    """Rows of cells under a title, for a notebook and a terminal."""

    title: str
    columns: Sequence[str]  # headings, or () for a table of facts
    rows: Sequence[Sequence[Cell]]
    left: int = 1  # number of leading columns that are left-aligned; the others are right-aligned
    notes: Sequence[str] = ()  # lines below

    @classmethod
    def of(
        cls,
        title: str,
        rows: Sequence[Mapping[str, Cell]],
        left: int = 1,
        notes: Sequence[str] = (),
    ) -> Table:
        """Return a table of rows that map columns to cells.

        All rows have the same columns. Without rows, the table has only the title.
        """
        if not rows:
            return cls(title, (), ())
        return cls(title, [*rows[0]], [[*row.values()] for row in rows], left, notes)

    def text(self, width: int = WIDTH) -> str:
        """Return the table for a terminal of `width` characters.

        Trailing columns that don't fit are left out and named, at most half of them.
        """
        cells = [[str(cell) for cell in row] for row in self.rows]
        if self.columns:
            cells.insert(0, [*self.columns])
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        fitting = self._fitting(widths, width)
        lines = [self.title] if self.title else []
        for row in cells:
            padded = [
                f"{cell:<{size}}" if number < self.left else f"{cell:>{size}}"
                for number, (cell, size) in enumerate(zip(row, widths[:fitting], strict=False))
            ]
            lines.append((" " + "  ".join(padded)).rstrip())
        if fitting < len(widths):
            lines.append(f"  in a wider terminal: {', '.join(self.columns[fitting:])}")
        return "\n".join([*lines, *(f"  {note}" for note in self.notes)])

    def _fitting(self, widths: Sequence[int], width: int) -> int:
        """Return the number of columns that fit into `width` characters, at least half of them."""
        count = len(widths)
        if not self.columns:
            return count
        while count > len(widths) // 2 and sum(widths[:count]) + 2 * count > width:
            count -= 1
        return count

    def html(self) -> str:
        """Return the table for a notebook.

        Screen readers announce the title, which is the caption.
        """
        names = [escape(name).replace(" %", "\u00a0%") for name in self.columns]
        headings = [
            self._html_cell('th scope="col"', number, name) if name else "<td></td>"
            for number, name in enumerate(names)
        ]
        head = f"<thead><tr>{''.join(headings)}</tr></thead>" if headings else ""
        body = ""
        for row in self.rows:
            contents = [cell.html() if isinstance(cell, Bar) else escape(cell) for cell in row]
            cells = [
                self._html_cell("td" if number else 'th scope="row"', number, content)
                for number, content in enumerate(contents)
            ]
            body += f"<tr>{''.join(cells)}</tr>"
        caption = f'<caption style="text-align:left;min-width:36em">{escape(self.title)}</caption>'
        notes = "".join(f"<p><small>{escape(note)}</small></p>" for note in self.notes)
        if len(self.notes) > FEW:
            notes = f"<details><summary>{len(self.notes)} notes</summary>{notes}</details>"
        table = f"<table>{caption}{head}<tbody>{body}</tbody></table>"
        return scrolling(table, self.title or "table") + notes

    def _html_cell(self, tag: str, column: int, content: str) -> str:
        """Return a cell that wraps only if it's a heading or a long cell on the left.

        tag: with its attributes
        column: its number
        """
        is_left = column < self.left
        style = f"text-align:{'left' if is_left else 'right'}"
        may_wrap = "col" in tag or (is_left and len(content) > 8)
        if not may_wrap:
            style += ";white-space:nowrap"
        return f'<{tag} style="{style}">{content}</{tag[:2]}>'

    __repr__ = text
    _repr_html_ = html

    def page(self) -> str:
        """Return the table as Markdown, with its title and its notes."""
        page = f"### {self.title}\n\n"
        if self.rows:
            page += f"{self.markdown()}\n"
        if self.notes:
            page += "\n"
        for note in self.notes:
            page += f"- {note}\n"
        return page

    def markdown(self) -> str:
        """Return the table as Markdown for the README, without the title and the notes."""
        rule = ["---" if column < self.left else "--:" for column in range(len(self.columns))]
        lines = [f"| {' | '.join(self.columns)} |", f"|{'|'.join(rule)}|"]
        for row in self.rows:
            cells = [" ".join(str(cell).split()).replace("|", "\\|") for cell in row]
            lines.append(f"| {' | '.join(cells)} |")
        return "\n".join(lines)


def scrolling(html: str, label: str) -> str:
    """Return a part of a page in a box that scrolls, also by keyboard.

    It scrolls if the page is narrower than the part.
    """
    return f'<div tabindex="0" role="group" aria-label="{escape(label)}" style="overflow-x:auto">{html}</div>'


class Shown:
    """An object that a terminal and a notebook display as its table()."""

    def table(self) -> Table:
        """Return the object as a table."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return self.table().text()

    def _repr_html_(self) -> str:
        return self.table().html()


def duration(microseconds: float, *, padded: bool = False) -> str:
    """Return a time in the unit that suits it, with up to four digits: 8.4 µs, 2.65 ms.

    padded: always with four digits, as in 8.400 µs
    """
    unit = "µs"
    value = microseconds
    if microseconds >= 1e6:
        unit = "s"
        value = microseconds / 1e6
    elif microseconds >= 1e3:
        unit = "ms"
        value = microseconds / 1e3
    digits = f"{value:#.4g}".rstrip(".") if padded else f"{value:.4g}"
    return f"{digits} {unit}"


def a_few(names: Iterable[str], limit: int = 3) -> str:
    """Return the first names, and the number of the others."""
    listed = [*names]
    text = ", ".join(listed[:limit])
    if len(listed) > limit:
        text += f" and {len(listed) - limit} more"
    return text


def small(half_width: float) -> str:
    """Return a half-width to two decimals, or to its first digit: 0.05, 0.002."""
    digits = 2
    if 0 < half_width < 0.005:
        digits = -math.floor(math.log10(half_width))
    return f"{half_width:.{digits}f}"


def of_baseline(ratio: float, low: float, high: float) -> str:
    """Return a share of the baseline and its interval in percent, to the same digit.

    For example: 62.7 % ±0.3, 97.31 % ±0.08.
    """
    half_width = 50 * (high - low)
    text = f"{half_width:.1f}" if round(half_width, 2) >= 0.1 else small(half_width)
    digits = len(text.partition(".")[2]) or 1
    return f"{100 * ratio:.{digits}f} % ±{text}"


def bound(value: float) -> str:
    """Return an upper bound to two digits after the point, rounded up."""
    return f"{math.ceil(100 * abs(value) - 1e-9) / 100:.2f}"


def percent(share: float | None) -> str:
    """Return a share in percent: 65.0 %, or 0.74 % for less than a tenth; "" for None."""
    if share is None:
        return ""
    return f"{100 * share:.2f} %" if share < 0.1 else f"{100 * share:.1f} %"


def signed(share: float, digits: int = 1) -> str:
    """Return a change in percent: +9.0 %, −30.2 %."""
    return f"{100 * share:+z.{digits}f} %".replace("-", "−")


def change_in_percent(share: float, noise: float) -> str:
    """Return a visible change in percent, to one digit after the point.

    noise: the logarithm by which two equal numbers may differ; if it's wide, the change is rounded
        to the noise's first digit: +40 %
    """
    if 2 * noise > WIDE:
        return signed(rounded(100 * share, 100 * (1 + share) * noise) / 100, 0)
    return signed(share)


def scaled(count: float) -> str:
    """Return a count in four digits: 8432, 84.32 k, 5.244 M."""
    for unit, smallest, scale in (
        ("T", 1e12, 1e12),
        ("G", 1e9, 1e9),
        ("M", 1e6, 1e6),
        ("k", 1e4, 1e3),
    ):
        if count >= smallest:
            return f"{count / scale:.4g} {unit}"
    return f"{count:.4g}"


def about(value: float, half_width: float, text_of: Callable[[float], str]) -> str:
    """Return a number, rounded if its 95 % interval is wider than WIDE.

    It's rounded to the first digit of the half-width: "about 3000" for 3404 ±52 %.
    half_width: relative
    text_of: formats the number
    """
    if 2 * half_width <= WIDE:
        return text_of(value)
    text = text_of(rounded(value, value * half_width))
    return "about " + re.sub(r"\.0+\b|(?<=\.\d)0+\b", "", text)  # without trailing zeros


def rounded(value: float, half_width: float) -> float:
    """Return a value, rounded to the first digit of its half-width.

    Keeps at least the value's own first digit.
    """
    return round(value, -math.floor(math.log10(min(half_width, abs(value)))))


def silent(step: int, steps: int, description: str) -> None:
    """Show no progress."""
