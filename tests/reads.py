"""Note what Python processes execute and read of the checkout.

tests/stale.py copies this file, as sitecustomize.py, onto the path of the commands that make
files, so that every process that they start notes it, too.

$WORKLOG_READS gets a line for each function (its file and its name), each file that is read, and
each folder that is listed, all below $WORKLOG_ROOT.
"""

import os
import sys
import threading
from types import CodeType, FrameType

ROOT = os.environ["WORKLOG_ROOT"] + os.sep
OUT = os.open(os.environ["WORKLOG_READS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
IMPORTER = "<frozen importlib."
WRITES = os.O_WRONLY | os.O_RDWR

codes: dict[int, CodeType] = {}  # by its id, which stays its own while the code is kept here
noted: set[tuple[str, str, str]] = set()


def note(kind: str, path: str, name: str = "") -> None:
    """Write one line, once a process."""
    if path.startswith(ROOT):
        words = (kind, path[len(ROOT) :], name)
        if words not in noted:
            noted.add(words)
            os.write(OUT, ("\t".join(words) + "\n").encode())


def trace(frame: FrameType, event: str, argument: object) -> None:
    """Note a function at its first call; its lines aren't traced."""
    code = frame.f_code
    if id(code) not in codes:
        codes[id(code)] = code
        note("run", os.path.abspath(code.co_filename), code.co_qualname)


def audit(event: str, arguments: tuple[object, ...]) -> None:
    """Note files and folders that are read, but for what Python imports."""
    if event not in ("open", "os.listdir", "os.scandir", "subprocess.Popen"):
        return
    if event == "subprocess.Popen":  # a process that is isolated notes nothing
        for word in arguments[1] if isinstance(arguments[1], list | tuple) else ():
            if isinstance(word, str | os.PathLike) and os.fspath(word).endswith(".py"):
                note("read", os.path.abspath(word))
        return
    path = arguments[0]
    caller = sys._getframe().f_back
    if not isinstance(path, str | os.PathLike):
        return
    if caller is None or caller.f_code.co_filename.startswith(IMPORTER):
        return
    if event != "open":
        note("list", os.path.abspath(path))
        return
    mode, flags = arguments[1:]
    is_written = any(letter in mode for letter in "wax+") if isinstance(mode, str) else False
    if not is_written and not (isinstance(flags, int) and flags & WRITES):
        note("read", os.path.abspath(path))


sys.addaudithook(audit)
sys.settrace(trace)
threading.settrace(trace)
