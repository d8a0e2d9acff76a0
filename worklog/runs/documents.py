"""What users get: tables, numbers in words, and JSON documents, which are written atomically, and checked against
declared types when they are read again.

A file may have been cut, edited, or written by another tool. What is checked on opening needs no check later.
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
from worklog.errors import BadSetting, WorklogError

T = TypeVar("T")
# Numbers with limits. Don't declare `Positive | tuple[int, int]`: msgspec 0.22 crashes on a union of such a number with
# a tuple of fixed length.
Positive = Annotated[float, msgspec.Meta(gt=0)]
Count = Annotated[int, msgspec.Meta(gt=0, le=2**62)]
Whole = Annotated[int, msgspec.Meta(ge=0, le=2**62)]
Date = Annotated[str, msgspec.Meta(pattern=r"^\d{4}-\d\d-\d\d")]
# Called before each step, and twice a second in between, with the steps done, their number (0 if it isn't known) and
# what is being done.
Progress = Callable[[int, int, str], None]
WIDE = 0.05  # an interval wider than this share of its number leaves it two digits or one
WIDTH = 160  # characters of a terminal whose width is not known
WRITTEN: dict[Path, None] = {}  # files that this process has written for its user, in order
FEW = 5  # notes below a table of a page; more are folded
# Bars are translucent, so that the words on them are readable on a light page and on a dark one.
WITHIN = "#3b93d055"
BEYOND = "#e0702455"


class BadRunFile(WorklogError):
    """A run file is missing, cut short, not JSON, or of a newer schema."""


class NothingToDraw(WorklogError):
    """The run lacks the measurements that a chart shows."""


def read_text(path: Path) -> str:
    """The text of a user's file. Raises OSError and UnicodeDecodeError."""
    require_file(path)
    return path.read_text(encoding="utf-8")


def require_file(path: Path) -> None:
    """Raise OSError for a pipe or a device, reading of which may never end."""
    mode = path.stat().st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise OSError(errno.EINVAL, "it is a pipe or a device, not a file", str(path))


def own_folder(variable: str, kind: Literal["data", "cache"]) -> Path:
    """Return this package's folder of a kind: what the variable names, else the user's. Raises BadSetting."""
    import platformdirs

    if named := os.environ.get(variable):
        return Path(named)
    folder = {"data": platformdirs.user_data_dir, "cache": platformdirs.user_cache_dir}[kind]
    try:
        return Path(folder("worklog", appauthor=False))
    except RuntimeError as error:  # an account without a home
        raise BadSetting(f"there is no home folder: set HOME, or {variable} to a folder") from error


def git(*words: str, folder: Path = Path()) -> bytes:
    """What a git command prints. Raises BadSetting with git's own first line."""
    try:
        return subprocess.run(
            ["git", "-C", str(folder), *words], capture_output=True, check=True, timeout=60
        ).stdout
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BadSetting(f"cannot run git: {error}; install it, or name files") from error
    except subprocess.CalledProcessError as error:
        said = error.stderr.decode(errors="replace").strip().splitlines() or ["it failed"]
        advice = "give a revision and a path that it holds"
        if "not a git repository" in said[0]:
            advice = "run it in a git repository, or name files"
        raise BadSetting(f"git {words[0]}: {said[0]}; {advice}") from error


# The files that decide how a launch is timed: with others, a time may differ.
TIMING = ("harness/*.py", "harness/*.cu", "runner/launches.py", "runs/estimates.py")


def tool() -> dict[str, Any]:
    """This package's name, version and commit, for a file of results: the commit of the checkout that it runs from, and
    whether that was changed since. For a copy without .git, WORKLOG_COMMIT names the commit; an installed wheel has
    none. harness: a hash of the files that decide how a launch is timed.
    """
    package = Path(__file__).resolve().parents[1]
    timing = hashlib.sha256()
    for path in sorted(path for pattern in TIMING for path in package.glob(pattern)):
        timing.update(path.read_bytes())
    root = package.parent
    named = {"name": "gemm-worklog", "version": __version__, "harness": timing.hexdigest()[:12]}
    if not (root / ".git").exists():
        commit = os.environ.get("WORKLOG_COMMIT")
        return {**named, "commit": commit} if commit else named

    try:
        changed = bool(git("status", "--porcelain", "--untracked-files=no", folder=root))
        return {
            **named,
            "commit": git("rev-parse", "HEAD", folder=root).decode().strip(),
            "dirty": changed,
        }
    except BadSetting:
        return named


