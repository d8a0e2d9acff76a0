"""Protection from a command's surroundings.

Standard streams may be in an old encoding, closed, or on a full disk. Folders may be unreadable.
"""

from __future__ import annotations

import codecs
import errno
import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

import click

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
UNUSABLE = (
    errno.EACCES,
    errno.EPERM,
    errno.EROFS,
    errno.ENOTDIR,
    errno.EISDIR,
    errno.ELOOP,
    errno.ENAMETOOLONG,
)
# Error handlers that raise for a character of this package
STRICT = ("strict", "surrogateescape")
ERRORS = "worklog.replaced"


@contextmanager
def usable_streams() -> Iterator[None]:
    """Keep a command from failing because of its streams.

    Characters that standard output can't encode are replaced by ?, and a line says so. What is
    written to a closed stream is lost. If a disk is full or a place can't be used, the command
    exits with one line.
    """
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            # Open until the process ends
            nowhere = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
            setattr(sys, name, nowhere)
    lost_characters = set[str]()

    def replace(error: UnicodeError) -> tuple[str, int]:
        """Return a ? for each character that the encoding lacks."""
        assert isinstance(error, UnicodeEncodeError)
        lost_characters.update(error.object[error.start : error.end])
        return "?" * (error.end - error.start), error.end

    codecs.register_error(ERRORS, replace)
    output = sys.stdout
    if isinstance(output, io.TextIOWrapper) and output.errors in STRICT:
        output.reconfigure(errors=ERRORS)
    try:
        yield
    except OSError as error:
        is_full = error.errno in FULL
        if not is_full and (error.errno not in UNUSABLE or error.filename is None):
            raise  # a mistake of this package
        _discard(output)
        place = "the output" if error.filename is None else error.filename
        if is_full:
            problem = (
                f"cannot write {place}: {error.strerror}; free space there, or write elsewhere"
            )
        else:
            problem = f"cannot use {place}: {error.strerror}; name another place"
        click.echo(f"worklog: {problem}", err=True)
        sys.exit(1 if is_full else 2)
    finally:
        if lost_characters:
            click.echo(
                f"worklog: each ? above is a character that {output.encoding} lacks: "
                "set PYTHONIOENCODING=utf-8",
                err=True,
            )


def _discard(output: TextIO) -> None:
    """Discard what is left in the buffer of a stream that can't be written."""
    try:
        output.flush()
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, output.fileno())
        os.close(nowhere)
