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
from worklog.kernel.device import Program
from worklog.kernel.device_code import own_headers
from worklog.kernel.kernel import Kernel
from worklog.kernel.ladder import NAMED, kernel_of
from worklog.kernel.signature import header
from worklog.kernel.source import kernels_dir, read_source
from worklog.runs.documents import git


def at_revision(what: str, revision: str, words: Mapping[str, Any]) -> Kernel:
    """A rung, or the kernel of a .cu file, from its source and the headers beside it in a git revision. Its name ends
    in "@" and the revision. words: options of its launch. Raises BadSetting and WorklogError.
    """
    if ":" in what or Path(what).suffix in (".py", ".so"):
        raise BadSetting(f"{what} is a host function: --against-revision takes rungs and .cu files")
    kernel = NAMED.get(what)
    if kernel is not None and kernel.choose is not None:
        raise BadSetting(f"{what} chooses its launch by the shape: compare two saved runs of it with `worklog compare`")
    path = Path(what) if kernel is None else kernels_dir() / kernel.file
    with tempfile.TemporaryDirectory() as copy:
        with tarfile.open(fileobj=io.BytesIO(git("archive", revision, ".", folder=path.parent))) as archive:
            archive.extractall(copy, filter="data")
        then = Path(copy, path.name)
        if not then.exists():
            raise BadSetting(f"{path} isn't in {revision}: give a revision that holds it")
        if kernel is None:
            return replace(kernel_of(str(then), words), name=f"{path.stem}@{revision}")
        source = read_source(then)
        tile, _, launch = header(source)
        if {*tile} != {*kernel.template} or launch != header(kernel.source)[2]:
            raise BadSetting(f"the launch of {what} was another one in {revision}: compare two saved runs of it")
        assert isinstance(kernel.code, Program)
        code = replace(kernel.code, source=source, headers=tuple(own_headers(source, [copy]).items()))
        return replace(kernel, code=code, template=tile, name=f"{what}@{revision}", number=None)
