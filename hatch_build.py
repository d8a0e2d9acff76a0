"""What the build adds: the emulator's core, compiled, and the README as a package index shows it.

Without a C compiler, the build asks for the wheel `ziglang`, which holds one. WORKLOG_WHEEL, a
platform tag such as manylinux_2_28_aarch64 or macosx_11_0_arm64, makes a wheel for that platform,
always with Zig. What was compiled from the same sources is taken from the folder WORKLOG_CACHE, and
kept there, as is what Zig compiles of its own.

On an index, a relative link or picture of the README leads nowhere. With `urls.Repository` in
pyproject.toml, links and pictures become absolute. Without it, a link becomes its words, and a
picture becomes a sentence.
"""

from __future__ import annotations

import os
import re
import runpy
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

CODE = r"(?P<code>```.*?```|`[^`\n]*`)"
RELATIVE = r"(?!https?:)[^)\s\"]+"
LINK = rf"(?P<mark>!?)\[(?P<words>(?:[^\[\]]|\[[^\[\]]*\])*)\]\((?P<to>{RELATIVE})\)"
PICTURE = r"<picture>.*?</picture>|<img [^>]*>"
TAG = rf"(?P<name>href|src|srcset)=\"(?P<address>{RELATIVE})\""


CORE = "worklog/emulator/core"
ZIG = "ziglang>=0.13"
ZIG_OF_WHEELS = "ziglang==0.17.1"  # as in constraints.txt, so that a release can be built again


class Core(BuildHookInterface[Any]):
    """Compiles the emulator's core into the wheel; for an editable install, into the checkout.

    A wheel for a named platform also has the core for browsers.
    """

    def dependencies(self) -> list[str]:
        """Zig's compiler where there is no other."""
        wheel, build = self._wheel_and_build()
        if wheel:
            return [ZIG_OF_WHEELS]
        is_needed = sys.platform != "win32" and "ziglang" in (build["compiler"]() or ("ziglang",))
        return [ZIG] if is_needed else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile each build for the wheel's machine, and tag the wheel."""
        wheel, build = self._wheel_and_build()
        if sys.platform == "win32" and not wheel:
            self.app.display_warning(build["WINDOWS"])
            return
        kind = (
            next((kind for kind in ("x86_64", "aarch64", "arm64") if wheel.endswith(kind)), "")
            or build["machine"]()
        )
        self._made = tempfile.TemporaryDirectory()
        kept = Path(os.environ.get("WORKLOG_CACHE") or self._made.name)
        folder = Path(self.root) / CORE if version == "editable" else kept
        zig_cache = build["zig_folder"](kept)
        old = {*folder.glob("core-*.so")} if version == "editable" else set()
        try:
            with ThreadPoolExecutor() as pool:  # each takes seconds
                chosen = (
                    build["fitting"]()[:1] if version == "editable" else build["variants"](kind)
                )
                compile_core = partial(
                    build["compile_core"], folder, wheel=wheel, zig_cache=zig_cache
                )
                new = {*pool.map(compile_core, chosen)}
        except (
            PermissionError
        ) as error:  # of a checkout that is read only: the core is compiled when it is first used
            self.app.display_warning(f"{error}: the emulator's core is not compiled now")
            return
        if wheel:  # a release's, which makes pages without a compiler
            new.add(build["compile_wasm"](folder, zig_cache))
        for path in old - new:
            path.unlink()
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{wheel or build['platform_tag']()}"
        build_data["force_include"].update({str(path): f"{CORE}/{path.name}" for path in new})

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what was compiled."""
        if hasattr(self, "_made"):
            self._made.cleanup()

    def _wheel_and_build(self) -> tuple[str, dict[str, Any]]:
        """WORKLOG_WHEEL, and the names in build.py."""
        return os.environ.get("WORKLOG_WHEEL", ""), runpy.run_path(
            str(Path(self.root) / CORE / "build.py")
        )


class Readme(MetadataHookInterface):
    """Fills in the dynamic field `readme`."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set the text for the index, with the address that the project's urls give."""
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        repository = metadata.get("urls", {}).get("Repository", "")
        metadata["readme"] = {"content-type": "text/markdown", "text": for_index(text, repository)}


def for_index(text: str, repository: str = "") -> str:
    """Return the README's text without relative addresses; code stays.

    repository: its public address, or nothing
    """

    def link(found: re.Match[str]) -> str:
        if found["code"]:
            return found[0]
        words = for_index(found["words"], repository)
        if repository:
            address = _absolute(found["to"], repository, picture=bool(found["mark"]))
            return f"{found['mark']}[{words}]({address})"
        return _sentence(words) if found["mark"] else words

    def tag(found: re.Match[str]) -> str:
        picture = found["name"] != "href"
        return f'{found["name"]}="{_absolute(found["address"], repository, picture=picture)}"'

    if repository:
        text = re.sub(TAG, tag, text)
    else:
        text = re.sub(PICTURE, lambda found: _shown(found[0]), text, flags=re.DOTALL)
        text = re.sub(rf'<a href="{RELATIVE}"[^>]*>(.*?)</a>', r"\1", text, flags=re.DOTALL)
    return re.sub(f"{CODE}|{LINK}", link, text, flags=re.DOTALL)


def _absolute(path: str, repository: str, *, picture: bool) -> str:
    if path.startswith("#"):
        return f"{repository}{path}"
    return f"{repository}/{'raw' if picture else 'blob'}/HEAD/{path}"


def _shown(element: str) -> str:
    alt = re.search(r'alt="([^"]*)"', element)
    absolute = re.search(r'src="https?:', element)
    return element if absolute else _sentence(alt[1] if alt else "")


def _sentence(alt: str) -> str:
    return f"*Picture in the repository: {alt.rstrip('.')}.*" if alt else ""
