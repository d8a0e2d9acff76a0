"""Ctrl-C while the program loads.

Nothing is under way yet, so the program ends without a traceback and without a message. This module
is loaded first, and loads nothing that takes time: before it is loaded, Ctrl-C is a traceback.
"""

from __future__ import annotations

# Not signal, whose enumerations take 10 ms to import.
import _signal as signal  # type: ignore[import-not-found]
import sys

EXIT_CODE = 130  # of a shell for a program that Ctrl-C has ended


class ExitOnInterrupt:
    """Exits on Ctrl-C instead of raising KeyboardInterrupt.

    A handler that somebody has set already stays.
    """

    def __init__(self) -> None:
        self.is_set = False

    def __enter__(self) -> None:
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            try:
                signal.signal(signal.SIGINT, lambda *_: sys.exit(EXIT_CODE))
            except ValueError:  # not the main thread, and only that gets Ctrl-C
                return
            self.is_set = True

    def __exit__(self, *_: object) -> None:
        if self.is_set:
            signal.signal(signal.SIGINT, signal.default_int_handler)
