"""Standard output and standard error as a shell may leave them: in an old encoding, closed, or on a full disk."""

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
STRICT = ("strict", "surrogateescape")  # error handlers that raise for a character of this package
ERRORS = "worklog.replaced"


@contextmanager
def usable_streams() -> Iterator[None]:
    """Replace characters that standard output can't encode by ?, and say so; write to nowhere if a stream is closed.
    Exit with 1 and one line if a disk is full.
    """
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            nowhere = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - until the process ends
            setattr(sys, name, nowhere)
    lost = set[str]()

    def replaced(error: UnicodeError) -> tuple[str, int]:
        """Return a ? for each character that the encoding lacks."""
        assert isinstance(error, UnicodeEncodeError)
        lost.update(error.object[error.start : error.end])
        return "?" * (error.end - error.start), error.end

    codecs.register_error(ERRORS, replaced)
    output = sys.stdout
    if isinstance(output, io.TextIOWrapper) and output.errors in STRICT:
        output.reconfigure(errors=ERRORS)
    try:
        yield
    except OSError as error:
        if error.errno not in FULL:
            raise
        _discard(output)
        click.echo(
            f"worklog: cannot write {error.filename or 'the output'}: {error.strerror}; "
            "free space there, or write to another place",
            err=True,
        )
        sys.exit(1)
    finally:
        if lost:
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