def read_json(
    path: Path, to: type[T], kind: str | None, schemas: Sequence[int], advice: str
) -> tuple[Any, T]:
    """The document of a file of this kind (a run states none) and one of these schemas: as JSON gives it, and as a type
    whose fields it must hold; others are ignored. Raises BadRunFile, ending in `advice`.
    """
    try:
        document: Any = msgspec.json.decode(read_text(path))
    except OSError as error:
        raise BadRunFile(f"cannot read {path}: {error.strerror}; {advice}") from error
    except (ValueError, RecursionError) as error:
        what = f"is not a whole JSON document: it was cut short or is another format ({error})"
        raise BadRunFile(f"{path} {what}: {advice}") from error
    if not isinstance(document, dict) or document.get("kind") != kind:
        holds = document.get("kind") if isinstance(document, dict) else None
        raise BadRunFile(
            f"{path} holds {holds or 'another document'!s:.60}, not {kind or 'a run'}: {advice}"
        )
    require_schema(path, document.get("schema"), schemas, advice)
    try:
        return document, msgspec.convert(document, to, str_keys=True)
    except ValueError as error:
        raise BadRunFile(
            f"{path} isn't a whole document of {kind or 'a run'} ({error}): {advice}"
        ) from error


def require_schema(path: Path, schema: object, known: Sequence[int], advice: str) -> None:
    """Raise BadRunFile, saying what to do, for a document of a schema that this version doesn't know."""
    if type(schema) is not int or schema not in known:
        newer = isinstance(schema, int) and schema > max(known)
        what_to_do = "install a newer gemm-worklog" if newer else advice
        stated = "no schema" if schema is None else f"schema {schema!r:.60}"
        raise BadRunFile(f"{path} has {stated}; this version reads {max(known)}: {what_to_do}")


def write_text(path: Path, document: dict[str, Any] | str) -> None:
    """Write a text, or a document as JSON (NaN as null), atomically. Raises BadRunFile if that isn't possible."""
    if isinstance(document, str):
        write_bytes(path, document.encode())
    else:  # enc_hook: NumPy's numbers
        write_bytes(
            path,
            msgspec.json.format(msgspec.json.encode(document, enc_hook=float), indent=1) + b"\n",
        )


def write_bytes(path: Path, content: bytes, advice: str = "give another place with --out") -> None:
    """Write a user's file in one atomic step, and its folder. Raises BadRunFile, ending in `advice`: the old content
    stays.
    """
    write_atomically(path, content, advice)
    WRITTEN[path] = None


def write_atomically(path: Path, content: bytes, advice: str) -> None:
    """Write a file as write_bytes() does; one that a user doesn't ask for, such as an entry of a cache."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        if not path.parent.exists():  # where it is a file, writing says so
            path.parent.mkdir(parents=True, exist_ok=True)
        try:
            temporary.write_bytes(content)
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)  # it exists only if it did not become the target
    except OSError as error:
        raise BadRunFile(f"cannot write {path}: {error.strerror}; {advice}") from error


def written_so_far() -> str:
    """Describe the files that this process has written, for the message of an interrupt."""
    match len(WRITTEN):
        case 0:
            return "nothing was saved"
        case 1:
            return f"saved: {next(iter(WRITTEN))}"
        case number:
            return f"{number} files were saved, the last one is {next(reversed(WRITTEN))}"


def not_writable(folder: Path) -> str | None:
    """Why nothing can be written into a folder, or the nearest one above that exists; None where that works."""
    there = next((place for place in (folder, *folder.parents) if place.exists()), folder)
    try:
        with tempfile.TemporaryFile(dir=there):
            return None
    except OSError as error:
        return f"{there}: {error.strerror}"


def require_writable(folder: Path, what: str, advice: str) -> None:
    """Raise BadSetting, ending in `advice`, where nothing can be written into a folder."""
    if why := not_writable(folder):
        raise BadSetting(f"cannot write {what}: {why}; {advice}")


@contextmanager
def claimed(path: Path) -> Iterator[None]:
    """Create the file of a command's results before its work starts, so that no other process writes there. It is
    removed where nothing was written. Raises BadRunFile for a file that exists, or that cannot be written.
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
    """A cell with a bar behind its words. share: length of the bar as a share of the cell, drawn between 0 and 1;
    beyond: drawn in the colour of what exceeds its limit.
    """

    words: str
    share: float | None
    beyond: bool = False

    def __str__(self) -> str:
        return self.words

    def html(self) -> str:
        """The words on their bar; without a share, the words alone."""
        if self.share is None:
            return escape(self.words)
        length = 100 * min(max(self.share, 0.0), 1.0)
        colour = BEYOND if self.beyond else WITHIN
        gradient = f"linear-gradient(90deg,{colour} {length:.1f}%,transparent 0)"
        return f'<span style="display:block;background:{gradient}">{escape(self.words)}</span>'


