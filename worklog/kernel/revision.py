"""A kernel as it was in a git revision, to be timed in one loop with what it is now."""

from __future__ import annotations

import io
import tarfile
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from worklog.errors import BadSetting
from worklog.kernel.kernel import Kernel
from worklog.kernel.ladder import NAMED, kernel_of
from worklog.kernel.source import kernels_dir
from worklog.runs.documents import git


def at_revision(what: str, revision: str, words: Mapping[str, Any]) -> Kernel:
    """A rung of one launch, or the kernel of a .cu file, from its file and the headers beside it in a git revision. Its
    name ends in "@" and the revision. words: options of a user kernel's launch. Raises BadSetting and WorklogError.
    """
    if ":" in what or Path(what).suffix in (".py", ".so"):
        raise BadSetting(f"{what} is a host function: --against-revision takes rungs and .cu files")
    kernel = NAMED.get(what)
    if kernel is not None and (kernel.choose is not None or len(kernel.launches) > 1):
        raise BadSetting(f"{what} takes several launches: compare two saved runs of it with `worklog compare`")
    path = Path(what) if kernel is None else kernels_dir() / kernel.file
    with tempfile.TemporaryDirectory() as copy:
        with tarfile.open(fileobj=io.BytesIO(git("archive", revision, ".", folder=path.parent))) as archive:
            archive.extractall(copy, filter="data")
        if not Path(copy, path.name).exists():
            raise BadSetting(f"{path} isn't in {revision}: give a revision that holds it")
        then = kernel_of(str(Path(copy, path.name)), words)
    return replace(then, name=f"{path.stem if kernel is None else what}@{revision}")