Cell = str | Bar


@dataclass(frozen=True, repr=False)
class Table:
    """Rows of cells under a title, for a notebook and a terminal. columns: headings, or () for a table of facts. left:
    number of leading columns that are aligned to the left; the others are aligned to the right. notes: lines below.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    left: int = 1
    notes: Sequence[str] = ()

    @classmethod
    def of(
        cls,
        title: str,
        rows: Sequence[Mapping[str, Cell]],
        left: int = 1,
        notes: Sequence[str] = (),
    ) -> Table:
        """Rows that map columns to cells, all with the same columns; without rows, the title alone."""
        return (
            cls(title, [*rows[0]], [[*row.values()] for row in rows], left, notes)
            if rows
            else cls(title, (), ())
        )

    def text(self, width: int = WIDTH) -> str:
        """For `width` characters: trailing columns that don't fit are left out and named, at most half of them."""
        cells = [
            [str(cell) for cell in row]
            for row in (*([self.columns] if self.columns else ()), *self.rows)
        ]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        fitting = len(widths)
        while (
            self.columns
            and fitting > len(widths) // 2
            and sum(widths[:fitting]) + 2 * fitting > width
        ):
            fitting -= 1
        lines = [self.title] if self.title else []
        for row in cells:
            padded = [
                f"{cell:<{size}}" if place < self.left else f"{cell:>{size}}"
                for place, (cell, size) in enumerate(zip(row, widths[:fitting], strict=False))
            ]
            lines.append((" " + "  ".join(padded)).rstrip())
        if fitting < len(widths):
            lines.append(f"  in a wider terminal: {', '.join(self.columns[fitting:])}")
        return "\n".join([*lines, *(f"  {note}" for note in self.notes)])

    def html(self) -> str:
        """For a notebook; the title is the caption that screen readers announce."""

        def cell(tag: str, place: int, inner: str) -> str:
            align = "left" if place < self.left else "right"
            align += (
                ""
                if "col" in tag or (place < self.left and len(inner) > 8)
                else ";white-space:nowrap"
            )
            return f'<{tag} style="text-align:{align}">{inner}</{tag[:2]}>'

        names = [escape(words).replace(" %", "\u00a0%") for words in self.columns]
        heads = [
            cell('th scope="col"', place, words) if words else "<td></td>"
            for place, words in enumerate(names)
        ]
        top = f"<thead><tr>{''.join(heads)}</tr></thead>" if heads else ""
        body = ""
        for row in self.rows:
            inner = [words.html() if isinstance(words, Bar) else escape(words) for words in row]
            cells = [
                cell("td" if place else 'th scope="row"', place, words)
                for place, words in enumerate(inner)
            ]
            body += f"<tr>{''.join(cells)}</tr>"
        caption = f'<caption style="text-align:left;min-width:36em">{escape(self.title)}</caption>'
        notes = "".join(f"<p><small>{escape(note)}</small></p>" for note in self.notes)
        if len(self.notes) > FEW:
            notes = f"<details><summary>{len(self.notes)} notes</summary>{notes}</details>"
        return (
            scrolling(f"<table>{caption}{top}<tbody>{body}</tbody></table>", self.title or "table")
            + notes
        )

    __repr__ = text
    _repr_html_ = html

    def page(self) -> str:
        """As Markdown with its title and its notes."""
        notes = "".join(f"- {note}\n" for note in self.notes)
        return (
            f"### {self.title}\n\n"
            + (f"{self.markdown()}\n" if self.rows else "")
            + (f"\n{notes}" if notes else "")
        )

    def markdown(self) -> str:
        """For the README, without the title and the notes."""
        rule = ["---" if place < self.left else "--:" for place in range(len(self.columns))]
        lines = [f"| {' | '.join(self.columns)} |", f"|{'|'.join(rule)}|"]
        for row in self.rows:
            lines.append(
                "| "
                + " | ".join(" ".join(str(cell).split()).replace("|", "\\|") for cell in row)
                + " |"
            )
        return "\n".join(lines)


def scrolling(html: str, label: str) -> str:
    """A part of a page that scrolls in its own box where the page is narrower, by keyboard too."""
    return f'<div tabindex="0" role="group" aria-label="{escape(label)}" style="overflow-x:auto">{html}</div>'


class Shown:
    """What shows itself, in a terminal and in a notebook, as its table()."""

    def table(self) -> Table:
        """Of the whole."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return self.table().text()

    def _repr_html_(self) -> str:
        return self.table().html()


def duration(microseconds: float, *, padded: bool = False) -> str:
    """With the unit that suits the size, in up to four digits: 8.4 µs, 2.65 ms. padded: always four, 8.400 µs."""
    unit, scale = next(
        (known for known in (("s", 1e6), ("ms", 1e3)) if microseconds >= known[1]), ("µs", 1.0)
    )
    value = microseconds / scale
    return f"{f'{value:#.4g}'.rstrip('.') if padded else f'{value:.4g}'} {unit}"


def a_few(names: Iterable[str], most: int = 3) -> str:
    """The first names, and how many more there are."""
    every = [*names]
    return ", ".join(every[:most]) + (f" and {len(every) - most} more" if len(every) > most else "")


def small(half_width: float) -> str:
    """Two digits after the point, or as many as show the first digit that is not 0: 0.05, 0.002."""
    digits = 2 if not 0 < half_width < 0.005 else -math.floor(math.log10(half_width))
    return f"{half_width:.{digits}f}"


def of_baseline(ratio: float, low: float, high: float) -> str:
    """A share of the baseline in percent, and to the same digit its interval: 62.7 % ±0.3, 97.31 % ±0.08."""
    half = 50 * (high - low)
    words = f"{half:.1f}" if round(half, 2) >= 0.1 else small(half)
    digits = len(words.partition(".")[2]) or 1
    return f"{100 * ratio:.{digits}f} % ±{words}"


def bound(value: float) -> str:
    """An upper bound: two digits after the point, rounded up."""
    return f"{math.ceil(100 * abs(value) - 1e-9) / 100:.2f}"


def percent(share: float | None) -> str:
    """65.0 %, or 0.74 % for less than a tenth; "" for None."""
    return (
        "" if share is None else f"{100 * share:.2f} %" if share < 0.1 else f"{100 * share:.1f} %"
    )


def signed(share: float, digits: int = 1) -> str:
    """A change in percent: +9.0 %, −30.2 %."""
    return f"{100 * share:+z.{digits}f} %".replace("-", "−")


def change_in_percent(share: float, noise: float) -> str:
    """A visible change in percent, to one digit after the point; if the noise is wide, to its first digit: +40 %.

    noise: the logarithm by which two equal numbers may differ
    """
    if 2 * noise > WIDE:
        return signed(rounded(100 * share, 100 * (1 + share) * noise) / 100, 0)
    return signed(share)


def scaled(count: float) -> str:
    """A count in four digits: 8432, 84.32 k, 5.244 M."""
    for unit, scale in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e4)):
        if count >= scale:
            return f"{count / (1e3 if unit == 'k' else scale):.4g} {unit}"
    return f"{count:.4g}"


def about(value: float, half: float, written: Callable[[float], str]) -> str:
    """The number as `written` writes it; where its 95 % interval is wider than WIDE, to the first digit of the
    half-width: "about 3000" for 3404 ±52 %. half: relative.
    """
    if 2 * half <= WIDE:
        return written(value)
    return "about " + re.sub(
        r"\.0+\b|(?<=\.\d)0+\b", "", written(rounded(value, value * half))
    )  # no zeros behind it


def rounded(value: float, half: float) -> float:
    """The value to the first digit of its half-width, at least to its own first digit."""
    return round(value, -math.floor(math.log10(min(half, abs(value)))))


def silent(done: int, total: int, doing: str) -> None:
    """No progress shown."""
